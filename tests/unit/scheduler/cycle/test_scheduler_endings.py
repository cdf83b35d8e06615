"""How placements end, are told again, and what waits for their end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.engine.last_sequences import REMEMBERED_POSITIONS
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import (
    executor_subject,
    placement_subject,
    pod_subject,
    run_subject,
    waiting_subject,
)
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod


def placed_story(**spec: Any) -> Story:
    """A pod `web` that runs on node `a`, which has an executor."""
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.executor("a")
    story.pods(pod("web", **spec))
    story.settle()
    story.run("a", "web", RunPhase.RUNNING)
    assert story.settle() == []
    return story


def phase(story: Story) -> PlacementPhase:
    data = story.placement_event("a", "web").data
    assert isinstance(data, Placement)
    return data.phase


def test_a_deleted_pod_is_terminating_until_its_executor_reports_the_end() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    assert b"deletionTimestamp" in bytes(story.placement("web").pod)  # type: ignore[union-attr]
    story.later(3600)
    assert story.settle() == []
    run = story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    event = story.placement_event("a", "web")
    assert event.tombstone
    assert event.ttl_seconds > 0
    assert run.ref in event.causes


def test_an_executor_of_an_earlier_version_reports_a_stop_without_a_tombstone() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    data = RunStatus(node="a", namespace="default", name="web", uid="uid-web", phase=RunPhase.STOPPED)
    report = story.say(run_subject("a", "default", "web"), data)
    story.settle()
    event = story.placement_event("a", "web")
    assert event.tombstone
    assert report.ref in event.causes


def test_the_tombstone_of_a_run_that_reports_no_stop_ends_no_placement() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    data = RunStatus(node="a", namespace="default", name="web", uid="uid-web", phase=RunPhase.RUNNING)
    story.say(run_subject("a", "default", "web"), data, tombstone=True)
    assert story.settle() == []
    assert phase(story) is PlacementPhase.TERMINATING


def test_a_stop_of_another_uid_ends_no_placement() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    story.run("a", "web", RunPhase.STOPPED, uid="another")
    assert story.settle() == []


def test_the_room_of_a_stopped_pod_is_given_away_once_its_placement_is_gone() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.pods(pod("next"))
    story.settle()
    story.run("a", "web", RunPhase.STOPPED)
    [gone] = story.decide()
    assert gone.subject == placement_subject("a", "default", "web")
    story.settle()
    assert story.node_of("next") == "a"


@pytest.mark.parametrize("stop_first", [False, True])
def test_a_scheduler_that_loads_knows_of_the_stop_in_whatever_order_it_reads(stop_first: bool) -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    story.run("a", "web", RunPhase.STOPPED)
    story.core = story.reloaded(sorted(story.last, key=lambda subject: (".run." in subject) is not stop_first))
    assert [event.tombstone for event in story.decide()] == [True]


def test_a_stop_is_not_about_a_later_placement_of_the_same_pod_on_the_same_node() -> None:
    story = placed_story()
    story.node_deleted("a")
    story.settle()
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert story.placement("web") is None
    story.node(node("a", cpu="1"))
    story.executor("a")
    story.settle()
    assert phase(story) is PlacementPhase.BOUND, "it is placed again"
    story.pod(pod("web", deleting=True))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING, "it may have been started meanwhile"
    reloaded = story.reloaded()
    assert list(reloaded.decide(story.now)) == []
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert story.placement("web") is None


def test_old_stops_are_forgotten_unless_their_placement_is_still_there() -> None:
    story = placed_story()
    stops = story.core.pods.stops
    story.pod(pod("web", deleting=True))
    story.settle()
    placed = story.core.pods.records["default", "web"].placements["a"]
    sequence = placed.sequence + 1
    stops.note("a", ("default", "web"), "uid-web", sequence)
    stops.note("a", ("default", "long-gone"), "uid-long-gone", sequence + 1)
    stops.note("a", ("default", "new"), "uid-new", sequence + 2 + REMEMBERED_POSITIONS)
    for _ in range(3):
        stops.forget(story.core.pods.records)
    assert stops.of("a", ("default", "web"), placed) == sequence
    assert len(stops) == 2


@pytest.mark.parametrize(("age", "replaces"), [(4, False), (5, True)])
def test_a_terminating_placement_replaces_one_that_is_old_enough(age: int, replaces: bool) -> None:
    story = placed_story()
    story.later(age)
    story.pod(pod("web", deleting=True))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    assert story.placement_event("a", "web").replaces is replaces


def test_a_terminating_placement_has_no_figures_and_its_cause_has_them() -> None:
    story = placed_story()
    bound = story.placement_event("a", "web")
    story.pod(pod("web", deleting=True))
    story.settle()
    terminating = story.placement_event("a", "web")
    assert isinstance(bound.data, Placement)
    assert isinstance(terminating.data, Placement)
    assert bound.data.figures
    assert not terminating.data.figures
    assert bound.ref in terminating.causes


def test_a_pod_without_object_is_terminating_too() -> None:
    story = placed_story()
    story.pod_deleted("web")
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING


def test_the_room_of_a_terminating_pod_is_not_given_away() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.pods(pod("next"))
    story.settle()
    assert story.node_of("next") is None
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert story.node_of("next") == "a"


def test_without_an_executor_nobody_runs_the_pod_so_it_is_gone_at_once() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("web"))
    story.settle()
    story.pod(pod("web", deleting=True))
    story.settle()
    assert story.placement("web") is None


def test_a_pod_that_was_never_reported_is_gone_after_its_grace_and_a_minute() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    story.pods(pod("web", terminationGracePeriodSeconds=10))
    story.settle()
    story.pod(pod("web", deleting=True, terminationGracePeriodSeconds=10))
    story.settle()
    story.later(69)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.later(1)
    story.settle()
    assert story.placement("web") is None


def test_a_pod_whose_run_ended_is_gone_as_soon_as_it_is_deleted() -> None:
    story = placed_story()
    story.run("a", "web", RunPhase.FAILED)
    assert story.settle() == []
    story.pod(pod("web", deleting=True))
    assert [event.tombstone for event in story.settle()] == [True]


def test_a_new_pod_of_the_same_name_waits_for_its_predecessors_end() -> None:
    story = placed_story()
    story.nodes(node("b"))
    story.pod_deleted("web")
    story.pod(pod("web", uid="second"))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    waiting = story.waiting("web")
    assert waiting is not None
    assert waiting.reasons[0].code == "predecessor"
    # A report about the first pod is none about the second.
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert (placement.uid, placement.node) == ("second", "b")
    assert story.waiting("web") is None


def test_a_changed_object_is_told_to_the_node_again() -> None:
    story = placed_story()
    before = story.placement("web")
    changed = story.pod(pod("web", labels={"version": "2"}))
    story.settle()
    after = story.placement("web")
    assert before is not None
    assert after is not None
    assert b'"version":"2"' in bytes(after.pod)
    assert (after.node, after.uid, after.bound_at) == (before.node, before.uid, before.bound_at)
    assert after.object_sequence == changed.sequence
    assert changed.ref in story.placement_event("a", "web").causes


def test_a_deleted_node_ends_its_pods_and_they_are_placed_again() -> None:
    story = placed_story()
    story.nodes(node("b"))
    story.node_deleted("a")
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    # Its grace period of 30 s, and a minute for the last word.
    story.later(89)
    story.settle()
    assert story.node_of("web") == "a"
    story.later(1)
    story.settle()
    assert story.node_of("web") == "b"


def test_the_pods_of_a_deleted_node_keep_their_room_until_they_are_over_also_where_it_is_created_again() -> None:
    """The gateway ends the executor's report with the node, and the executor goes on."""
    story = placed_story()
    story.node_deleted("a")
    story.say(executor_subject("a"), ExecutorStatus(node="a"), tombstone=True)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.node(node("a", cpu="1"))
    story.pods(pod("next"))
    story.settle()
    story.later(600)
    story.settle()
    assert story.node_of("next") is None, "the first pod still runs there"
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert "a" in (story.node_of("web"), story.node_of("next"))


