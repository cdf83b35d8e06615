"""The benchmarks' independent check of reservations that differ: by policy, by owners, by the affinity of pods."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import cotenant.domain.reservations.owners as owners
import cotenant_scheduler.plugins.reservation.fitting as fitting
import cotenant_scheduler.state.reservations.rules as rules
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.domain.reservations.affinity import ReservationAffinity
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationShare
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_verification.bench.audit.reservation_rules import overdraws, owners_match, refuses
from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.core_only import carry_out
from cotenant_verification.bench.workload import synthetic

DIFFERING = msgspec.structs.replace(synthetic(20, 180, 1, reservations=10), reservation_rules=True)
"""Six pods for each of ten reservations that hold four: 1, 5 and 9 are Restricted; claims 1, 3, 5 and 9 have affinity."""
PREFIX = "scheduling.koordinator.sh"


def decided() -> list[Event]:
    log: list[Event] = []
    carry_out(DIFFERING, log)
    return log


@pytest.fixture(scope="module")
def log() -> list[Event]:
    return decided()


def using(log: list[Event], name: str) -> int:
    used = (e.data.allocation.reservation for e in log if isinstance(e.data, Placement) and e.data.allocation is not None)
    return sum(reservation is not None and reservation.name == name for reservation in used)


def findings(log: list[Event]) -> str:
    return "\n".join(verify(log).wrong)


def test_what_the_scheduler_decides_holds(log: list[Event]) -> None:
    verdict = verify(log)
    assert verdict.wrong == ()
    assert using(log, "reservation-000001") == 4, "it is Restricted to what four pods request"
    assert using(log, "reservation-000003") >= 6, "it is Aligned, and six pods have affinity to it"
    assert verdict.waiting == 6, "two pods each of claims 1, 5 and 9, which must use a Restricted reservation"


# -- a scheduler that breaks a rule ------------------------------------------------------------------------------------

Defect = Callable[[pytest.MonkeyPatch], None]


def restricted_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fitting, "short_in_room", lambda *_, **__: [])


def owners_take_nothing(patch: pytest.MonkeyPatch) -> None:
    """What other owners have of a Restricted reservation is not subtracted."""
    right = fitting.short_in_room

    def wrong(requests: Any, room: Any, *others: Any, **more: Any) -> list[str]:
        return right(requests, msgspec.structs.replace(room, allocated={}), *others, **more)

    patch.setattr(fitting, "short_in_room", wrong)


def controllers_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules, "_key_of", lambda _: ("", "", ""))
    patch.setattr(owners, "_controlled", lambda *_: True)


def affinity_is_not_required(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ask, "required", property(lambda _: False))
    patch.setattr(Ask, "wanted", property(lambda _: None))


def affinity_selects_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReservationAffinity, "holds", lambda *_: True)


def names_are_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    right = Ask.__dict__["wanted"].fget

    def unnamed(self: Ask) -> ReservationAffinity | None:
        found: ReservationAffinity | None = right(self)
        return found and msgspec.structs.replace(found, name="")

    patch.setattr(Ask, "wanted", property(unnamed))


def pods_with_affinity_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    right = Reserving.choose
    patch.setattr(
        Reserving, "choose", lambda self, evaluation, ask, *more: None if ask.required else right(self, evaluation, ask, *more)
    )


def one_that_is_used_up_is_used_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("cotenant_scheduler.cycle.reservations.candidates.allocates_once", lambda _: False)
    patch.setattr("cotenant_scheduler.cycle.reservations.matched.allocates_once", lambda _: False)
    patch.setattr(Reserving, "used_up", lambda *_: ())


@pytest.mark.parametrize(
    ("defect", "finding"),
    [
        (restricted_is_ignored, "it is Restricted and has 0 cpu left"),
        (owners_take_nothing, "it is Restricted and has 0 cpu left"),
        (controllers_are_not_looked_at, "owners do not match"),
        (affinity_is_not_required, "has reservation affinity and uses no reservation"),
        (affinity_selects_everything, "the pod's affinity does not select it"),
        (names_are_not_looked_at, "the pod's affinity names reservation-000005"),
        (pods_with_affinity_wait_for_ever, "waits although it fits node"),
        (one_that_is_used_up_is_used_again, "it is allocated once and was used before"),
    ],
)
def test_a_scheduler_that_breaks_a_rule_is_caught(defect: Defect, finding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    defect(monkeypatch)
    assert finding in findings(decided())


def test_policies_that_conflict_on_a_node(log: list[Event]) -> None:
    """Restricted beside Default."""
    before = log[: next(index for index, e in enumerate(log) if isinstance(e.data, Placement))]
    shares = {e.data.name: e.data for e in before if isinstance(e.data, ReservationShare)}
    default, restricted = shares["reservation-000002"], shares["reservation-000001"]
    moved = msgspec.structs.replace(restricted, node=default.node)
    found = findings([msgspec.structs.replace(e, data=moved) if e.data is restricted else e for e in before])
    assert f"reservation {default.name} is on {default.node} beside {restricted.name}, whose policy conflicts" in found


def test_a_reservation_on_another_node_than_it_names(log: list[Event]) -> None:
    [declared] = [e for e in log if e.subject.endswith(".reservation-000001") and isinstance(e.data, ObjectStored)]
    assert isinstance(declared.data, ObjectStored)
    document = msgspec.json.decode(declared.data.object)
    document["spec"]["template"]["spec"]["nodeName"] = "node-000009"
    pinned = msgspec.structs.replace(declared, data=ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))))
    found = findings([pinned if e is declared else e for e in log])
    assert "reservation reservation-000001 is on node-000001, and names node-000009" in found


# -- the rules -----------------------------------------------------------------------------------------------------------


def pod(labels: dict[str, str] | None = None, annotations: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    notes = {f"{PREFIX}/{name}": json.dumps(value) for name, value in (annotations or {}).items()}
    head = {"name": "p", "namespace": "ns", "uid": "u1", "labels": labels or {}, "annotations": notes, **metadata}
    return decode_pod(msgspec.Raw(json.dumps({"metadata": head}).encode()))


def reservation(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Reservation:
    metadata = {"name": "r", "labels": labels or {}, "annotations": annotations or {}}
    return decode_reservation(json.dumps({"metadata": metadata, "spec": {"owners": [{}], **spec}}).encode())


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ({}, True),
        ({"object": {"kind": "Node", "name": "p", "namespace": "ns", "uid": "u1", "apiVersion": "v1"}}, True),
        ({"object": {"name": "q"}}, False),
        ({"object": {"uid": "u2"}}, False),
        ({"object": {"namespace": "other"}}, False),
        ({"object": {"apiVersion": "v2"}}, False),
        ({"controller": {**JOB, "namespace": "ns"}}, True),
        ({"controller": {"name": "j"}}, True),
        ({"controller": {**JOB, "namespace": "other"}}, False),
        ({"controller": {"name": "k"}}, False),
        ({"controller": {"uid": "u-k"}}, False),
        ({"controller": {"kind": "ReplicaSet"}}, False),
        ({"controller": {"apiVersion": "apps/v1"}}, False),
        ({"controller": {"name": "j", "controller": False}}, False),
        ({"controller": {"name": "j", "kind": "Set"}}, False),
        ({"labelSelector": {"matchLabels": {"a": "1"}}}, True),
        ({"labelSelector": {"matchLabels": {"a": "2"}}}, False),
        ({"controller": {"name": "j"}, "labelSelector": {"matchLabels": {"a": "2"}}}, False),
    ],
)
def test_owners(rule: dict[str, Any], matches: bool) -> None:
    """All given parts must match; those of a controller on one owner reference."""
    other = {"apiVersion": "v1", "kind": "Set", "name": "s", "uid": "u-s"}
    owned = pod({"a": "1"}, ownerReferences=[other, JOB])
    assert owners_match(reservation(owners=[rule]).spec.owners, owned) is matches


def test_no_rules_are_for_nobody_and_one_of_several_is_enough() -> None:
    assert not owners_match([], pod())
    assert owners_match(reservation(owners=[{"object": {"name": "q"}}, {}]).spec.owners, pod())


UNSELECTED = "the pod's affinity does not select it"
HARD_TAINT = {"key": "t", "value": "v", "effect": "NoSchedule"}
SELECTS: dict[str, Any] = {"reservationSelector": {"a": "1"}}


def term(**parts: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [parts]}}


@pytest.mark.parametrize(
    ("affinity", "spec", "refusal"),
    [
        (None, {}, ""),
        (None, {"owners": []}, "owners do not match"),
        (None, {"unschedulable": True}, "it takes no new owners"),
        (None, {"taints": [HARD_TAINT]}, ""),
        ({"name": "r"}, {"unschedulable": True, "taints": [HARD_TAINT]}, ""),
        ({"name": "s"}, {}, "the pod's affinity names s"),
        ({}, {"taints": [HARD_TAINT]}, "taint t"),
        ({}, {"taints": [{**HARD_TAINT, "effect": "NoExecute"}]}, "taint t"),
        ({}, {"taints": [{**HARD_TAINT, "effect": "PreferNoSchedule"}]}, ""),
        ({"tolerations": [{"key": "t", "operator": "Exists"}]}, {"taints": [HARD_TAINT]}, ""),
        ({"tolerations": [{"operator": "Exists"}]}, {"unschedulable": True}, ""),
        ({"tolerations": [{"key": "t", "operator": "Exists"}]}, {"unschedulable": True}, "it takes no new owners"),
        (SELECTS, {}, ""),
        ({"reservationSelector": {"a": "2"}}, {}, UNSELECTED),
        ({"reservationSelector": {"zone": "z"}}, {}, ""),
        (term(matchExpressions=[{"key": "a", "operator": "In", "values": ["1"]}]), {}, ""),
        (term(matchExpressions=[{"key": "a", "operator": "In", "values": ["2"]}]), {}, UNSELECTED),
        (term(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["r"]}]), {}, ""),
        (term(matchFields=[{"key": "metadata.name", "operator": "NotIn", "values": ["r"]}]), {}, UNSELECTED),
        (term(), {}, UNSELECTED),
    ],
)
def test_affinity(affinity: dict[str, Any] | None, spec: dict[str, Any], refusal: str) -> None:
    """Labels are the node's, overlaid by the reservation's; an empty term selects nothing."""
    asking = pod(annotations={} if affinity is None else {"reservation-affinity": affinity})
    found = refuses(reservation({"a": "1"}, **spec), asking, {"cpu": 1}, {"cpu": 4}, {"a": "0", "zone": "z"})
    assert found == refusal


def test_one_of_several_terms_is_enough() -> None:
    names = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]} for name in ("s", "r")]
    asking = pod(
        annotations={
            "reservation-affinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": names}}
        }
    )
    assert refuses(reservation(), asking, {"cpu": 1}, {"cpu": 1}, {}) == ""


def test_an_affinity_that_cannot_be_read_uses_nothing() -> None:
    broken = pod(annotations={"reservation-affinity": {"reservationSelector": 1}})
    assert refuses(reservation(), broken, {"cpu": 1}, {"cpu": 1}, {}) == "the pod's reservation affinity cannot be read"


@pytest.mark.parametrize(
    ("names", "held", "matches"),
    [
        (["cpu"], {"cpu": 2}, True),
        (["cpu"], {"cpu": 3}, False),
        (["cpu", "memory"], {"cpu": 2}, True),
        (["gpu", "cpu"], {"cpu": 3}, True),
        (["cpu", "gpu"], {"cpu": 2, "gpu": 1}, False),
    ],
)
def test_exact_match(names: list[str], held: dict[str, int], matches: bool) -> None:
    """A resource that neither has ends the comparison: what comes after it is not compared."""
    exact = pod(annotations={"exact-match-reservation": {"resourceNames": names}})
    found = refuses(reservation(), exact, {"cpu": 2}, held, {})
    assert found == ("" if matches else "it has not exactly what the pod requests")


def test_a_reservation_of_other_resources_is_for_pods_with_affinity_alone() -> None:
    assert refuses(reservation(), pod(), {"memory": 1}, {"cpu": 1}, {}) == "it has nothing that the pod requests"
    assert refuses(reservation(), pod(), {"cpu": 1}, {"cpu": 1, "memory": 1}, {}) == "", "one of them is enough"
    asking = pod(annotations={"reservation-affinity": {}})
    assert refuses(reservation(), asking, {"memory": 1}, {"cpu": 1}, {}) == ""


def options(*names: str) -> dict[str, str]:
    return {f"{PREFIX}/reservation-restricted-options": json.dumps({"resources": names})}


@pytest.mark.parametrize(
    ("policy", "annotations", "used", "finding"),
    [
        ("", {}, {"cpu": 4}, ""),
        ("Aligned", {}, {"cpu": 4}, ""),
        ("Restricted", {}, {"cpu": 2, "memory": 4}, ""),
        ("Restricted", {}, {"cpu": 3}, "it is Restricted and has 1 cpu left, of which the pod requests 2"),
        ("Restricted", {}, {"memory": 5}, "it is Restricted and has 3 memory left, of which the pod requests 4"),
        ("Restricted", options("cpu"), {"memory": 5}, ""),
        ("Restricted", options("cpu", "gpu"), {"cpu": 3}, "it is Restricted and has 1 cpu left, of which the pod requests 2"),
        (
            "Restricted",
            {"node.koordinator.sh/reservation": '{"resources": {"memory": 5}}'},
            {},
            "it is Restricted and has 3 memory left, of which the pod requests 4",
        ),
    ],
)
def test_restricted(policy: str, annotations: dict[str, str], used: dict[str, int], finding: str) -> None:
    """It has 4 of cpu and 8 of memory; a pod requests 2 and 4, and something else that it does not hold."""
    held, requests = {"cpu": 4, "memory": 8}, {"cpu": 2, "memory": 4, "gpu": 1}
    assert overdraws(reservation(annotations=annotations, allocatePolicy=policy), requests, held, used, 1) == finding


def test_a_restricted_reservation_that_is_full_is_open_for_what_requests_none_of_it() -> None:
    full = reservation(allocatePolicy="Restricted")
    assert overdraws(full, {"gpu": 1}, {"cpu": 4}, {"cpu": 4}, 1) == ""
    assert overdraws(full, {"cpu": 1}, {"cpu": 4}, {"cpu": 4}, 1) != ""


def test_a_restricted_reservation_of_pods_bounds_its_owners() -> None:
    two = reservation(allocatePolicy="Restricted")
    assert overdraws(two, {"cpu": 1}, {"pods": 2}, {}, 1) == ""
    assert overdraws(two, {"cpu": 1}, {"pods": 2}, {}, 2) == "it is Restricted to 2 pods"
