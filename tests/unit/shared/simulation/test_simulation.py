"""The simulator runs the toy service as its process does, and one seed gives one history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from cotenant.engine.replay import verify
from cotenant.events import Event, NodeResources, encode_event
from cotenant.events.commits import record_of
from cotenant.log.contract import Write
from cotenant.simulation import START, ServiceParticipant, World
from tests.contract.toy import TOY, ToyConfig, ToyCore, metric, toy_identity


class Load:
    """Writes a random metric every 100 ms."""

    name = "load"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        node = f"n{world.random.randrange(5)}"
        world.append([Write(event=metric(node, world.random.randrange(1000)))])
        return now + timedelta(milliseconds=100)


def run(seed: int) -> World:
    world = World(seed=seed, keep_history=True)
    world.add(Load())
    for replica in ("a", "b"):
        world.add(ServiceParticipant(TOY, ToyConfig(), toy_identity(replica)))
    world.run_until(START + timedelta(seconds=30))
    return world


def digest(world: World) -> list[bytes]:
    return [encode_event(event) for event in world.history or ()]


def test_one_seed_gives_one_history_and_another_seed_another() -> None:
    assert digest(run(1)) == digest(run(1))
    assert digest(run(1)) != digest(run(2))


def test_decisions_follow_and_can_be_recomputed() -> None:
    world = run(3)
    history = world.history or []
    report = verify(history, {"toy": TOY})
    assert report.ok, report
    records = [(record.count, event) for event in history if (record := record_of(event)) is not None]
    assert report.commits == sum(count > 0 or event.commit is not None for count, event in records)
    assert report.commits > 100
    last: dict[str, int] = {}
    for event in history:
        if isinstance(event.data, NodeResources):
            last[event.data.node] = event.data.batch_cpu_milli
    assert len(last) == 5


def test_a_late_service_loads_the_last_message_of_each_subject() -> None:
    world = run(4)
    late = ServiceParticipant(TOY, ToyConfig(), toy_identity("late"))
    world.add(late)
    world.run_until(world.now + timedelta(seconds=5))
    assert isinstance(late.cycle.core, ToyCore)
    fresh = {name: event.data for name, event in late.cycle.core.metrics.items()}
    assert len(fresh) == 5
    assert late.cycle.ready


def test_a_message_takes_time_to_be_delivered() -> None:
    with pytest.raises(ValueError, match="hop is 0:00:00"):
        World(hop=timedelta(0))
