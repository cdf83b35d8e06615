"""Promise 21: what a commit of the scheduler must place of a gang, as pods or PodGroups state it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cotenant.events.commits import Commit
from cotenant.events.envelope import Event, Payload
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement
from cotenant.model.subjects import object_subject, placement_subject
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.gangs import no_half_gang_is_placed
from tests.builders import encoded, pod_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GANG = "gang.scheduling.koordinator.sh"


class Log:
    """A log with PodGroups, on which the scheduler commits placements."""

    def __init__(self) -> None:
        self.view = LogView()
        self.commits = 0

    def see(self, source: str, subject: str, data: Payload, *, tombstone: bool = False) -> CommitSeen | None:
        sequence = self.view.seen + 1
        event = Event(subject=subject, data=data, sequence=sequence, time=NOW, source=source, id=str(sequence))
        return self.view.see(msgspec.structs.replace(event, tombstone=tombstone))

    def declare(self, name: str, least: int, *group: str, policy: str = "") -> None:
        annotations = {f"{GANG}/match-policy": policy} if policy else {}
        if group:
            annotations[f"{GANG}/groups"] = json.dumps(group)
        metadata = {"namespace": "default", "name": name, "annotations": annotations}
        document = {"metadata": metadata, "spec": {"minMember": least}}
        raw = msgspec.Raw(json.dumps(document).encode())
        self.see("/gateway", object_subject("scheduling.sigs.k8s.io", "podgroups", "default", name), ObjectStored(object=raw))

    def delete(self, name: str) -> None:
        subject = object_subject("scheduling.sigs.k8s.io", "podgroups", "default", name)
        self.see("/gateway", subject, ObjectDeleted(uid=name), tombstone=True)

    def place(self, *pods: str, folded: int | None = None, **metadata: Any) -> list[str]:
        """What the promise says of a commit that places these pods: `gang-1` has the PodGroup `gang`."""
        known = self.view.seen if folded is None else folded
        now = NOW.replace(second=self.commits)
        self.commits += 1
        record = Commit(prior=0, folded=known, now=now, count=len(pods))
        self.see("/cell/scheduler/0", "commits.scheduler.0", record)
        seen = None
        for name in pods:
            labels = {"pod-group.scheduling.sigs.k8s.io": name.partition("-")[0]}
            pod = encoded(pod_document(name, **{"labels": labels, **metadata}))
            data = Placement(node="n", namespace="default", name=name, uid=name, pod=pod, bound_at=now)
            seen = self.see("/cell/scheduler/0", placement_subject("n", "default", name), data)
        assert seen is not None
        return [text.partition(" ")[2] for _, text in no_half_gang_is_placed(self.view, seen)]


def test_a_gang_needs_the_minimum_of_its_pod_group() -> None:
    log = Log()
    log.declare("g", 2)
    assert log.place("g-1") == ["places a gang in part: default/g: 1 of 2"]
    log = Log()
    log.declare("g", 2)
    assert log.place("g-1", "g-2") == []


def test_a_gang_whose_pod_group_does_not_exist() -> None:
    log = Log()
    log.declare("g", 1)
    log.delete("g")
    assert log.place("g-1") == ["places a pod of gang default/g, whose PodGroup does not exist"]


def test_a_pod_group_counts_as_it_was_when_the_commit_was_decided() -> None:
    """It is raised to 3, then deleted, behind what the commit had folded."""
    log = Log()
    log.declare("g", 2)
    folded = log.view.seen
    log.declare("g", 3)
    assert log.place("g-1", "g-2", folded=folded) == []
    log = Log()
    log.declare("g", 2)
    folded = log.view.seen
    log.delete("g")
    assert log.place("g-1", "g-2", folded=folded) == []
    log = Log()
    log.declare("other", 2)
    assert log.place("g-1", folded=0) == ["places a pod of gang default/g, whose PodGroup does not exist"]


@pytest.mark.parametrize(
    ("policy", "alone"),
    [
        ("once-satisfied", []),
        ("waiting-and-running", []),
        ("only-waiting", ["places a gang in part: default/g: 1 of 2"]),
    ],
)
def test_a_pod_that_joins_a_gang_that_runs(policy: str, alone: list[str]) -> None:
    """The minimum is counted over those without a place, over all, or not any more."""
    log = Log()
    log.declare("g", 2, policy=policy)
    assert log.place("g-1", "g-2") == []
    assert log.place("g-3") == alone


@pytest.mark.parametrize(
    ("policy", "found"), [("once-satisfied", []), ("waiting-and-running", ["places a gang in part: default/g: 1 of 2"])]
)
def test_a_gang_whose_minimum_is_raised_while_it_runs(policy: str, found: list[str]) -> None:
    """By waiting-and-running 2 have a place and 4 are needed."""
    log = Log()
    log.declare("g", 2, policy=policy)
    assert log.place("g-1", "g-2") == []
    log.declare("g", 4, policy=policy)
    assert log.place("g-3") == found


def test_every_gang_of_a_group_needs_its_minimum() -> None:
    def grouped() -> Log:
        log = Log()
        for name in ("g", "h"):
            log.declare(name, 2, "default/g", "default/h")
        return log

    assert grouped().place("g-1", "g-2", "h-1") == ["places a gang in part: default/h: 1 of 2"]
    assert grouped().place("g-1", "g-2") == ["places a gang in part: default/h: 0 of more"]
    log = grouped()
    assert log.place("g-1", "g-2", "h-1", "h-2") == []
    assert log.place("h-3") == []


def test_pods_state_their_gang_by_annotations() -> None:
    stated: dict[str, Any] = {"labels": {}, "annotations": {f"{GANG}/name": "a", f"{GANG}/min-available": "2"}}
    assert Log().place("a-1", **stated) == ["places a gang in part: default/a: 1 of 2"]
    assert Log().place("a-1", "a-2", **stated) == []
    assert Log().place("alone", labels={}) == []
