"""Mode ReservationFirst through apply and decide: the pod leaves only after its next place is held."""



import pytest

from cotenant.events.reservations import ReservationOwner
from cotenant.explain.sentences import sentence
from tests.unit.descheduler_arbiter.migration.builders_reservation_first import (
    NAME,
    PHASES,
    asked,
    conditions,
    evicted,
    evictions,
    job_of,
    started,
)


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
