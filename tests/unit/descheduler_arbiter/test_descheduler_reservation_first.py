"""Mode ReservationFirst through apply and decide: the pod leaves only after its next place is held."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cotenant.events.migrations import EvictionOutcome, EvictionRequest, Migration, ReservationRequest
from cotenant.events.reservations import ReservationOwner
from cotenant.explain.sentences import sentence
from cotenant.model.subjects import eviction_subject
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration

NAME = "uid-job-move"
"""Of the reservation: the uid of the job's object."""


def started(**spec: Any) -> Cluster:
    """Four replicas on node a, and a user's job in mode ReservationFirst that has passed arbitration."""
    cluster = Cluster(configuration(balance=False))
    for node in ("a", "b", "c"):
        cluster.node(node)
    for index in range(4):
        cluster.pod(f"web-{index}", "a")
    cluster.job("move", "web-0", mode="ReservationFirst", **spec)
    cluster.decide()
    return cluster


def reserved() -> Cluster:
    cluster = started()
    cluster.reservation(NAME, job="move")
    cluster.decide()
    return cluster


def held() -> Cluster:
    cluster = reserved()
    cluster.hold_place(NAME, "b")
    cluster.decide()
    return cluster


def granted() -> Cluster:
    cluster = held()
    cluster.answer("move")
    cluster.decide()
    return cluster


def evicted() -> Cluster:
    cluster = granted()
    cluster.end_pod("web-0")
    cluster.decide()
    return cluster


PHASES = {"started": started, "reserved": reserved, "held": held, "granted": granted, "evicted": evicted}


def job_of(cluster: Cluster) -> Migration:
    return cluster.migration("move")


def conditions(cluster: Cluster) -> dict[str, str]:
    return {each.type: each.status for each in job_of(cluster).conditions}


def asked(cluster: Cluster) -> list[ReservationRequest]:
    return [
        msgspec.json.decode(request.body, type=ReservationRequest)
        for request in cluster.requests()
        if request.subject == "cotenant.gateway.reserve.descheduler-arbiter"
    ]


def evictions(cluster: Cluster) -> list[EvictionRequest]:
    return [
        msgspec.json.decode(request.body, type=EvictionRequest)
        for request in cluster.requests()
        if request.subject == "cotenant.gateway.evict.descheduler-arbiter"
    ]


def refuse(cluster: Cluster, message: str) -> None:
    outcome = EvictionOutcome(
        namespace="default", name="web-0", uid="uid-web-0", allowed=False, job="move", message=message
    )
    cluster.publish(eviction_subject("default", "web-0"), outcome)
    cluster.decide()


def test_the_whole_way_from_the_job_to_the_pod_that_takes_the_place() -> None:
    cluster = started()
    (request,) = asked(cluster)
    assert (request.name, request.pod, request.uid, request.job) == (NAME, "web-0", "uid-web-0", "move")
    assert (request.ttl_seconds, request.release, request.order_ms) == (300, False, 1767225600000)
    assert evictions(cluster) == []
    cluster.reservation(NAME, job="move")
    cluster.decide()
    assert conditions(cluster) == {"ReservationCreated": "True"}
    assert cluster.requests() == []
    cluster.hold_place(NAME, "b")
    cluster.decide()
    assert conditions(cluster) == {"ReservationCreated": "True", "ReservationScheduled": "True"}
    assert job_of(cluster).reservation_node == "b"
    assert sentence(cluster.last["migrations.move"]) == (
        f"migration move of pod default/web-0: running; Reservation {NAME} holds its next place on node b"
    )
    (eviction,) = evictions(cluster)
    assert (eviction.name, eviction.reservation) == ("web-0", NAME)
    cluster.answer("move")
    cluster.decide()
    assert conditions(cluster)["Eviction"] == "False"
    cluster.end_pod("web-0")
    cluster.decide()
    assert conditions(cluster)["Eviction"] == "True"
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Running", "WaitForPodBindReservation")
    assert "running (WaitForPodBindReservation); Reservation" in sentence(cluster.last["migrations.move"])
    cluster.pod("web-9", "b", ready=False)
    cluster.hold_place(NAME, "b", "web-9")
    cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Running", "WaitForBoundPodReady")
    assert job_of(cluster).bound is not None
    assert job_of(cluster).bound.name == "web-9"  # type: ignore[union-attr]
    cluster.pod("web-9", "b")
    cluster.decide()
    job = job_of(cluster)
    assert (job.phase, job.status, job.reason) == ("Succeeded", "Complete", "")
    assert set(conditions(cluster).values()) == {"True"}
    assert asked(cluster) == []
    assert sentence(cluster.last["migrations.move"]) == (
        'migration move of pod default/web-0: succeeded: Pod "default/web-9" has taken the place on node "b"'
    )


