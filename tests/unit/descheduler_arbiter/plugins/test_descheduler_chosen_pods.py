"""Which pods a plugin looks at at all, the same for each: those of its namespaces and labels that the filters let go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.api.objects.metadata import OwnerReference
from cotenant.api.objects.node import Taint
from cotenant_descheduler_arbiter.config.policy import CycleLimits
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.plugins.cycle_evictor import CycleEvictor
from cotenant_descheduler_arbiter.plugins.priority_order import low_priority_first
from cotenant_descheduler_arbiter.state.facts import ContainerFacts, NodeFacts, PodFacts
from tests.unit.descheduler_arbiter.plugins.builders_plugins import node, pod, run

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
ON_SSD = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}
PLAIN = [node("n1"), node("n2", labels={"disk": "ssd"})]
TAINTED = [node("n1", taints=[Taint(key="disk", value="bad", effect="NoSchedule")]), node("n2")]

CASES: dict[str, tuple[dict[str, Any], list[NodeFacts], dict[str, Any]]] = {
    "PodLifeTime": ({"maxPodLifeTimeSeconds": 60}, PLAIN, {}),
    "RemoveFailedPods": ({}, PLAIN, {"phase": "Failed"}),
    "RemovePodsHavingTooManyRestarts": ({"podRestartThreshold": 3}, PLAIN, {"containers": (ContainerFacts(restarts=3),)}),
    "RemovePodsViolatingNodeTaints": ({}, TAINTED, {}),
    "RemovePodsViolatingNodeAffinity": ({"nodeAffinityType": [REQUIRED]}, PLAIN, {"affinity": ON_SSD}),
}


@pytest.mark.parametrize("plugin", CASES)
def test_pods_go_that_are_chosen_by_namespace_and_label_and_may_go(plugin: str) -> None:
    args, nodes, more = CASES[plugin]
    pods = [
        pod(name, "n1", namespace=space, labels={"app": name}, **more) for name, space in (("a", "x"), ("b", "y"), ("c", "x"))
    ]
    assert sorted(run(plugin, args, nodes, pods)) == ["a", "b", "c"]
    assert run(plugin, args, nodes, pods, stays=["a", "b"]) == ["c"]
    assert run(plugin, args, nodes, pods, stays=["b", "c"]) == ["a"]
    assert sorted(run(plugin, {**args, "namespaces": {"include": ["x"]}}, nodes, pods)) == ["a", "c"]
    assert run(plugin, {**args, "namespaces": {"exclude": ["x"]}}, nodes, pods) == ["b"]
    assert run(plugin, {**args, "labelSelector": {"matchLabels": {"app": "b"}}}, nodes, pods) == ["b"]


def test_failed_pods_behind_one_that_stays_go() -> None:
    pods = [
        pod("young", "n1", phase="Failed", age=timedelta(seconds=1)),
        pod("owned", "n1", phase="Failed", owner="batch"),
        pod("other-reason", "n1", phase="Failed", reason="Evicted"),
        pod("goes", "n1", phase="Failed", reason="NodeLost", owner=None),
    ]
    args = {"excludeOwnerKinds": ["ReplicaSet"], "reasons": ["NodeLost"]}
    assert run("RemoveFailedPods", args, [node("n1")], pods) == ["goes"]
    assert run("RemoveFailedPods", {"minPodLifetimeSeconds": 1}, [node("n1")], pods) == [
        "young", "owned", "other-reason", "goes",
    ]  # fmt: skip


def test_restarts_of_init_containers_count_where_that_is_asked_for() -> None:
    pods = [pod("a", "n1", containers=(ContainerFacts(restarts=2), ContainerFacts(init=True, restarts=3)))]
    plugin = "RemovePodsHavingTooManyRestarts"
    assert run(plugin, {"podRestartThreshold": 5}, [node("n1")], pods) == []
    assert run(plugin, {"podRestartThreshold": 5, "includingInitContainers": True}, [node("n1")], pods) == ["a"]
    assert run(plugin, {"podRestartThreshold": 6, "includingInitContainers": True}, [node("n1")], pods) == []


def test_a_pod_without_a_required_affinity_fits_whatever_node_it_is_on() -> None:
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}}
    closed = [node("n1", unschedulable=True), node("n2")]
    pods = [pod("soft", "n1", affinity=preferred), pod("plain", "n1"), pod("apart", "n1", affinity={"podAntiAffinity": {}})]
    plugin = "RemovePodsViolatingNodeAffinity"
    assert run(plugin, {"nodeAffinityType": [REQUIRED]}, closed, pods) == []


def test_a_pod_that_tolerates_the_first_taint_goes_for_the_second() -> None:
    taints = [Taint(key="one", effect="NoSchedule"), Taint(key="two", effect="NoSchedule"), Taint(key="x", effect="NoExecute")]
    exists = [{"key": "one", "operator": "Exists"}]
    both = [*exists, {"key": "two", "operator": "Exists"}]
    pods = [pod("a", "n1", tolerations=exists), pod("b", "n1", tolerations=both)]
    assert run("RemovePodsViolatingNodeTaints", {}, [node("n1", taints=taints)], pods) == ["a"]
    assert run("RemovePodsViolatingNodeTaints", {"excludedTaints": ["two"]}, [node("n1", taints=taints)], pods) == []


def test_duplicates_have_owners_and_the_share_of_a_node_is_rounded_up() -> None:
    three = [pod(f"a{index}", "n1") for index in range(3)]
    nodes = [node("n1"), node("n2")]
    assert run("RemoveDuplicates", {}, nodes, three) == ["a2"], "two of three may stay"
    assert run("RemoveDuplicates", {}, nodes, three[:2]) == ["a1"]
    assert run("RemoveDuplicates", {}, nodes, three[:1]) == []
    assert run("RemoveDuplicates", {}, nodes, [pod(f"b{index}", "n1", owner=None) for index in range(3)]) == []
    assert run("RemoveDuplicates", {}, nodes, three, stays=["a0"]) == ["a2"]
    assert run("RemoveDuplicates", {"namespaces": {"exclude": ["default"]}}, nodes, three) == []


def test_a_priority_below_zero_comes_behind_no_priority() -> None:
    pods = [pod("zero", "n1", priority=0), pod("none", "n1"), pod("below", "n1", priority=-5), pod("a-none", "n1")]
    assert [each.name for each in low_priority_first(pods)] == ["a-none", "none", "below", "zero"]


def test_a_pod_with_an_owner_of_an_excluded_kind_is_no_duplicate() -> None:
    def owned(name: str, *kinds: str) -> PodFacts:
        facts = pod(name, "n1")
        owners = tuple(OwnerReference(kind=kind, name=kind) for kind in kinds)
        metadata = replace(facts.pod.metadata, owner_references=owners)
        return replace(facts, pod=replace(facts.pod, metadata=metadata))

    pods = [owned(name, "ReplicaSet", "Job") for name in "abc"]
    nodes = [node("n1"), node("n2")]
    assert run("RemoveDuplicates", {}, nodes, pods) == ["c"]
    for kinds in (["Job"], ["ReplicaSet"], ["Job", "ReplicaSet"]):
        assert run("RemoveDuplicates", {"excludeOwnerKinds": kinds}, nodes, pods) == []
    assert run("RemoveDuplicates", {"excludeOwnerKinds": ["Other"]}, nodes, pods) == ["c"]


@pytest.mark.parametrize(("most", "why_not", "evicted"), [(1, None, True), (0, None, False), (1, "it stays", False)])
def test_who_asks_learns_whether_a_pod_goes(most: int, why_not: str | None, evicted: bool) -> None:
    evictor = CycleEvictor(lambda _: why_not, CycleCounts(CycleLimits()), [node("n1")], node_fit=False, most=most)
    assert evictor.evict(pod("a", "n1"), "too many") is evicted
    assert not evictor.evict(pod("a", "n1"), "again")
    assert [each.pod.name for each in evictor.evicted] == ["a"] * evicted


def test_a_pod_takes_no_room_of_what_it_does_not_request() -> None:
    """Of memory, one byte is left on the other node."""
    capacity = {"cpu": 1000, "memory": 1, "pods": 110}
    nodes = [node(name, allocatable=capacity) for name in ("n1", "n2")]
    pods = [pod(f"p{number}", "n1", cpu="200m", owner=f"o{number}") for number in range(4)]
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 40}}
    assert run("LowNodeUtilization", args, nodes, pods) == ["p0", "p1"]


def test_a_pod_takes_the_room_of_one_pod() -> None:
    """Eight of ten pods, where five are the target: three go, though five would find room."""
    nodes = [node(name, allocatable={"cpu": 100_000, "memory": 100, "pods": 10}) for name in ("n1", "n2")]
    pods = [pod(f"p{number}", "n1", cpu="1m", owner=f"o{number}") for number in range(8)]
    args = {"thresholds": {"pods": 20}, "targetThresholds": {"pods": 50}}
    assert run("LowNodeUtilization", args, nodes, pods) == ["p0", "p1", "p2"]
