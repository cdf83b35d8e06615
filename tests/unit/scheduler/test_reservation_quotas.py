"""A Reservation whose template is in a quota needs room there, and is charged nothing: its owners are (quota-tree 12.3)."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.names import LABEL_PREEMPTIBLE, LABEL_QUOTA
from cotenant.domain.reservations.of_migrations import ANNOTATION_JOB
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

RED = {LABEL_QUOTA: "red"}


def story(**quota: int) -> ReservedStory:
    told = ReservedStory()
    told.nodes(node("a", cpu="32", memory="64Gi"))
    told.executor("a")
    told.quota("red", max={"cpu": quota.get("max", 4000)}, min={"cpu": quota.get("min", 0)})
    return told


def reserving(name: str = "r", cpu: str = "2", **more: Any) -> dict[str, Any]:
    return reservation(name, cpu=cpu, labels={**RED, **more.pop("labels", {})}, **more)


def used(told: ReservedStory) -> int:
    told.core.settle()
    return told.core.ledger.used(Membership("red")).get("cpu", 0)


def test_it_waits_while_its_quota_has_no_room_and_is_placed_once_it_has() -> None:
    told = story()
    told.pods(pod("p", cpu="3", labels={**RED, "app": "other"}))
    told.settle()
    told.reservation(reserving())
    told.settle()
    status = told.status("r")
    assert status is not None
    assert [reason.code for reason in status.reasons] == ["quota"]
    assert "Insufficient quotas, quotaName: red" in status.message
    told.quota("red", max={"cpu": 5000})
    told.settle()
    assert told.phase("r") == "Available"


def test_it_is_charged_nothing_and_its_owner_is_charged_once() -> None:
    told = story(max=2000)
    told.reservation(reserving(allocateOnce=False))
    told.settle()
    assert (told.phase("r"), used(told)) == ("Available", 0)
    told.pods(pod("web", cpu="2", labels={**RED, "app": "web"}))
    told.settle()
    assert (told.used("web"), used(told)) == ("r", 2000)
    told.core = told.reloaded()
    assert used(told) == 2000


def test_it_makes_nobody_leave_in_its_quota() -> None:
    told = story(max=2000)
    told.pods(pod("low", cpu="2", labels={**RED, "app": "x"}, priority=1))
    told.settle()
    told.reservation(reserving(template={"priority": 9}))
    told.settle()
    assert told.phase("r") == "Pending"
    status = told.status("r")
    assert status is not None
    assert status.nomination is None


@pytest.mark.parametrize(("least", "phase"), [(1000, "Pending"), (2000, "Available")])
def test_one_that_is_not_preemptible_must_fit_into_min(least: int, phase: str) -> None:
    told = story(min=least)
    told.reservation(reserving(labels={LABEL_PREEMPTIBLE: "false"}))
    told.settle()
    assert told.phase("r") == phase


def test_one_for_a_pod_that_moves_within_a_full_quota_is_placed() -> None:
    told = story(max=2000)
    told.pods(pod("moves", cpu="2", labels={**RED, "app": "web"}))
    told.settle()
    told.reservation(reserving(annotations={ANNOTATION_JOB: "job"}))
    told.settle()
    assert told.phase("r") == "Available"


def test_a_gang_of_a_reservation_and_a_pod_waits_while_the_quota_has_no_room_for_the_reservation() -> None:
    told = story(max=3000)
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    told.reservation(reserving(annotations=gang, template={"priority": 1}))
    told.pods(pod("first", cpu="2", labels={**RED, "app": "x"}, annotations=gang, priority=9))
    told.settle()
    assert (told.phase("r"), told.placed()) == ("Pending", {})
    told.quota("red", max={"cpu": 4000})
    told.settle()
    assert (told.phase("r"), told.placed()) == ("Available", {"first": "a"})


def test_one_in_no_quota_is_limited_by_none() -> None:
    told = story(max=0)
    told.reservation(reservation("r", cpu="8"))
    told.settle()
    assert told.phase("r") == "Available"
