"""Where pods go, and in which order."""

from __future__ import annotations

from typing import Any

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.resource_fit import ScoringStrategy
from tests.unit.scheduler.builders_scheduler import GIB, NOW, Story, batch_pod, node, pod


def test_a_pod_goes_to_the_node_with_most_room() -> None:
    story = Story()
    story.nodes(node("a", cpu="2"), node("b", cpu="16"))
    story.pods(pod("web"))
    story.settle()
    assert story.node_of("web") == "b"


def test_equal_nodes_are_taken_in_the_order_of_their_names_whatever_order_they_came_in() -> None:
    for names in (("b", "a", "c"), ("c", "b", "a")):
        story = Story()
        story.nodes(*(node(name) for name in names))
        story.pods(pod("web"))
        story.settle()
        assert story.node_of("web") == "a"


def test_equal_pods_spread_over_equal_nodes() -> None:
    story = Story()
    story.nodes(*(node(f"n{i}") for i in range(4)))
    story.pods(*(pod(f"p{i}") for i in range(8)))
    story.settle()
    assert sorted(story.placed().values()) == sorted([f"n{i}" for i in range(4)] * 2)


def test_no_more_pods_than_fit_in_one_decision() -> None:
    story = Story()
    story.nodes(node("a", cpu="4"), node("b", cpu="3"))
    story.pods(*(pod(f"p{i}") for i in range(9)))
    story.settle()
    nodes = list(story.placed().values())
    assert (nodes.count("a"), nodes.count("b")) == (4, 3)


def test_pods_per_node_are_a_resource() -> None:
    story = Story()
    story.nodes(node("a", pods="2"))
    story.pods(*(pod(f"p{i}", cpu="100m") for i in range(3)))
    story.settle()
    assert len(story.placed()) == 2
    waiting = story.waiting("p2")
    assert waiting is not None
    assert waiting.message == "0/1 nodes are available: 1 Too many pods."


def test_higher_priority_goes_first_then_the_older_then_by_name() -> None:
    story = Story()
    story.nodes(node("a", cpu="3"))
    story.pods(
        pod("young", created="2026-01-01T11:59:00Z"),
        pod("b-old", created="2026-01-01T10:00:00Z"),
        pod("a-old", created="2026-01-01T10:00:00Z"),
        pod("vip", priority=9500, created="2026-01-01T11:59:59Z"),
    )
    batch = story.decide()
    assert [e.data.name for e in batch if isinstance(e.data, Placement)] == ["vip", "a-old", "b-old"]
    assert story.node_of("young") is None


def test_a_priority_class_gives_the_priority_whenever_it_arrives() -> None:
    for first in (True, False):
        story = Story()
        story.nodes(node("a", cpu="1"))
        if first:
            story.priority_class("gold", 1000)
        story.pods(pod("plain", created="2026-01-01T01:00:00Z"), pod("golden", priorityClassName="gold"))
        if not first:
            story.priority_class("gold", 1000)
        story.settle()
        assert story.placed() == {"golden": "a"}


def test_a_resource_that_no_node_offers_keeps_the_pod_waiting_until_one_does() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("train", requests={"cpu": "1", "nvidia.com/gpu": "1"}))
    story.settle()
    waiting = story.waiting("train")
    assert waiting is not None
    assert waiting.reasons[0].resource == "nvidia.com/gpu"
    gpus: dict[str, Any] = {"nvidia.com/gpu": "1"}
    story.node(node("a", **gpus))
    story.settle()
    assert story.node_of("train") == "a"
    assert story.waiting("train") is None


def test_a_batch_pod_goes_where_batch_capacity_is() -> None:
    story = Story()
    story.nodes(node("a"), node("b"))
    story.batch("b", 4000)
    story.pods(batch_pod("job"))
    story.settle()
    assert story.node_of("job") == "b"
    placement = story.placement("job")
    assert placement is not None
    assert placement.requests == {"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": GIB}


def test_taints_selectors_and_cordons_keep_pods_away() -> None:
    story = Story()
    story.nodes(
        node("cordoned", cpu="64", unschedulable=True),
        node("tainted", cpu="64", taints=[{"key": "cotenant.io/runtime", "value": "process", "effect": "NoSchedule"}]),
        node("other", cpu="4", labels={"disk": "hdd"}),
        node("right", labels={"disk": "ssd"}),
    )
    story.pods(pod("db", nodeSelector={"disk": "ssd"}))
    story.settle()
    assert story.node_of("db") == "right"
    story.pods(
        pod(
            "proc",
            nodeSelector={},
            tolerations=[{"key": "cotenant.io/runtime", "operator": "Equal", "value": "process", "effect": "NoSchedule"}],
        )
    )
    story.settle()
    assert story.node_of("proc") == "tainted"


def test_the_taints_of_a_nodes_condition_count() -> None:
    story = Story()
    story.nodes(node("a"))
    story.condition("a", ("node.kubernetes.io/unreachable", "", "NoExecute"))
    story.pods(pod("web"))
    story.settle()
    waiting = story.waiting("web")
    assert waiting is not None
    assert waiting.reasons[0].code == "taint"
    story.condition("a")
    story.settle()
    assert story.node_of("web") == "a"


