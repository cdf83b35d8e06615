"""Promise 12 for gangs: which gangs the check holds to be placed once they fit, and which wait for something else."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, Waiting
from cotenant.model.subjects import (
    executor_subject,
    node_subject,
    object_subject,
    placement_subject,
    pod_subject,
    run_subject,
    waiting_subject,
)
from cotenant_verification.checks.invariants import Moment
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.promises.waiting_gangs import no_waiting_gang_fits
from tests.builders import encoded, node_document, pod_document, stored

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
GANG = "gang.scheduling.koordinator.sh"


class Log:
    """A node of four CPUs, PodGroups, and pods of one CPU: `a-1` is in PodGroup `a`."""

    def __init__(self) -> None:
        self.view = LogView()
        offered = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        self.see(node_subject("n"), stored(node_document("n", capacity=offered, allocatable=offered)))
        amounts = {"cpu": 4000, "memory": 8 << 30, "pods": 10}
        self.see(executor_subject("n"), ExecutorStatus(node="n", capacity=amounts, allocatable=amounts))

    def see(self, subject: str, data: Payload, *, tombstone: bool = False) -> None:
        self.view.see(Event(subject=subject, data=data, sequence=self.view.seen + 1, time=BEGAN, tombstone=tombstone))

    def group(self, name: str, least: int, *together: str, policy: str = "waiting-and-running") -> None:
        groups = json.dumps([f"default/{one}" for one in together or (name,)])
        annotations = {f"{GANG}/match-policy": policy, f"{GANG}/groups": groups}
        metadata = {"namespace": "default", "name": name, "annotations": annotations}
        document = {"metadata": metadata, "spec": {"minMember": least}}
        self.see(object_subject("scheduling.sigs.k8s.io", "podgroups", "default", name), stored(document))

    def group_is_deleted(self, name: str) -> None:
        subject = object_subject("scheduling.sigs.k8s.io", "podgroups", "default", name)
        self.see(subject, ObjectDeleted(uid=name), tombstone=True)

    def pod(self, name: str) -> Any:
        labels = {"pod-group.scheduling.sigs.k8s.io": name.partition("-")[0]}
        document = pod_document(name, uid=f"uid-{name}", requests={"cpu": "1"}, labels=labels)
        self.see(pod_subject("default", name), stored(document))
        return document

    def waits(self, *names: str) -> None:
        for name in names:
            self.pod(name)
            data = Waiting(namespace="default", name=name, uid=f"uid-{name}", message="why")
            self.see(waiting_subject("default", name), data)

    def ran(self, name: str) -> None:
        """A pod had a place and has run to its end: the object is still there."""
        document = self.pod(name)
        subject = placement_subject("n", "default", name)
        placed = Placement(node="n", namespace="default", name=name, uid=f"uid-{name}", pod=encoded(document), bound_at=BEGAN)
        self.see(subject, placed)
        ended = RunStatus(node="n", namespace="default", name=name, uid=f"uid-{name}", phase=RunPhase.SUCCEEDED)
        self.see(run_subject("n", "default", name), ended)
        self.see(subject, placed, tombstone=True)

    def runs(self, name: str) -> None:
        data = Placement(
            node="n",
            namespace="default",
            name=name,
            uid=f"uid-{name}",
            pod=encoded(self.pod(name)),
            requests={"cpu": 1000},
            bound_at=BEGAN,
        )
        self.see(placement_subject("n", "default", name), data)

    def broken(self) -> tuple[list[str], Counter[str]]:
        """What the check finds a minute later, and what it has counted."""
        no_harness: Any = None  # the check reads the view and the time alone
        moment = Moment(
            harness=no_harness,
            view=self.view,
            now=BEGAN + timedelta(minutes=1),
            chance=Random(1),
            counts=Counter(),
            suppressions=no_harness,
            oom_kills=no_harness,
            verifier=no_harness,
        )
        return [text for _, text in no_waiting_gang_fits(moment)], moment.counts


def test_a_gang_that_waits_although_it_fits_is_found() -> None:
    log = Log()
    log.group("a", 2)
    log.waits("a-1", "a-2")
    assert log.broken()[0] == ["gang default/a waits (why) although 2 of its pods fit together"]
    log = Log()
    log.group("a", 5)
    log.waits(*(f"a-{i}" for i in range(5)))
    found, counts = log.broken()
    assert (found, counts["gangs refused by nodes"]) == ([], 1)


@pytest.mark.parametrize("policy", ["waiting-and-running", "only-waiting"])
def test_a_group_waits_for_the_pod_group_of_a_gang_of_which_no_pod_waits(policy: str) -> None:
    """All pods of gang `a` have run; then its PodGroup was deleted: none of its group is tried before it is declared again."""
    log = Log()
    for name in "ab":
        log.group(name, 1, "a", "b", policy=policy)
    log.ran("a-1")
    log.group_is_deleted("a")
    log.waits("b-1")
    found, counts = log.broken()
    assert (found, counts["gangs waiting for their PodGroup"]) == ([], 1)


def test_once_satisfied_a_pod_waits_for_its_own_pod_group_only() -> None:
    log = Log()
    for name in "ab":
        log.group(name, 1, "a", "b", policy="once-satisfied")
    log.ran("a-1")
    log.runs("b-1")
    log.group_is_deleted("a")
    log.waits("b-2")
    assert log.broken()[0] == ["gang default/a, default/b waits (why) although 1 of its pods fit together"]
    log.group_is_deleted("b")
    assert log.broken()[0] == []
