"""Pods of lower priority make room: on which node, who of them, and what becomes of the nomination."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.events.node.runs import RunPhase
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting, waiting_line
from cotenant.model.subjects import pod_subject
from cotenant_scheduler.cycle.nominations import NOBODY, Nominations, nomination_of
from cotenant_scheduler.cycle.preempting import NOMINATIONS_PER_DECISION
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from tests.unit.scheduler.builders_scheduler import NOW, Story, node, pod


def story_of(*low: dict[str, Any], nodes: int = 1, cpu: str = "4") -> Story:
    """Nodes `a`, `b`, ... with executors, and pods bound in the order given, a second apart."""
    story = Story()
    for name in "abcdefgh"[:nodes]:
        story.node(node(name, cpu=cpu))
        story.executor(name)
    for document in low:
        story.pod(document)
        story.settle()
        story.later(1)
    return story


def on(name: str, pod_name: str, **more: Any) -> dict[str, Any]:
    """A pod that runs on a given node."""
    more.setdefault("priority", 0)
    return pod(pod_name, nodeName=name, **more)


def nomination(story: Story, name: str) -> Nomination | None:
    waiting = story.waiting(name)
    return waiting.nomination if waiting is not None else None


def victims(story: Story, name: str) -> list[str]:
    found = nomination(story, name)
    return [victim.name for victim in found.victims] if found is not None else []


def evicted(story: Story, name: str) -> None:
    """The pod gets a deletionTimestamp, is told to end, ends, and its object is gone."""
    placement = story.placement(name)
    assert placement is not None
    story.pod(pod(name, deleting=True))
    story.settle()
    story.run(placement.node, name, RunPhase.STOPPED)
    story.settle()
    story.pod_deleted(name)


def test_the_pod_of_higher_priority_is_nominated_and_lands_once_the_victim_is_gone() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.nomination is not None
    assert waiting.nomination.node == "a"
    assert victims(story, "high") == ["low"]
    assert waiting.priority == 1000
    assert waiting_line(waiting) == (
        "0/1 nodes: 1 cpu short by 1; nominated to a, which pods of lower priority leave: default/low"
    )
    evicted(story, "low")
    story.settle()
    assert story.node_of("high") == "a"
    assert story.waiting("high") is None


def test_the_causes_of_a_nomination_are_the_pod_the_node_and_the_placements_that_give_way() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    object_event = story.pod(pod("high", cpu="2", priority=1000))
    (event,) = [e for e in story.settle() if isinstance(e.data, Waiting)]
    placement = story.placement_event("a", "low")
    assert event.causes[0] == object_event.ref
    assert placement.ref in event.causes


def test_without_priority_over_anybody_a_pod_waits() -> None:
    story = story_of(pod("same", cpu="3", priority=1000))
    story.pods(pod("other", cpu="2", priority=1000))
    story.settle()
    assert nomination(story, "other") is None
    waiting = story.waiting("other")
    assert waiting is not None
    assert waiting.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_never_is_honoured() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("meek", cpu="2", priority=1000, preemptionPolicy="Never"))
    story.settle()
    waiting = story.waiting("meek")
    assert waiting is not None
    assert waiting.nomination is None
    assert waiting.message.endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_the_label_of_the_preemption_policy_counts_before_the_spec() -> None:
    story = story_of(on("a", "low", cpu="4"))
    label = "scheduling.koordinator.sh/preemption-policy"
    story.pods(pod("meek", cpu="2", priority=1000, labels={label: "Never"}))
    story.settle()
    assert nomination(story, "meek") is None
    story.pods(
        pod("bold", cpu="2", priority=1000, preemptionPolicy="Never", labels={label: "PreemptLowerPriority"}),
        pod("odd", cpu="2", priority=2000, preemptionPolicy="Never", labels={label: "Sometimes"}),
    )
    story.settle()
    assert victims(story, "bold") == ["low"]
    assert nomination(story, "odd") is None, "what is no policy does not count"


def test_the_configured_preemption_policy_is_that_of_pods_without_the_label() -> None:
    story = Story(SchedulerConfig(default_preemption_policy="Never"))
    story.node(node("a", cpu="4"))
    story.pods(on("a", "low", cpu="4"))
    story.settle()
    label = {"scheduling.koordinator.sh/preemption-policy": "PreemptLowerPriority"}
    story.pods(pod("plain", cpu="2", priority=2000), pod("bold", cpu="2", priority=1000, labels=label))
    story.settle()
    assert nomination(story, "plain") is None
    assert victims(story, "bold") == ["low"]


def test_never_of_the_priority_class_is_honoured() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.priority_class("meek", 1000, preemption_policy="Never")
    story.pods(pod("high", cpu="2", priorityClassName="meek"))
    story.settle()
    assert nomination(story, "high") is None
    story.priority_class("meek", 1000)
    story.settle()
    assert nomination(story, "high") is not None


def test_a_node_that_refuses_for_another_reason_is_no_candidate() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.node(node("a", cpu="4", taints=[{"key": "x", "value": "", "effect": "NoSchedule"}]))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.nomination is None
    assert waiting.message.endswith(
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_as_many_as_possible_are_reprieved_the_most_important_first() -> None:
    low = [on("a", f"p{i}", cpu="1", priority=priority) for i, priority in enumerate((5, 1, 3, 2))]
    story = story_of(*low)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert sorted(victims(story, "high")) == ["p1", "p3"]


def test_of_equal_priority_those_bound_last_go() -> None:
    story = story_of(*(on("a", f"p{i}", cpu="1") for i in range(4)))
    story.pods(pod("high", cpu="1", priority=1000))
    story.settle()
    assert victims(story, "high") == ["p3"]


def test_the_node_with_the_lowest_highest_priority_is_taken() -> None:
    story = story_of(on("a", "dear", cpu="4", priority=7), on("b", "cheap", cpu="4", priority=3), nodes=2)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["cheap"]


def test_with_equal_highest_priorities_the_smaller_sum_is_taken() -> None:
    story = story_of(
        on("a", "a1", cpu="2", priority=5),
        on("a", "a2", cpu="2", priority=4),
        on("b", "b1", cpu="2", priority=5),
        on("b", "b2", cpu="2", priority=1),
        nodes=2,
    )
    story.pods(pod("high", cpu="3", priority=1000))
    story.settle()
    assert sorted(victims(story, "high")) == ["b1", "b2"]


def test_fewer_victims_are_a_smaller_sum_even_of_negative_priorities() -> None:
    story = story_of(
        on("a", "a1", cpu="2", priority=-10),
        on("a", "a2", cpu="2", priority=-10),
        on("b", "b1", cpu="4", priority=-10),
        nodes=2,
    )
    story.pods(pod("high", cpu="3", priority=1000))
    story.settle()
    assert victims(story, "high") == ["b1"]


def test_then_the_node_whose_victims_were_bound_last() -> None:
    story = story_of(on("a", "early", cpu="4"), on("b", "late", cpu="4"), nodes=2)
    story.pods(pod("high", cpu="4", priority=1000))
    story.settle()
    assert victims(story, "high") == ["late"]


def test_then_the_first_name() -> None:
    story = story_of(nodes=2)
    story.pods(on("b", "on-b", cpu="4"), on("a", "on-a", cpu="4"))
    story.settle()
    story.pods(pod("high", cpu="4", priority=1000))
    story.settle()
    assert victims(story, "high") == ["on-a"]


def test_a_node_where_no_budget_is_violated_comes_first() -> None:
    story = story_of(
        on("a", "guarded", cpu="4", labels={"app": "db"}, priority=1),
        on("b", "free", cpu="4", priority=9),
        nodes=2,
    )
    story.budget("db", {"app": "db"}, allowed=0)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["free"]


def test_where_every_choice_violates_a_budget_the_victim_is_named_as_such() -> None:
    story = story_of(on("a", "guarded", cpu="4", labels={"app": "db"}))
    story.budget("db", {"app": "db"}, allowed=0)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    found = nomination(story, "high")
    assert found is not None
    assert [victim.violates_budget for victim in found.victims] == [True]


def test_those_whose_budget_would_be_violated_are_reprieved_first() -> None:
    story = story_of(
        on("a", "guarded", cpu="2", labels={"app": "db"}, priority=1), on("a", "dear", cpu="2", priority=9)
    )
    story.budget("db", {"app": "db"}, allowed=0)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["dear"]


def test_protected_pods_make_no_room() -> None:
    story = story_of(
        on("a", "p", cpu="2", labels={"scheduling.koordinator.sh/disable-preemptible": "true"}),
        on("a", "q", cpu="2", labels={"quota.scheduling.koordinator.sh/preemptible": "false"}),
    )
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert nomination(story, "high") is None


def test_a_host_port_is_made_free() -> None:
    ports = [{"containerPort": 80, "hostPort": 80}]
    story = story_of()
    taker = pod("taker", cpu="100m", priority=0)
    taker["spec"]["containers"][0]["ports"] = ports
    story.pods(taker, pod("bystander", cpu="100m", priority=0))
    story.settle()
    wanter = pod("wanter", cpu="100m", priority=1000)
    wanter["spec"]["containers"][0]["ports"] = ports
    story.pods(wanter)
    story.settle()
    assert victims(story, "wanter") == ["taker"]


def test_a_pod_that_keeps_it_away_makes_room() -> None:
    story = Story()
    story.node(node("a", labels={"zone": "z"}))
    apart = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "zone"}
            ]
        }
    }
    story.pods(pod("noisy", labels={"app": "noisy"}, priority=0), pod("other", labels={"app": "calm"}, priority=0))
    story.settle()
    story.pods(pod("high", affinity=apart, priority=1000))
    story.settle()
    assert victims(story, "high") == ["noisy"]
    assert story.node_of("other") == "a"


def test_pods_of_lower_priority_leave_the_nominated_room_alone_and_higher_ones_do_not() -> None:
    story = story_of(pod("low", cpu="2", priority=0))
    story.pods(pod("high", cpu="3", priority=1000))
    story.settle()
    # 2 of 4 are free; the nominated pod shall have 3, of which 2 are to become free.
    story.pods(pod("equal", cpu="2", priority=1000), pod("lower", cpu="2", priority=500))
    story.settle()
    assert story.node_of("equal") is None
    assert story.node_of("lower") is None
    story.pods(pod("higher", cpu="2", priority=2000))
    story.settle()
    assert story.node_of("higher") == "a"


def test_the_room_is_held_while_victims_are_ending() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    story.pods(pod("later", cpu="1", priority=500))
    story.settle()
    # cpu 1 is free now, but the nominated pod needs it beside what the victim leaves: 4 - 2 = 2 for all others.
    assert story.node_of("later") is None
    story.pods(pod("top", cpu="1", priority=2000))
    story.settle()
    assert story.node_of("top") == "a"


def test_nobody_else_is_preempted_while_victims_are_ending() -> None:
    story = story_of(on("a", "low-a", cpu="4"), on("b", "low-b", cpu="4"), nodes=2)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["low-b"]
    story.pod(on("b", "low-b", cpu="4", deleting=True))
    story.settle()
    for _ in range(4):
        story.later(20)
        assert [e for e in story.settle() if isinstance(e.data, Waiting) and e.data.nomination is None] == []
        found = nomination(story, "high")
        assert found is not None
        assert (found.node, found.attempts) == ("b", 1)


def test_a_nomination_does_not_outlast_one_of_a_higher_priority_whoever_is_nominated_there_next() -> None:
    story = story_of(*(pod(f"low{i}", priority=0) for i in range(4)))
    story.pods(pod("late", priority=500, created="2026-01-01T11:02:00Z"))
    story.settle()
    before = nomination(story, "late")
    assert before is not None
    story.later(0.5)  # it would be kept for a second
    story.pods(pod("high", priority=1000), pod("early", priority=500, created="2026-01-01T11:01:00Z"))
    story.decide()
    named = story.nominated()
    assert {name for name, found in named.items() if found.at == story.now} >= {"high", "early"}
    late = nomination(story, "late")
    assert late is None or late.at == story.now


def test_a_choice_that_nobody_follows_is_made_again_after_one_two_four_eight_ten_seconds() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    for attempt, pause in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)):
        found = nomination(story, "high")
        assert found is not None
        assert found.attempts == attempt
        story.later(pause - 0.001)
        assert story.settle() == []
        story.later(0.001)
        assert len(story.settle()) == 1


def test_the_pod_takes_another_node_that_became_free_first() -> None:
    story = story_of(on("a", "low", cpu="3"), on("b", "busy", cpu="3", priority=2000), nodes=2)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["low"]
    story.pod_deleted("busy")
    story.settle()
    story.run("b", "busy", RunPhase.STOPPED)
    story.settle()
    assert story.node_of("high") == "b"
    assert story.waiting("high") is None


def test_a_nomination_ends_with_its_node() -> None:
    story = story_of(on("a", "low", cpu="3"), on("b", "busy", cpu="3", priority=2000), nodes=2)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    story.node_deleted("a")
    story.settle()
    assert nomination(story, "high") is None
    assert story.waiting("high") is not None


def test_a_nomination_ends_with_its_pod() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    story.pod_deleted("high")
    story.settle()
    assert story.waiting("high") is None
    story.pods(pod("one", cpu="1", priority=0))
    story.settle()
    assert story.node_of("one") == "a"


def test_pods_of_one_template_are_nominated_one_node_after_the_other() -> None:
    story = story_of(*(on(name, f"low-{name}", cpu="4") for name in "abc"), nodes=3)
    story.pods(*(pod(f"high{i}", cpu="3", priority=1000) for i in range(4)))
    story.settle()
    nodes = [found.node for i in range(4) if (found := nomination(story, f"high{i}")) is not None]
    assert sorted(nodes) == ["a", "b", "c"]
    assert nomination(story, "high3") is None


def test_a_decision_nominates_a_bounded_number_of_pods_and_the_next_ones_the_rest() -> None:
    count = NOMINATIONS_PER_DECISION + 5
    story = story_of(nodes=1, cpu="400")
    story.pods(*(pod(f"low{i:03}", cpu="4", memory="1Mi", priority=0) for i in range(100)))
    story.settle()
    story.pods(*(pod(f"high{i:03}", cpu="4", memory="1Mi", priority=1000) for i in range(count)))
    first = story.decide()
    assert sum(isinstance(e.data, Waiting) and e.data.nomination is not None for e in first) == NOMINATIONS_PER_DECISION
    story.settle()
    named = [victims(story, f"high{i:03}") for i in range(count)]
    assert len({name for names in named for name in names}) == sum(len(names) for names in named) == count


def test_a_restart_goes_on_with_the_nomination() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000), pod("later", cpu="1", priority=500))
    story.settle()
    fresh = story.reloaded()
    story.later(60)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    story.core = fresh
    evicted(story, "low")
    story.settle()
    assert story.node_of("high") == "a"
    assert story.node_of("later") == "a"


def test_a_quota_that_refuses_the_pod_ends_its_nomination() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.node(node("cordoned", cpu="8", unschedulable=True))
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    story.quota("team", max={"cpu": 4000})
    story.pods(pod("high", cpu="2", priority=1000, labels=labels))
    story.settle()
    assert nomination(story, "high") is not None
    story.quota("team", max={"cpu": 1000})
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.nomination is None
    assert [reason.code for reason in waiting.reasons] == ["quota"]


def test_placements_are_not_touched_by_the_scheduler_itself() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    stored = story.settle()
    assert not [e for e in stored if isinstance(e.data, Placement)]
    placement = story.placement("low")
    assert placement is not None
    assert placement.phase is PlacementPhase.BOUND


# -- what a pod that is nominated waits for, and says ----------------------------------------------------------------------


def test_a_nominated_pod_says_that_its_victims_are_ending() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert "preemption" not in waiting.message
    story.pod(pod("low", cpu="3", priority=0, deleting=True))
    story.settle()
    story.later(30)
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.message.endswith(" preemption: not eligible due to a terminating pod on the nominated node.")


def test_the_end_of_a_pod_of_equal_priority_is_not_waited_for() -> None:
    story = story_of(on("a", "low", cpu="3"), on("a", "equal", cpu="1", priority=1000))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    story.pod(on("a", "equal", cpu="1", priority=1000, deleting=True))
    story.settle()
    story.later(20)
    story.settle()
    found = nomination(story, "high")
    assert found is not None
    assert found.attempts == 2, "its time is over, and nobody of lower priority is ending"


def test_a_pod_of_equal_priority_makes_no_room() -> None:
    story = story_of(on("a", "equal", cpu="3", priority=1000))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.nomination is None
    assert "preemption" not in waiting.message


def test_nodes_where_nobodys_end_helps_are_told_from_those_where_nobody_can_go() -> None:
    story = story_of(on("a", "low", cpu="3"), on("b", "busy", cpu="3", priority=2000), nodes=3)
    story.node(node("a", cpu="4", unschedulable=True))
    story.node(node("c", cpu="4", taints=[{"key": "k", "value": "", "effect": "NoSchedule"}]))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.message.endswith(
        " preemption: 0/3 nodes are available: 2 Preemption is not helpful for scheduling, "
        "1 No preemption victims found for incoming pod."
    )


def test_no_more_pods_go_than_must_when_their_sizes_differ() -> None:
    sizes = {"p0": "1", "p1": "1", "p2": "2", "p3": "500m", "p4": "500m"}
    story = story_of(*(on("a", name, cpu=cpu, memory="1Gi") for name, cpu in sizes.items()), cpu="6")
    story.pods(pod("high", cpu="3500m", memory="1Gi", priority=1000))
    story.settle()
    # 1 of 6 cores is free, and 2.5 must come: of those that were bound first 1 and 1 stay, then 2 cannot, then 500m stays.
    assert victims(story, "high") == ["p2", "p4"]


def test_pods_that_take_nothing_of_what_is_short_stay() -> None:
    story = story_of(
        on("a", "idle", requests={}), on("a", "memory", requests={"memory": "8Gi"}), on("a", "cpu", cpu="3", memory="1Gi")
    )
    story.pods(pod("high", cpu="2", memory="1Gi", priority=1000))
    story.settle()
    assert victims(story, "high") == ["cpu"]


def test_a_pod_slot_is_room_too() -> None:
    story = Story()
    story.node(node("a", cpu="10", pods="2"))
    story.executor("a")
    for name in ("first", "second"):
        story.pod(on("a", name, requests={}))
        story.settle()
        story.later(1)
    story.pods(pod("high", requests={}, priority=1000))
    story.settle()
    assert victims(story, "high") == ["second"]


def test_a_pod_replaced_by_another_of_its_name_is_not_nominated() -> None:
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    record = story.core.pods.records["default", "high"]
    assert nomination_of(record) is not None
    story.pod(pod("high", cpu="2", priority=1000, uid="second"))
    assert nomination_of(record) is None
    story.pod(pod("high", cpu="2", priority=1000))
    assert nomination_of(record) is not None
    record.queued_in = None
    assert nomination_of(record) is None


# -- rooms that are held -----------------------------------------------------------------------------------------------------


def held_rooms() -> tuple[Nominations, NodeTable, PodRecord]:
    """A table of its own with the nodes a and b, and the record of a pod of priority 1000 that is nominated to a."""
    story = story_of(pod("low", cpu="3", priority=0))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    table = Story()
    table.nodes(node("a"), node("b"))
    table.settle()
    nodes = table.core.nodes
    return Nominations(nodes), nodes, story.core.pods.records["default", "high"]


def held(nodes: NodeTable) -> list[int]:
    return [int(nodes.requested[0, nodes.rows[name]]) for name in "ab"]


def test_a_room_is_held_against_pods_of_no_higher_priority_but_its_own() -> None:
    nominations, nodes, record = held_rooms()
    assert not nominations
    assert not nominations.hold(0)
    nominations.pod_changed(record)
    assert nominations
    its = frozenset({record.key})
    some = NOBODY
    for priority, own, wanted in ((0, some, 2000), (1000, some, 2000), (1001, some, 0), (1000, its, 0), (5, some, 2000)):
        before = held(nodes)
        changed = nominations.hold(priority, own)
        assert held(nodes) == [wanted, 0]
        assert changed == (before != held(nodes))
        assert not nominations.hold(priority, own), "nothing changed since"
        assert nominations.leaving.get("a", set()) == ({"uid-low"} if wanted else set())


def test_a_decision_moves_and_ends_rooms_until_the_next_one_begins() -> None:
    nominations, nodes, record = held_rooms()
    assert record.facts is not None
    assert record.facts.shape is not None
    nominations.pod_changed(record)
    nominations.begin()
    assert not nominations.freed
    nominations.end(("default", "another"))
    assert not nominations.freed
    nominations.end(record.key, "a")
    assert not nominations.freed, "it takes the room itself"
    nominations.begin()
    nominations.nominate(record.key, Nomination(node="b", at=NOW, attempts=1), record.facts.shape)
    assert nominations.freed, "the one on a"
    assert nominations.hold(0)
    assert held(nodes) == [0, 2000]
    nominations.freed = False
    nominations.end(record.key)
    assert nominations.freed
    assert nominations.hold(0)
    assert held(nodes) == [0, 0]
    nominations.begin()
    assert not nominations.freed
    assert nominations.hold(0)
    assert held(nodes) == [2000, 0], "as it is stored"


def test_a_nomination_by_the_decision_alone_ends_too() -> None:
    nominations, nodes, record = held_rooms()
    assert record.facts is not None
    assert record.facts.shape is not None
    nominations.begin()
    nominations.nominate(record.key, Nomination(node="b", at=NOW, attempts=1), record.facts.shape)
    assert not nominations.freed
    assert nominations
    nominations.end(record.key, "a")
    assert nominations.freed
    assert not nominations.hold(0)
    assert held(nodes) == [0, 0]


def test_a_room_is_let_go_when_its_pod_is_nominated_no_longer() -> None:
    nominations, nodes, record = held_rooms()
    nominations.pod_changed(record)
    assert nominations.hold(0)
    record.waiting = None
    nominations.pod_changed(record)
    assert nominations.hold(0)
    assert held(nodes) == [0, 0]


def test_a_nomination_that_is_stored_ends_by_a_decision_too() -> None:
    nominations, nodes, record = held_rooms()
    nominations.pod_changed(record)
    nominations.begin()
    nominations.end(record.key)
    assert nominations.freed
    assert not nominations.hold(0)
    assert held(nodes) == [0, 0]


# -- who goes, where pods keep more than sums --------------------------------------------------------------------------------


def with_port(document: dict[str, Any], number: int = 80) -> dict[str, Any]:
    document["spec"]["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number}]
    return document


def test_as_few_go_as_sums_and_ports_ask_for() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "host"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    story = story_of(
        on("a", "p0", cpu="1"),
        with_port(on("a", "p1", cpu="1")),
        on("a", "p2", cpu="2"),
        on("a", "p3", cpu="500m"),
        on("a", "p4", cpu="500m"),
        cpu="6",
    )
    story.pods(with_port(pod("high", cpu="4", priority=1000, affinity=apart)))
    story.settle()
    # 2 cores are left for others: p0 has one, p1 has the port, p2 needs two, p3 and p4 fill them up.
    assert victims(story, "high") == ["p1", "p2"]


def test_a_node_whose_pods_end_already_is_chosen_at_no_cost() -> None:
    story = story_of(on("a", "low", cpu="3"), on("b", "other", cpu="3"), nodes=2)
    story.pod(on("b", "other", cpu="3", deleting=True))
    story.settle()
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    found = nomination(story, "high")
    assert found is not None
    assert (found.node, found.victims) == ("b", ())


def test_a_pod_whose_object_cannot_be_read_is_not_taken_for_ending() -> None:
    story = story_of(on("a", "low", cpu="3"))
    story.say(pod_subject("default", "low"), ObjectStored(object=msgspec.Raw(b'{"metadata":[]}')))
    story.settle()
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["low"]


def test_pods_of_equal_priority_stay_where_lower_ones_are_too_small() -> None:
    story = story_of(on("a", "equal", cpu="3", priority=1000), on("a", "low", cpu="500m"))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert nomination(story, "high") is None


def test_the_highest_victim_of_a_node_counts_and_comes_first() -> None:
    story = story_of(
        on("a", "a1", cpu="2", priority=1),
        on("a", "a5", cpu="2", priority=5),
        on("b", "b4", cpu="2", priority=4),
        on("b", "b3", cpu="2", priority=3),
        nodes=2,
    )
    story.pods(pod("high", cpu="4", priority=1000))
    story.settle()
    assert victims(story, "high") == ["b4", "b3"]


def test_among_equals_the_node_whose_first_victim_was_bound_last() -> None:
    story = story_of(*(on(name[0], name, cpu="2") for name in ("a1", "b1", "b2", "a2")), nodes=2)
    story.pods(pod("high", cpu="4", priority=1000))
    story.settle()
    assert victims(story, "high") == ["b1", "b2"], "bound after 1 and 2 seconds; on a after 0 and 3"


def test_a_budget_that_is_gone_protects_nobody_any_more() -> None:
    story = story_of(on("a", "low-a", cpu="3", priority=10), on("b", "low-b", cpu="3", labels={"app": "b"}), nodes=2)
    budget = story.budget("b", {"app": "b"}, allowed=0)
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["low-a"]
    story.say(budget.subject, ObjectDeleted(), tombstone=True)
    story.later(1)
    story.settle()
    assert victims(story, "high") == ["low-b"]


def test_who_was_bound_first_stays_whatever_the_names() -> None:
    story = story_of(on("a", "zoe", cpu="2"), on("a", "amy", cpu="2"))
    story.pods(pod("high", cpu="2", priority=1000))
    story.settle()
    assert victims(story, "high") == ["amy"]