def test_a_taint_that_only_prefers_is_a_score() -> None:
    story = Story()
    story.nodes(node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), node("b"))
    story.pods(pod("web"))
    story.settle()
    assert story.node_of("web") == "b"


def test_preferred_affinity_is_a_score_and_required_affinity_a_filter() -> None:
    def affinity(**parts: object) -> dict[str, object]:
        return {"nodeAffinity": parts}

    zone_b = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    story = Story()
    story.nodes(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}))
    preferred = affinity(preferredDuringSchedulingIgnoredDuringExecution=[{"weight": 10, "preference": zone_b}])
    required = affinity(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [zone_b]})
    story.pods(pod("soft", affinity=preferred))
    story.settle()
    story.pods(pod("hard", cpu="7", affinity=required), pod("hard2", affinity=required))
    story.settle()
    assert story.placed() == {"soft": "b", "hard": "b"}
    waiting = story.waiting("hard2")
    assert waiting is not None
    assert {reason.code for reason in waiting.reasons} == {"node-affinity", "insufficient"}


def test_host_ports_conflict() -> None:
    ports = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("one", containers=ports), pod("two", containers=ports))
    story.settle()
    assert story.placed() == {"one": "a"}
    waiting = story.waiting("two")
    assert waiting is not None
    assert waiting.reasons[0].code == "host-port"


def test_load_keeps_pods_off_a_hot_node() -> None:
    story = Story()
    story.nodes(node("cool", cpu="8"), node("hot", cpu="64"))
    story.metric("hot", 50_000)
    story.metric("cool", 1_000)
    story.pods(pod("web"))
    story.settle()
    assert story.node_of("web") == "cool"


def test_pods_placed_since_the_last_report_count_by_their_estimate() -> None:
    story = Story()
    story.nodes(node("a", cpu="10", memory="100Gi"))
    story.metric("a", 3_000)
    story.pods(*(pod(f"p{i}", cpu="2") for i in range(3)))
    story.settle()
    # 30 % measured and 17 % estimated a pod: the third would make 81 %.
    assert sorted(story.placed()) == ["p0", "p1"]
    story.later(120)
    story.metric("a", 3_200, p0=(100, 1), p1=(100, 1))
    story.settle()
    assert sorted(story.placed()) == ["p0", "p1", "p2"]


def test_an_expired_metric_keeps_pods_off_as_soon_as_it_expires() -> None:
    story = Story()
    story.nodes(node("a"))
    story.metric("a", 100)
    story.later(179)
    story.pods(pod("in-time"))
    story.settle()
    story.later(1)
    story.pods(pod("late"))
    story.settle()
    assert story.placed() == {"in-time": "a"}
    story.metric("a", 100)
    story.settle()
    assert story.node_of("late") == "a"


def test_a_finished_pod_frees_its_room_and_keeps_its_placement() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("job"), pod("next"))
    story.settle()
    assert story.placed() == {"job": "a"}
    story.run("a", "job", RunPhase.SUCCEEDED)
    story.settle()
    assert story.placed() == {"job": "a", "next": "a"}


def test_pods_of_another_scheduler_are_left_alone() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("theirs", schedulerName="volcano"))
    assert story.settle() == []


def test_a_pod_that_names_its_node_is_placed_there_unasked() -> None:
    story = Story()
    story.nodes(node("full", cpu="1", unschedulable=True), node("free"))
    story.pods(pod("static", cpu="4", nodeName="full", schedulerName="whoever"))
    story.settle()
    assert story.node_of("static") == "full"


def test_a_pod_that_names_an_absent_node_waits_for_it() -> None:
    story = Story()
    story.pods(pod("static", nodeName="ghost"))
    story.settle()
    waiting = story.waiting("static")
    assert waiting is not None
    assert waiting.reasons[0].code == "node-missing"
    story.node(node("ghost"))
    story.settle()
    assert story.node_of("static") == "ghost"
    assert story.waiting("static") is None


def test_a_decision_names_its_figures_and_causes() -> None:
    story = Story()
    node_event = story.node(node("a"))
    metric = story.metric("a", 1_000)
    created = story.pod(pod("web"))
    story.settle()
    event = story.placement_event("a", "web")
    assert event.causes == (created.ref, node_event.ref, metric.ref)
    assert isinstance(event.data, Placement)
    assert event.data.bound_at == NOW
    assert event.data.phase is PlacementPhase.BOUND
    figures = {figure.name: figure.value for figure in event.data.figures}
    assert figures["score"] == sum(value for name, value in figures.items() if name.startswith("score."))
    assert figures["node.cpu.used"] == 1_000
    assert figures["score.TaintToleration"] == 300


def test_weights_are_configuration() -> None:
    story = Story(SchedulerConfig(weights={"NodeResourcesFit": 0, "NodeResourcesBalancedAllocation": 0}))
    story.nodes(node("a", cpu="2"), node("b", cpu="64"))
    story.pods(pod("web"))
    story.settle()
    assert story.node_of("web") == "a"


