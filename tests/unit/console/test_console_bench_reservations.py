"""The benchmarks' independent check finds what is wrong with reservations: who uses them, what they keep, and how they end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.core_only import carry_out
from cotenant_verification.bench.workload import pod_name, synthetic

RESERVED = synthetic(20, 90, 1, reservations=10)
"""Pods 0, 3, 6, ... may use reservations 0, 1, 2, ... of ten, in turn: each has three pods that it is for."""


@pytest.fixture(scope="module")
def reserved() -> list[Event]:
    """The log of that workload, decided by the scheduler."""
    log: list[Event] = []
    carry_out(RESERVED, log)
    return log


def findings(log: list[Event]) -> str:
    return "\n".join(verify(log).wrong)


def used_by(log: list[Event], name: str) -> list[str]:
    """The pods that use a reservation."""
    return [
        e.data.name
        for e in log
        if isinstance(e.data, Placement)
        and e.data.allocation is not None
        and e.data.allocation.reservation is not None
        and e.data.allocation.reservation.name == name
    ]


def changed(log: list[Event], pod: str, change: Callable[[Placement], Placement]) -> list[Event]:
    """The log as if a pod had been placed otherwise."""
    return [
        msgspec.structs.replace(e, data=change(e.data)) if isinstance(e.data, Placement) and e.data.name == pod else e
        for e in log
    ]


def using(name: str, uid: str) -> Callable[[Placement], Placement]:
    allocation = Allocation(reservation=ReservationUsed(name=name, uid=uid))
    return lambda placement: msgspec.structs.replace(placement, allocation=allocation)


def share_of(log: list[Event], name: str) -> ReservationShare:
    [share] = [e.data for e in log if isinstance(e.data, ReservationShare) and e.data.name == name and not e.tombstone][:1]
    return share


def test_what_the_scheduler_decided_holds_and_reservations_are_used(reserved: list[Event]) -> None:
    verdict = verify(reserved)
    assert verdict.wrong == ()
    assert verdict.placed == RESERVED.pods
    assert len(used_by(reserved, "reservation-000000")) == 1, "it is allocated once"
    assert len(used_by(reserved, "reservation-000001")) == 3, "it is allocated often"


def test_a_share_that_the_log_has_removed_at_its_end_counts_until_then(reserved: list[Event]) -> None:
    """As on LOG, where a tombstone removes the older messages of its subject."""
    ended = {e.subject for e in reserved if isinstance(e.data, ReservationShare) and e.tombstone}
    log = [e for e in reserved if e.subject not in ended or e.tombstone]
    assert len(log) < len(reserved)
    assert verify(log).wrong == ()
    assert len(used_by(log, "reservation-000000")) == 1


def test_a_pod_that_uses_what_is_not_its_own(reserved: list[Event]) -> None:
    (user, *_) = used_by(reserved, "reservation-000001")
    share = share_of(reserved, "reservation-000003")
    log = changed(reserved, user, using(share.name, share.uid))
    assert f"uses reservation {share.name}: owners do not match" in findings(log)


def test_a_pod_that_uses_a_reservation_of_another_node(reserved: list[Event]) -> None:
    (user, *_) = used_by(reserved, "reservation-000001")
    log = [e for e in reserved if not (isinstance(e.data, ReservationShare) and e.data.name == "reservation-000001")]
    found = findings(log)
    assert f"pod {user} " in found
    assert "uses reservation reservation-000001, which holds nothing on" in found


def test_one_that_is_allocated_once_and_used_twice(reserved: list[Event]) -> None:
    share = share_of(reserved, "reservation-000000")
    second = pod_name(3 * 10)  # it has the label, and came too late
    log = changed(reserved, second, lambda placement: using(share.name, share.uid)(placement))
    assert "is allocated once and was used before" in findings(log)


def test_one_that_ended_before_its_user_was_placed(reserved: list[Event]) -> None:
    name = "reservation-000000"
    (end,) = [e for e in reserved if isinstance(e.data, ReservationShare) and e.data.name == name and e.tombstone]
    (user,) = used_by(reserved, name)
    others = [e for e in reserved if e is not end]
    first = next(index for index, e in enumerate(others) if isinstance(e.data, Placement))
    # It ends in an earlier commit: between their messages lies a record.
    earlier = msgspec.structs.replace(end, sequence=others[first].sequence - 2)
    log = [*others[:first], earlier, *others[first:]]
    assert f"pod {user} " in (found := findings(log))
    assert "which holds nothing on" in found


def test_a_pod_in_the_room_that_a_reservation_keeps(reserved: list[Event]) -> None:
    """All that the node has is held by a reservation that nobody uses, as the log would have it."""
    stranger = next(e.data for e in reserved if isinstance(e.data, Placement) and e.data.allocation is None)
    share = share_of(reserved, "reservation-000001")
    large = msgspec.structs.replace(share, node=stranger.node, name="large", uid="uid-large", allocatable={"cpu": 64_000})
    begin = next(index for index, e in enumerate(reserved) if isinstance(e.data, ReservationShare))
    event = msgspec.structs.replace(reserved[begin], data=large, subject=f"node.{stranger.node}.reservation.large")
    found = findings([*reserved[:begin], event, *reserved[begin:]])
    assert f"does not fit node {stranger.node}" in found
    assert "beside what reservations hold" in found


def test_a_reservation_that_leaks(reserved: list[Event]) -> None:
    """It was used up, and still holds its room; or it has nothing and says nothing."""
    name = "reservation-000000"
    kept = [e for e in reserved if not (isinstance(e.data, ReservationShare) and e.data.name == name and e.tombstone)]
    assert f"reservation {name} has 1 shares of nodes and a status" in findings(kept)
    unsaid = [e for e in reserved if not (isinstance(e.data, ReservationStatus) and e.data.name == name)]
    assert f"reservation {name} has 0 shares of nodes and no status" in findings(unsaid)
    failed = [
        msgspec.structs.replace(e, data=msgspec.structs.replace(e.data, phase=ReservationPhase.FAILED))
        if isinstance(e.data, ReservationStatus) and e.data.name == name
        else e
        for e in reserved
    ]
    assert f"reservation {name} was used up, and its phase does not say so" in findings(failed)


def test_a_pod_that_waits_although_its_reservation_takes_it(reserved: list[Event]) -> None:
    (*_, user) = used_by(reserved, "reservation-000001")
    log = [e for e in reserved if not (isinstance(e.data, Placement) and e.data.name == user)]
    assert f"pod {user} waits although it fits node" in findings(log)