def test_a_place_that_is_taken_and_ended_in_one_batch_ends_the_job_too() -> None:
    cluster = evicted()
    cluster.pod("web-9", "b")
    cluster.lose_place(NAME, "b")
    owner = {"namespace": "default", "name": "web-9", "uid": "uid-web-9"}
    cluster.say_of_reservation(NAME, "Succeeded", node="b", owners=(ReservationOwner(**owner),), reason="Succeeded")
    cluster.decide()
    assert job_of(cluster).phase == "Succeeded"


@pytest.mark.parametrize("phase", PHASES)
def test_a_restart_in_any_phase_goes_on_as_if_nothing_had_happened(phase: str) -> None:
    cluster, same = PHASES[phase](), PHASES[phase]()
    cluster.restart()
    assert cluster.decide() == []
    assert [request.key for request in cluster.requests()] == [request.key for request in same.requests()]
    cluster.restart(sorted(cluster.last, reverse=True))
    assert cluster.decide() == []
    assert [request.body for request in cluster.requests()] == [request.body for request in same.requests()]


@pytest.mark.parametrize("phase", PHASES)
def test_a_timeout_in_any_phase_fails_the_job_and_gives_the_place_back(phase: str) -> None:
    cluster = PHASES[phase]()
    cluster.advance(timedelta(minutes=5))
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "Timeout")
    assert evictions(cluster) == []
    assert [request.release for request in asked(cluster)] == ([] if phase == "started" else [True])
    cluster.delete_reservation(NAME)
    cluster.decide()
    assert cluster.requests() == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_deleted_job_in_any_phase_is_removed_once_its_place_is_given_back(phase: str) -> None:
    cluster = PHASES[phase]()
    cluster.delete_job("move")
    cluster.decide()
    assert evictions(cluster) == []
    if phase == "started":
        assert cluster.last["migrations.move"].tombstone
        assert asked(cluster) == []
        return
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Aborted", "JobDeleted")
    assert [request.release for request in asked(cluster)] == [True]
    assert cluster.advance(timedelta(hours=1)) == []
    cluster.restart()
    assert [request.release for request in asked(cluster)] == [True]
    cluster.delete_reservation(NAME)
    cluster.advance(timedelta(minutes=10))
    assert cluster.last["migrations.move"].tombstone
    assert cluster.requests() == []


@pytest.mark.parametrize("phase", ["reserved", "held", "granted", "evicted"])
def test_a_reservation_that_is_deleted_fails_the_job(phase: str) -> None:
    cluster = PHASES[phase]()
    cluster.lose_place(NAME, "b")
    cluster.delete_reservation(NAME)
    cluster.decide()
    if phase == "granted":
        assert job_of(cluster).phase == "Running"
        cluster.end_pod("web-0")
        cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "MissingReservation")
    assert cluster.requests() == []


@pytest.mark.parametrize("phase", ["reserved", "held", "evicted"])
def test_a_reservation_that_expires_fails_the_job(phase: str) -> None:
    cluster = PHASES[phase]()
    cluster.lose_place(NAME, "b")
    cluster.say_of_reservation(NAME, "Failed", node="b", reason="Expired")
    cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "ReservationExpired")
    assert evictions(cluster) == []
    assert [request.release for request in asked(cluster)] == [True]


