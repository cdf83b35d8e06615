"""Which reservations of a node take a pod, which of them it gets, and what that is worth: the rules in figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import pytest

from cotenant.api.objects.reservation import OwnerRule
from cotenant_scheduler.cycle.reservations.endings import SHARE_PAUSE
from cotenant_scheduler.plugins.reservation.fitting import (
    ALREADY_ALLOCATED,
    NONE_MEETS,
    OTHER_NODE,
    POLICY_CONFLICT,
    FitResult,
    Ignored,
    ReservationCapacity,
    Victims,
    allocated_of,
    judged,
    may_be_nominated,
    refuses_reserve_pod,
    shares_a_resource,
    short_in_room,
    short_on_node,
)
from cotenant_scheduler.plugins.reservation.scoring import nominated, normalised, preferring, room_score
from cotenant_scheduler.state.reservations.cache import NAMES_KEPT, ChangedNames
from cotenant_scheduler.state.reservations.rules import keys_of
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

GPU = "koordinator.sh/gpu"


def room(name: str = "r", *, allocatable: Mapping[str, int] | None = None, **fields: Any) -> ReservationCapacity:
    held = allocatable if allocatable is not None else {"cpu": 4000}
    given = {"uid": f"uid-{name}", "policy": "", "names": tuple(held), "allocatable": held, **fields}
    return ReservationCapacity(name=name, **given)


def restricted(name: str = "r", **fields: Any) -> ReservationCapacity:
    return room(name, policy="Restricted", **fields)


def fit(
    free: Mapping[str, int],
    *rooms: ReservationCapacity,
    cpu: int = 1000,
    pods_free: int = 1,
    required: bool = False,
    **more: Any,
) -> FitResult:
    return judged({"cpu": cpu}, free, pods_free, rooms, required=required, **more)


def test_what_is_left_of_a_room_is_what_is_neither_allocated_nor_reserved_inside() -> None:
    found = room(allocatable={"cpu": 10, "memory": 5}, allocated={"cpu": 3, "memory": 5}, reserved={"cpu": 2, "memory": 1})
    assert [found.available(name) for name in ("cpu", "memory", GPU)] == [5, 0, 0]
    assert room(allocatable={"cpu": 10}, allocated={"cpu": 9}).available("cpu") == 1


def test_owners_take_of_a_room_what_they_request_of_its_resources() -> None:
    requests = [{"cpu": 1, "memory": 2}, {"cpu": 3, GPU: 4}, {"memory": 0}]
    assert allocated_of(requests, ("cpu", "memory")) == {"cpu": 4, "memory": 2}
    assert shares_a_resource({"cpu": 1}, room())
    assert not shares_a_resource({"cpu": 0, "memory": 1}, room())


def test_ignored_resources_are_extended_ones_by_name_or_by_group() -> None:
    ignored = Ignored(frozenset(("a", "cpu", "pods")), frozenset(("koordinator.sh", "memory")))
    found = {name: ignored.covers(name) for name in ("a", "b", GPU, "other/gpu", "cpu", "memory", "pods", "koordinator.sh")}
    assert found == {name: name in ("a", GPU) for name in found}
    assert not Ignored().covers("a")


def test_what_is_short_on_a_node_is_named_in_order() -> None:
    wanted = {"z": 1, "memory": 5, "cpu": 5, "a": 1, "pods": 1, "ephemeral-storage": 1, "free": 0}
    assert short_on_node(wanted, {}, 0) == ["pods", "cpu", "memory", "ephemeral-storage", "a", "z"]
    assert short_on_node({"cpu": 5}, {"cpu": 5}, 1) == []
    assert short_on_node({"cpu": 6}, {"cpu": 5}, 1) == ["cpu"]
    assert short_on_node({"cpu": 9}, {"cpu": 2}, 1, room(allocatable={"cpu": 4}), {"cpu": 3}) == []
    assert short_on_node({"cpu": 10}, {"cpu": 2}, 1, room(allocatable={"cpu": 4}), {"cpu": 3}) == ["cpu"]
    assert short_on_node({GPU: 1, "cpu": 1}, {"cpu": 1}, 1, ignored=Ignored(frozenset((GPU,)))) == []


def test_a_restricted_room_gives_a_resource_whole_or_not() -> None:
    held = restricted(allocatable={"cpu": 10, "memory": 5}, allocated={"cpu": 4}, reserved={"cpu": 1})
    assert short_in_room({"cpu": 5, "memory": 5}, held) == []
    assert short_in_room({"cpu": 6, "memory": 6}, held) == [
        "Reservation(s) Insufficient cpu",
        "Reservation(s) Insufficient memory",
    ]
    assert short_in_room({"cpu": 6}, held, {"cpu": 1}) == []
    assert short_in_room({"cpu": 10}, held, {"cpu": 9}) == ["Reservation(s) Insufficient cpu"], "more is never free than held"
    assert short_in_room({"cpu": 6}, held, detailed=True) == [
        "Reservation(s) Insufficient cpu, requested: 6, used: 4, capacity: 9"
    ]
    assert short_in_room({"cpu": 0, GPU: 9}, held) == []
    full = restricted(allocatable={"cpu": 10, "memory": 5}, allocated={"cpu": 11, "memory": 5})
    assert short_in_room({"cpu": 0}, full) == [], "what is not requested is not short"
    assert short_in_room({"memory": 6}, held) == ["Reservation(s) Insufficient memory"], "nothing of CPU is requested"
    assert short_in_room({GPU: 2}, restricted(allocatable={GPU: 1}), ignored=Ignored(frozenset((GPU,)))) == []


def test_a_room_for_two_pods_takes_two() -> None:
    held = {"pods": 2, "cpu": 10}
    for pods, given_back, short in ((1, 0, []), (2, 0, ["Reservation(s) Too many pods"]), (2, 1, [])):
        found = short_in_room({"cpu": 1, "pods": 9}, restricted(allocatable=held, pods=pods), {"pods": given_back})
        assert found == short
    assert short_in_room({"cpu": 1}, restricted(allocatable=held, pods=2), detailed=True) == [
        "Reservation(s) Too many pods, requested: 1, used: 2, capacity: 2"
    ]


def test_a_room_takes_a_pod_that_the_node_bears_with_it() -> None:
    held = room(allocatable={"cpu": 600})
    assert fit({"cpu": 400}, held) == FitResult(True, (held,))
    assert fit({"cpu": 399}, held) == FitResult(False, reasons=("Insufficient cpu by node",))
    assert fit({"cpu": 400}, held, pods_free=0) == FitResult(False, reasons=("Insufficient pods by node",))
    assert fit({"cpu": 400}, restricted(allocatable={"cpu": 600}), required=True) == FitResult(
        False, reasons=("Reservation(s) Insufficient cpu",)
    )


def test_without_affinity_a_pod_may_use_the_node_alone() -> None:
    small = restricted(allocatable={"cpu": 600})
    assert fit({"cpu": 1000}, small) == FitResult(True)
    assert fit({"cpu": 1000}, small, required=True).reasons == ("Reservation(s) Insufficient cpu",)
    assert fit({"cpu": 999}, small) == FitResult(False, reasons=("Insufficient cpu by node",))
    assert fit({"cpu": 399}, small, required=True).reasons == ("Insufficient cpu by node", "Reservation(s) Insufficient cpu")
    assert fit({"cpu": 1000}) == FitResult(True)
    assert fit({"cpu": 0}, required=True) == FitResult(False, reasons=(NONE_MEETS,))
    assert fit({"cpu": 0}) == FitResult(False, reasons=("Insufficient cpu by node",))


def test_a_room_of_other_resources_is_used_with_affinity_only_and_by_name_only_the_named_one() -> None:
    other, mine = room("other", allocatable={"memory": 5}), room("mine")
    assert fit({"cpu": 1000}, other) == FitResult(True)
    assert fit({"cpu": 1000}, other, required=True) == FitResult(True, (other,))
    assert fit({"cpu": 1000}, other, mine) == FitResult(True, (mine,))
    assert fit({"cpu": 1000}, other, mine, required=True, name="mine") == FitResult(True, (mine,))
    assert fit({"cpu": 1000}, other, required=True, name="mine") == FitResult(False, reasons=(NONE_MEETS,))


def test_victims_give_back_on_the_node_and_inside_a_room() -> None:
    held = restricted(allocatable={"cpu": 1000}, allocated={"cpu": 500})
    assert not fit({"cpu": 0}, held).fits
    inside = Victims(inside={"uid-r": {"cpu": 500}})
    assert fit({"cpu": 0}, held, victims=inside) == FitResult(True, (held,))
    assert not fit({"cpu": 0}, held, victims=Victims(inside={"uid-s": {"cpu": 500}})).fits
    assert fit({"cpu": 0}, victims=Victims(on_node={"cpu": 1000})) == FitResult(True)
    assert not fit({"cpu": 0}, victims=Victims(on_node={"cpu": 999})).fits
    both = Victims(on_node={"cpu": 300}, inside={"uid-r": {"cpu": 200}})
    loose = room(allocatable={"cpu": 1000}, allocated={"cpu": 500})
    assert fit({"cpu": 0}, loose, victims=both).fits
    assert not fit({"cpu": 0}, loose, cpu=1001, victims=both).fits
    others = Victims(on_node={"cpu": 500}, inside={"uid-r": {"memory": 5}})
    assert fit({"cpu": 0}, loose, victims=others).fits
    assert not fit({"cpu": 0}, loose, cpu=1001, victims=others).fits


def test_with_a_single_room_the_node_need_not_be_looked_at() -> None:
    held, second = room("a"), room("b")
    assert fit({"cpu": -9000}, held, skip_node=True) == FitResult(True, (held,))
    assert not fit({"cpu": -9000}, held, second, skip_node=True).fits


def test_a_room_is_nominated_unless_it_is_used_up() -> None:
    assert may_be_nominated({"cpu": 1}, room(allocate_once=True), required=False) == ""
    assert may_be_nominated({"cpu": 1}, room(allocate_once=True, pods=1), required=False) == ALREADY_ALLOCATED
    assert may_be_nominated({"cpu": 1}, room(pods=1), required=False) == ""
    assert may_be_nominated({"memory": 1}, room(), required=False) == NONE_MEETS
    assert may_be_nominated({"memory": 1}, room(), required=True) == ""
    assert may_be_nominated({"cpu": 4001}, restricted(), required=True) == "Reservation(s) Insufficient cpu"
    assert may_be_nominated({"cpu": 4001}, room(), required=True) == ""


def test_a_reserve_pod_goes_to_its_node_and_beside_policies_that_go_with_its_own() -> None:
    assert refuses_reserve_pod("a", "b", "", ()) == OTHER_NODE
    assert refuses_reserve_pod("a", "a", "", ("",)) == refuses_reserve_pod("a", "", "Aligned", ("Restricted",)) == ""
    for policy, there in (("", "Aligned"), ("Restricted", "")):
        assert refuses_reserve_pod("a", "", policy, (policy, there)) == POLICY_CONFLICT


def test_a_room_scores_by_how_full_the_pod_makes_it() -> None:
    held = room(allocatable={"cpu": 1000, "memory": 100, GPU: 0}, allocated={"cpu": 300})
    assert room_score({"cpu": 200, "memory": 25}, held) == (50 + 25) // 2
    assert room_score({"cpu": 700, "memory": 101}, held) == 50
    assert room_score({"cpu": 701}, held) == 0
    assert room_score({"cpu": 5}, room(allocatable={"cpu": 0})) == 0
    assert room_score({"cpu": 1}, room(allocatable={"cpu": 1})) == 100


def test_the_nominated_room_has_the_smallest_order_else_is_the_fullest_else_the_oldest() -> None:
    def named(**fields: Any) -> list[ReservationCapacity]:
        return [room(name, created=created, **fields) for name, created in (("b", "1"), ("a", "1"), ("c", "0"))]

    assert nominated({}, ()) is None
    assert nominated({"cpu": 1}, named()[:1]) == named()[0]
    found = nominated({"cpu": 1}, named())
    assert found is not None
    assert found.name == "c"
    found = nominated({"cpu": 1}, named()[:2])
    assert found is not None
    assert found.name == "a"
    full, small, large = room("full", allocated={"cpu": 3000}), room("small", order=1), room("large", order=2)
    assert nominated({"cpu": 1000}, [room("empty"), full]) == full
    assert nominated({"cpu": 1000}, [full, large, small]) == small


@pytest.mark.parametrize(
    ("raw", "found"), [([10, 40, 0], [25, 100, 0]), ([0, 0], [0, 0]), ([3, 1], [100, 33]), ([1], [100]), ([], [])]
)
def test_scores_of_nodes_are_parts_of_the_highest(raw: list[int], found: list[int]) -> None:
    with np.errstate(divide="raise"):
        assert normalised(np.array(raw, dtype=np.int64)).tolist() == found


def test_the_node_of_the_smallest_order_is_worth_1000() -> None:
    scores = np.array([7, 8], dtype=np.int64)
    assert preferring(scores, -1).tolist() == [7, 8]
    assert preferring(scores, 0).tolist() == [1000, 8]
    assert scores.tolist() == [7, 8]


def test_owners_are_found_by_something_that_each_of_them_has() -> None:
    def key(**rule: Any) -> tuple[str, str, str]:
        (found,) = keys_of([msgspec.convert(rule, OwnerRule)])
        return found

    labels = {"matchLabels": {"b": "2", "a": "1"}}
    terms = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    assert key(labelSelector=labels) == key(labelSelector={**labels, **terms}) == ("label", "a", "1")
    assert key(labelSelector=terms) == key(object={}) == ("", "", "")
    assert key(object={"uid": "u", "name": "n"}, labelSelector=labels) == ("uid", "u", "")
    assert key(object={"name": "n"}) == ("name", "n", "")
    assert key(controller={"uid": "u", "name": "n"}, labelSelector=labels) == ("controller-uid", "u", "")
    assert key(controller={"name": "n"}) == ("controller-name", "n", "")


def test_a_share_is_published_again_when_its_pause_is_over() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="8"))
    story.executor("a")
    story.reservation(reservation("r", cpu="4", allocateOnce=False))
    story.settle()
    seen = []
    for name in ("p1", "p2"):
        story.pod(pod(name, cpu="1", labels={"app": "web"}))
        story.settle()
        share = story.share("r")
        assert share is not None
        seen.append(share.owner_count)
    story.later(SHARE_PAUSE.total_seconds())
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (seen, share.owner_count) == ([1, 1], 2)


def test_a_reservation_that_still_fits_nowhere_says_since_when() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="1"))
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    first = story.status("r")
    assert first is not None
    story.later(60)
    story.node(node("a", cpu="8", taints=[{"key": "x", "value": "", "effect": "NoSchedule"}]))
    story.settle()
    second = story.status("r")
    assert second is not None
    ((before,), (after,)) = first.conditions, second.conditions
    assert before.message != after.message
    assert after.last_transition_time == before.last_transition_time


def test_a_reader_of_changed_names_that_is_too_far_behind_looks_at_all() -> None:
    changed = ChangedNames()
    for number in range(NAMES_KEPT):
        changed.add(str(number))
    assert changed.since(NAMES_KEPT - 1) == [str(NAMES_KEPT - 1)]
    changed.add("a")
    changed.add("b")
    assert changed.position == NAMES_KEPT + 2
    assert changed.since(NAMES_KEPT - 1) is None
    assert changed.since(NAMES_KEPT) == ["a", "b"]
    assert changed.since(changed.position) == []
