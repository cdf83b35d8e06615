"""The status of PodGroups: what it says of the object and of the pods, and how many are stored at a time."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.gangs import PodGroupStatus
from cotenant.events.node.runs import RunPhase
from cotenant.events.objects import ObjectDeleted
from cotenant.model.subjects import object_subject, pod_group_subject
from cotenant_scheduler.cycle.pod_groups import STATUSES_SHARE
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, node
from tests.unit.scheduler.cycle.test_gangs import POD_GROUPS, in_pod_group, run, status


def story_of(cpu: str = "9") -> Story:
    story = Story()
    story.node(node("a", cpu=cpu))
    return story


def pod_group(story: Story, name: str = "g", least: int = 2, uid: str = "") -> None:
    metadata = {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"}
    story.say(object_subject(*POD_GROUPS, "default", name), stored({"metadata": metadata, "spec": {"minMember": least}}))


def later(story: Story) -> PodGroupStatus:
    """The status once its pause is over."""
    for _ in range(3):
        story.later(1)
        story.settle()
    return status(story)


def owned(name: str, created: str, *owners: str) -> dict[str, Any]:
    document = in_pod_group(name)
    references = [{"apiVersion": "v1", "kind": "Job", "name": owner, "uid": owner} for owner in owners]
    document["metadata"] |= {"creationTimestamp": created, "ownerReferences": references}
    return document


@pytest.mark.parametrize(("least", "shown"), [(3, 3), (1, 1), (0, 0), (-2, 0)])
def test_it_says_how_many_pods_are_needed(least: int, shown: int) -> None:
    story = story_of()
    pod_group(story, least=least)
    assert later(story).min_member == shown


def test_it_counts_runs_that_failed_and_that_were_evicted() -> None:
    story = story_of()
    pod_group(story, least=4)
    story.pods(*(in_pod_group(f"p{number}") for number in range(4)))
    assert (later(story).scheduled, status(story).uid) == (4, "uid-g")
    for name, phase in (("p0", RunPhase.FAILED), ("p1", RunPhase.EVICTED), ("p2", RunPhase.RUNNING)):
        run(story, name, phase)
    found = later(story)
    assert (found.pods, found.running, found.succeeded, found.failed) == (4, 1, 0, 2)


def test_it_names_the_owners_of_the_oldest_pod_once_there_are_enough() -> None:
    story = story_of()
    pod_group(story, least=2)
    story.pod(owned("p0", "2026-01-01T10:00:05Z", "young"))
    assert later(story).occupied_by == ""
    story.pod(owned("p1", "2026-01-01T10:00:00Z", "old", "and-other"))
    assert later(story).occupied_by == "default/and-other,default/old"
    story.pod_deleted("p1")
    story.pod(owned("p2", "2026-01-01T10:00:09Z", "late"))
    assert later(story).occupied_by == "default/and-other,default/old", "it stays"


def test_another_pod_group_of_its_name_begins_anew() -> None:
    story = story_of()
    pod_group(story, least=1)
    story.pod(owned("p0", "2026-01-01T10:00:00Z", "first"))
    run(story, "p0", RunPhase.SUCCEEDED)
    assert (later(story).phase, status(story).occupied_by) == ("Finished", "default/first")
    story.pod_deleted("p0")
    pod_group(story, least=1, uid="second")
    found = later(story)
    assert (found.uid, found.phase, found.occupied_by, found.succeeded) == ("second", "Pending", "", 0)


def test_one_that_goes_before_it_had_a_status_gets_none() -> None:
    story = story_of()
    pod_group(story)
    story.say(object_subject(*POD_GROUPS, "default", "g"), ObjectDeleted(), tombstone=True)
    assert story.settle() == []
    assert not story.core.gangs.unreported


def test_a_decision_stores_so_many_and_the_next_one_the_rest() -> None:
    assert STATUSES_SHARE == 100
    story = story_of()
    names = [f"g{number:03}" for number in range(STATUSES_SHARE + 1)]
    for name in names:
        pod_group(story, name)
    subjects = [pod_group_subject("default", name) for name in names]
    assert [event.subject for event in story.decide()] == subjects[:100]
    assert [event.subject for event in story.decide()] == subjects[100:]
    assert story.settle() == []
