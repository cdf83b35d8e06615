"""Reservations: placed, matched, used, ended."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.reservations import ReservationPhase, ReservationStatus
from cotenant_scheduler.cycle.queue import PodQueue
from cotenant_scheduler.state.pod_records import PodRecord
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}


def story_with(*names: str, cpu: str = "8") -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(name, cpu=cpu) for name in names))
    return story


def test_a_reservation_is_placed_and_keeps_others_off() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", cpu="6"))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.node, share.allocatable, share.phase) == ("n1", {"cpu": 6000, "memory": 4 << 30}, ReservationPhase.AVAILABLE)
    assert story.requested("n1") == 6000
    story.pod(pod("other", cpu="3"))
    story.settle()
    assert story.node_of("other") is None
    story.pod(pod("small", cpu="2"))
    story.settle()
    assert story.node_of("small") == "n1"


def test_only_pods_that_a_new_reservation_may_match_are_put_into_the_queue_again(monkeypatch: pytest.MonkeyPatch) -> None:
    story = story_with("n1", cpu="4")
    story.pods(pod("web-0", cpu="6", labels=WEB), pod("db-0", cpu="6", labels={"app": "db"}))
    story.settle()
    asked: list[str] = []
    put = PodQueue.put

    def noted(queue: PodQueue, record: PodRecord, *rest: Any) -> Any:
        asked.append(record.key[1])
        return put(queue, record, *rest)

    monkeypatch.setattr(PodQueue, "put", noted)
    story.reservation(reservation("r", cpu="2"))
    story.settle()
    assert asked == ["r", "web-0"]
    story.reservation_deleted("r")
    story.settle()
    assert asked == ["r", "web-0", "web-0"]
    story.node(node("n2", cpu="16"))
    story.settle()
    assert story.node_of("web-0") == "n2"


def test_its_owner_takes_it_and_it_is_used_up_in_the_same_batch() -> None:
    story = story_with("n1", "n2")
    story.reservation(reservation("r", cpu="6"))
    story.settle()
    where = story.share("r")
    assert where is not None
    story.pod(pod("web-0", cpu="4", labels=WEB))
    batch = story.decide()
    assert {event.subject.split(".")[2] if event.subject.startswith("node") else event.subject for event in batch} == {
        "placement",
        "reservation",
        "reservations.r",
    }
    assert (story.node_of("web-0"), story.used("web-0")) == (where.node, "r")
    status = story.status("r")
    assert status is not None
    assert (status.phase, status.node, status.owner_count) == (ReservationPhase.SUCCEEDED, where.node, 1)
    assert status.allocated == {"cpu": 4000, "memory": 1 << 30}
    assert [c.reason for c in status.conditions] == ["Scheduled", "Succeeded"]
    # What it did not use is the node's again.
    assert story.requested(where.node) == 4000
    assert story.settle() == []


def test_one_that_is_allocated_often_takes_owners_until_it_is_full_and_is_free_again_when_they_go() -> None:
    story = story_with("n1", cpu="8")
    story.reservation(reservation("r", cpu="4", allocateOnce=False, allocatePolicy="Restricted"))
    story.settle()
    story.pods(*(pod(f"w{i}", cpu="2", labels=WEB) for i in range(2)))
    story.settle()
    assert [story.used(f"w{i}") for i in range(2)] == ["r", "r"]
    assert story.requested("n1") == 4000
    story.later(2)
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.allocated, [owner.name for owner in share.owners]) == ({"cpu": 4000, "memory": 2 << 30}, ["w0", "w1"])
    story.pod(pod("w2", cpu="2", labels=WEB))
    story.settle()
    # Nothing is left of it, so the third uses the node alone.
    assert story.used("w2") == ""
    assert story.requested("n1") == 6000
    story.pod_deleted("w0")
    story.settle()
    story.later(2)
    story.settle()
    assert story.requested("n1") == 6000
    share = story.share("r")
    assert share is not None
    assert (share.allocated["cpu"], share.owner_count) == (2000, 1)


def test_a_pod_takes_more_than_is_reserved_from_the_node() -> None:
    story = story_with("n1", "n2", cpu="8")
    story.reservation(reservation("r", cpu="4", allocateOnce=False, allocatePolicy="Aligned"))
    story.settle()
    story.pod(pod("big", cpu="6", labels=WEB))
    story.settle()
    assert story.used("big") == "r"
    share = story.share("r")
    assert share is not None
    assert story.requested(share.node) == 6000


def test_restricted_resources_come_whole_from_the_reservation() -> None:
    story = story_with("n1", cpu="16")
    story.reservation(reservation("r", cpu="4", allocateOnce=False, allocatePolicy="Restricted"))
    story.settle()
    story.pod(pod("big", cpu="6", labels=WEB, annotations=wants(reservationSelector={})))
    story.settle()
    waiting = story.waiting("big")
    assert waiting is not None
    assert "Reservation(s) Insufficient cpu" in waiting.message
    assert waiting.message.startswith("0/1 nodes are available: ")
    assert waiting.message.endswith("1 Reservation(s) matched owner total.")


def test_a_pod_with_affinity_goes_nowhere_else_and_says_so() -> None:
    story = story_with("n1", "n2")
    story.pod(pod("web-0", labels=WEB, annotations=wants(name="r")))
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    assert waiting.message == "0/2 nodes are available: 2 node(s) no reservations match reservation affinity."
    story.reservation(reservation("r"))
    story.settle()
    assert story.used("web-0") == "r"


def test_a_reservation_that_fits_nowhere_says_why_and_gets_a_node_when_there_is_one() -> None:
    story = story_with("n1", cpu="2")
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.phase, status.reason) == (ReservationPhase.PENDING, "Unschedulable")
    assert "1 Insufficient cpu" in status.message
    [condition] = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("Scheduled", "False", "Unschedulable")
    story.node(node("n2"))
    batch = story.settle()
    assert story.phase("r") == "Available"
    assert [event.tombstone for event in batch if event.subject == "reservations.r"] == [True]


@pytest.mark.parametrize("placed", [True, False])
def test_it_expires_with_or_without_a_node(placed: bool) -> None:
    story = story_with(*(["n1"] if placed else []))
    story.reservation(reservation("r", ttl="1h", created="2026-01-01T11:30:00Z"))
    story.settle()
    assert story.phase("r") == ("Available" if placed else "Pending")
    story.later(1800)
    assert story.decide() == []
    story.later(1)
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.phase, status.reason, status.node) == (ReservationPhase.FAILED, "Expired", "n1" if placed else "")
    assert status.conditions[-1].reason == "Expired"
    if placed:
        assert story.requested("n1") == 0
    story.pod(pod("web-0", labels=WEB))
    story.later(3600)
    story.settle()
    if placed:
        assert story.used("web-0") == ""


def test_one_that_waits_is_not_said_to_wait_by_the_decision_that_ends_it() -> None:
    story = story_with("n1", cpu="2")
    story.reservation(reservation("r", cpu="4", ttl="1h", created="2026-01-01T11:30:00Z"))
    story.settle()
    story.pod(pod("small", cpu="1"))  # what the reservation lacks is another figure now, due when the pause is over
    story.settle()
    story.later(1801)
    of_r = [event.data for event in story.decide() if event.subject == "reservations.r"]
    assert [(data.phase, data.reason) for data in of_r if isinstance(data, ReservationStatus)] == [
        (ReservationPhase.FAILED, "Expired")
    ]


def test_those_behind_one_whose_time_is_over_are_said_to_wait() -> None:
    story = story_with("n1", cpu="2")
    story.reservation(reservation("r", cpu="4", ttl="1h", created="2026-01-01T11:30:00Z"))
    story.settle()
    story.later(1801)
    story.reservation(reservation("s", cpu="4", created="2026-01-01T11:31:00Z"))
    story.settle()
    assert (story.phase("r"), story.phase("s")) == ("Failed", "Pending")


def test_a_time_to_live_of_zero_never_ends() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", ttl="0s", expires="2026-01-01T12:00:01Z"))
    story.settle()
    story.later(timedelta(days=300).total_seconds())
    story.settle()
    assert story.phase("r") == "Available"


def test_it_ends_when_it_is_deleted_and_its_owners_stay() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", allocateOnce=False))
    story.settle()
    story.pod(pod("web-0", cpu="1", labels=WEB))
    story.settle()
    assert story.requested("n1") == 4000
    story.reservation_deleted("r")
    story.settle()
    assert (story.share("r"), story.status("r")) == (None, None)
    assert story.node_of("web-0") == "n1"
    assert story.requested("n1") == 1000
    assert story.core.reservations.by_name == {}


def test_it_fails_when_its_node_is_deleted() -> None:
    story = story_with("n1")
    story.reservation(reservation("r"))
    story.settle()
    story.node_deleted("n1")
    story.settle()
    status = story.status("r")
    assert status is not None
    assert (status.phase, status.reason, status.message) == (ReservationPhase.FAILED, "Expired", "its node n1 was deleted")


def test_one_created_again_under_its_name_is_another() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", uid="first", cpu="6"))
    story.settle()
    story.reservation(reservation("r", uid="second", cpu="2"))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.uid, story.requested("n1")) == ("second", 2000)


def test_the_end_of_an_owners_run_frees_its_room() -> None:
    story = story_with("n1")
    story.executor("n1")
    story.reservation(reservation("r", cpu="4", allocateOnce=False, allocatePolicy="Restricted"))
    story.settle()
    story.pod(pod("a", cpu="4", labels=WEB))
    story.settle()
    story.run("n1", "a", RunPhase.SUCCEEDED)
    story.pod(pod("b", cpu="4", labels=WEB))
    story.settle()
    assert story.used("b") == "r"
    assert story.requested("n1") == 4000


def test_the_smallest_order_comes_first_then_the_fullest() -> None:
    story = story_with("n1", "n2", "n3")
    order = "scheduling.koordinator.sh/reservation-order"
    for name, number, where in (("late", "20", "n1"), ("first", "10", "n2"), ("none", "", "n3")):
        labels = {order: number} if number else {}
        story.reservation(reservation(name, labels=labels, template={"nodeName": where}))
    story.settle()
    story.pod(pod("a", labels=WEB))
    story.settle()
    assert story.used("a") == "first"
    story.pod(pod("b", labels=WEB))
    story.settle()
    assert story.used("b") == "late"


def test_a_named_node_and_policies_that_do_not_go_together() -> None:
    story = story_with("n1", "n2")
    story.reservation(reservation("r", template={"nodeName": "n2"}))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert share.node == "n2"
    story.reservation(reservation("aligned", template={"nodeName": "n2"}, allocatePolicy="Aligned"))
    story.settle()
    status = story.status("aligned")
    assert status is not None
    assert "1 node(s) reservation allocate policy conflict" in status.message
    assert "1 node(s) didn't match the nodeName specified by reservation" in status.message


def test_a_pod_that_ignores_reservations_uses_what_is_reserved_without_owning_it() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", cpu="8"))
    story.settle()
    story.pod(pod("any", cpu="4", labels={"scheduling.koordinator.sh/reservation-ignored": "true"}))
    story.settle()
    assert (story.node_of("any"), story.used("any"), story.phase("r")) == ("n1", "", "Available")


def test_an_unschedulable_one_takes_no_owners_and_says_so() -> None:
    story = story_with("n1", cpu="4")
    story.reservation(reservation("r", cpu="4", unschedulable=True))
    story.settle()
    story.pod(pod("web-0", cpu="2", labels=WEB))
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    said = "1 Insufficient cpu, 1 Reservation(s) is unschedulable, 1 Reservation(s) matched owner total."
    assert waiting.message.endswith(said)
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    assert story.used("web-0") == "r"


def test_taints_hold_only_those_back_that_have_affinity() -> None:
    story = story_with("n1")
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    story.reservation(reservation("r", taints=[taint], allocateOnce=False))
    story.settle()
    story.pod(pod("plain", labels=WEB))
    story.pod(pod("choosy", labels=WEB, annotations=wants(reservationSelector={})))
    toleration = {"key": "dedicated", "operator": "Exists"}
    story.pod(pod("tolerant", labels=WEB, annotations=wants(reservationSelector={}, tolerations=[toleration])))
    story.settle()
    assert (story.used("plain"), story.used("tolerant")) == ("r", "r")
    waiting = story.waiting("choosy")
    assert waiting is not None
    assert "1 Reservation(s) had untolerated taint {dedicated: x}" in waiting.message


def test_the_reason_follows_a_reservation_that_changes_while_its_node_stays_as_it_is() -> None:
    story = story_with("n1", cpu="4")
    story.reservation(reservation("r", cpu="4", unschedulable=True))
    story.reservation(reservation("waits", cpu="100"))  # of the same owners: which of them a pod is stays the same too
    story.settle()
    story.pod(pod("web-0", cpu="2", labels=WEB, annotations=wants(reservationSelector={})))
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    assert "1 Reservation(s) is unschedulable" in waiting.message
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    story.reservation(reservation("r", cpu="4", taints=[taint]))
    story.later(30)
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    assert "1 Reservation(s) had untolerated taint {dedicated: x}" in waiting.message
    assert "unschedulable" not in waiting.message


def test_exact_match_compares_what_is_named() -> None:
    story = story_with("n1")
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    exact = {"scheduling.koordinator.sh/exact-match-reservation": '{"resourceNames": ["cpu"]}'}
    story.pod(pod("two", cpu="2", labels=WEB, annotations=exact))
    story.settle()
    assert story.used("two") == ""
    story.pod(pod("four", cpu="4", labels=WEB, annotations=exact))
    story.settle()
    assert story.used("four") == "r"


def test_owners_by_controller_and_by_name() -> None:
    story = story_with("n1", "n2")
    story.reservation(reservation("by-name", owners=[{"object": {"name": "one", "namespace": "default"}}]))
    controller = {"kind": "ReplicaSet", "name": "rs", "namespace": "default", "controller": True}
    story.reservation(reservation("by-controller", owners=[{"controller": controller}]))
    story.settle()
    owned = pod("two")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    ]
    story.pods(pod("one"), owned, pod("three"))
    story.settle()
    assert [story.used(name) for name in ("one", "two", "three")] == ["by-name", "by-controller", ""]


def test_pods_that_wait_already_are_matched_with_one_that_comes() -> None:
    story = story_with("n1", cpu="4")
    story.pod(pod("filler", cpu="4"))
    story.pod(pod("web-0", cpu="2", labels=WEB))
    story.settle()
    assert story.node_of("web-0") is None
    story.reservation(reservation("r", cpu="2"))
    story.node(node("n2", cpu="2"))
    story.settle()
    # Which of the two gets the node first is a matter of the queue: the pod then needs no reservation.
    assert story.node_of("web-0") == "n2"


def test_the_host_ports_of_a_matched_reservation_are_its_owners() -> None:
    story = story_with("n1")
    ports = [{"name": "main", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    requests = {"requests": {"cpu": "1", "memory": "1Gi"}}
    template = {"containers": [{**ports[0], "resources": requests}]}
    story.reservation(reservation("r", template=template, allocateOnce=False))
    story.settle()
    assert story.share("r") is not None
    stranger, owner = pod("stranger"), pod("owner", labels=WEB)
    for document in (stranger, owner):
        document["spec"]["containers"][0]["ports"] = ports[0]["ports"]
    story.pods(stranger, owner)
    story.settle()
    assert story.node_of("stranger") is None
    assert story.used("owner") == "r"


def test_what_is_reserved_inside_is_given_to_nobody() -> None:
    story = story_with("n1", cpu="4")
    inside = {"node.koordinator.sh/reservation": '{"resources": {"cpu": "3"}}'}
    story.reservation(reservation("r", cpu="4", annotations=inside, allocateOnce=False))
    story.settle()
    story.pod(pod("two", cpu="2", labels=WEB))
    story.settle()
    assert story.node_of("two") is None
    story.pod(pod("one", cpu="1", labels=WEB))
    story.settle()
    assert story.used("one") == "r"


def test_a_resized_reservation_holds_what_the_annotation_says() -> None:
    story = story_with("n1", cpu="8")
    resize = {"scheduling.koordinator.sh/reservation-resize-allocatable": '{"resources": {"cpu": "7"}}'}
    story.reservation(reservation("r", cpu="4", annotations=resize))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.allocatable["cpu"], story.requested("n1")) == (7000, 7000)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"template": None}, "no pod template"),
        ({"owners": []}, "names no owners"),
        ({"ttl": None}, "neither ttl nor expires"),
        ({"allocatePolicy": "Sometimes"}, "'Sometimes' is unknown"),
    ],
)
def test_one_that_cannot_be_placed_as_it_is_written_says_what_is_wrong(spec: dict[str, object], words: str) -> None:
    story = story_with("n1")
    document = reservation("r")
    document["spec"] |= spec
    story.reservation(document)
    story.settle()
    status = story.status("r")
    assert status is not None
    assert words in status.message
    assert story.settle() == []


def test_an_unreadable_wish_is_an_answer_not_a_placement() -> None:
    story = story_with("n1")
    story.pod(pod("web-0", annotations={"scheduling.koordinator.sh/reservation-affinity": "{"}))
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    assert "annotation scheduling.koordinator.sh/reservation-affinity" in waiting.message


@pytest.mark.parametrize("at_once", [2, 48])
def test_a_gang_uses_reservations_whole_or_not_at_all(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", at_once)
    story = story_with("n1", "n2", cpu="4")
    for name in ("r1", "r2"):
        story.reservation(reservation(name, cpu="4"))
    story.settle()
    gang = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "3"}
    story.pods(*(pod(f"g{i}", cpu="4", labels=WEB, annotations=gang) for i in range(3)))
    story.settle()
    assert story.placed() == {}
    assert {story.phase("r1"), story.phase("r2")} == {"Available"}
    story.node(node("n3", cpu="4"))
    story.settle()
    assert sorted(story.used(f"g{i}") for i in range(3)) == ["", "r1", "r2"]
    assert {story.phase("r1"), story.phase("r2")} == {"Succeeded"}


def test_a_restart_goes_on_where_it_was() -> None:
    story = story_with("n1", "n2")
    story.reservation(reservation("r", cpu="6", allocateOnce=False, allocatePolicy="Restricted"))
    story.reservation(reservation("once", app="db"))
    story.settle()
    story.pods(pod("a", cpu="2", labels=WEB), pod("b", cpu="2", labels=WEB), pod("c", labels={"app": "db"}))
    story.settle()
    story.later(2)
    story.settle()
    before = {name: story.requested(name) for name in ("n1", "n2")}
    for order in (None, sorted(story.last), sorted(story.last, reverse=True)):
        story.core = story.reloaded(order)
        assert story.decide() == []
        assert {name: story.requested(name) for name in ("n1", "n2")} == before
    story.pod(pod("d", cpu="2", labels=WEB))
    story.settle()
    assert story.used("d") == "r"


def test_of_two_pods_in_one_decision_one_takes_what_is_allocated_once() -> None:
    story = story_with("n1", cpu="16")
    story.reservation(reservation("r", cpu="8"))
    story.settle()
    story.pods(pod("a", cpu="2", labels=WEB), pod("b", cpu="2", labels=WEB))
    story.decide()
    assert (story.used("a"), story.used("b")) == ("r", "")


def test_of_two_on_one_node_the_one_that_gets_fuller_is_used() -> None:
    story = story_with("n1", cpu="16")
    story.reservation(reservation("large", cpu="8"))
    story.reservation(reservation("tight", cpu="3"))
    story.settle()
    story.pod(pod("a", cpu="3", memory="4Gi", labels=WEB))
    story.settle()
    assert story.used("a") == "tight"


def test_what_a_pod_asks_follows_the_reservations_that_there_are() -> None:
    story = story_with("n1", cpu="4")
    story.reservation(reservation("r", cpu="4"))
    story.settle()
    story.pod(pod("web-0", cpu="5", labels=WEB))
    story.settle()
    story.reservation_deleted("r")
    story.later(60)
    story.settle()
    waiting = story.waiting("web-0")
    assert waiting is not None
    assert waiting.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert not any("reservation" in subject for subject in waiting.wakes_on)
    fresh = story.reloaded()
    story.later(60)
    assert [e.data for e in fresh.decide(story.now)] == [e.data for e in story.core.decide(story.now)]


@pytest.mark.parametrize("at_once", [2, 48])
def test_a_gang_whose_members_may_run_in_reservations_only_waits_without_them_and_uses_them(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", at_once)
    story = story_with("n1", "n2", cpu="4")
    gang = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "2",
        **wants(reservationSelector={"reserve": "here"}),
    }
    story.pods(*(pod(f"g{i}", cpu="4", labels=WEB, annotations=gang) for i in range(2)))
    story.settle()
    assert story.placed() == {}
    for name in ("r1", "r2"):
        story.reservation(reservation(name, cpu="4", labels={"reserve": "here"}))
    story.settle()
    assert story.placed().keys() == {"g0", "g1"}
