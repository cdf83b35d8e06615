"""Equal gangs that follow each other are placed at once, exactly as one after the other, and whole or not at all."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cotenant.domain.gangs import (
    ANNOTATION_GANG_GROUPS,
    ANNOTATION_GANG_MATCH_POLICY,
    ANNOTATION_GANG_MIN,
    ANNOTATION_GANG_MODE,
    ANNOTATION_GANG_NAME,
)
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement
from cotenant_scheduler.cycle.groups.equal_groups import EqualGroups
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod

PLACES = ("groups.equal_groups", "placing", "groups.trials")
NEVER = 1 << 30
QUOTAS = ("a", "b", "")


def patched(patch: pytest.MonkeyPatch, worthwhile: int) -> None:
    for place in PLACES:
        patch.setattr(f"cotenant_scheduler.cycle.{place}.WORTHWHILE", worthwhile)


def gang(random: Random, name: str) -> list[dict[str, Any]]:
    """A gang of at most eight, mostly alike: now and then one pod is larger, or the gang demands more pods than it has."""
    size = random.randint(1, 8)
    least = random.choice([size, size, size, max(1, size - 2), size + 1])
    annotations = {ANNOTATION_GANG_NAME: name, ANNOTATION_GANG_MIN: str(least)}
    if random.random() < 0.2:
        annotations[ANNOTATION_GANG_MODE] = "NonStrict"
    if random.random() < 0.2:
        annotations[ANNOTATION_GANG_MATCH_POLICY] = random.choice(["only-waiting", "waiting-and-running"])
    if random.random() < 0.1:
        annotations[ANNOTATION_GANG_GROUPS] = f'["default/{name}", "default/{name[:-1]}0"]'
    quota = random.choice(QUOTAS)
    policy = random.choice(["Never", "Never", "Always"])
    priority = random.choice([None] * 5 + [9000])
    return [
        pod(
            f"{name}-{number}",
            cpu="1500m" if random.random() < 0.03 else "500m",
            memory="100Mi",
            annotations=annotations,
            labels={LABEL_QUOTA: quota} if quota else {},
            priority=priority,
            restartPolicy=policy,
        )
        for number in range(size)
    ]


def decided(seed: int, order: QueueOrder = QueueOrder.PRIORITY) -> list[Event]:
    """Everything that is decided while gangs and single pods come and end."""
    random = Random(seed)
    story = Story(SchedulerConfig(queue=QueueArgs(order=order, hold_after_seconds=1)))
    size = random.choice(["8", "20", "5"])
    story.nodes(*(node(f"n{i}", cpu=size, pods=random.choice(["9", "110"])) for i in range(6)))
    for name in QUOTAS[:2]:
        story.quota(name, max={"cpu": random.choice([5_000, 40_000]), "memory": 400 * GIB})
    events: list[Event] = []
    for step in range(5):
        for number in range(10):
            story.pods(*gang(random, f"g{random.randrange(10, 99)}{step}{number}"))  # before and behind those that wait
        story.pods(*(pod(f"s{step}{number}", cpu="500m", memory="100Mi") for number in range(random.choice([0, 5]))))
        now = story.decide()
        events += now
        if random.random() < 0.5:
            events += story.decide()  # in the state that the gangs behind will find
        placed = [event.data for event in now if isinstance(event.data, Placement)] if random.random() < 0.5 else []
        for placement in random.sample(placed, min(9, len(placed))):
            story.run(placement.node, placement.name, RunPhase.SUCCEEDED)
        for _, nomination in sorted(story.nominated().items())[: random.choice([0, 5])]:
            for victim in nomination.victims:
                story.run(nomination.node, victim.name, RunPhase.STOPPED)
        story.later(1)
    return events


@pytest.mark.parametrize("order", [QueueOrder.PRIORITY, QueueOrder.FAIR])
@pytest.mark.parametrize("seed", range(24))
def test_equal_gangs_are_decided_as_one_by_one(seed: int, order: QueueOrder) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, 2)
        at_once = decided(seed, order)
        patched(patch, NEVER)
        one_by_one = decided(seed, order)
    assert sum(isinstance(event.data, Placement) for event in at_once) > 20
    assert at_once == one_by_one


def equal_gangs(count: int, size: int) -> list[dict[str, Any]]:
    return [
        pod(
            f"p{gang:02}-{number}",
            cpu="1",
            memory="1Mi",
            annotations={ANNOTATION_GANG_NAME: f"g{gang:02}", ANNOTATION_GANG_MIN: str(size)},
        )
        for gang in range(count)
        for number in range(size)
    ]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many groups each call placed at once."""
    counts: list[int] = []
    place = EqualGroups._place

    def counted(self: EqualGroups, *arguments: Any) -> int:
        counts.append(place(self, *arguments))
        return counts[-1]

    monkeypatch.setattr(EqualGroups, "_place", counted)
    return counts