def test_a_pod_on_a_deleted_node_that_was_never_reported_is_not_taken_for_gone() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    story.pods(pod("web"))
    story.settle()
    story.node_deleted("a")
    story.say(executor_subject("a"), ExecutorStatus(node="a"), tombstone=True)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.later(90)
    story.settle()
    assert story.placement("web") is None


def test_what_was_told_to_end_ends_even_if_its_node_comes_back() -> None:
    story = placed_story()
    story.node_deleted("a")
    story.settle()
    story.node(node("a", cpu="1"))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert phase(story) is PlacementPhase.BOUND


@pytest.mark.parametrize("ended", [RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.EVICTED])
def test_a_pod_that_ended_for_good_is_never_placed_again(ended: RunPhase) -> None:
    story = placed_story()
    story.run("a", "web", ended)
    story.node_deleted("a")
    assert story.settle() == [], "its report would end with its placement, and it would run once more"
    assert story.node_of("web") == "a"
    story.node(node("a"))
    assert story.settle() == []
    story.pods(pod("next"))
    story.settle()
    assert story.node_of("next") == "a", "it takes no room"


def test_a_pod_deleted_before_it_was_placed_leaves_nothing() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    assert story.waiting("big") is not None
    story.pod(pod("big", cpu="4", deleting=True))
    story.settle()
    assert story.waiting("big") is None
    story.pod_deleted("big")
    assert story.settle() == []


