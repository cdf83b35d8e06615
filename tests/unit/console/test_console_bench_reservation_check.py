"""What the benchmarks' independent check keeps of reservations: shares, users, and what is left of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cotenant.api.objects.pod import decode_pod
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationShare
from cotenant_verification.bench.audit.reservations import ReservationCheck

PREFIX = "scheduling.koordinator.sh"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def check() -> ReservationCheck:
    made = ReservationCheck()
    made.any = True
    return made


def declare(to: ReservationCheck, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:
    metadata = {"name": name, "uid": f"uid-{name}", "annotations": annotations or {}}
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4m", "memory": "8"}}}]}}
    document = {"metadata": metadata, "spec": {"template": template, "owners": [{}], "allocateOnce": False, **spec}}
    to.declared(msgspec.Raw(json.dumps(document).encode()))


def share(name: str, node: str = "n", **held: int) -> ReservationShare:
    return ReservationShare(node=node, name=name, uid=f"uid-{name}", allocatable=held or {"cpu": 4, "memory": 8})


def hold(to: ReservationCheck, name: str, node: str = "n", commit: int = 1) -> list[str]:
    return list(to.shared(share(name, node), False, commit))


def submit(to: ReservationCheck, name: str, **metadata: Any) -> None:
    head = {"name": name, "namespace": "ns", "uid": f"u-{name}", **metadata}
    to.submitted(decode_pod(json.dumps({"metadata": head}).encode()))


def affinity(**parts: Any) -> dict[str, str]:
    return {f"{PREFIX}/reservation-affinity": json.dumps(parts)}


def place(to: ReservationCheck, pod: str, reservation: str = "", uid: str = "", commit: int = 1, **requests: int) -> list[str]:
    used = ReservationUsed(name=reservation, uid=uid or f"uid-{reservation}")
    allocation = Allocation(reservation=used) if reservation else None
    data = Placement(node="n", namespace="ns", name=pod, uid=f"u-{pod}", bound_at=NOW, allocation=allocation)
    return list(to.placed(data, requests or {"cpu": 1}, {}, commit))


def test_a_share_keeps_from_others_what_its_users_leave() -> None:
    made = check()
    declare(made, "r")
    hold(made, "r")
    made.use("uid-r", "first", {"cpu": 3, "gpu": 1})
    assert made.kept_from("n", {"cpu": 2}) == {"cpu": 1, "memory": 8, "pods": 1}
    assert made.kept_from("n", {"cpu": 2, "memory": 5}, "uid-r") == {"cpu": 0, "memory": 3, "pods": 0}
    assert made.kept_from("n", {}, "uid-r") == {"cpu": 1, "memory": 8, "pods": 0}
    assert made.kept_from("other", {"cpu": 2}) == {}
    made.use("uid-r", "second", {"cpu": 3})
    assert made.kept_from("n", {"cpu": 2})["cpu"] == 0, "more is used than it holds: nothing is kept"
    made.removed("first")
    assert made.kept_from("n", {"cpu": 2})["cpu"] == 1


def test_what_nobody_may_be_given_stays_kept() -> None:
    made = check()
    declare(made, "r", {"node.koordinator.sh/reservation": '{"resources": {"memory": 3}}'})
    hold(made, "r")
    assert made.kept_from("n", {"memory": 8}, "uid-r")["memory"] == 3
    assert made.kept_from("n", {"memory": 1}, "uid-r")["memory"] == 7
    made.use("uid-r", "first", {"memory": 6})
    assert made.kept_from("n", {"memory": 8}, "uid-r")["memory"] == 2, "less than that is left"


def test_which_reservations_a_waiting_pod_may_use() -> None:
    made = check()
    declare(made, "r")
    declare(made, "closed", unschedulable=True)
    for name in ("r", "closed", "undeclared"):
        hold(made, name)
    submit(made, "free")
    submit(made, "bound", annotations=affinity())
    assert list(made.usable("n", "free", {"cpu": 1}, {})) == ["", "uid-r"]
    assert list(made.usable("n", "bound", {"cpu": 1}, {})) == ["uid-r"]
    assert list(made.usable("other", "bound", {"cpu": 1}, {})) == []


def test_without_reservations_pods_are_not_kept_and_may_go_anywhere() -> None:
    made = ReservationCheck()
    submit(made, "p", annotations=affinity())
    assert list(made.usable("n", "p", {"cpu": 1}, {})) == [""]
    assert made.alike("p") == ()


@pytest.mark.parametrize("label", ["reservation-ignored", "operating-mode"])
def test_pods_that_are_not_supported(label: str) -> None:
    with pytest.raises(ValueError, match="does not support pods"):
        submit(check(), "p", labels={f"{PREFIX}/{label}": "true"})


def test_reservations_that_are_not_supported() -> None:
    with pytest.raises(ValueError, match="does not support reservations like r"):
        declare(check(), "r", preAllocation=True)
    with pytest.raises(ValueError, match="does not support reservations like s"):
        declare(check(), "s", {f"{PREFIX}/reservation-resize-allocatable": "{}"})


def test_which_pods_may_use_the_same_reservations() -> None:
    made = check()
    declare(made, "r", owners=[{"controller": {"name": "j"}}])
    submit(made, "a")
    submit(made, "b")
    submit(made, "owned", ownerReferences=[{"name": "j", "uid": "1", "kind": "Job", "apiVersion": "batch/v1"}])
    submit(made, "bound", annotations=affinity())
    submit(made, "exact", annotations={f"{PREFIX}/exact-match-reservation": "{}"})
    assert made.alike("a") == made.alike("b")
    assert len({made.alike(name) for name in ("a", "owned", "bound", "exact")}) == 4
    declare(made, "s", owners=[{}, {"object": {"name": "a"}}])
    assert made.alike("a") != made.alike("b"), "one of them may be named"


def test_policies_on_a_node() -> None:
    """Default goes with Default, the others with each other."""
    made = check()
    for name, policy in (("d", ""), ("e", ""), ("restricted", "Restricted"), ("aligned", "Aligned")):
        declare(made, name, allocatePolicy=policy)
    hold(made, "undeclared")
    assert hold(made, "d") == []
    assert hold(made, "e") == []
    assert hold(made, "aligned", "m") == []
    assert hold(made, "restricted", "m") == []
    assert hold(made, "d", "m") == [
        f"reservation d is on m beside {name}, whose policy conflicts" for name in ("aligned", "restricted")
    ]
    assert hold(made, "d", "m") == [], "it is there already"
    assert hold(made, "unknown", "m") == []


def test_a_reservation_that_is_used_up_conflicts_with_none() -> None:
    made = check()
    declare(made, "once", allocateOnce=True)
    declare(made, "restricted", allocatePolicy="Restricted")
    hold(made, "once")
    made.use("uid-once", "p", {"cpu": 1})
    assert hold(made, "restricted") == []


def test_a_policy_conflicts_with_that_of_any_reservation_there() -> None:
    """Behind one that is not known and one that is used up."""
    made = check()
    declare(made, "once", allocateOnce=True)
    declare(made, "restricted", allocatePolicy="Restricted")
    declare(made, "d", allocatePolicy="")
    made.use("uid-once", "p", {"cpu": 1})
    for name in ("undeclared", "once"):
        assert hold(made, name) == []
    assert hold(made, "restricted") == []
    assert hold(made, "d") == ["reservation d is on n beside restricted, whose policy conflicts"]


def test_a_share_that_ends_with_the_commit_counts_for_it() -> None:
    made = check()
    declare(made, "r", allocateOnce=True)
    submit(made, "p")
    hold(made, "r", commit=1)
    assert list(made.shared(share("r"), True, 2)) == []
    assert list(made.shared(share("r"), True, 3)) == [], "it had ended"
    assert place(made, "p", "r", commit=2) == []
    assert place(made, "p", "r", commit=3) == ["uses reservation r, which holds nothing on n"]
    assert place(made, "p", "r", uid="uid-before", commit=2) == [
        "uses reservation r, which holds nothing on n", "uses reservation r, which does not exist"
    ]


def test_a_share_that_ends_with_the_commit_counts_though_a_later_one_of_the_name_follows() -> None:
    """What the later one holds says nothing of a pod that uses the one before."""
    made = check()
    declare(made, "r", allocatePolicy="Restricted")
    submit(made, "p")
    hold(made, "r")
    assert list(made.shared(share("r"), True, 2)) == []
    later = msgspec.structs.replace(share("r", cpu=1), uid="uid-later")
    assert list(made.shared(later, False, 2)) == []
    assert place(made, "p", "r", commit=2, cpu=4) == []
    assert place(made, "p", "r", commit=3, cpu=4) == ["uses reservation r, which holds nothing on n"]


def test_a_pod_that_uses_a_later_reservation_of_the_name() -> None:
    made = check()
    declare(made, "r")
    submit(made, "p")
    hold(made, "r")
    assert place(made, "p", "r") == []
    assert place(made, "p", "r", uid="uid-later") == [
        "uses reservation r, which holds nothing on n", "uses reservation r, which does not exist"
    ]
    assert place(made, "p", "s") == ["uses reservation s, which holds nothing on n", "uses reservation s, which does not exist"]


def test_a_pod_without_a_reservation() -> None:
    made = check()
    submit(made, "free")
    submit(made, "bound", annotations=affinity())
    assert place(made, "free") == []
    assert place(made, "bound") == ["has reservation affinity and uses no reservation"]


def test_a_restricted_one_gives_what_others_have_left() -> None:
    """It holds 4 of cpu; what the pod itself had of it does not count against it."""
    made = check()
    declare(made, "r", allocatePolicy="Restricted")
    hold(made, "r")
    for name in ("p", "q"):
        submit(made, name)
    assert place(made, "p", "r", cpu=3) == []
    assert place(made, "p", "r", cpu=4) == []
    assert place(made, "q", "r", cpu=1) == [
        "uses reservation r: it is Restricted and has 0 cpu left, of which the pod requests 1"
    ]
