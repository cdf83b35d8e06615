"""Explanations say in words what can change that a pod or a reservation waits; conditions and Events name who does not fit."""

from __future__ import annotations

import json

import pytest

from cotenant.domain.reservations.diagnosis import reservation_message
from cotenant.events.envelope import Event
from cotenant.events.placements import RefusedMembers, Waiting, WaitingReason, condition_message
from cotenant.events.reservations import ReservationCondition, ReservationStatus
from cotenant.explain.causes import CauseWalk, explain_pod, explain_reservation
from cotenant.explain.sentences import figures
from cotenant.explain.waking import what_can_change_that
from cotenant.kinds.events import EVENTS
from tests.unit.gateway.builders_gateway import NOW, World


@pytest.mark.parametrize(
    ("subject", "phrase"),
    [
        ("objects.core.nodes._.*", "a node that joins or changes"),
        ("objects.core.nodes._.n1", "a change of node n1"),
        ("objects.core.pods.default.web", "a change of pod default/web"),
        ("objects.core.pods.>", "further pods, or a change of these"),
        ("objects.storage%2Ek8s%2Eio.csinodes.>", "a node's attach limits"),
        ("node.*.placement.>", "a pod that is placed or leaves"),
        ("node.*.run.default.web", "the end of the former pod default/web"),
        ("metrics.*", "lower usage of a node"),
        ("quotas._.team-a", "the runtime of quota team-a"),
        ("objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>", "a quota's min, max or weight"),
        ("objects.scheduling%2Esigs%2Ek8s%2Eio.podgroups.>", "a PodGroup"),
        ("unknown.*", "unknown.*"),
    ],
)
def test_each_subject_has_its_phrase(subject: str, phrase: str) -> None:
    assert what_can_change_that((subject,)) == phrase


def test_a_phrase_is_given_once_and_the_number_of_phrases_is_bounded() -> None:
    assert what_can_change_that(("objects.core.nodes._.*", "objects.core.nodes._.>")) == "a node that joins or changes"
    assert len(what_can_change_that(f"quotas._.q{number}" for number in range(50)).split(", ")) == 8
    assert what_can_change_that(()) == ""


def test_the_explanation_of_a_waiting_pod_says_what_can_change_that() -> None:
    waiting = Waiting(
        namespace="default",
        name="web",
        uid="u",
        nodes=4,
        reasons=(WaitingReason(code="insufficient", count=4, resource="cpu", detail="short by 2"),),
        wakes_on=("node.*.placement.>", "node.*.run.>", "objects.core.nodes._.*"),
    )
    root = Event(subject="waiting.default.web", data=waiting, sequence=5, stream="LOG", time=NOW)
    explanation = explain_pod("default", "web", [root], CauseWalk([root]))
    assert explanation.reasons == (
        "what can change that: a pod that is placed or leaves, a pod that ends, a node that joins or changes",
    )


def test_a_reason_that_is_not_about_nodes_counts_none() -> None:
    waiting = Waiting(
        namespace="default",
        name="web",
        uid="u",
        reasons=(WaitingReason(code="quota", count=0, resource="cpu", detail="quota a: cpu 14 needed, runtime is 12"),),
    )
    root = Event(subject="waiting.default.web", data=waiting, sequence=5, stream="LOG", time=NOW)
    assert figures(root) == {"quota cpu": "quota a: cpu 14 needed, runtime is 12"}


def gang_waits(members: tuple[RefusedMembers, ...], not_tried: int = 0, member: str = "default/p2") -> Waiting:
    return Waiting(
        namespace="default",
        name="p1",
        uid="u",
        message='GangGroup "default/g" gets rejected due to member Pod "default/p2" is unschedulable',
        member=member,
        members=members,
        members_not_tried=not_tried,
    )


LACKS_CPU = RefusedMembers(
    names=("default/p2", "default/p3"),
    count=12,
    nodes=2,
    reasons=(WaitingReason(code="insufficient", count=2, resource="cpu", detail="short by 1", node="n1"),),
)


def test_the_condition_of_a_gangs_member_names_all_that_do_not_fit() -> None:
    alone = RefusedMembers(
        names=("reservation r",), count=1, nodes=2, reasons=(WaitingReason(code="taint", count=2),), where="BlockLayer b1"
    )
    assert condition_message(gang_waits((LACKS_CPU, alone), not_tried=3)) == (
        'GangGroup "default/g" gets rejected due to member Pod "default/p2" is unschedulable. Of its gang: '
        "default/p2, default/p3 and 10 more like them do not fit: 0/2 nodes: 2 cpu short by 1 (nearest: n1); "
        "reservation r does not fit in BlockLayer b1: 0/2 nodes: 2 taint; 3 further members were not tried."
    )


def test_a_member_that_the_message_names_already_is_not_named_again() -> None:
    only = RefusedMembers(names=("default/p2",), count=1, nodes=2)
    for members in ((), (only,)):
        waiting = gang_waits(members)
        assert condition_message(waiting) == waiting.message


def test_the_event_of_a_gangs_member_names_them_too() -> None:
    world = World()
    waiting = gang_waits((LACKS_CPU,))
    world.put("waiting.default.p1", waiting)
    (shown,) = world.core.objects(EVENTS)
    assert json.loads(shown.document)["message"] == condition_message(waiting)


def test_a_reservation_whose_gang_waits_says_why_in_its_condition_its_event_and_its_explanation() -> None:
    world = World()
    head = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"}}
    world.create("reservations", {**head, "spec": {"owners": [{}], "template": {}}}, "")
    waiting = gang_waits((LACKS_CPU,))
    scheduled = ReservationCondition(type="Scheduled", status="False", reason="Unschedulable", message=waiting.message)
    status = ReservationStatus(
        name="r",
        uid=world.show("reservations", "r")["metadata"]["uid"],
        conditions=(scheduled,),
        reason="Unschedulable",
        message=waiting.message,
        member=waiting.member,
        members=waiting.members,
        wakes_on=("node.*.placement.>",),
    )
    root = world.put("reservations.r", status)
    text = condition_message(waiting)
    shown = world.show("reservations", "r")["status"]
    assert shown["phase"] == "Pending"
    assert [(one["type"], one["status"], one["reason"], one["message"]) for one in shown["conditions"]] == [
        ("Scheduled", "False", "Unschedulable", text)
    ]
    (narrated,) = [json.loads(snapshot.document) for snapshot in world.core.objects(EVENTS)]
    assert (narrated["involvedObject"]["kind"], narrated["reason"], narrated["message"]) == (
        "Reservation", "FailedScheduling", text
    )
    assert explain_reservation("r", [root], CauseWalk([root])).reasons == (
        "default/p2, default/p3 and 10 more like them do not fit: 0/2 nodes: 2 cpu short by 1 (nearest: n1)",
        "what can change that: a pod that is placed or leaves",
    )


def test_a_gangs_text_about_reservations_is_found_in_the_words_that_it_quotes() -> None:
    own = "0/1 nodes are available: 1 Reservation(s) Insufficient cpu, 1 Reservation(s) matched owner total."
    quoted = f'GangGroup "default/g" gets rejected due to member Pod "default/a" is unschedulable with reason "{own}", '
    assert reservation_message(f"{quoted}alreadyWaitForBound: 1.") == reservation_message(own)
    assert reservation_message(own) == "0/1 reservations are available: 1 Reservation(s) Insufficient cpu."
