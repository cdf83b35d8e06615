"""How many events a decision takes, and that what cannot be placed does not end it."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.events.placements import Placement
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.load.load_estimate import ANNOTATION_SECONDS_AFTER_SCHEDULED, microseconds
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod

PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"


def of_red(name: str, cpu: str, priority: int, **more: Any) -> dict[str, Any]:
    labels = {LABEL_QUOTA: "red", **more.pop("labels", {})}
    return pod(name, cpu=cpu, priority=priority, labels=labels, **more)


def red(**placed: tuple[str, str, int]) -> Story:
    """Nodes with room, a quota of 4 CPUs, and pods of it: their node, CPUs, and priority."""
    story = Story()
    story.nodes(*(node(name, cpu="16") for name in "ab"))
    story.quota("red", max={"cpu": 4000}, min={"cpu": 1000})
    for name, (where, cpu, priority) in placed.items():
        story.pod(of_red(name, cpu, priority, nodeName=where))
        story.settle()
        story.later(1)
    return story


def victims(story: Story, name: str) -> list[str]:
    waiting = story.waiting(name)
    return [victim.name for victim in waiting.nomination.victims] if waiting and waiting.nomination else []


@pytest.mark.parametrize("limit", [100, 101, 150])
def test_pods_that_wait_take_two_events_each(limit: int) -> None:
    """A placement, and the end of the waiting event: pods of two quotas in turn, many of them at once."""
    story = Story()
    for quota in ("red", "blue"):
        story.quota(quota, max={"cpu": 100_000})
    documents = [
        pod(f"p{index:03}", cpu="100m", memory="1Mi", labels={LABEL_QUOTA: ("red", "blue")[index % 2]}) for index in range(120)
    ]
    story.pods(*documents)
    story.settle()
    assert story.waiting("p000") is not None
    story.node(node("a", cpu="64", pods="200"))
    story.core.settle()
    bound, waiting = story.core.placing.decide(story.now, limit)
    assert len(bound) == limit - limit % 2
    assert waiting == []


def test_a_reservation_whose_time_is_over_holds_nobody_up() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="4"))
    story.reservation(reservation("r", cpu="99", ttl="60s", created="2026-01-01T12:00:00Z"))
    story.settle()
    story.later(61)
    story.pod(pod("p", created="2026-01-01T12:01:00Z"))
    story.decide()
    assert (story.phase("r"), story.node_of("p")) == ("Failed", "a")


def test_equal_reservations_are_placed_one_by_one() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="64"))
    names = [f"r{index:02}" for index in range(60)]
    for name in names:
        story.reservation(reservation(name, cpu="1", memory="1Mi"))
    story.settle()
    assert {story.phase(name) for name in names} == {"Available"}
    assert story.placed() == {}
    for name in names:
        story.reservation_deleted(name)
    story.settle()
    assert story.requested("a") == 0
    assert not story.core.reservations.by_owners, "nothing is kept of lists that nobody has"


def test_pods_that_may_not_be_preempted_are_spared_within_a_quota() -> None:
    story = red(low=("a", "1", 3), mid=("a", "2", 20))
    story.pod(of_red("fixed", "1", 0, nodeName="a", labels={PREEMPTIBLE: "false"}))
    story.settle()
    story.pod(of_red("high", "1", 10))
    story.settle()
    assert victims(story, "high") == ["low"]


@pytest.mark.parametrize(("rows", "victim"), [(500, ["least"]), (1, ["middle"])])
def test_nodes_are_looked_at_whose_most_important_candidate_matters_least(
    rows: int, victim: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.quota_preemption.ROWS", rows)
    story = red(least=("a", "1", 1), most=("a", "1", 8), middle=("b", "1", 5), other=("b", "1", 99))
    story.pod(of_red("high", "1", 10))
    story.settle()
    # The least important victim is on a; but a has a candidate of priority 8, b one of 5 only.
    assert victims(story, "high") == victim


def test_pods_that_count_by_their_estimate_for_different_times_are_not_counted_alike() -> None:
    """Equal pods are placed at once; where pods may state for how long their estimate counts, each counts for its own."""
    story = Story(SchedulerConfig(load_aware=LoadAwareArgs(allow_customize_estimation=True)))
    story.node(node("a", cpu="64"))
    seconds = {f"p{index:02}": 600 if index in (7, 59) else 30 for index in range(60)}
    story.pods(
        *(
            pod(name, cpu="100m", memory="1Mi", annotations={ANNOTATION_SECONDS_AFTER_SCHEDULED: str(each)})
            for name, each in seconds.items()
        )
    )
    story.settle()
    counted = story.core.nodes.pods[story.core.nodes.rows["a"]]
    now_us = microseconds(story.now)
    found = {name: each.assigned.deadline_us for (_, name), each in counted.items()}
    assert found == {name: now_us + each * 1_000_000 for name, each in seconds.items()}


def test_pods_that_are_placed_at_once_are_charged_until_the_decision_is_taken_back() -> None:
    story = Story()
    story.node(node("a", cpu="64"))
    for quota in ("red", "blue"):
        story.quota(quota, max={"cpu": 100_000})
    names = [f"p{index:02}" for index in range(60)]
    for name in names:
        story.pod(pod(name, cpu="100m", memory="1Mi", labels={LABEL_QUOTA: "red" if name < "p40" else "blue"}))

    def used() -> list[int]:
        return [story.core.ledger.chain(Membership(quota, ""))[0].used.get("cpu", 0) for quota in ("red", "blue")]

    assert len(story.core.decide(story.now)) == 60
    assert used() == [4_000, 2_000]
    story.core.take_back()
    assert used() == [0, 0]


def test_equal_pods_that_a_reservation_takes_are_placed_one_by_one() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="64"))
    story.reservation(reservation("r", cpu="2", memory="1Gi", allocateOnce=False, allocatePolicy="Restricted"))
    story.settle()
    names = [f"p{index:02}" for index in range(60)]
    story.pods(*(pod(name, cpu="100m", memory="1Mi", labels={"app": "web"}) for name in names))
    story.settle()
    # 20 of 100 milli-cores each fill its 2 CPUs; the others use the node alone.
    assert [story.used(name) for name in names] == ["r"] * 20 + [""] * 40


def test_a_decision_beside_a_pod_that_the_report_still_has_is_undone_exactly() -> None:
    story = Story()
    story.node(node("a", cpu="8"))
    story.metric("a", 2000, GIB, again=(1000, 0))
    story.pod(pod("again", cpu="1"))  # The report has the one of this name before it.
    story.pod(pod("other", cpu="2"))
    story.core.settle()
    before = story.core.nodes.load.figures(0)
    first = story.core.decide(story.now)
    assert len([event for event in first if isinstance(event.data, Placement)]) == 2
    assert story.core.decide(story.now) == first
    story.core.take_back()
    assert story.core.nodes.load.figures(0) == before
