"""Reservations for pods that migrate: made once for a job, refused with words, given back; evictions that need one."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cotenant.events.migrations import EvictionOutcome, EvictionRequest, JobCondition, Migration, ReservationRequest
from cotenant.events.reservations import ReservationOwner, ReservationShare
from cotenant.kinds.koordinator.pod_migration_jobs import DEFINITION, MIGRATION_JOBS
from cotenant.log.plans import Written
from cotenant.model.subjects import migration_subject, reservation_subject
from cotenant_gateway.http.tables import TableFormat, table
from cotenant_gateway.loop.requests import WriteRequests
from cotenant_gateway.loop.steps import Store
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.statuses import ApiError
from tests.builders import owner_reference
from tests.unit.gateway.builders_gateway import NOW, World, manifest


def world_with_pod(*, owner: bool = True, placed: bool = True) -> World:
    world = World()
    document = manifest("web")
    metadata: dict[str, object] = {"name": "web", "labels": {"app": "web"}}
    if owner:
        metadata["ownerReferences"] = [owner_reference("set")]
    document["metadata"] = metadata
    world.create("pods", document)
    if placed:
        world.place("web", "n1")
        world.run("web")
    return world


def reserve(world: World, **fields: Any) -> EvictionOutcome | None:
    """Carry out a ReservationRequest as the gateway's driver does."""
    wanted = ReservationRequest(
        **{
            "job": "move",
            "name": "place",
            "namespace": "default",
            "pod": "web",
            "uid": world.uid_of("web"),
            "ttl_seconds": 300,
            "order_ms": 1_767_225_600_000,
            **fields,
        }
    )
    requests = WriteRequests(lambda: world.core, lambda: world.now, lambda: f"uid-{world.sequence}", lambda: "abcde", 3)
    request = requests.reserve(wanted)
    reply = None
    try:
        while True:
            step = request.send(reply)
            assert isinstance(step, Store)
            world.store(step.plan)
            reply = Written(tuple(range(world.sequence - len(step.plan.writes) + 1, world.sequence + 1)))
    except StopIteration as ended:
        answer: EvictionOutcome | None = ended.value
        return answer


def test_the_reservation_is_the_pod_on_any_other_node_for_its_controller() -> None:
    world = world_with_pod()
    assert reserve(world) is None
    made = world.show("reservations", "place")
    assert made["metadata"]["labels"] == {
        "app.kubernetes.io/created-by": "koord-descheduler",
        "scheduling.koordinator.sh/reservation-order": "1767225600000",
    }
    assert made["metadata"]["annotations"] == {"descheduler.cotenant.io/job": "move"}
    spec = made["spec"]
    assert (spec["allocateOnce"], spec["ttl"]) == (True, "5m0s")
    assert spec["owners"] == [{"controller": {**owner_reference("set"), "namespace": "default"}}]
    template = spec["template"]
    assert template["metadata"]["labels"] == {"app": "web"}
    assert "uid" not in template["metadata"]
    terms = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms == {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]}]}
    assert made["status"]["phase"] == "Pending"


def test_a_pod_without_a_controller_is_waited_for_by_name_and_one_without_a_node_by_uid() -> None:
    world = world_with_pod(owner=False)
    reserve(world)
    named = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "web"}
    assert world.show("reservations", "place")["spec"]["owners"] == [{"object": named}]
    world = world_with_pod(placed=False)
    reserve(world)
    spec = world.show("reservations", "place")["spec"]
    assert spec["owners"] == [{"object": {**named, "uid": world.uid_of("web")}}]
    assert "affinity" not in spec["template"]["spec"]


def test_it_is_made_once_for_a_job_however_often_it_is_asked_for() -> None:
    world = world_with_pod()
    reserve(world)
    before = world.sequence
    assert reserve(world) is None
    assert world.sequence == before


