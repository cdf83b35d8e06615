"""Which reservation of many a pod gets, and what it says of those that it does not get: exact nodes, counts and words."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.reservations import ReservationShare
from cotenant_scheduler.cycle.reservations.reserving import ReservationRefusal, reasons_of
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}
ORDER = f"{GROUP}/reservation-order"
EXACT = {f"{GROUP}/exact-match-reservation": '{"resourceNames": ["cpu"]}'}


def on(name: str, where: str, **more: Any) -> dict[str, Any]:
    """A reservation of a named node."""
    return reservation(name, template={"nodeName": where}, **more)


def story_of(*names: str, cpu: str = "16", **more: Any) -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(name, cpu=cpu, **more) for name in names))
    return story


def web(name: str, cpu: str = "2", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, memory=memory, labels=WEB, **more)


def message(story: ReservedStory, name: str) -> str:
    waiting = story.waiting(name)
    assert waiting is not None
    return waiting.message


# -- which one --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [False, True])
def test_each_pod_gets_the_reservation_that_it_fills_most(at_once: bool) -> None:
    story = story_of(*(f"n{index:02}" for index in range(12)))
    sizes = {f"n{index:02}": 3 + (7 * index) % 12 for index in range(12)}
    story_names = {f"r{size:02}": where for where, size in sizes.items()}
    for name, where in story_names.items():
        story.reservation(on(name, where, cpu=name[1:]))
    story.settle()
    for index in range(12):
        story.pod(web(f"w{index:02}"))
        if not at_once:
            story.settle()
    story.settle()
    assert [story.used(f"w{index:02}") for index in range(12)] == sorted(story_names)
    assert [story.node_of(f"w{index:02}") for index in range(12)] == [where for _, where in sorted(story_names.items())]


@pytest.mark.parametrize(("policy", "used"), [("Restricted", ""), ("Aligned", "r"), ("", "r")])
def test_restricted_options_concern_restricted_reservations_alone(policy: str, used: str) -> None:
    story = story_of("a")
    options = {f"{GROUP}/reservation-restricted-options": '{"resources": ["cpu"]}'}
    story.reservation(reservation("r", annotations=options, allocatePolicy=policy))
    story.settle()
    story.pod(pod("w", requests={"memory": "1Gi"}, labels=WEB))
    story.settle()
    assert story.node_of("w") == "a"
    assert story.used("w") == used


def test_the_smallest_order_counts_more_than_the_fullest_and_of_equal_ones_the_oldest() -> None:
    story = story_of(*"abcdefghij")
    story.reservation(on("full", "a", cpu="2", memory="1Gi"))
    for where, order, created in (("b", "5", "3"), ("c", "5", "1"), ("d", "5", "2"), ("e", "7", "0")):
        story.reservation(on(f"r-{where}", where, labels={ORDER: order}, created=f"2026-01-01T10:00:0{created}Z"))
    story.settle()
    for index in range(6):
        story.pod(web(f"w{index}"))
        story.settle()
    assert [story.used(f"w{index}") for index in range(6)] == ["r-c", "r-d", "r-b", "r-e", "full", ""]


def test_of_reservations_that_are_filled_alike_the_rest_of_the_node_decides() -> None:
    story = story_of("a", "b", cpu="16")
    story.reservation(on("r-a", "a", cpu="4", memory="4Gi"))
    story.reservation(on("r-b", "b", cpu="8", memory="8Gi", allocateOnce=False))
    story.settle()
    story.pod(pod("service", cpu="3", memory="3Gi", nodeName="a"))
    story.pod(web("first", memory="2Gi", annotations=wants(name="r-b")))
    story.settle()
    assert story.used("first") == "r-b"
    # Both become half full. Without what is reserved a uses 3 CPUs and b uses 2; with it 7 and 8.
    story.pod(web("second", memory="2Gi"))
    story.settle()
    assert story.used("second") == "r-b"


@pytest.mark.parametrize(
    ("annotations", "labels", "used"), [({}, {}, ""), (wants(name="r"), {}, "r"), ({}, {ORDER: "9"}, "r")]
)
@pytest.mark.parametrize("reservations", [1, 2])
def test_a_reservation_that_a_pod_exceeds_is_worth_nothing_unless_it_is_wanted_or_has_an_order(
    annotations: dict[str, str], labels: dict[str, str], used: str, reservations: int
) -> None:
    story = story_of("c", "a", "b")
    story.pods(*(pod(f"service-{where}", cpu="8", memory="16Gi", nodeName=where) for where in "ab"))
    story.reservation(on("r", "a", cpu="1", memory="1Mi", labels=labels, allocateOnce=False))
    if reservations == 2:
        story.reservation(on("s", "b", cpu="1", memory="1Mi", allocateOnce=False))
    story.settle()
    story.pod(web("w", cpu="4", memory="2Gi", annotations=annotations))
    story.settle()
    assert story.used("w") == used
    assert story.node_of("w") == ("a" if used else "c")


def test_the_slot_of_a_reservation_is_its_owners() -> None:
    story = story_of("a", pods="1")
    story.reservation(on("r", "a"))
    story.settle()
    story.pod(pod("other", cpu="1"))
    story.settle()
    assert "Too many pods" in message(story, "other")
    story.pod(web("w"))
    story.settle()
    assert (story.used("w"), story.node_of("other")) == ("r", None)


def test_a_pod_that_ignores_reservations_uses_all_that_is_reserved_on_a_node() -> None:
    story = story_of("a", cpu="8")
    story.reservation(on("r", "a", cpu="4"))
    story.reservation(on("s", "a", cpu="4"))
    story.settle()
    story.pod(pod("any", cpu="8", labels={f"{GROUP}/reservation-ignored": "true"}))
    story.settle()
    assert (story.node_of("any"), story.used("any")) == ("a", "")


def test_one_that_comes_or_changes_beside_many_others_is_seen() -> None:
    names = [f"n{index}" for index in range(6)]
    story = story_of(*names, cpu="8")
    for where in names:
        story.reservation(on(f"r-{where}", where, cpu="8", labels={"size": "small"}))
    story.settle()
    wanted = wants(reservationSelector={"size": "large"})
    story.pods(web("selects", annotations=wanted), web("zone", annotations=wants(reservationSelector={"zone": "x"})))
    story.settle()
    assert (story.node_of("selects"), story.node_of("zone")) == (None, None)
    # The reservation's labels change, and those of a node.
    story.reservation(on("r-n3", "n3", cpu="8", labels={"size": "large"}))
    story.node(node("n5", cpu="8", labels={"zone": "x"}))
    story.settle()
    assert (story.used("selects"), story.used("zone")) == ("r-n3", "r-n5")
    story.pod(web("later", annotations=wants(reservationSelector={"size": "new"})))
    story.settle()
    assert story.node_of("later") is None
    story.reservation_deleted("r-n0")
    story.settle()
    story.reservation(on("new", "n0", cpu="8", labels={"size": "new"}))
    story.settle()
    assert story.used("later") == "new"


def test_those_that_take_no_owner_are_passed_by() -> None:
    story = story_of("a", cpu="32", memory="64Gi")
    for name, more in (
        ("r1", {"unschedulable": True}),
        ("r2", {"ttl": "60s", "created": "2026-01-01T11:59:30Z"}),
        ("r3", {"allocateOnce": False, "cpu": "8"}),
    ):
        story.reservation(on(name, "a", **more))
    story.settle()
    story.pod(web("w", annotations=wants(reservationSelector={})))
    story.settle()
    assert story.used("w") == "r2"
    story.later(31)
    story.pod(web("v", annotations=wants(reservationSelector={})))
    story.settle()
    assert story.used("v") == "r3"


# -- what is said -----------------------------------------------------------------------------------------------------


def test_every_reservation_of_a_pod_is_counted_by_why_it_does_not_take_it() -> None:
    story = story_of("a", "b", "c", cpu="32", memory="128Gi")
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    selected = {"zone": "x"}
    kinds: dict[str, dict[str, Any]] = {
        "closed": {"unschedulable": True, "labels": selected},
        "tainted": {"taints": [taint], "labels": selected},
        "elsewhere": {},
        "inexact": {"labels": selected, "cpu": "3"},
    }
    for kind, more in kinds.items():
        for number, where in enumerate("aab"):
            story.reservation(on(f"{kind}-{number}", where, allocateOnce=False, **more))
    story.settle()
    story.pod(web("w", annotations=wants(reservationSelector=selected) | EXACT))
    story.settle()
    assert message(story, "w") == (
        "0/3 nodes are available: 3 node(s) no reservations match reservation affinity,"
        " 3 Reservation(s) didn't match affinity rules, 3 Reservation(s) is unschedulable,"
        " 3 Reservation(s) is not exact matched, 3 Reservation(s) had untolerated taint {k: v},"
        " 12 Reservation(s) matched owner total."
    )


def test_a_name_is_counted_where_it_matches_and_where_it_does_not() -> None:
    story = story_of("a", "b", "c", cpu="8")
    for name, where in (("r", "a"), ("s", "a"), ("t", "b")):
        story.reservation(on(name, where, cpu="2", allocatePolicy="Restricted", allocateOnce=False))
    story.settle()
    story.pod(web("w", cpu="3", annotations=wants(name="r")))
    story.settle()
    assert message(story, "w") == (
        "0/3 nodes are available: 2 node(s) no reservations match reservation affinity,"
        " 1 Reservation(s) Insufficient cpu, requested: 3000, used: 0, capacity: 2000,"
        " 1 Reservation(s) exactly matches the requested reservation name,"
        " 2 Reservation(s) didn't match the requested reservation name, 3 Reservation(s) matched owner total."
    )


def test_a_pod_without_affinity_says_what_nodes_and_then_what_reservations_lack() -> None:
    story = story_of("a", "b", cpu="4")
    story.reservation(on("r", "a", unschedulable=True))
    story.settle()
    story.pod(pod("service", cpu="4", nodeName="b"))
    story.settle()
    story.pod(web("w"))
    story.settle()
    assert message(story, "w") == (
        "0/2 nodes are available: 2 Insufficient cpu,"
        " 1 Reservation(s) is unschedulable, 1 Reservation(s) matched owner total."
    )


def test_reasons_come_by_count_then_by_text_before_what_reservations_say() -> None:
    reasons, texts = reasons_of(ReservationRefusal({"node(s) b": 1, "node(s) z": 3, "a": 3}, ("2 Reservation(s) x",), True))
    assert [(each.code, each.count, each.detail) for each in reasons] == [
        ("reservation", 3, "a"),
        ("reservation", 3, "z"),
        ("reservation", 1, "b"),
        ("reservation", 0, "2 Reservation(s) x"),
    ]
    assert texts == ["3 a", "3 node(s) z", "1 node(s) b", "2 Reservation(s) x"]


# -- shares -----------------------------------------------------------------------------------------------------------


def ends(story: ReservedStory) -> dict[str, tuple[bool, tuple[str, ...]]]:
    """What a decision ends or states of reservations: whether it is an end, and its causes."""
    return {event.subject: (event.tombstone, event.causes) for event in story.decide() if "reservation" in event.subject}


def test_the_end_of_a_share_names_its_causes() -> None:
    story = story_of("a")
    placed = story.reservation(on("r", "a"))
    story.settle()
    share = story.last["node.a.reservation.r"]
    assert share.causes[0] == placed.ref
    story.reservation_deleted("r")
    assert ends(story) == {"node.a.reservation.r": (True, (share.ref,))}, "there is no object any more"
    again = story.reservation(on("r", "a", ttl="60s", created="2026-01-01T11:59:30Z"))
    story.settle()
    share = story.last["node.a.reservation.r"]
    story.later(31)
    found = ends(story)
    assert found["node.a.reservation.r"] == (True, (again.ref, share.ref))
    assert found["reservations.r"] == (False, (again.ref,))


def test_a_resized_share_holds_what_is_said_and_nothing_below_nothing() -> None:
    story = story_of("a")
    resized = {f"{GROUP}/reservation-resize-allocatable": '{"resources": {"cpu": "2", "memory": "0"}}'}
    story.reservation(on("r", "a", annotations=resized))
    story.reservation(on("s", "a"))
    story.settle()
    share, plain = story.share("r"), story.share("s")
    assert isinstance(share, ReservationShare)
    assert isinstance(plain, ReservationShare)
    assert share.allocatable == {"cpu": 2000, "memory": 0}
    assert plain.allocatable == {"cpu": 4000, "memory": 4 << 30}
    assert b'"2"' in bytes(share.pod)
    assert b'"4"' in bytes(plain.pod)


@pytest.mark.parametrize(
    ("spec", "message"),
    [({"ttl": "60s", "created": "2026-01-01T11:59:30Z"}, "its time is over"), ({}, "its node a was deleted")],
)
def test_a_share_that_fails_says_why(spec: dict[str, Any], message: str) -> None:
    story = story_of("a")
    story.reservation(on("r", "a", allocateOnce=False, **spec))
    story.settle()
    story.pod(web("w"))
    story.settle()
    if spec:
        story.later(30)
        story.settle()
        assert story.phase("r") == "Available", "up to its last moment"
        story.later(0.001)
    else:
        story.node_deleted("a")
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.phase.value, status.message, status.reason) == ("Failed", message, "Expired")
    assert (status.owner_count, status.allocated["cpu"]) == (1, 2000)


def test_what_is_wrong_with_a_reservation_is_said_once_and_taken_back_when_another_scheduler_takes_it() -> None:
    story = story_of("a")
    wrong = reservation("r", requests={"cpu": "4"}, owners=[])
    story.reservation(wrong)
    story.settle()
    status = story.status("r")
    assert status is not None
    [reason] = status.reasons
    assert (reason.code, reason.count, reason.detail) == ("malformed", 0, status.message)
    story.reservation(wrong)
    assert [event for event in story.settle() if "reservation" in event.subject] == []
    story.later(60)
    story.reservation(reservation("r", cpu="99"))
    story.settle()
    status = story.status("r")
    assert status is not None
    assert "Insufficient cpu" in status.message
    story.reservation(reservation("r", cpu="99", template={"schedulerName": "other"}))
    story.settle()
    assert story.status("r") is None
    story.reservation(reservation("r"))
    story.settle()
    assert story.phase("r") == "Available"


def test_a_reservation_that_takes_the_pod_outweighs_every_other_score() -> None:
    story = story_of("a", "b")
    story.pod(pod("service", cpu="12", memory="24Gi", nodeName="a"))
    story.reservation(on("r", "a", cpu="2", memory="1Gi"))
    story.settle()
    story.pod(web("w"))
    story.settle()
    placement = story.placement("w")
    assert placement is not None
    assert placement.node == "a"
    assert {figure.name: figure.value for figure in placement.figures}["score.Reservation"] == 5000 * 100


def test_what_the_node_refuses_is_said_of_those_that_match_and_not_of_the_others() -> None:
    story = story_of("a", cpu="32", memory="64Gi")
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    story.reservation(on("plain", "a", allocateOnce=False))
    story.reservation(on("tainted", "a", allocateOnce=False, taints=[taint]))
    story.settle()
    story.node(node("a", cpu="32", memory="64Gi", unschedulable=True))
    story.pod(web("w", annotations=wants(reservationSelector={})))
    story.settle()
    said = message(story, "w")
    assert "1 Reservation(s) had untolerated taint {k: v}" in said
    assert "1 Reservation(s) for node reason that " in said


def test_a_resource_that_no_node_offers_is_short_on_the_node() -> None:
    story = story_of("a")
    story.reservation(on("r", "a"))
    story.settle()
    wanted = pod("w", requests={"cpu": "1", "example.com/x": "1"}, labels=WEB, annotations=wants(reservationSelector={}))
    story.pod(wanted)
    story.settle()
    assert "1 Insufficient example.com/x by node" in message(story, "w")