def test_ten_gangs_of_eight_are_placed_by_one_look_at_the_nodes(at_once: list[int]) -> None:
    story = Story()
    story.nodes(*(node(f"n{i}", cpu="40") for i in range(3)))
    story.pods(*equal_gangs(10, 8))
    placed = [event.data for event in story.decide() if isinstance(event.data, Placement)]
    assert at_once == [10]
    gangs = Counter(placement.allocation.gang for placement in placed if placement.allocation is not None)
    assert gangs == {f"default/g{number:02}": 8 for number in range(10)}


def test_a_gang_that_fits_only_in_part_is_left_out_whole(at_once: list[int]) -> None:
    story = Story()
    story.nodes(*(node(f"n{i}", cpu="20") for i in range(3)))  # 60 pods: seven gangs of eight, and four pods of the next
    story.pods(*equal_gangs(10, 8))
    placed = [event.data for event in story.decide() if isinstance(event.data, Placement)]
    assert at_once[0] == 7
    assert {placement.name[:3] for placement in placed} == {f"p{number:02}" for number in range(7)}
    assert len(placed) == 56


def test_a_quota_that_ends_within_a_gang_leaves_it_out_whole(at_once: list[int]) -> None:
    story = Story()
    story.nodes(*(node(f"n{i}", cpu="40") for i in range(3)))
    story.quota("team", max={"cpu": 60_000})
    pods = equal_gangs(10, 8)
    for each in pods:
        each["metadata"]["labels"] = {LABEL_QUOTA: "team"}
    story.pods(*pods)
    placed = [event.data for event in story.decide() if isinstance(event.data, Placement)]
    assert at_once[0] == 7
    assert len(placed) == 56


def around_one_that_waits() -> list[Event]:
    """Gangs arrive before and behind one that no node takes, in the state in which it was refused."""
    story = Story(SchedulerConfig(queue=QueueArgs(hold_after_seconds=0)))
    story.nodes(node("n", cpu="10"))
    own = {ANNOTATION_GANG_NAME: "m", ANNOTATION_GANG_MIN: "1"}
    story.pods(pod("m", cpu="11", memory="1Mi", annotations=own))
    events = story.decide() + story.decide()
    for name in ("a", "z", "b", "y"):
        own = {ANNOTATION_GANG_NAME: name, ANNOTATION_GANG_MIN: "2"}
        story.pods(*(pod(f"{name}{number}", cpu="1", memory="1Mi", annotations=own) for number in range(2)))
    events += story.decide()
    story.run("n", "a0", RunPhase.SUCCEEDED)
    return events + story.decide() + story.decide()


def test_a_gang_that_waits_between_them_is_tried_again_as_one_by_one() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patched(patch, 2)
        at_once = around_one_that_waits()
        patched(patch, NEVER)
        one_by_one = around_one_that_waits()
    assert sum(isinstance(event.data, Placement) for event in at_once) == 8
    assert at_once == one_by_one