def test_a_reservation_that_is_pre_empted_before_the_eviction_is_granted_keeps_the_pod() -> None:
    cluster = held()
    assert evictions(cluster) != []
    cluster.lose_place(NAME, "b")
    cluster.say_of_reservation(NAME, "Failed", node="b", reason="Preempted", message="a pod of priority 9000 needs the room")
    cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "ReservationLost")
    assert job_of(cluster).message == "a pod of priority 9000 needs the room"
    assert evictions(cluster) == []


def test_a_place_that_another_pod_has_taken_fails_the_job() -> None:
    cluster = held()
    cluster.lose_place(NAME, "b")
    cluster.say_of_reservation(NAME, "Succeeded", node="b", reason="Succeeded")
    cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "ForbiddenMigratePod")
    assert job_of(cluster).message == "Reservation is already bound by another Pod"
    assert cluster.requests() == []


def test_the_pod_stays_while_somebody_else_uses_its_place() -> None:
    cluster = reserved()
    cluster.hold_place(NAME, "b", "web-3")
    cluster.decide()
    assert evictions(cluster) == []


def test_no_node_for_the_place_is_said_and_the_job_waits() -> None:
    cluster = reserved()
    cluster.say_of_reservation(NAME, "Pending", reason="Unschedulable", message="0/2 nodes have the CPU")
    cluster.decide()
    job = job_of(cluster)
    assert (job.phase, job.reason, job.message) == ("Running", "Unschedulable", "0/2 nodes have the CPU")
    assert conditions(cluster)["ReservationScheduled"] == "False"
    cluster.hold_place(NAME, "c")
    cluster.decide()
    assert conditions(cluster)["ReservationScheduled"] == "True"
    assert len(evictions(cluster)) == 1


def test_a_place_on_the_pods_own_node_fails_the_job_and_is_given_back() -> None:
    cluster = reserved()
    cluster.hold_place(NAME, "a")
    cluster.decide()
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "ForbiddenMigratePod")
    assert [request.release for request in asked(cluster)] == [True]


def test_a_refused_reservation_is_said_and_asked_for_again_after_a_pause() -> None:
    cluster = started()
    first = cluster.requests()[0].key
    refuse(cluster, 'reservations "x" is invalid')
    job = job_of(cluster)
    assert (job.phase, job.reason) == ("Running", "FailedCreateReservation")
    assert job.message == 'Failed to create Reservation caused by reservations "x" is invalid'
    assert conditions(cluster) == {"ReservationCreated": "False"}
    assert cluster.requests() == []
    cluster.advance(timedelta(seconds=3))
    assert cluster.requests()[0].key != first
    cluster.reservation(NAME, job="move")
    cluster.hold_place(NAME, "b")
    cluster.decide()
    assert len(evictions(cluster)) == 1


def test_a_refused_eviction_is_asked_again_while_the_place_is_held() -> None:
    cluster = held()
    refuse(cluster, "budget web allows 0 disruptions")
    assert (job_of(cluster).reason, evictions(cluster)) == ("EvictionRefused", [])
    cluster.advance(timedelta(seconds=3))
    assert len(evictions(cluster)) == 1


def test_a_pod_that_ends_by_itself_before_its_eviction_fails_the_job_and_gives_the_place_back() -> None:
    for phase in ("started", "reserved", "held"):
        cluster = PHASES[phase]()
        cluster.end_pod("web-0")
        cluster.decide()
        assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "MissingPod")
        assert [request.release for request in asked(cluster)] == ([] if phase == "started" else [True])


def test_a_reservation_that_comes_after_its_job_has_failed_is_given_back() -> None:
    cluster = started()
    cluster.end_pod("web-0")
    cluster.decide()
    cluster.reservation(NAME, job="move")
    cluster.hold_place(NAME, "b")
    cluster.decide()
    assert [request.release for request in asked(cluster)] == [True]


