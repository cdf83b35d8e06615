"""What a simulated reader sees after its deliveries were lost: what the stream still holds and the last state always."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from cotenant.events import Event
from cotenant.log.contract import KEEP_PER_SUBJECT, USAGE, Write
from cotenant.simulation import START, SimulationError, World
from tests.contract.toy import metric

SECOND = timedelta(seconds=1)


class Listener:
    """Keeps what it is given."""

    name = "listener"
    filters: tuple[str, ...] = ("metrics.*",)
    usage_filters: tuple[str, ...] = ("metrics.*",)

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        self.heard.extend(inbox)
        return None

    @property
    def sequences(self) -> list[int]:
        return [event.sequence for event in self.heard]


def world_with(listener: Listener) -> World:
    world = World()
    world.add(listener)
    world.run_until(START)
    return world


def store(world: World, node: str, count: int) -> None:
    for value in range(count):
        world.append([Write(event=metric(node, value))])


def test_after_a_gap_a_reader_goes_on_behind_the_last_message_that_it_was_given() -> None:
    listener = Listener()
    world = world_with(listener)
    store(world, "n0", 2)
    world.run_until(START + SECOND)
    assert world.interrupt("listener", START + 5 * SECOND)
    store(world, "n1", 3)
    world.run_until(START + 4 * SECOND)
    assert listener.sequences == [1, 2]
    world.run_until(START + 5 * SECOND)
    store(world, "n0", 1)
    world.run_until(START + 6 * SECOND)
    assert listener.sequences == [1, 2, 3, 4, 5, 6]


def test_what_was_under_way_when_the_gap_began_comes_after_it_in_order() -> None:
    listener = Listener()
    world = world_with(listener)
    store(world, "n0", 3)
    assert world.interrupt("listener", START + SECOND)
    world.run_until(START + 2 * SECOND)
    assert listener.sequences == [1, 2, 3]


def test_a_gap_can_cost_history_and_never_the_last_state() -> None:
    listener = Listener()
    world = world_with(listener)
    world.interrupt("listener", START + SECOND)
    store(world, "n0", KEEP_PER_SUBJECT + 10)
    world.run_until(START + 2 * SECOND)
    assert listener.sequences == list(range(11, KEEP_PER_SUBJECT + 11))


def test_a_tombstone_runs_out_with_the_longest_time_to_live() -> None:
    listener = Listener()
    world = world_with(listener)
    world.streams.log.longest_ttl = 10 * SECOND
    end = metric("n0", 0)
    world.append([Write(event=Event(subject=end.subject, data=end.data, tombstone=True, ttl_seconds=86_400))])
    world.run_until(START + 9 * SECOND)
    assert world.streams.log.snapshot(("metrics.*",)) == [1]
    world.run_until(START + 10 * SECOND)
    assert world.streams.log.snapshot(("metrics.*",)) == []
    store(world, "n0", 1)
    assert world.streams.log.last_of("metrics.n0") == 2


class Sampler:
    """Publishes one sample a second on USAGE."""

    name = "sampler"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        sample = metric("n0", 1)
        world.publish(Event(subject=sample.subject, data=sample.data, stream=USAGE, id=f"sample/{now.timestamp():.0f}"))
        return now + SECOND


@pytest.mark.parametrize(("after", "stored"), [(0, 1), (119, 1), (120, 2)])
def test_samples_that_are_sent_again_are_stored_again_once_the_log_has_forgotten_their_ids(after: int, stored: int) -> None:
    listener = Listener()
    world = world_with(listener)
    world.add(Sampler())
    link = world.trouble("sampler")
    assert link is not None
    link.repeats, link.repeated_after = 2, after * SECOND
    world.run_until(START + (after + 2.5) * SECOND)
    ids = [event.id for event in listener.heard if event.stream == USAGE]
    assert len(dict.fromkeys(ids)) == after + 3
    assert [ids.count(name) for name in dict.fromkeys(ids)][:3] == [stored, stored, 1]


def test_two_facts_with_one_id_are_an_error() -> None:
    class Forgetful(Sampler):
        """Gives all its samples one id."""

        def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
            sample = metric("n0", now.second)
            world.publish(Event(subject=sample.subject, data=sample.data, stream=USAGE, id="sample"))
            return now + SECOND

    world = World()
    world.add(Forgetful())
    with pytest.raises(SimulationError, match="has the id sample too"):
        world.run_until(START + SECOND)
