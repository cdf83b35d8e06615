"""Promise 24: when idle the queue's head is placed once it fits beside what others hold on the node with its room; a commit
places pods behind it only beside that, too."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from cotenant.domain.reservations.names import ANNOTATION_AFFINITY
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.commits import Commit
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.placements import Hold, Nomination, Placement, Waiting
from cotenant.events.reservations import ReservationShare
from cotenant.model.subjects import (
    executor_subject,
    node_subject,
    placement_subject,
    pod_subject,
    reservation_subject,
    waiting_subject,
)
from cotenant_verification.checks.invariants import Moment
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.promises.queue import no_room_of_the_head_is_taken, the_head_starts_once_it_fits
from tests.builders import encoded, node_document, pod_document, stored

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = BEGAN + timedelta(seconds=30)
PRIORITY = 9000
USED = Allocation(reservation=ReservationUsed(name="room", uid="uid-room"))


class Log:
    """Node `a` of four CPUs on which a pod runs with two, and a head that requests two and has its room there."""

    def __init__(self, allocation: Allocation | None = None) -> None:
        self.view = LogView()
        offered = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        self.see(0, node_subject("a"), stored(node_document("a", capacity=offered, allocatable=offered)))
        runs = self.pod("runs", "2")
        placed = Placement(
            node="a",
            namespace="default",
            name="runs",
            uid="uid-runs",
            pod=encoded(runs),
            requests={"cpu": 2000},
            bound_at=BEGAN,
            object_sequence=2,
            allocation=allocation,
        )
        self.see(1, placement_subject("a", "default", "runs"), placed)
        self.pod("head", "2")
        self.waits("head", hold=Hold(node="a", at=BEGAN))

    def see(self, second: float, subject: str, data: Payload, tombstone: bool = False) -> None:
        time = BEGAN + timedelta(seconds=second)
        self.view.see(Event(subject=subject, data=data, sequence=self.view.seen + 1, time=time, tombstone=tombstone))

    def pod(self, name: str, cpu: str, **more: Any) -> Any:
        document = pod_document(name, uid=f"uid-{name}", requests={"cpu": cpu}, priority=PRIORITY, **more)
        self.see(1, pod_subject("default", name), stored(document))
        return document

    def waits(self, name: str, priority: int = PRIORITY, **room: Any) -> None:
        waiting = Waiting(namespace="default", name=name, uid=f"uid-{name}", priority=priority, **room)
        self.see(2, waiting_subject("default", name), waiting)

    def reserve(self, second: float, cpu: int, tombstone: bool = False) -> None:
        share = ReservationShare(
            node="a",
            name="room",
            uid="uid-room",
            allocatable={"cpu": cpu},
            bound_at=BEGAN,
            pod=encoded(pod_document("uid-room", uid="uid-room", requests={"cpu": f"{cpu}m"})),
        )
        self.see(second, reservation_subject("a", "room"), share, tombstone)

    def broken(self, second: float = 60) -> list[str]:
        """What the check finds."""
        no_harness: Any = None  # the check reads the view and the time alone
        moment = Moment(
            harness=no_harness,
            view=self.view,
            now=BEGAN + timedelta(seconds=second),
            chance=Random(1),
            counts=Counter(),
            suppressions=no_harness,
            oom_kills=no_harness,
            verifier=no_harness,
        )
        return [text for _, text in the_head_starts_once_it_fits(moment)]

    def taken(self, cpu: int = 1000, allocation: Allocation | None = None) -> list[str]:
        """What the check finds in a commit that places a pod behind the head on the node."""
        document = self.pod("later", f"{cpu}m")
        record = Event(
            subject="commits.scheduler.0",
            data=Commit(prior=self.view.seen, folded=self.view.seen, now=NOW, count=1),
            sequence=self.view.seen + 1,
            time=NOW,
        )
        assert self.view.see(record) is None
        placed = Placement(
            node="a",
            namespace="default",
            name="later",
            uid="uid-later",
            pod=encoded(document),
            requests={"cpu": cpu},
            bound_at=NOW,
            object_sequence=self.view.seen - 1,
            allocation=allocation,
        )
        subject = placement_subject("a", "default", "later")
        seen = self.view.see(Event(subject=subject, data=placed, sequence=self.view.seen + 1, time=NOW))
        assert seen is not None
        return [text for _, text in no_room_of_the_head_is_taken(self.view, seen)]


LEFT = ["default/head has room reserved on a, fits there, and is not placed"]


def test_a_head_that_fits_and_waits_is_found() -> None:
    assert Log().broken() == LEFT


def test_seeds_5_and_15001_a_head_does_not_fit_in_what_a_reservation_holds() -> None:
    log = Log()
    log.reserve(2, 1)
    assert log.broken() == []


def test_a_reservation_shares_its_room_with_its_users() -> None:
    log = Log(USED)
    log.reserve(2, 2000)
    assert log.broken() == LEFT, "the pod that runs is in it, and there is nothing left of it"
    log = Log(USED)
    log.reserve(2, 2001)
    assert log.broken() == [], "a thousandth of a CPU is left for its users"


def test_a_reservation_that_ended_just_now_may_not_have_been_decided_on() -> None:
    log = Log()
    log.reserve(2, 1000)
    log.reserve(50, 1000, tombstone=True)
    assert log.broken(59) == []
    assert log.broken(61) == LEFT


def test_the_room_of_a_nominated_pod_counts_for_a_head_of_its_priority() -> None:
    for priority, found in ((PRIORITY, []), (PRIORITY + 1, []), (PRIORITY - 1, LEFT)):
        log = Log()
        log.pod("nominated", "1")
        log.waits("nominated", priority, nomination=Nomination(node="a", at=BEGAN))
        assert log.broken() == found, priority


def test_a_nomination_to_another_node_counts_there() -> None:
    log = Log()
    log.pod("nominated", "1")
    log.waits("nominated", nomination=Nomination(node="b", at=BEGAN))
    assert log.broken() == LEFT


def log_with_six_cpus(allocation: Allocation | None = None) -> Log:
    """Of which a pod behind the head finds two beside the head's room."""
    log = Log(allocation)
    log.see(2, executor_subject("a"), ExecutorStatus(node="a", allocatable={"cpu": 6000}))
    return log


