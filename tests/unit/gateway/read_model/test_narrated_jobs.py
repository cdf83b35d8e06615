"""A PodMigrationJob and its pod have the Events that Koordinator's migration controller writes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION, JobCondition, Migration
from cotenant.events.reservations import ReservationOwner
from cotenant.kinds.events import EVENTS
from cotenant.model.subjects import migration_subject
from tests.unit.gateway.builders_gateway import NOW, World

JOB = Migration(
    job="move",
    object_uid="uid-move",
    namespace="default",
    pod="web",
    uid="uid-web",
    node="n1",
    mode="ReservationFirst",
    trigger="User",
    reservation="place",
)


def told(world: World) -> list[tuple[Any, ...]]:
    """Kind, name, type, reason, message, count of the Events, sorted."""
    found = [json.loads(snapshot.document) for snapshot in world.core.objects(EVENTS)]
    shown = [
        (one["involvedObject"]["kind"], one["involvedObject"]["name"], one["type"], one["reason"], one["message"], one["count"])
        for one in found
    ]
    return sorted(shown)


def follow(world: World, job: Migration, **changes: Any) -> Migration:
    """Store the job with changes, as the arbiter does."""
    job = msgspec.structs.replace(job, **changes)
    world.put(migration_subject(job.job), job)
    return job


def made(kind: str, status: str = "True", reason: str = "", message: str = "") -> JobCondition:
    return JobCondition(type=kind, status=status, reason=reason, message=message)


def test_each_step_of_a_job_is_told_once() -> None:
    world = World()
    job = follow(world, JOB)
    assert told(world) == []
    place = (made("ReservationCreated"), made("ReservationScheduled"))
    job = follow(world, job, phase="Running", conditions=place[:1])
    job = follow(world, job, conditions=place, reservation_node="n2")
    evicted = made("Eviction", reason="EvictComplete")
    waits = made("PodBoundReservation", "False", "WaitForPodBindReservation")
    job = follow(world, job, conditions=(*place, evicted, waits), evicted_at=NOW + timedelta(seconds=1))
    bound = (made("PodBoundReservation"), made("ReservationBound"), made("BoundPodReady"))
    owner = ReservationOwner(namespace="default", name="web-2", uid="u2")
    done = {"phase": "Succeeded", "message": 'Pod "default/web-2" has taken the place on node "n2"'}
    follow(world, job, conditions=(*place, evicted, *bound), bound=owner, **done)
    assert told(world) == [
        ("Pod", "web", "Normal", "Descheduled", 'Pod evicted from node "n1" by the reason "User"', 1),
        *(
            ("PodMigrationJob", "move", "Normal", reason, message, 1)
            for reason, message in (
                ("BoundPodReady", 'Bind pod "default/web-2" is ready'),
                ("Complete", 'Pod "default/web-2" has taken the place on node "n2"'),
                ("EvictComplete", 'Pod "default/web" has been evicted'),
                ("PodBoundReservation", 'Reservation bound by pod "default/web-2"'),
                ("ReservationCreated", 'Successfully create Reservation "place"'),
                ("ReservationScheduled", 'Assigned Reservation "place" to node "n2"'),
                ("WaitForPodBindReservation", "Waiting for Pod bind Reservation"),
            )
        ),
    ]
    involved = [json.loads(snapshot.document)["involvedObject"] for snapshot in world.core.objects(EVENTS)]
    assert {one["uid"] for one in involved} == {"uid-web", "uid-move"}, "kubectl describe looks for them by uid"


def test_refusals_and_the_end_of_a_failed_job_are_warnings() -> None:
    world = World()
    refused = made("ReservationScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")
    job = follow(world, JOB, conditions=(made("ReservationCreated"), refused))
    follow(world, job, phase="Failed", reason="Timeout", message="Abort job caused by timeout")
    assert [line[2:5] for line in told(world)] == [
        ("Normal", "ReservationCreated", 'Successfully create Reservation "place"'),
        ("Warning", "Timeout", "Abort job caused by timeout"),
        ("Warning", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu."),
    ]


@pytest.mark.parametrize("trigger", [PREEMPTION, TAINT_EVICTION])
def test_jobs_that_kubernetes_does_without_say_nothing(trigger: str) -> None:
    world = World()
    evicted = made("Eviction", reason="EvictComplete")
    follow(world, JOB, trigger=trigger, phase="Succeeded", conditions=(evicted,), evicted_at=NOW)
    assert told(world) == []


def test_a_job_of_the_descheduler_has_events_under_the_uid_that_it_is_shown_with() -> None:
    world = World()
    follow(world, JOB, object_uid="", trigger="LowNodeLoad", mode="EvictDirectly", phase="Failed", reason="MissingPod")
    (event,) = [json.loads(snapshot.document)["involvedObject"] for snapshot in world.core.objects(EVENTS)]
    assert event["uid"] == world.show("podmigrationjobs", "move")["metadata"]["uid"]
