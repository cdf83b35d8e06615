"""Pods of one shape that follow each other, some of which use reservations, are placed at once as one after the other."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationShare
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import GIB, node, pod

WORTHWHILE = "cotenant_scheduler.cycle.placing.WORTHWHILE"
NO_RUN = 1 << 30
APPS = [f"app{number}" for number in range(8)]


def cluster(random: Random) -> ReservedStory:
    """Nodes, some with reservations: for one pod or for many, of one app or of two, with and without an order."""
    config = SchedulerConfig(queue=QueueArgs(order=random.choice(list(QueueOrder))))
    story = ReservedStory(config)
    sizes = random.choice([("8", "20"), ("3", "6"), ("16",)])
    for number in range(6):
        own = {"own": str(number % 3)}
        story.node(node(f"n{number}", cpu=random.choice(sizes), pods=random.choice(["7", "110"]), labels=own))
    story.metric("n0", 3000, 3 * GIB, p003=(100, 1 << 20))
    if random.random() < 0.5:
        story.quota("team", max={"cpu": random.choice([4_000, 20_000])}, min={"cpu": 2_000})
    for number in range(random.randint(1, 7)):
        more: dict[str, Any] = {"allocatePolicy": random.choice(["Aligned", "Restricted"])}
        labels = {f"{GROUP}/reservation-order": str(random.randint(1, 3))} if random.random() < 0.2 else {}
        story.reservation(
            reservation(
                f"r{number}",
                app=random.choice(APPS),
                cpu=random.choice(["500m", "1", "2"]),
                memory="1Gi",
                labels=labels,
                allocateOnce=random.random() < 0.5,
                template={"nodeSelector": {"own": str(number % 3)}},
                **more,
            )
        )
    story.settle()
    return story


def more_pods(random: Random, story: ReservedStory, first: int, count: int) -> None:
    for number in range(first, first + count):
        labels = {"app": random.choice(APPS)} if random.random() < 0.4 else {}
        if random.random() < 0.2:
            labels[LABEL_QUOTA] = "team"
        annotations = wants() if random.random() < 0.05 else {}
        cpu = random.choice(["500m", "500m", "500m", "500m", "700m"])
        story.pod(pod(f"p{number:03}", cpu=cpu, memory="100Mi", labels=labels, annotations=annotations))


def told(seed: int) -> list[Event]:
    """Everything that is decided while pods come and end."""
    random = Random(seed)
    story = cluster(random)
    events: list[Event] = []
    for step in range(5):
        more_pods(random, story, step * 30, 30)
        for _ in range(3):
            events += story.decide()
        placed = sorted(story.placed().items())
        for name, where in random.sample(placed, min(8, len(placed))):
            story.run(where, name, RunPhase.SUCCEEDED)
        story.later(1)
    return events


@pytest.mark.parametrize("seed", range(40))
def test_runs_with_owners_are_decided_as_one_by_one(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WORTHWHILE, 2)
        at_once = told(seed)
        patch.setattr(WORTHWHILE, NO_RUN)
        one_by_one = told(seed)
    assert sum(isinstance(event.data, Placement) for event in at_once) > 15
    assert at_once == one_by_one


def test_owners_are_placed_in_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: Counter[int] = Counter()
    place = Binding.place_with_owners

    def counted(*arguments: Any) -> int:
        placed = place(*arguments)
        runs[placed] += 1
        return placed

    monkeypatch.setattr(Binding, "place_with_owners", counted)
    story = ReservedStory()
    story.nodes(*(node(f"n{number:03}", cpu="16") for number in range(40)))
    for number in range(20):
        once = number % 2 == 0
        story.reservation(reservation(f"r{number:02}", app=f"app{number}", cpu="12", memory="1Gi", allocateOnce=once))
    story.settle()
    shares = [event.data for event in story.last.values() if isinstance(event.data, ReservationShare)]
    assert len({share.node for share in shares}) == 20
    for number in range(120):
        labels = {"app": f"app{number // 6}"} if number % 6 == 0 else {}
        story.pod(pod(f"p{number:03}", cpu="1", memory="1Mi", labels=labels))
    story.settle()
    assert len(story.placed()) == 120
    assert all(story.used(f"p{number:03}") == f"r{number // 6:02}" for number in range(0, 120, 6))
    # The first of all is an owner, and is placed by itself.
    assert max(runs) > 60
