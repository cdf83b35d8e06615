"""Pods that act as reservations: matched while they run and are ready, used by one pod at a time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.events.allocations import ReservationUsed
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import UsedBy
from cotenant.model.subjects import run_subject
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node, pod

OWNERS = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
WEB = {"app": "web"}


def acting(name: str, *, mode: str = "Reservation", owners: Any = OWNERS, **more: Any) -> dict[str, Any]:
    annotations = {f"{GROUP}/reservation-owners": owners if isinstance(owners, str) else msgspec.json.encode(owners).decode()}
    annotations |= more.pop("annotations", {})
    return pod(name, labels={f"{GROUP}/operating-mode": mode, **more.pop("labels", {})}, annotations=annotations, **more)


def report(story: ReservedStory, name: str, *, ready: bool) -> None:
    placement = story.placement(name)
    assert placement is not None
    status = RunStatus(
        node=placement.node,
        namespace="default",
        name=name,
        uid=placement.uid,
        phase=RunPhase.RUNNING,
        containers=(ContainerRun(name="main", state="running", ready=ready),),
    )
    story.say(run_subject(placement.node, "default", name), status)
    story.settle()


def story_with(*documents: dict[str, Any], cpu: str = "8", ready: bool = True) -> ReservedStory:
    """Nodes n1 and n2; the documents are placed and report themselves."""
    story = ReservedStory()
    story.nodes(*(node(name, cpu=cpu) for name in ("n1", "n2")))
    for document in documents:
        story.pod(document)
        story.settle()
        report(story, document["metadata"]["name"], ready=ready)
    return story


def test_a_ready_pod_of_that_mode_gives_its_own_room_to_the_pod_that_it_is_for() -> None:
    story = story_with(acting("holder", cpu="6"), acting("other", cpu="6", owners=[]))
    where = story.node_of("holder")
    assert where is not None
    assert story.used("holder") == "default/holder"
    story.pods(pod("stranger", cpu="4"), pod("web-0", cpu="6", labels=WEB))
    story.settle()
    assert story.node_of("stranger") is None
    assert (story.node_of("web-0"), story.used("web-0")) == (where, "default/holder")
    # The room counts once: what one has, the other does not take.
    assert story.requested(where) == 6000
    holder = story.placement("holder")
    assert holder is not None
    assert holder.used_by == UsedBy(namespace="default", name="web-0", uid="uid-web-0")
    assert story.settle() == []


@pytest.mark.parametrize("order", ["as decided", "turned round"])
def test_a_restart_finds_the_same(order: str) -> None:
    story = story_with(acting("holder", cpu="6"))
    story.pod(pod("web-0", cpu="6", labels=WEB))
    story.settle()
    subjects = sorted(story.last, reverse=order == "turned round")
    story.core = story.reloaded(subjects)
    assert story.settle() == []
    where = story.node_of("holder")
    assert where is not None
    assert story.requested(where) == 6000
    assert _names(story.core) == {"default/holder"}


def test_it_is_for_one_pod_at_a_time_and_for_the_next_when_that_has_gone() -> None:
    story = story_with(acting("holder", cpu="6"), acting("other", cpu="6", owners=[]))
    story.pods(pod("web-0", cpu="2", labels=WEB), pod("web-1", cpu="5", labels=WEB, created="2026-01-01T11:30:00Z"))
    story.settle()
    assert story.used("web-0") == "default/holder"
    assert story.node_of("web-1") is None
    story.pod_deleted("web-0")
    story.settle()
    assert story.used("web-1") == "default/holder"
    holder = story.placement("holder")
    assert holder is not None
    assert holder.used_by is not None
    assert holder.used_by.name == "web-1"
    story.pod_deleted("web-1")
    story.settle()
    holder = story.placement("holder")
    assert holder is not None
    assert holder.used_by is None


def test_one_that_is_not_ready_is_nobodys_reservation_and_wakes_who_waits_once_it_is() -> None:
    story = story_with(acting("holder", cpu="6"), acting("other", cpu="6", owners=[]), ready=False)
    story.pod(pod("web-0", cpu="6", labels=WEB))
    story.settle()
    assert story.node_of("web-0") is None
    report(story, "holder", ready=True)
    assert story.used("web-0") == "default/holder"


def test_one_that_is_no_longer_ready_keeps_its_user_and_takes_no_other() -> None:
    story = story_with(acting("holder", cpu="6"))
    story.pod(pod("web-0", cpu="4", labels=WEB))
    story.settle()
    where = story.node_of("web-0")
    assert where is not None
    report(story, "holder", ready=False)
    assert story.node_of("web-0") == where
    assert story.requested(where) == 6000
    assert _names(story.core) == set()


def test_the_mode_may_be_set_and_taken_back_while_the_pod_runs() -> None:
    story = story_with(acting("holder", cpu="6", mode="Runnable"), acting("other", cpu="6", owners=[]))
    assert story.used("holder") == ""
    story.pod(pod("web-0", cpu="6", labels=WEB))
    story.settle()
    assert story.node_of("web-0") is None
    story.pod(acting("holder", cpu="6"))
    story.settle()
    assert (story.used("holder"), story.used("web-0")) == ("default/holder", "default/holder")
    where = story.node_of("holder")
    assert where is not None
    story.pod(acting("holder", cpu="6", mode="Runnable"))
    story.settle()
    assert story.used("holder") == ""
    holder = story.placement("holder")
    assert holder is not None
    assert holder.used_by is None
    # Both pods count now: the room that they share is promised twice, and nobody else gets any.
    assert story.requested(where) == 12000


def test_a_pod_that_comes_when_the_mode_is_taken_back_finds_both_counted() -> None:
    story = story_with(acting("holder", cpu="3"))
    where = story.node_of("holder")
    assert where is not None
    story.node_deleted("n2" if where == "n1" else "n1")
    story.pod(pod("web-0", cpu="3", labels=WEB))
    story.settle()
    assert story.requested(where) == 3000
    story.pod(acting("holder", cpu="3", mode="Runnable"))
    story.pods(pod("q", cpu="2"), pod("r", cpu="2"))
    story.settle()
    assert (story.node_of("q"), story.node_of("r")) == (where, None)
    assert story.requested(where) == 8000


def test_the_user_stays_when_the_pod_ends_and_counts_by_itself_then() -> None:
    story = story_with(acting("holder", cpu="6"))
    story.pod(pod("web-0", cpu="4", labels=WEB))
    story.settle()
    where = story.node_of("web-0")
    assert where is not None
    story.run(where, "holder", RunPhase.SUCCEEDED, uid="uid-holder")
    story.settle()
    assert story.requested(where) == 4000
    story.pod_deleted("holder")
    story.settle()
    assert story.requested(where) == 4000
    assert story.node_of("web-0") == where
    assert _names(story.core) == set()


def test_affinity_names_it_by_its_own_name_and_its_labels_count() -> None:
    story = story_with(acting("holder", cpu="2", labels={"tier": "a"}), acting("second", cpu="2", labels={"tier": "b"}))
    story.pod(pod("web-0", labels=WEB, annotations=wants(name="second")))
    story.settle()
    assert story.used("web-0") == "default/second"
    story.pod(pod("web-1", labels=WEB, annotations=wants(reservationSelector={"tier": "a"})))
    story.settle()
    assert story.used("web-1") == "default/holder"
    story.pod(pod("web-2", labels=WEB, annotations=wants(reservationSelector={"tier": "a"})))
    story.settle()
    assert story.node_of("web-2") is None


def test_a_part_of_it_may_be_kept_from_everybody() -> None:
    inside = {"node.koordinator.sh/reservation": '{"resources": {"cpu": "3"}}'}
    story = story_with(acting("holder", cpu="8", annotations=inside))
    story.pod(pod("web-0", cpu="6", labels=WEB, annotations=wants(name="holder")))
    story.settle()
    assert story.node_of("web-0") is None
    story.pod(pod("web-1", cpu="5", labels=WEB, annotations=wants(name="holder")))
    story.settle()
    assert story.used("web-1") == "default/holder"


def test_owners_that_cannot_be_read_mean_nobody() -> None:
    story = story_with(acting("holder", cpu="6", owners="[{"))
    story.pod(pod("web-0", labels=WEB))
    story.settle()
    assert story.used("web-0") == ""
    assert story.settle() == []


def test_a_replica_of_many_at_once_names_itself() -> None:
    story = ReservedStory()
    story.node(node("n1", cpu="64"))
    story.pods(*(acting(f"h{i:02d}", cpu="1") for i in range(20)))
    story.settle()
    assert {name: story.used(name) for name in story.placed()} == {f"h{i:02d}": f"default/h{i:02d}" for i in range(20)}


def test_a_default_reservation_does_not_go_beside_it() -> None:
    story = story_with(acting("holder", cpu="2"), acting("other", cpu="2"))
    assert {story.node_of("holder"), story.node_of("other")} == {"n1", "n2"}
    story.reservation(reservation("plain", cpu="1"))
    story.reservation(reservation("aligned", cpu="1", allocatePolicy="Aligned"))
    story.settle()
    assert (story.phase("plain"), story.phase("aligned")) == ("Pending", "Available")
    status = story.status("plain")
    assert status is not None
    assert "reservation allocate policy conflict" in status.message


def test_one_of_lower_priority_is_preempted_like_any_pod() -> None:
    story = story_with(acting("holder", cpu="6", priority=1), acting("other", cpu="6", priority=5, owners=[]))
    story.pod(pod("important", cpu="6", priority=10))
    story.settle()
    [(_, nomination)] = story.nominated().items()
    assert [victim.name for victim in nomination.victims] == ["holder"]


def test_a_used_one_frees_no_more_than_its_rest_when_it_is_preempted() -> None:
    story = story_with(acting("holder", cpu="6", priority=1))
    story.node_deleted("n2")
    story.settle()
    story.pod(pod("web-0", cpu="6", priority=9, labels=WEB))
    story.settle()
    assert story.used("web-0") == "default/holder"
    story.pod(pod("important", cpu="6", priority=8))
    story.settle()
    # The user takes all of it: the end of the pod that acts as the reservation would give nothing back.
    assert story.nominated() == {}


def test_a_pod_that_uses_another_reservation_is_none_itself() -> None:
    story = ReservedStory(SchedulerConfig(reservation=ReservationArgs()))
    story.node(node("n1", cpu="8"))
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    story.pod(acting("holder", cpu="2", labels=WEB))
    story.settle()
    placement = story.placement("holder")
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.reservation == ReservationUsed(name="r", uid="uid-r")


def _names(core: SchedulerCore) -> set[str]:
    return set(core.reservations.by_name)
