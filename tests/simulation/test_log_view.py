"""What the checks read off the log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cotenant.events import Event, ObjectDeleted, ObjectStored, Payload, RunStatus
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import placement_subject, pod_subject, run_subject
from cotenant_verification.checks.log_view import LogView
from tests.builders import encoded, pod_document, stored


def pod(number: int) -> ObjectStored:
    return stored(pod_document(f"p{number}", namespace="team", uid=f"u{number}", owner="web"))


def test_seed_920006_a_workloads_pods_are_those_that_had_not_ended_at_the_sequence_asked_about() -> None:
    view = LogView()
    sequence = 0

    def see(subject: str, data: Payload, tombstone: bool = False) -> int:
        nonlocal sequence
        sequence += 1
        view.see(Event(subject=subject, data=data, sequence=sequence, tombstone=tombstone))
        return sequence

    for number in range(10):
        last = see(pod_subject("team", f"p{number}"), pod(number))
    assert view.replicas_at("uid-web", last) == 10
    assert view.replicas_at("uid-web", 4) == 4
    ended = see(
        run_subject("n1", "team", "p3"), RunStatus(node="n1", namespace="team", name="p3", uid="u3", phase=RunPhase.FAILED)
    )
    assert view.replicas_at("uid-web", ended) == 9, "it has run to its end"
    assert view.replicas_at("uid-web", last) == 10
    gone = see(pod_subject("team", "p4"), ObjectDeleted(uid="u4"), tombstone=True)
    assert (view.replicas_at("uid-web", gone), view.replicas_at("uid-web", ended)) == (8, 9)
    again = see(pod_subject("team", "p5"), pod(5))
    assert view.replicas_at("uid-web", again) == 8, "a changed pod is the same replica"


@pytest.mark.parametrize(("ends", "tombstone"), [(PlacementPhase.BOUND, False), (PlacementPhase.TERMINATING, True)])
def test_seed_75_a_pod_that_its_node_has_stopped_counts_as_such_until_its_placement_ends(
    ends: PlacementPhase, tombstone: bool
) -> None:
    view = LogView()

    def see(subject: str, data: Payload, tombstone: bool = False) -> None:
        view.see(Event(subject=subject, data=data, sequence=view.seen + 1, tombstone=tombstone))

    def place(phase: PlacementPhase, tombstone: bool = False) -> None:
        placement = Placement(
            node="n1",
            namespace="team",
            name="p",
            uid="u",
            pod=encoded(pod_document("p")),
            bound_at=datetime(2026, 1, 1, tzinfo=UTC),
            phase=phase,
        )
        see(placement_subject("n1", "team", "p"), placement, tombstone)

    stopped = RunStatus(node="n1", namespace="team", name="p", uid="u", phase=RunPhase.STOPPED)
    place(PlacementPhase.BOUND)
    place(PlacementPhase.TERMINATING)
    assert view.stopped == set()
    see(run_subject("n1", "team", "p"), stopped, tombstone=True)
    assert view.stopped == {("n1", "u")}
    place(PlacementPhase.TERMINATING)
    assert view.stopped == {("n1", "u")}
    place(ends, tombstone)
    assert view.stopped == set()
