"""The size of a core (promise 13): all that it holds for entities, without caches that state a bound of their own."""

from __future__ import annotations

import gc

import pytest

from cotenant.engine.last_messages import LastMessages
from cotenant.events.placements import PlacementPhase
from cotenant_quota_tree.definition import DEFINITION as QUOTA_TREE
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.state import assigned_pods
from cotenant_verification.checks.core_size import BOUNDED, core_size
from tests.unit.scheduler.builders_scheduler import Story, node, pod

PODS = 30


def story_with_pods_of_different_shapes() -> Story:
    story = Story()
    story.node(node("n", cpu="64"))
    for number in range(PODS):
        story.pod(pod(f"p{number}", cpu=f"{100 + number}m", labels={"number": str(number)}))
    story.settle()
    assert len(story.placed()) == PODS
    return story


def a_fresh_core_of(story: Story) -> SchedulerCore:
    """One that loads the last message of each subject but of those that ended."""
    fresh = SchedulerCore()
    for event in sorted(story.last.values(), key=lambda event: event.sequence):
        if not event.tombstone:
            fresh.apply(event)
    fresh.decide(story.now)
    return fresh


def test_a_core_that_pods_of_other_shapes_have_left_is_as_large_as_a_fresh_one() -> None:
    story = story_with_pods_of_different_shapes()
    full = core_size(story.core)
    for number in range(PODS):
        story.pod_deleted(f"p{number}")
    story.settle()
    gone = [event for event in story.last.values() if getattr(event.data, "phase", None) is PlacementPhase.GONE]
    for event in gone:
        story.say(event.subject, event.data, tombstone=True)
    story.settle()
    assert not story.placed()
    assert full > core_size(story.core) + 5 * PODS
    assert core_size(story.core) <= core_size(a_fresh_core_of(story)) + PODS // 10


def test_what_a_core_keeps_of_pods_that_have_left_is_counted() -> None:
    core = a_fresh_core_of(Story())
    before = core_size(core)
    core.refused.update({f"p{number}": "left" for number in range(PODS)})
    assert core_size(core) == before + PODS


def test_containers_of_classes_that_services_share_are_counted() -> None:
    story = story_with_pods_of_different_shapes()
    memory = LastMessages()
    for event in story.last.values():
        memory.note(event)
    assert core_size(memory) == len(story.last)


def test_what_is_left_out_is_there() -> None:
    """An attribute that was renamed would be counted again, and its old name left out of another class."""
    kept = [Story().core, QUOTA_TREE.make_core(QUOTA_TREE.config_type())]
    there = {
        f"{kind.__name__}.{name}"
        for here in gc.get_objects()
        if str(type(here).__module__).startswith(("cotenant.", "cotenant_"))
        for kind in type(here).__mro__
        for name in getattr(here, "__dict__", ())
    }
    assert kept
    assert there >= BOUNDED


def test_a_pod_that_is_resized_again_and_again_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned_pods, "SHAPES_CACHED", 5)
    story = Story()
    story.node(node("a", cpu="64"))
    story.pod(pod("p", cpu="1"))
    story.settle()
    before = core_size(story.core)
    for milli in range(1001, 1101):
        story.pod(pod("p", cpu=f"{milli}m"))
        story.settle()
    assert core_size(story.core) <= before + 10