def test_somebody_elses_reservation_of_the_same_name_is_neither_used_nor_deleted() -> None:
    cluster = started()
    cluster.reservation(NAME, job="another")
    cluster.hold_place(NAME, "b")
    cluster.decide()
    assert evictions(cluster) == []
    cluster.advance(timedelta(minutes=5))
    assert job_of(cluster).reason == "Timeout"
    assert asked(cluster) == []


def test_a_reservation_that_the_job_names_is_used_and_never_deleted() -> None:
    cluster = Cluster(configuration(balance=False))
    for node in ("a", "b"):
        cluster.node(node)
    for index in range(4):
        cluster.pod(f"web-{index}", "a")
    cluster.reservation("mine")
    cluster.hold_place("mine", "b")
    cluster.job("move", "web-0", mode="ReservationFirst", reservationOptions={"reservationRef": {"name": "mine"}})
    cluster.decide()
    assert evictions(cluster)[0].reservation == "mine"
    cluster.advance(timedelta(minutes=5))
    assert job_of(cluster).reason == "Timeout"
    assert cluster.requests() == []


def test_a_reservation_that_the_job_names_and_that_is_not_there_fails_the_job() -> None:
    cluster = started(reservationOptions={"reservationRef": {"name": "none"}})
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Failed", "MissingReservation")


def test_a_place_for_a_pod_without_a_node_evicts_nobody_and_is_done_when_the_pod_has_one() -> None:
    cluster = reserved()
    cluster.reservation(NAME, job="move", for_pod="uid-web-0")
    cluster.hold_place(NAME, "b")
    cluster.decide()
    assert evictions(cluster) == []
    assert job_of(cluster).phase == "Succeeded"


def test_a_taint_that_evicts_the_pod_ends_the_job_and_its_place() -> None:
    cluster = held()
    cluster.node("a", taints=[{"key": "broken", "effect": "NoExecute"}])
    cluster.metric("a")
    cluster.decide()
    cluster.advance(timedelta(seconds=1))
    assert (job_of(cluster).phase, job_of(cluster).reason) == ("Aborted", "TaintEviction")
    assert [request.release for request in asked(cluster)] == [True]


def test_a_paused_job_asks_for_nothing() -> None:
    cluster = started(paused=True)
    assert (job_of(cluster).phase, cluster.requests()) == ("Pending", [])


def test_plugins_make_jobs_of_the_configured_mode_and_their_reservation_has_the_jobs_name() -> None:
    at_once = {"anomalyCondition": {"consecutiveAbnormalities": 1}}
    cluster = Cluster(configuration(jobs={"defaultJobMode": "ReservationFirst"}, load=at_once))
    cluster.node("hot")
    cluster.node("cold")
    for index in range(8):
        cluster.pod(f"web-{index}", "hot")
    cluster.pod("idle-0", "cold", used=100, owner="idle")
    cluster.cycle()
    jobs = cluster.migrations()
    assert jobs
    assert {job.mode for job in jobs} == {"ReservationFirst"}
    assert [request.name for request in asked(cluster)] == [job.job for job in jobs if job.phase == "Running"]


def test_pods_of_a_scheduler_that_knows_no_reservations_are_not_moved_by_plugins() -> None:
    jobs = {"defaultJobMode": "ReservationFirst", "schedulerNames": ["koord-scheduler"]}
    cluster = Cluster(configuration(jobs=jobs, load={"anomalyCondition": {"consecutiveAbnormalities": 1}}))
    cluster.node("hot")
    cluster.node("cold")
    for index in range(8):
        cluster.pod(f"web-{index}", "hot")
    cluster.pod("idle-0", "cold", used=100, owner="idle")
    cluster.cycle()
    assert cluster.migrations() == []
    assert "its scheduler default-scheduler is none of koord-scheduler" in cluster.judged("hot").kept[0].reason