def test_many_endings_do_not_starve_and_are_not_starved_by_placements() -> None:
    story = Story()
    story.nodes(node("a", cpu="10000", memory="100Ti", pods="100000"))
    story.executor("a")
    story.pods(*(pod(f"old{i}", cpu="1m", memory="1Mi") for i in range(600)))
    story.settle()
    for i in range(600):
        story.pod_deleted(f"old{i}")
    story.pods(*(pod(f"new{i}", cpu="1m", memory="1Mi") for i in range(2000)))
    batch = story.decide()
    phases = [event.data.phase for event in batch if isinstance(event.data, Placement)]
    assert phases[0] is PlacementPhase.BOUND
    assert phases.count(PlacementPhase.TERMINATING) == 250
    assert len(batch) == 999
    story.settle()
    assert sum(isinstance(e.data, Placement) and e.data.phase is PlacementPhase.TERMINATING for e in story.last.values()) == 600


def test_what_is_told_of_a_node_before_its_object_counts_whatever_the_order() -> None:
    story = Story()
    story.nodes(node("a", cpu="10"))
    story.metric("a", 6_000)
    story.pods(pod("web", cpu="100m"))
    story.settle()
    kinds = {"objects.core.nodes": 2, "metrics": 0, "node": 1, "objects.core.pods": 3}
    order = sorted(story.last, key=lambda subject: next(n for prefix, n in kinds.items() if subject.startswith(prefix)))
    assert order[0].startswith("metrics")
    fresh = story.reloaded(order)
    hot = story.pod(pod("hot", cpu="2"))
    fresh.apply(hot)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    assert next(event.data.TYPE for event in story.settle()) == "cotenant.waiting.v1"


# -- placements that others stored -----------------------------------------------------------------------------------------


def stored_placement(story: Story, name: str, on: str, sequence: int, **more: Any) -> None:
    """A placement of the pod as another replica would have stored it."""
    document = story.core.pods.records["default", name].document
    assert document is not None
    requests = {"cpu": 1_000, "memory": GIB}
    data = Placement(
        node=on,
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        pod=document,
        object_sequence=sequence,
        requests=requests,
        bound_at=story.now,
    )
    story.say(placement_subject(on, "default", name), msgspec.structs.replace(data, **more))