def test_decide_changes_nothing_by_itself() -> None:
    story = Story()
    story.nodes(node("a", cpu="4"), node("b", cpu="3"))
    story.pods(*(pod(f"p{i}") for i in range(9)))
    first = list(story.core.decide(story.now))
    assert list(story.core.decide(story.now)) == first
    story.core.take_back()
    assert int(story.core.nodes.requested.sum()) == 0


def test_a_batch_is_bounded() -> None:
    story = Story()
    story.nodes(*(node(f"n{i}", cpu="1000", memory="10Ti", pods="5000") for i in range(3)))
    story.pods(*(pod(f"p{i}", cpu="10m", memory="1Mi") for i in range(1500)))
    sizes = []
    while batch := story.decide():
        sizes.append(len(batch))
    assert max(sizes) <= 999
    assert len(story.placed()) == 1500


def test_the_room_of_a_reserved_part_of_the_node_is_not_given_away() -> None:
    story = Story()
    story.nodes(node("a", cpu="4", annotations={"node.koordinator.sh/reservation": '{"resources":{"cpu":"3"}}'}))
    story.pods(pod("one"), pod("two"))
    story.settle()
    assert len(story.placed()) == 1


def test_the_executors_report_overlays_the_nodes_allocatable() -> None:
    story = Story()
    story.nodes(node("a", cpu="64"))
    story.executor("a", cpu=1000)
    story.pods(pod("one"), pod("two"))
    story.settle()
    assert len(story.placed()) == 1


def test_a_pod_is_counted_once_in_the_load_of_a_node_whose_report_knows_another_that_came_with_it() -> None:
    """Simulation seeds 1, 2 and 6: a commit was decided again with other figures."""
    story = Story()
    story.node(node("n0"))
    story.pods(pod("a-new"), pod("known"))
    story.settle()
    story.metric("n0", 2000, known=(1500, GIB))
    late = SchedulerCore()
    placed = [event for event in story.last.values() if isinstance(event.data, Placement)]
    for event in story.last.values():
        if event not in placed:
            late.apply(event)
    late.decide(story.now)
    for event in (*placed, story.pod(pod("next"))):
        late.apply(event)
    [here], [there] = story.core.decide(story.now), late.decide(story.now)
    assert isinstance(here.data, Placement)
    assert isinstance(there.data, Placement)
    assert here.data.figures == there.data.figures


def figure(story: Story, pod_name: str, name: str) -> int:
    placement = story.placement(pod_name)
    assert placement is not None
    return next((found.value for found in placement.figures if found.name == name), 0)  # a score of 0 is left out


def test_a_node_that_has_the_image_is_preferred_by_its_size_and_spread() -> None:
    """kube-scheduler's own example: 100 * (250 MB / 2 - 23 MB) // (1000 MB - 23 MB)."""
    story = Story()
    story.nodes(node("a"), node("b", images={"web:latest": 250}))
    story.pods(pod("web", image="web"), pod("other", image="other:1"))
    story.settle()
    assert story.node_of("web") == "b"
    assert figure(story, "web", "score.ImageLocality") == 100 * (250 / 2 - 23) // (1000 - 23)
    assert figure(story, "other", "score.ImageLocality") == 0


def test_images_that_a_node_reports_later_count_from_then_on() -> None:
    story = Story()
    story.nodes(node("a"), node("b"))
    story.pods(pod("first", image="web:1"))
    story.settle()
    story.nodes(node("b", images={"web:1": 900}), node("a", images={"web:1": 900}))
    story.pods(pod("second", image="web:1"))
    story.settle()
    assert figure(story, "second", "score.ImageLocality") == 100 * (900 - 23) // (1000 - 23)
    story.node(node("c"))
    story.pods(pod("third", image="web:1"))
    story.settle()
    # Two of three nodes have it.
    assert figure(story, "third", "score.ImageLocality") == 100 * (600 - 23) // (1000 - 23)


def test_most_allocated_fills_one_node_first() -> None:
    story = Story(SchedulerConfig(scoring_strategy=ScoringStrategy.MOST_ALLOCATED, weights={"LoadAwareScheduling": 0}))
    story.nodes(*(node(name, cpu="8", memory="8Gi") for name in "abc"))
    story.pods(*(pod(f"p{i}", cpu="1", memory="1Gi") for i in range(10)))
    story.settle()
    assert sorted(story.placed().values()) == ["a"] * 8 + ["b"] * 2


def test_a_series_of_equal_pods_fills_one_node_first_as_well() -> None:
    story = Story(SchedulerConfig(scoring_strategy=ScoringStrategy.MOST_ALLOCATED))
    story.nodes(*(node(f"n{i}", cpu="4", memory="16Gi") for i in range(9)))
    story.pods(*(pod(f"p{i:02}", cpu="100m", memory="64Mi") for i in range(60)))
    story.settle()
    assert set(story.placed().values()) == {"n0", "n1"}
