"""The order of the queue and the room that its head is kept, through the scheduler's core."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Hold, Placement
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.cycle.test_gangs import member

FIFO, FAIR = QueueArgs(order=QueueOrder.FIFO), QueueArgs(order=QueueOrder.FAIR)
DEFAULT = QueueArgs()
NEW = "2026-01-01T11:59:59Z"
OLD = "2026-01-01T11:00:00Z"


def story_of(queue: QueueArgs, *nodes: dict[str, Any]) -> Story:
    story = Story(SchedulerConfig(queue=queue))
    story.nodes(*nodes)
    return story


def at(minute: int) -> str:
    return f"2026-01-01T11:{minute:02}:00Z"


def job(name: str, cpu: str = "1", created: str = OLD, **more: Any) -> dict[str, Any]:
    """A pod that ends by itself."""
    return pod(name, cpu=cpu, memory="1Mi", created=created, restartPolicy="Never", **more)


def order_of(story: Story) -> list[str]:
    """The pods that one decision places, in its order."""
    return [event.data.name for event in story.decide() if isinstance(event.data, Placement)]


def hold(story: Story, name: str) -> Hold | None:
    waiting = story.waiting(name)
    return waiting.hold if waiting is not None else None


# -- order -----------------------------------------------------------------------------------------------------------


def test_first_in_first_out_does_not_look_at_priorities() -> None:
    story = story_of(FIFO, node("a"))
    story.pods(job("low", created=at(1), priority=1), job("high", created=at(2), priority=9), job("first", created=at(0)))
    assert order_of(story) == ["first", "low", "high"]


def test_by_default_the_priority_comes_first() -> None:
    story = story_of(QueueArgs(), node("a"))
    story.pods(job("low", created=at(1), priority=1), job("high", created=at(2), priority=9), job("first", created=at(0)))
    assert order_of(story) == ["high", "low", "first"]


def test_tenants_take_turns_by_their_dominant_shares() -> None:
    # 24 CPUs between red (weight 2) and blue (weight 1): runtimes 16 and 8 when both ask for more than they get.
    story = story_of(FAIR, node("a", cpu="24", memory="240Gi"))
    story.quota("red", max={"cpu": 24_000}, weight={"cpu": 2})
    story.quota("blue", max={"cpu": 24_000}, weight={"cpu": 1})
    for index in range(20):
        for tenant, minute in (("red", 2), ("blue", 1)):
            labels = {"quota.scheduling.koordinator.sh/name": tenant}
            story.pod(job(f"{tenant}-{index:02}", cpu="2", created=at(minute), labels=labels))
    placed = order_of(story)
    # Shares after each: blue 2/8, red 2/16, 4/16 (equal: blue is older), blue 4/8, ...
    assert [name.partition("-")[0] for name in placed] == ["blue", "red", "red"] * 4


def test_a_tenant_that_uses_less_goes_first_whatever_came_before() -> None:
    story = story_of(FAIR, node("a", cpu="4"))
    for name in ("red", "blue"):
        story.quota(name, max={"cpu": 4000}, min={"cpu": 2000})
    of_red = {"quota.scheduling.koordinator.sh/name": "red"}
    of_blue = {"quota.scheduling.koordinator.sh/name": "blue"}
    story.pods(job("red-0", created=at(0), labels=of_red))
    story.settle()
    story.pods(job("red-1", created=at(1), labels=of_red, priority=9), job("blue-0", created=at(2), labels=of_blue))
    assert order_of(story) == ["blue-0", "red-1"]


@pytest.mark.parametrize("seed", range(25))
def test_the_fair_order_is_progressive_filling(seed: int) -> None:
    """Against a plain loop: whenever a job is placed, it is the first one of the tenant whose dominant share is smallest among
    those that still have jobs, ties by the jobs' order."""
    chance = random.Random(seed)
    story = story_of(FAIR, node("a", cpu="64", memory="64Gi", pods="1000"))
    tenants = ["red", "blue", "green"]
    for name in tenants:
        story.quota(name, max={"cpu": 64_000, "memory": 64 << 30}, weight={"cpu": chance.randrange(1, 5), "memory": 1})
    jobs: dict[str, list[tuple[Any, str, int, int]]] = {name: [] for name in tenants}
    for index in range(30):
        tenant, priority, minute = chance.choice(tenants), chance.choice((0, 5)), chance.randrange(3)
        cpu, gib = chance.choice(((1, 1), (2, 1), (1, 2)))
        name = f"p{index:02}"
        labels = {"quota.scheduling.koordinator.sh/name": tenant}
        story.pod(
            pod(name, cpu=str(cpu), memory=f"{gib}Gi", created=at(minute), priority=priority, labels=labels)
        )
        jobs[tenant].append(((-priority, at(minute), "default", name), name, cpu * 1000, gib << 30))
    story.core.settle()
    runtimes = {membership.quota: found for membership, found in story.core.runtimes(story.now).items()}
    used = {name: [0, 0] for name in tenants}
    expected = []
    left = {name: sorted(entries) for name, entries in jobs.items()}
    while any(left.values()):
        shares = {
            name: max(amount * 1_000_000 // runtimes[name][of] for of, amount in zip(("cpu", "memory"), amounts, strict=True))
            for name, amounts in used.items()
        }
        tenant = min((name for name in tenants if left[name]), key=lambda name: (shares[name], left[name][0][0]))
        _, name, cpu, memory = left[tenant].pop(0)
        used[tenant][0] += cpu
        used[tenant][1] += memory
        expected.append(name)
    assert order_of(story) == expected[: len(story.placed())]
    assert len(story.placed()) > 10


# -- the head --------------------------------------------------------------------------------------------------------


def crowded(queue: QueueArgs = DEFAULT, **more: Any) -> Story:
    """Two nodes of four CPUs with three used by jobs, and a job that wants all four of one."""
    story = story_of(queue, node("a", cpu="4"), node("b", cpu="4"))
    story.pods(job("a-2", "2", nodeName="a"), job("a-1", "1", nodeName="a"), job("b-3", "3", nodeName="b"))
    story.settle()
    story.pod(job("head", "4", **more))
    story.settle()
    return story


def test_small_jobs_do_not_take_the_room_that_the_head_is_kept() -> None:
    story = crowded()
    found = hold(story, "head")
    assert found is not None
    assert found.node == "a"
    story.pods(job("s1", created=NEW), job("s2", created=NEW))
    story.settle()
    assert story.placed()["s1"] == "b"  # one passes the head, where it takes nothing from it
    assert "s2" not in story.placed()
    story.run("a", "a-2", RunPhase.SUCCEEDED)
    story.settle()
    assert "s2" not in story.placed()  # two CPUs are free on a, and kept
    story.run("a", "a-1", RunPhase.SUCCEEDED)
    story.settle()
    assert story.placed()["head"] == "a"


def test_a_new_job_is_kept_nothing_yet() -> None:
    story = crowded(created=NEW)
    assert hold(story, "head") is None
    story.later(31)
    story.settle()
    assert hold(story, "head") is not None


def test_no_room_is_kept_where_that_is_switched_off() -> None:
    story = crowded(QueueArgs(hold_after_seconds=0))
    assert hold(story, "head") is None
    story.pods(job("s1", created=NEW), job("s2", created=NEW))
    story.settle()
    assert {"s1", "s2"} < story.placed().keys()


def test_nobody_waits_for_services_to_end() -> None:
    story = story_of(QueueArgs(), node("a", cpu="4"))
    story.pod(pod("service", cpu="3", memory="1Mi", nodeName="a"))
    story.settle()
    story.pod(job("head", "4"))
    story.settle()
    story.pod(job("small", created=NEW))
    story.settle()
    assert hold(story, "head") is None
    assert story.placed()["small"] == "a"


def test_who_stands_before_the_head_takes_its_room() -> None:
    story = crowded()
    story.pods(job("urgent-1", priority=5, created=NEW), job("urgent-2", priority=5, created=NEW))
    story.settle()
    assert {"urgent-1", "urgent-2"} < story.placed().keys()


def test_the_head_starts_elsewhere_if_it_fits_there_first() -> None:
    story = crowded()
    story.run("b", "b-3", RunPhase.SUCCEEDED)
    story.settle()
    assert story.placed()["head"] == "b"
    story.pod(job("small", created=NEW))
    story.settle()
    assert story.placed()["small"] == "a"


def test_a_gang_is_kept_room_for_all_that_it_needs_or_none() -> None:
    story = story_of(QueueArgs(), node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"))
    story.pods(*(job(f"runs-{name}", "2", nodeName=name) for name in "ab"), pod("service", cpu="2", nodeName="c"))
    story.settle()
    story.pods(*(member(f"m{index}", least=2, cpu="4") for index in range(2)))
    story.settle()
    held = [hold(story, f"m{index}") for index in range(2)]
    assert [found and found.node for found in held] == ["a", "b"]
    story.pods(*(member(f"n{index}", gang="h", least=3, cpu="4") for index in range(3)))
    story.later(1)
    story.settle()
    assert [hold(story, f"n{index}") for index in range(3)] == [None] * 3


@pytest.mark.parametrize("queue", [QueueArgs(), FIFO, FAIR], ids=lambda queue: queue.order.value)
@pytest.mark.parametrize("seed", range(12))
def test_a_head_is_not_starved_by_a_stream_of_small_jobs(queue: QueueArgs, seed: int) -> None:
    """Jobs of one CPU come forever and end after a while, at most 20 s each; a job of a whole node waits. From the moment that
    it is kept room, it starts as soon as those have ended who ran then."""
    chance = random.Random(seed)
    story = story_of(queue, node("a", cpu="4", pods="200"), node("b", cpu="4", pods="200"))
    ends: dict[str, int] = {}
    started = None
    kept = None
    for second in range(120):
        if second == 5:
            story.pod(job("head", "4", created=story.now.strftime("%Y-%m-%dT%H:%M:%SZ")))
        for index in range(chance.randrange(1, 4)):
            story.pod(job(f"s-{second}-{index}", created=story.now.strftime("%Y-%m-%dT%H:%M:%SZ")))
        for name, where in sorted(story.placed().items()):
            if ends.get(name) == second:
                story.run(where, name, RunPhase.SUCCEEDED)
        story.settle()
        for name in story.placed().keys() - ends.keys():
            ends[name] = second + chance.randrange(2, 21)
        if "head" in story.placed():
            started = second
            break
        if kept is None and hold(story, "head") is not None:
            kept = second
        story.later(1)
    assert started is not None
    assert kept is None or started <= kept + 21


def test_a_restarted_scheduler_keeps_the_same_room() -> None:
    story = crowded()
    first = hold(story, "head")
    story.later(10)
    story.pod(job("s1", created=NEW))
    assert story.reloaded().decide(story.now) == story.core.decide(story.now)
    story.settle()
    assert hold(story, "head") == first


def test_the_room_is_said_in_the_waiting_event_and_left_out_where_there_is_none() -> None:
    story = crowded()
    waiting = story.waiting("head")
    assert waiting is not None
    assert b'"hold"' in msgspec.json.encode(waiting)
    assert b'"hold"' not in msgspec.json.encode(msgspec.structs.replace(waiting, hold=None))


def test_a_gang_that_its_quota_refuses_is_kept_no_room() -> None:
    story = story_of(QueueArgs(), node("a", cpu="4"), node("b", cpu="4"))
    story.quota("q", max={"cpu": 3000})
    story.pods(*(job(f"runs-{name}", "2", nodeName=name) for name in "ab"))
    story.settle()
    members = [member(f"m{index}", least=2, cpu="4") for index in range(2)]
    for document in members:
        document["metadata"]["labels"] = {"quota.scheduling.koordinator.sh/name": "q"}
    story.pods(*members)
    story.settle()
    assert [hold(story, name) for name in ("m0", "m1")] == [None, None]
    story.quota("q", max={"cpu": 8000})
    story.settle()
    assert [found and found.node for found in (hold(story, "m0"), hold(story, "m1"))] == ["a", "b"]


@pytest.mark.parametrize(("queue", "kept"), [(DEFAULT, False), (FIFO, True)], ids=["priority", "fifo"])
def test_room_is_kept_for_a_nominated_job_where_its_priority_does_not_give_it_a_place_in_the_queue(
    queue: QueueArgs, kept: bool
) -> None:
    story = story_of(queue, node("a", cpu="4"))
    story.pod(job("low", "3", nodeName="a", priority=0))
    story.settle()
    story.pod(job("head", "4", priority=1000))
    story.settle()
    assert story.nominated()["head"].node == "a"
    story.later(1)
    story.settle()
    assert (hold(story, "head") is not None) is kept


@pytest.mark.parametrize("ahead", ["red", "blue", "green"])
def test_two_tenants_take_turns_until_they_have_what_a_third_has(ahead: str) -> None:
    tenants = ["red", "blue", "green"]
    story = story_of(FAIR, node("a", cpu="180", memory="240Gi", pods="1000"))
    labels = {name: {"quota.scheduling.koordinator.sh/name": name} for name in tenants}
    for name in tenants:
        story.quota(name, max={"cpu": 180_000}, min={"cpu": 60_000})
    story.pods(*(job(f"first-{index}", labels=labels[ahead]) for index in range(50)))
    story.settle()
    for minute, name in enumerate(tenants):
        story.pods(*(job(f"{name}-{index}", created=at(minute), labels=labels[name]) for index in range(60)))
    one, other = (name for name in tenants if name != ahead)
    placed = [name.partition("-")[0] for name in order_of(story)]
    assert placed[:100] == [one, other] * 50


@pytest.mark.parametrize("count", [31, 32, 33])
def test_room_is_kept_on_the_node_where_the_least_is_short(count: int) -> None:
    names = [f"n{index:02}" for index in range(count)]
    story = story_of(DEFAULT, *(node(name, cpu="4") for name in names))
    short = {name: "3500m" if name == "n07" else "4" for name in names}
    story.pods(*(job(f"runs-{name}", cpu, nodeName=name) for name, cpu in short.items()))
    story.settle()
    story.pod(job("head", "2"))
    story.settle()
    found = hold(story, "head")
    assert found is not None
    assert found.node == "n07"


def test_two_tenants_alone_take_turns_in_long_runs() -> None:
    story = story_of(FAIR, node("a", cpu="180", memory="240Gi", pods="1000"))
    for minute, name in enumerate(("red", "blue")):
        story.quota(name, max={"cpu": 180_000}, min={"cpu": 90_000})
        labels = {"quota.scheduling.koordinator.sh/name": name}
        story.pods(*(job(f"{name}-{index}", created=at(minute), labels=labels) for index in range(60)))
    placed = [name.partition("-")[0] for name in order_of(story)]
    assert placed == ["red", "blue"] * 60


@pytest.mark.parametrize("queue", [DEFAULT, FIFO, FAIR], ids=lambda queue: queue.order.value)
def test_who_waits_is_looked_at_again_behind_one_that_is_placed_and_in_the_same_decision(queue: QueueArgs) -> None:
    story = story_of(queue, node("a", cpu="4"))
    story.pod(pod("service", cpu="1", memory="1Mi", nodeName="a"))
    story.settle()
    story.pod(job("waits", "4", created=at(9)))
    story.settle()
    story.later(60)
    story.pod(job("placed", "2", created=at(1)))
    story.decide()
    assert story.placed()["placed"] == "a"
    waiting = story.waiting("waits")
    assert waiting is not None
    assert [reason.detail for reason in waiting.reasons] == ["short by 3"]