def test_another_reservation_of_that_name_is_a_refusal_that_the_pod_gets() -> None:
    world = world_with_pod()
    reserve(world, job="another")
    refused = reserve(world)
    assert refused is not None
    assert (refused.allowed, refused.reason, refused.job) == (False, "ReservationRefused", "move")
    assert "was not made for this job" in refused.message
    assert world.events[-1].subject == "evictions.default.web"


def test_a_pod_that_is_gone_is_a_refusal() -> None:
    refused = reserve(world_with_pod(), uid="another")
    assert refused is not None
    assert 'pods "web" of uid another not found' in refused.message


def test_a_template_that_admission_refuses_is_a_refusal_with_the_fields() -> None:
    world = world_with_pod()
    options = {"template": {"metadata": {"name": "place"}, "spec": {"allocatePolicy": "Sometimes"}}}
    spec = {"podRef": {"namespace": "default", "name": "web"}, "reservationOptions": options}
    job = {"apiVersion": MIGRATION_JOBS.api_version, "kind": "PodMigrationJob", "metadata": {"name": "move"}, "spec": spec}
    world.create("podmigrationjobs", job)
    refused = reserve(world)
    assert refused is not None
    assert "spec.allocatePolicy" in refused.message


def test_claims_are_left_out_where_that_is_asked_for() -> None:
    for without, left in ((False, ["claim", "own", "scratch"]), (True, ["scratch"])):
        world = World()
        volumes = [
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
            {"name": "own", "ephemeral": {}},
            {"name": "scratch", "emptyDir": {}},
        ]
        world.create("pods", manifest("web", volumes=volumes))
        reserve(world, without_claims=without)
        template = world.show("reservations", "place")["spec"]["template"]
        assert [volume["name"] for volume in template["spec"]["volumes"]] == left


def test_a_place_is_given_back_by_its_own_job_only() -> None:
    world = world_with_pod()
    reserve(world)
    with pytest.raises(ApiError, match="was not made for this job"):
        reserve(world, job="another", release=True)
    assert world.show("reservations", "place")
    reserve(world, release=True)
    assert world.events[-1].tombstone
    assert reserve(world, release=True) is None


def evict(world: World, reservation: str) -> EvictionOutcome:
    wanted = EvictionRequest(namespace="default", name="web", uid=world.uid_of("web"), job="move", reservation=reservation)
    planned = plan_eviction(world.core, wanted, world.now)
    world.store(planned.plan)
    return planned.outcome


def share(world: World, node: str, *, tombstone: bool = False) -> int:
    data = ReservationShare(node=node, name="place", uid=str(world.show("reservations", "place")["metadata"]["uid"]))
    return world.put(reservation_subject(node, "place"), data, tombstone=tombstone).sequence


def test_an_eviction_that_needs_a_place_is_refused_until_another_node_holds_it() -> None:
    world = world_with_pod()
    assert evict(world, "place").reason == "ReservationMissing"
    reserve(world)
    assert evict(world, "place").reason == "ReservationMissing"
    share(world, "n1")
    assert evict(world, "place").reason == "ReservationMissing", "its own node"
    share(world, "n1", tombstone=True)
    held = share(world, "n2")
    share_ref = f"LOG:{held}"
    wanted = EvictionRequest(namespace="default", name="web", uid=world.uid_of("web"), job="move", reservation="place")
    planned = plan_eviction(world.core, wanted, world.now)
    assert planned.outcome.allowed
    assert planned.plan is not None
    assert all(share_ref in write.causes for write in planned.plan.writes)
    share(world, "n2", tombstone=True)
    assert evict(world, "place").reason == "ReservationMissing"