def test_a_pod_behind_the_head_is_placed_beside_its_room() -> None:
    assert log_with_six_cpus().taken(2000) == []
    assert len(log_with_six_cpus().taken(2001)) == 1


def test_a_pod_behind_the_head_takes_nothing_of_what_a_reservation_holds_beside_the_heads_room() -> None:
    for cpu, found in ((1000, 0), (1001, 1)):
        log = log_with_six_cpus()
        log.reserve(2, cpu)
        assert len(log.taken()) == found, cpu
    for cpu, found in ((3000, 0), (3001, 1)):
        log = log_with_six_cpus(USED)
        log.reserve(2, cpu)
        assert len(log.taken()) == found, f"{cpu}: the pod that runs has 2000 of it"


def test_a_pod_that_gets_its_place_in_a_reservation_takes_no_room_of_the_head() -> None:
    log = log_with_six_cpus()
    log.reserve(2, 3000)
    assert log.taken(allocation=USED) == []


def test_a_pod_behind_the_head_takes_nothing_of_what_nominated_pods_of_its_priority_hold() -> None:
    for priority, cpu, found in ((PRIORITY, "1", 0), (PRIORITY, "1001m", 1), (PRIORITY - 1, "1001m", 0)):
        log = log_with_six_cpus()
        log.pod("nominated", cpu)
        log.waits("nominated", priority, nomination=Nomination(node="a", at=BEGAN))
        assert len(log.taken()) == found, (priority, cpu)


def test_the_room_of_a_head_that_is_in_a_reservation_shares_what_that_holds() -> None:
    for cpu, found in ((2000, 0), (2001, 1)):
        log = log_with_six_cpus(USED)
        log.reserve(2, 4000)
        log.waits("head", hold=Hold(node="a", at=BEGAN, reservation=USED.reservation))
        assert len(log.taken(cpu)) == found, cpu
    log = log_with_six_cpus(USED)
    log.reserve(2, 4000)
    assert len(log.taken(1)) == 1, "beside the reservation its room takes all that is left"


def test_a_head_that_must_use_a_reservation_may_wait_while_the_node_beside_would_take_it() -> None:
    log = Log()
    log.pod("head", "2", annotations={ANNOTATION_AFFINITY: "{}"})
    log.waits("head", hold=Hold(node="a", at=BEGAN, reservation=USED.reservation))
    assert log.broken() == []
