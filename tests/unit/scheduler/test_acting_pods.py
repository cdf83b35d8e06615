"""Pods that act as reservations, seen from the log: whose room they are, whatever order messages come in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, UsedBy
from cotenant.model.subjects import placement_subject
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.test_operating_pods import WEB, acting, report, story_with


def with_user() -> tuple[ReservedStory, str]:
    """A pod that acts as a reservation, used by web-b, and its node."""
    story = story_with(acting("holder", cpu="6"))
    story.pod(pod("web-b", cpu="2", labels=WEB))
    story.settle()
    where = story.node_of("holder")
    assert where is not None
    assert story.used("web-b") == "default/holder"
    return story, where


def test_of_two_users_the_first_by_name_is_published() -> None:
    """A rival's placement may name it as well: one scheduler gives it to one pod only."""
    story, where = with_user()
    given = story.placement("web-b")
    assert given is not None
    for name in ("web-a", "web-c"):
        document = pod(name, cpu="2", labels=WEB, nodeName=where)
        story.pod(document)
        rival = msgspec.structs.replace(given, name=name, uid=f"uid-{name}", pod=msgspec.Raw(msgspec.json.encode(document)))
        story.say(placement_subject(where, "default", name), rival)
    story.settle()
    holder = story.placement("holder")
    assert holder is not None
    assert holder.used_by == UsedBy(namespace="default", name="web-a", uid="uid-web-a")
    assert story.requested(where) == 6000
    assert story.settle() == []


def test_one_that_is_changed_is_matched_as_it_is_now() -> None:
    story = story_with(acting("holder", cpu="6", labels={"tier": "a"}))
    record = story.core.reservations.by_name["default/holder"]
    story.run("n1", "stranger", RunPhase.RUNNING)
    report(story, "holder", ready=True)
    assert story.core.reservations.by_name["default/holder"] is record, "nothing that matters has changed"
    owners = [{"labelSelector": {"matchLabels": {"app": "db"}}}]
    story.pod(acting("holder", cpu="6", labels={"tier": "a"}, owners=owners))
    story.settle()
    story.pods(pod("web-0", labels=WEB), pod("db-0", labels={"app": "db"}))
    story.settle()
    assert (story.used("web-0"), story.used("db-0")) == ("", "default/holder")


@pytest.mark.parametrize("ending", ["deleting", "deleted", "other uid", "malformed"])
def test_one_that_ends_is_given_to_nobody(ending: str) -> None:
    story = story_with(acting("holder", cpu="6"))
    where = story.node_of("holder")
    assert where is not None
    if ending == "deleting":
        story.pod(acting("holder", cpu="6", deleting=True))
    elif ending == "deleted":
        story.pod_deleted("holder")
    elif ending == "other uid":
        story.pod(acting("holder", cpu="6", uid="other"))
    else:
        story.pod(acting("holder", requests={"cpu": "-1"}))
    story.pod(pod("web-0", labels=WEB))
    story.settle()
    assert not story.core.reservations.by_name
    assert story.used("web-0") == ""


def test_one_that_its_placement_does_not_name_is_given_to_nobody() -> None:
    story = story_with(acting("holder", cpu="6"))
    where = story.node_of("holder")
    placed = story.placement("holder")
    assert where is not None
    assert isinstance(placed, Placement)
    story.say(placement_subject(where, "default", "holder"), msgspec.structs.replace(placed, allocation=None))
    story.pod(pod("web-0", labels=WEB))
    story.settle()
    assert not story.core.reservations.by_name
    assert story.used("web-0") == ""


def test_what_is_kept_from_everybody_must_be_readable() -> None:
    inside: dict[str, Any] = {"annotations": {"node.koordinator.sh/reservation": '{"resources": {"cpu": "many"}}'}}
    story = story_with(acting("holder", cpu="6", **inside))
    story.pod(pod("web-0", labels={**WEB, f"{GROUP}/any": "true"}))
    story.settle()
    assert not story.core.reservations.by_name
    assert story.used("web-0") == ""
    story.node(node("n3"))
    assert story.settle() == []


def test_a_reservation_beside_one_that_is_used_takes_the_next() -> None:
    story, where = with_user()
    story.reservation(reservation("r", cpu="2", memory="1Gi", allocatePolicy="Aligned", template={"nodeName": where}))
    story.settle()
    story.pod(pod("web-c", cpu="2", labels=WEB))
    story.settle()
    assert story.used("web-c") == "r"
