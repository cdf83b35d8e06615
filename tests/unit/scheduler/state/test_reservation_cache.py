"""The fold of reservations: parts that come and go in any order, and which lists of owners are held for them."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.reservations import ReservationPhase, ReservationStatus
from cotenant.model.subjects import object_subject, reservation_status_subject
from tests.builders import stored
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod


def with_two() -> ReservedStory:
    """Reservations `web` and `db` for pods of these apps, each on the only node and each with a list of owners of its own."""
    story = ReservedStory()
    story.node(node("a", cpu="16"))
    for app in ("web", "db"):
        story.reservation(reservation(app, app=app, allocateOnce=False))
    story.settle()
    return story


def used_by_new_pods(story: ReservedStory) -> list[str]:
    """The reservations that a new pod of each app uses."""
    story.pods(*(pod(f"new-{app}", labels={"app": app}) for app in ("web", "db")))
    story.settle()
    return [story.used(f"new-{app}") for app in ("web", "db")]


def test_the_end_of_an_object_leaves_the_owners_of_others_alone() -> None:
    story = with_two()
    story.reservation_deleted("db")
    story.reservation_deleted("db")
    story.reservation(reservation("db", app="db", allocateOnce=False))
    story.settle()
    assert used_by_new_pods(story) == ["web", "db"]


def test_a_share_that_is_there_before_its_object_is_used_once_that_has_come() -> None:
    story = with_two()
    share = story.last["node.a.reservation.db"]
    story.reservation_deleted("db")
    story.settle()
    story.say(share.subject, share.data)
    story.reservation(reservation("db", app="db", allocateOnce=False))
    story.settle()
    assert used_by_new_pods(story) == ["web", "db"]


def test_an_object_that_cannot_be_read_or_is_of_another_name_counts_as_absent() -> None:
    story = with_two()
    subject = object_subject(GROUP, "reservations", "", "db")
    story.say(subject, stored(reservation("web", app="db")))
    assert "it is that of reservation web" in story.core.refused[subject]
    story.settle()
    assert story.share("db") is None
    assert used_by_new_pods(story) == ["web", ""]
    story.say(subject, stored({"metadata": {"name": 1}}))
    assert set(story.core.reservations.by_name) == {"web"}


@pytest.mark.parametrize("parts", [("object", "status"), ("status", "object")])
def test_a_record_is_kept_as_long_as_one_of_its_parts_is_there(parts: tuple[str, str]) -> None:
    story = ReservedStory()
    status = ReservationStatus(name="r", uid="uid-r", phase=ReservationPhase.FAILED)
    story.say(reservation_status_subject("r"), status)
    story.reservation(reservation("r"))
    for part in parts:
        assert set(story.core.reservations.by_name) == {"r"}
        if part == "object":
            story.reservation_deleted("r")
        else:
            story.say(reservation_status_subject("r"), status, tombstone=True)
    assert not story.core.reservations.by_name
    assert not [key for key in story.core.pods.records if key[1] == "r"]


def test_a_message_about_none_that_is_known_changes_nothing() -> None:
    story = with_two()
    story.reservation_deleted("other")
    share, status = story.last["node.a.reservation.db"], ReservationStatus(name="other", uid="u")
    story.say("node.a.reservation.other", share.data, tombstone=True)
    story.say("node.b.reservation.db", share.data, tombstone=True)
    story.say(reservation_status_subject("other"), status, tombstone=True)
    story.say(reservation_status_subject("db"), status, tombstone=True)
    assert story.settle() == []
    assert (story.phase("web"), story.phase("db")) == ("Available", "Available")
    assert story.requested("a") == 8000


def test_the_time_of_one_that_is_written_again_counts_from_its_last_version() -> None:
    story = ReservedStory()
    story.node(node("a"))

    def until(moment: str, **more: Any) -> dict[str, Any]:
        return reservation("r", ttl=None, expires=f"2026-01-01T{moment}Z", **more)

    story.reservation(until("12:01:00"))
    story.reservation(until("12:03:00"))
    story.settle()
    story.later(61)
    story.settle()
    assert story.phase("r") == "Available", "the earlier end no longer counts"
    story.later(120)
    story.settle()
    assert story.phase("r") == "Failed"
    story.reservation(until("12:10:00", uid="again"))
    story.settle()
    assert story.phase("r") == "Available"
    story.reservation_deleted("r")
    story.settle()
    story.later(600)
    assert story.settle() == [], "it is not there when its time is over"
