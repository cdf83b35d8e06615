"""Pods whose end nobody reports: when they are inspected again, and that they are not inspected in between."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_scheduler.cycle.endings.unreported import LAST_WORD, UnreportedEnds
from cotenant_scheduler.state.pod_records import PodRecord
from tests.unit.scheduler.builders_scheduler import Story, node, pod

GRACE_SECONDS = 10


def unreported_story() -> Story:
    """A pod `web` that ends on node `a`, whose executor has never reported on it."""
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.executor("a")
    story.pods(pod("web", terminationGracePeriodSeconds=GRACE_SECONDS))
    story.settle()
    story.pod(pod("web", deleting=True, terminationGracePeriodSeconds=GRACE_SECONDS))
    story.settle()
    return story


def phase(story: Story) -> PlacementPhase:
    data = story.placement_event("a", "web").data
    assert isinstance(data, Placement)
    return data.phase


def inspected(story: Story) -> set[tuple[str, str]]:
    """The pods that the next decision inspects."""
    return set(story.core._endings.attention)


def test_a_terminating_pod_is_not_inspected_until_something_changes() -> None:
    story = unreported_story()
    assert inspected(story) == set()
    story.later(5)
    assert story.settle() == []
    story.run("a", "web", RunPhase.STOPPED)
    assert [event.tombstone for event in story.settle()] == [True]


def test_a_pod_that_nobody_reports_is_gone_after_its_grace_and_a_minute() -> None:
    story = unreported_story()
    story.later(GRACE_SECONDS + LAST_WORD.total_seconds() - 1)
    assert story.settle() == []
    story.later(1)
    assert [event.tombstone for event in story.settle()] == [True]


def test_a_pod_of_a_node_that_comes_back_is_inspected_again() -> None:
    story = unreported_story()
    story.node_deleted("a")
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.say("node.a.executor", story.last["node.a.executor"].data, tombstone=True)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.node(node("a", cpu="1"))
    story.settle()
    assert phase(story) is PlacementPhase.GONE, "no executor ever reported from that node"


@pytest.mark.parametrize("shorter", [True, False])
def test_a_changed_grace_period_changes_when_the_pod_is_gone(shorter: bool) -> None:
    story = unreported_story()
    grace = 1 if shorter else 100
    story.pod(pod("web", deleting=True, terminationGracePeriodSeconds=grace))
    story.settle()
    story.later(LAST_WORD.total_seconds() + grace - 1)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.later(1)
    story.settle()
    assert phase(story) is PlacementPhase.GONE


def test_who_is_due_is_given_once_and_the_others_stay() -> None:
    ends, now = UnreportedEnds(), Story().now
    first, second = PodRecord(("default", "first")), PodRecord(("default", "second"))
    ends.wait(second, now + timedelta(seconds=2))
    ends.wait(first, now + timedelta(seconds=1))
    ends.wait(first, now + timedelta(seconds=3))
    assert ends.due(now) == []
    assert ends.due(now + timedelta(seconds=1)) == [first]
    assert ends.due(now + timedelta(seconds=1)) == []
    assert ends.due(now + timedelta(seconds=2)) == [second]
    assert len(ends) == 0


def test_a_pod_that_is_forgotten_is_never_due() -> None:
    ends, now = UnreportedEnds(), Story().now
    record = PodRecord(("default", "web"))
    ends.wait(record, now)
    ends.forget(record)
    assert ends.due(now) == []
