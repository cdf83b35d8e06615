"""Mode ReservationFirst where something goes wrong: timeouts, deletions, lost and refused places, in every phase."""


from datetime import timedelta

import pytest

from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration
from tests.unit.descheduler_arbiter.migration.builders_reservation_first import (
    NAME,
    PHASES,
    asked,
    conditions,
    evictions,
    held,
    job_of,
    refuse,
    reserved,
    started,
)


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