def on_two_nodes() -> tuple[Story, Event]:
    """A pod that two replicas have placed, each on a node of its own, both with executors."""
    story = Story()
    story.nodes(node("a"), node("b"))
    web = story.pod(pod("web", schedulerName="another"))
    for name in "ab":
        story.executor(name)
        stored_placement(story, "web", name, web.sequence)
        story.run(name, "web", RunPhase.RUNNING)
    assert story.settle() == []
    return story, web


def test_each_of_two_placements_ends_by_its_own_node() -> None:
    story, _ = on_two_nodes()
    story.node_deleted("b")
    [event] = story.settle()
    assert isinstance(event.data, Placement)
    assert (event.data.node, event.data.phase) == ("b", PlacementPhase.TERMINATING)


def test_pods_end_in_the_order_of_their_names_though_a_later_one_takes_fewer_events(monkeypatch: pytest.MonkeyPatch) -> None:
    story, _ = on_two_nodes()
    names = ("first", "web", "xyz")
    for name in (names[0], names[2]):
        story.pod(pod(name))
        story.settle()
        story.run(story.node_of(name) or "", name, RunPhase.RUNNING)
    assert story.settle() == []
    for name in names:
        story.pod_deleted(name)
    monkeypatch.setattr("cotenant_scheduler.core.MAX_EVENTS_PER_DECISION", 2)
    ended = [[event.data.name for event in story.decide() if isinstance(event.data, Placement)] for _ in range(4)]
    assert ended == [["first"], ["web", "web"], ["xyz"], []]


def test_a_pod_that_waited_for_room_says_at_once_that_the_node_it_names_now_is_missing() -> None:
    story = placed_story()
    story.pod(pod("large", cpu="2"))
    story.settle()
    waiting = story.waiting("large")
    assert waiting is not None
    assert [reason.code for reason in waiting.reasons] != ["node-missing"]
    story.pod(pod("large", cpu="2", nodeName="gone"))
    story.settle()
    waiting = story.waiting("large")
    assert waiting is not None
    assert [reason.code for reason in waiting.reasons] == ["node-missing"]


def test_a_missing_node_is_named_once_the_pod_has_waited_for_half_a_second() -> None:
    story = placed_story()
    story.pod(pod("lost", nodeName="gone"), age=0)
    story.later(0.499)
    story.settle()
    assert story.waiting("lost") is None
    story.later(0.001)
    story.settle()
    waiting = story.waiting("lost")
    assert waiting is not None
    assert [reason.code for reason in waiting.reasons] == ["node-missing"]


def test_a_pod_that_stands_beside_its_predecessor_does_not_wait() -> None:
    story, _ = on_two_nodes()
    second = story.pod(pod("web", uid="second", schedulerName="another"))
    stored_placement(story, "web", "b", second.sequence, uid="second")
    story.settle()
    assert story.waiting("web") is None


def test_who_waits_for_two_predecessors_names_the_first_node() -> None:
    story, _ = on_two_nodes()
    story.pod(pod("web", uid="second", schedulerName="another"))
    story.settle()
    waiting = story.waiting("web")
    assert waiting is not None
    [reason] = waiting.reasons
    assert (reason.code, reason.count) == ("predecessor", 0)
    assert reason.detail == "its predecessor of the same name is still ending on node a"


def test_a_pod_that_another_replica_placed_waits_no_longer() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    big = story.pod(pod("big", cpu="4"))
    story.settle()
    assert story.waiting("big") is not None
    stored_placement(story, "big", "a", big.sequence)
    story.settle()
    assert story.waiting("big") is None


def test_a_placement_that_ends_without_saying_since_when_stays_until_its_run_ends() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    web = story.pod(pod("web", schedulerName="another"))
    stored_placement(story, "web", "a", web.sequence, phase=PlacementPhase.TERMINATING, reason="told to")
    story.settle()
    story.later(3600)
    assert story.settle() == []
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert story.placement("web") is None