def test_the_table_of_jobs_has_the_columns_of_koordinator() -> None:
    world = world_with_pod()
    job = Migration(
        job="move",
        namespace="default",
        pod="web",
        uid=world.uid_of("web"),
        phase="Running",
        status="PodBoundReservation",
        mode="ReservationFirst",
        ttl_seconds=300,
        trigger="PodLifeTime",
        evict_reason="it is old",
        reservation="place",
        reservation_uid="uid-place",
        reservation_node="n2",
        bound=ReservationOwner(namespace="default", name="web-2", uid="uid-web-2"),
        conditions=(JobCondition(type="ReservationCreated", status="True"),),
        created_at=NOW,
    )
    world.put(migration_subject("move"), job)
    shown = json.loads(table(DEFINITION.layout, world.core.objects(MIGRATION_JOBS), {}, NOW, TableFormat()))
    columns = [column["name"] for column in shown["columnDefinitions"] if column["priority"] == 0]
    assert columns == ["Name", "Phase", "Status", "Age", "Node", "Reservation", "PodNamespace", "Pod", "NewPod", "TTL"]
    assert shown["rows"][0]["cells"][1:10] == [
        "Running", "PodBoundReservation", "0s", "n2", "place", "default", "web", "web-2", "5m0s"
    ]  # fmt: skip
    document = world.show("podmigrationjobs", "move")
    assert document["status"]["podRef"]["name"] == "web-2"
    assert document["spec"]["reservationOptions"]["reservationRef"]["uid"] == "uid-place"
    assert document["metadata"]["annotations"]["koordinator.sh/evict-reason"] == "it is old"


def test_the_options_of_a_users_job_keep_their_template_beside_the_reservation_that_was_made() -> None:
    world = world_with_pod()
    options = {"template": {"metadata": {"name": "place"}}}
    spec = {"podRef": {"namespace": "default", "name": "web"}, "reservationOptions": options}
    job = {"apiVersion": MIGRATION_JOBS.api_version, "kind": "PodMigrationJob", "metadata": {"name": "move"}, "spec": spec}
    world.create("podmigrationjobs", job)
    moved = Migration(job="move", namespace="default", pod="web", uid="u", reservation="place", reservation_uid="uid-place")
    world.put(migration_subject("move"), moved)
    shown = world.show("podmigrationjobs", "move")["spec"]["reservationOptions"]
    assert shown["template"] == options["template"]
    assert shown["reservationRef"]["name"] == "place"


def test_a_users_job_is_gone_with_its_document_whatever_the_arbiter_keeps_of_it() -> None:
    world = world_with_pod()
    spec = {"podRef": {"namespace": "default", "name": "web"}}
    job = {"apiVersion": MIGRATION_JOBS.api_version, "kind": "PodMigrationJob", "metadata": {"name": "move"}, "spec": spec}
    world.create("podmigrationjobs", job, uid="first")
    kept = Migration(job="move", namespace="default", pod="web", uid="u", object_uid="first", phase="Running")
    world.put(migration_subject("move"), kept)
    assert world.show("podmigrationjobs", "move")["status"]["phase"] == "Running"
    world.delete("podmigrationjobs", "move")
    world.put(migration_subject("move"), msgspec.structs.replace(kept, phase="Aborted", reason="JobDeleted"))
    assert list(world.core.objects(MIGRATION_JOBS)) == []
    later = World()
    for event in world.standing():
        later.core.apply(event)
    assert list(later.core.objects(MIGRATION_JOBS)) == []
    world.create("podmigrationjobs", job, uid="second")
    assert "phase" not in world.show("podmigrationjobs", "move").get("status", {})


@pytest.mark.parametrize("ttl", ["soon", "-5m"])
def test_a_jobs_ttl_that_cannot_be_meant_is_refused(ttl: str) -> None:
    spec = {"podRef": {"namespace": "default", "name": "web"}, "ttl": ttl}
    job = {"apiVersion": MIGRATION_JOBS.api_version, "kind": "PodMigrationJob", "metadata": {"name": "move"}, "spec": spec}
    with pytest.raises(ApiError, match=r"spec\.ttl"):
        World().create("podmigrationjobs", job)
