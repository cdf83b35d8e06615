"""What follows from a reservation that changed: its share, its owners as others see them, its status."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.model.subjects import reservation_status_subject, reservation_subject
from tests.unit.scheduler.builders_reservations import AFFINITY, GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import NOW, node, pod

WEB = {"app": "web"}


def story_of(*names: str, cpu: str = "16") -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(name, cpu=cpu) for name in names))
    return story


def web(name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, labels=WEB, **more)


def owners(story: ReservedStory) -> tuple[int, list[str]]:
    """How many owners the share of r names, and their uids."""
    share = story.share("r")
    assert share is not None
    return share.owner_count, [owner.uid for owner in share.owners]


def test_a_share_names_its_first_owner_at_once_and_others_a_second_later() -> None:
    story = story_of("a")
    story.reservation(reservation("r", allocateOnce=False))
    story.settle()
    story.pod(web("late", uid="2"))
    story.settle()
    assert owners(story) == (1, ["2"])
    story.later(0.5)
    story.pod(web("later", uid="1"))
    story.settle()
    story.later(0.499)
    story.settle()
    assert owners(story) == (1, ["2"]), "stored less than a second ago"
    story.later(0.001)
    story.settle()
    assert owners(story) == (2, ["1", "2"]), "by uid"
    # One takes the place of another: as many as before, but not the same.
    story.later(5)
    story.pod_deleted("late")
    story.pod(web("next", uid="3"))
    story.settle()
    story.later(1)
    story.settle()
    assert owners(story) == (2, ["1", "3"])
    assert story.settle() == []


def test_a_share_of_another_uid_ends_beside_the_present_one() -> None:
    story = story_of("a", "b")
    story.reservation(reservation("r", template={"nodeName": "b"}, ttl="60s", created="2026-01-01T12:00:00Z"))
    story.settle()
    old = ReservationShare(node="a", name="r", uid="earlier", allocatable={"cpu": 1000}, bound_at=NOW)
    story.say(reservation_subject("a", "r"), old)
    story.later(61)
    ended = {event.subject: event.data for event in story.decide() if event.tombstone}
    assert set(ended) == {"node.a.reservation.r", "node.b.reservation.r"}
    reasons = [data.reason for _, data in sorted(ended.items()) if isinstance(data, ReservationShare)]
    assert reasons == ["the reservation was deleted", "its time is over"]
    assert story.phase("r") == "Failed"
    assert story.settle() == []


@pytest.mark.parametrize("phase", list(ReservationPhase))
def test_a_status_ends_when_its_reservation_is_another(phase: ReservationPhase) -> None:
    story = story_of("a", cpu="2")
    story.reservation(reservation("r", uid="second", cpu="4"))
    story.say(reservation_status_subject("r"), ReservationStatus(name="r", uid="first", phase=phase, message="x"))
    first, *_ = [event for event in story.decide() if event.subject == "reservations.r"]
    assert first.tombstone
    story.later(1)
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.uid, status.phase) == ("second", ReservationPhase.PENDING)
    story.reservation_deleted("r")
    story.settle()
    assert story.status("r") is None
    assert story.settle() == []


@pytest.mark.parametrize(("phase", "node_of"), [("Succeeded", ""), ("Failed", ""), ("Pending", "a")])
def test_one_that_has_ended_gets_no_node_again(phase: str, node_of: str) -> None:
    story = story_of("a")
    status = ReservationStatus(name="r", uid="uid-r", phase=ReservationPhase(phase))
    story.say(reservation_status_subject("r"), status)
    story.reservation(reservation("r"))
    story.settle()
    share = story.share("r")
    assert (share.node if share is not None else "") == node_of
    assert (story.status("r") is None) == bool(node_of)


def test_a_reservation_that_another_scheduler_places_is_not_judged() -> None:
    story = story_of("a")
    wrong = {"cpu": "-4"}
    story.reservation(reservation("ours", requests=wrong))
    story.reservation(reservation("theirs", requests=wrong, template={"schedulerName": "other"}))
    story.settle()
    assert (story.phase("ours"), story.phase("theirs")) == ("Pending", "")
    ours = story.status("ours")
    assert ours is not None
    assert [reason.code for reason in ours.reasons] == ["malformed"]


def test_owners_of_a_used_up_reservation_are_named_when_it_ends_without_its_share() -> None:
    """A share that is allocated once and whose owner is found there ends by itself; its status names the owner."""
    story = story_of("a")
    story.reservation(reservation("r"))
    story.settle()
    share = story.share("r")
    assert share is not None
    story.pod(web("w", cpu="3", annotations=wants(name="r")))
    decided = story.core.decide(story.now)
    [placed] = [event for event in decided if event.subject == "node.a.placement.default.w"]
    story.say(placed.subject, placed.data)  # without the rest of its batch
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.phase, status.owner_count, status.message) == (
        ReservationPhase.SUCCEEDED,
        1,
        "pod default/w has taken it",
    )
    assert [owner.name for owner in status.owners] == ["w"]
    assert status.allocated == {"cpu": 3000, "memory": 1 << 30}


def test_a_pod_whose_demands_cannot_be_read_waits_beside_a_reservation_for_it() -> None:
    story = story_of("a")
    story.reservation(reservation("r"))
    story.settle()
    story.pod(web("w", annotations={f"{GROUP}/exact-match-reservation": '{"resourceNames": 1}'}))
    story.settle()
    assert (story.node_of("w"), story.phase("r")) == (None, "Available")
    waiting = story.waiting("w")
    assert waiting is not None
    assert "exact-match-reservation" in waiting.message


def test_a_pod_whose_demands_cannot_be_read_says_nothing_else() -> None:
    story = story_of("a")
    story.pod(web("w", cpu="99", annotations={AFFINITY: "{"}))
    story.settle()
    waiting = story.waiting("w")
    assert waiting is not None
    assert [reason.count for reason in waiting.reasons] == [1]
    assert AFFINITY in waiting.reasons[0].detail
    assert "Insufficient cpu" not in waiting.message


@pytest.mark.parametrize(("phase", "ends"), [("Pending", True), ("Succeeded", False), ("Failed", False)])
def test_a_status_that_says_it_waits_ends_beside_a_share(phase: str, ends: bool) -> None:
    """One that says how it ended stays: the share is what has yet to end."""
    story = story_of("a")
    story.reservation(reservation("r"))
    story.settle()
    status = ReservationStatus(name="r", uid="uid-r", phase=ReservationPhase(phase))
    story.say(reservation_status_subject("r"), status)
    story.settle()
    assert (story.status("r") is None) == ends
    assert story.share("r") is not None


def test_where_every_node_has_a_reservation_that_is_too_small_none_is_said_to_have_none() -> None:
    story = story_of("a")
    story.reservation(reservation("r", cpu="2", allocateOnce=False, allocatePolicy="Restricted"))
    story.settle()
    story.pod(web("w", cpu="3", annotations=wants(reservationSelector={})))
    story.settle()
    waiting = story.waiting("w")
    assert waiting is not None
    assert waiting.message == (
        "0/1 nodes are available: 1 Reservation(s) Insufficient cpu, 1 Reservation(s) matched owner total."
    )


def test_the_end_of_a_status_names_the_object_while_there_is_one() -> None:
    story = story_of("a", cpu="2")
    first = story.reservation(reservation("r", cpu="4"))
    story.settle()
    story.node(node("b"))
    ends = {event.subject: event.causes for event in story.decide() if event.tombstone}
    assert ends == {"reservations.r": (first.ref,)}
    story.reservation(reservation("s", cpu="99"))
    story.settle()
    story.reservation_deleted("s")
    ends = {event.subject: event.causes for event in story.decide() if event.tombstone}
    assert ends == {"reservations.s": ()}


@pytest.mark.parametrize("required", [True, False])
def test_what_nodes_lack_is_a_reason_only_where_a_pod_may_use_them_alone(required: bool) -> None:
    story = story_of("a", cpu="4")
    story.reservation(reservation("r", cpu="2", unschedulable=True))
    story.settle()
    story.pod(web("w", cpu="3", annotations=wants(reservationSelector={}) if required else {}))
    story.settle()
    waiting = story.waiting("w")
    assert waiting is not None
    of_nodes = [("reservation", 1)] if required else [("insufficient", 1)]
    # Then, what the reservations lack: one is unschedulable, and one matches in all.
    assert [(reason.code, reason.count) for reason in waiting.reasons] == [*of_nodes, ("reservation", 0), ("reservation", 0)]
    assert "node.*.reservation.*" in waiting.wakes_on


def test_the_decision_that_ends_a_reservation_gives_its_pod_the_next_one() -> None:
    story = story_of("a")
    story.reservation(reservation("ending", ttl="60s", created="2026-01-01T12:00:00Z"))
    story.reservation(reservation("lasting"))
    story.settle()
    story.later(61)
    story.pod(web("w"))
    story.decide()
    assert (story.used("w"), story.phase("ending")) == ("lasting", "Failed")