def test_a_restarted_scheduler_ends_what_was_ending_when_its_node_came_back() -> None:
    story = placed_story()
    story.node_deleted("a")
    story.settle()
    story.node(node("a", cpu="1"))
    story.settle()
    story.core = story.reloaded()
    assert story.settle() == []
    story.run("a", "web", RunPhase.STOPPED)
    assert [event.tombstone for event in story.decide()] == [True]


def test_a_placement_follows_the_requests_of_its_pod_and_keeps_them_where_that_is_malformed() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    story.pod(pod("web", cpu="1"))
    story.settle()
    story.pod(pod("web", cpu="2"))
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert placement.requests["cpu"] == 2_000
    malformed = story.pod(pod("web", cpu="a lot"))
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert (placement.requests["cpu"], placement.object_sequence) == (2_000, malformed.sequence)


def test_the_end_of_a_wait_names_the_object_that_ends_it_if_there_is_one() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("gone", cpu="4"), pod("going", cpu="4"))
    story.settle()
    story.pod_deleted("gone")
    going = story.pod(pod("going", cpu="4", deleting=True))
    story.settle()
    assert story.last[waiting_subject("default", "gone")].causes == ()
    assert story.last[waiting_subject("default", "going")].causes == (going.ref,)


# -- what ends otherwise: a tombstone counts, whatever it carries ------------------------------------------------------------


def test_the_end_of_a_report_is_no_report() -> None:
    story = placed_story()
    ended = RunStatus(node="a", namespace="default", name="web", uid="uid-web", phase=RunPhase.SUCCEEDED)
    story.say(run_subject("a", "default", "web"), ended, tombstone=True)
    story.node_deleted("a")
    story.node(node("a"))
    story.later(60)
    story.settle()
    assert not story.core.pods.records["default", "web"].finished


def test_the_end_of_a_quota_is_no_quota() -> None:
    story = Story()
    story.nodes(node("a"))
    story.quota("team", max={"cpu": 0})
    story.pod(pod("web", labels={"quota.scheduling.koordinator.sh/name": "team"}))
    story.settle()
    assert story.node_of("web") is None
    story.quota_deleted("team")
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert (placement.node, placement.quota) == ("a", "")


def ended(story: Story, subject: str) -> None:
    """The object's tombstone, which carries what was stored last."""
    data = story.last[subject].data
    assert isinstance(data, ObjectStored)
    story.say(subject, data, tombstone=True)


def test_the_end_of_a_pod_is_no_pod() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    ended(story, story.pod(pod("web")).subject)
    assert story.settle() == []


def test_the_end_of_a_priority_class_is_no_class() -> None:
    story = Story()
    ended(story, story.priority_class("high", 1_000).subject)
    story.pod(pod("web", priorityClassName="high"))
    facts = story.core.pods.records["default", "web"].facts
    assert facts is not None
    assert facts.priority == 0


def test_the_end_of_a_budget_is_no_budget() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("low", priority=0, labels={"app": "web"}))
    story.settle()
    ended(story, story.budget("all", {"app": "web"}, allowed=0).subject)
    story.pods(pod("high", priority=1_000))
    story.settle()
    assert [victim.violates_budget for victim in story.nominated()["high"].victims] == [False]


def test_the_end_of_a_namespace_is_no_namespace() -> None:
    story = Story()
    story.nodes(node("a", labels={"host": "a"}))
    story.pods(pod("web", namespace="red", labels={"app": "web"}))
    story.settle()
    ended(story, story.namespace("red", team="x").subject)
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
        "topologyKey": "host",
    }
    story.pod(pod("shy", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    story.settle()
    assert story.node_of("shy") == "a"


def test_a_placement_stays_as_it_is_while_its_pods_object_cannot_be_read() -> None:
    story = placed_story()
    story.say(pod_subject("default", "web"), ObjectStored(object=msgspec.Raw(b'{"metadata":[]}')))
    assert story.settle() == []
    readable = story.pod(pod("web", cpu="2"))
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert placement.object_sequence == readable.sequence
