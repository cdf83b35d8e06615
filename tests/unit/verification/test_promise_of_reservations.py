"""What takes room on a node beside a reservation's share, and in which resources a commit answers for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.commits import Commit
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationShare
from cotenant.model.names import BATCH_CPU
from cotenant.model.subjects import (
    executor_subject,
    node_subject,
    object_subject,
    placement_subject,
    reservation_subject,
)
from cotenant_scheduler.cycle.endings.endings import NAMED_BY_POD
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.reservations import no_reservation_is_over_allocated
from tests.builders import encoded, node_document, pod_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Log:
    """A log on which the scheduler commits one event at a time."""

    def __init__(self) -> None:
        self.view = LogView()
        self.see("", executor_subject("n"), ExecutorStatus(node="n", allocatable={"cpu": 1000, BATCH_CPU: 1000}))

    def see(self, source: str, subject: str, data: Payload) -> CommitSeen | None:
        sequence = self.view.seen + 1
        return self.view.see(Event(subject=subject, data=data, sequence=sequence, time=NOW, source=source, id=str(sequence)))

    def wrong(self, subject: str, data: Payload) -> list[str]:
        """What the promise says of a commit with this event."""
        folded = self.view.seen
        self.see("/cell/scheduler/0", "commits.scheduler.0", Commit(prior=0, folded=folded, now=NOW, count=1))
        seen = self.see("/cell/scheduler/0", subject, data)
        assert seen is not None
        return [text for _, text in no_reservation_is_over_allocated(self.view, seen)]

    def declare(self, **spec: Any) -> None:
        """The node, and a Reservation of 600 milli-cores."""
        self.see("/gateway", node_subject("n"), ObjectStored(object=encoded(node_document("n", labels={"zone": "z"}))))
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "600m"}}}]}}
        spec = {"template": template, "owners": [{}], "allocateOnce": False, **spec}
        document = encoded({"metadata": {"name": "r", "uid": "r"}, "spec": spec})
        subject = object_subject("scheduling.koordinator.sh", "reservations", "", "r")
        self.see("/gateway", subject, ObjectStored(object=document))

    def place(
        self, name: str, requests: dict[str, int], reason: str = "", uses: str = "", **metadata: Any
    ) -> list[str]:
        data = Placement(
            node="n",
            namespace="default",
            name=name,
            uid=name,
            pod=encoded(pod_document(name, **metadata)),
            requests=requests,
            bound_at=NOW,
            reason=reason,
            allocation=Allocation(reservation=ReservationUsed(name=uses, uid=uses)) if uses else None,
        )
        return self.wrong(placement_subject("n", "default", name), data)

    def hold(self, cpu_milli: int) -> list[str]:
        data = ReservationShare(node="n", name="r", uid="r", allocatable={"cpu": cpu_milli})
        return self.wrong(reservation_subject("n", "r"), data)


def test_seed_7715005_a_pod_that_names_its_node_is_no_fault_of_the_next_placement_of_another_resource() -> None:
    log = Log()
    assert log.hold(600) == []
    assert log.place("named", {"cpu": 500}, NAMED_BY_POD) == []
    assert log.place("batch", {BATCH_CPU: 100}) == []


def test_a_placement_and_a_share_are_at_fault_where_a_node_offers_less_than_is_taken() -> None:
    log = Log()
    assert log.hold(600) == []
    assert log.place("fits", {"cpu": 400}) == []
    [text] = log.place("too much", {"cpu": 1})
    assert "take 1001 cpu of node n, which offered 1000" in text
    [text] = log.hold(700)
    assert "take 1101 cpu of node n, which offered 1000" in text


def bound_to(**affinity: Any) -> dict[str, str]:
    return {"scheduling.koordinator.sh/reservation-affinity": json.dumps(affinity)}


def test_a_pod_with_affinity_uses_a_reservation_that_it_selects() -> None:
    log = Log()
    log.declare()
    assert log.hold(600) == []
    assert log.place("a", {"cpu": 100}, uses="r", annotations=bound_to(reservationSelector={"zone": "z"})) == []
    [text] = log.place("b", {"cpu": 100}, uses="r", annotations=bound_to(reservationSelector={"zone": "y"}))
    assert text.endswith("uses reservation r: the pod's affinity does not select it")
    [text] = log.place("c", {"cpu": 100}, annotations=bound_to())
    assert text.endswith("uses no reservation, and its affinity asks for one")


def test_a_pod_of_another_controller_does_not_use_it() -> None:
    log = Log()
    log.declare(owners=[{"controller": {"name": "j"}}])
    assert log.hold(600) == []
    assert log.place("a", {"cpu": 100}, uses="r", owner="j") == []
    [text] = log.place("b", {"cpu": 100}, uses="r", owner="k")
    assert text.endswith("uses reservation r: owners do not match")
