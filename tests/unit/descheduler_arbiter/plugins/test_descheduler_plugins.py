"""The plugins' rules, on facts: which pods go, in which order, and which stay."""


from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import TopologySpreadConstraint, decode_pod
from cotenant_descheduler_arbiter.config.plugin_args import PluginArgs
from cotenant_descheduler_arbiter.config.plugin_points import POINTS
from cotenant_descheduler_arbiter.config.policy import CycleLimits
from cotenant_descheduler_arbiter.plugins.duplicates import find_duplicates, target_nodes
from cotenant_descheduler_arbiter.plugins.priority_order import low_priority_first
from cotenant_descheduler_arbiter.plugins.registry import RUN
from cotenant_descheduler_arbiter.plugins.topology_spread import constraints_of, spread
from cotenant_descheduler_arbiter.state.facts import ContainerFacts, NodeFacts, PodFacts
from tests.builders import owner_reference, pod_document
from tests.unit.descheduler_arbiter.plugins.builders_plugins import NOW, node, pod, run


def test_every_plugin_has_arguments_and_code() -> None:
    assert RUN.keys() == POINTS.keys()
    assert all(issubclass(args, PluginArgs) for _, args in POINTS.values())


# -- age, failures, restarts -------------------------------------------------------------------------------------------


def test_the_oldest_pods_of_all_nodes_go_first_and_the_bound_itself_is_young_enough() -> None:
    ages = {"a": 61, "b": 90, "c": 60, "d": 90}
    pods = [pod(name, "n1" if name < "c" else "n2", age=timedelta(seconds=age)) for name, age in ages.items()]
    assert run("PodLifeTime", {"maxPodLifeTimeSeconds": 60}, [node("n1"), node("n2")], pods) == ["b", "d", "a"]


def test_of_the_states_the_phase_counts_and_why_a_container_waits_but_not_why_it_ended() -> None:
    creating = (ContainerFacts(waiting=True, reason="ContainerCreating"),)
    ended = (ContainerFacts(waiting=False, reason="ContainerCreating"),)
    pods = [
        pod("a", "n1", phase="Pending", containers=creating),
        pod("b", "n1", phase="Pending", containers=ended),
        pod("c", "n1", phase="Running"),
    ]
    args = {"maxPodLifeTimeSeconds": 60, "states": ["ContainerCreating"]}
    assert run("PodLifeTime", args, [node("n1")], pods) == ["a"]
    assert run("PodLifeTime", {**args, "states": ["Pending"]}, [node("n1")], pods) == ["a", "b"]


def test_failed_pods_go_when_they_are_old_enough_and_give_a_listed_reason() -> None:
    pods = [
        pod("young", "n1", phase="Failed", age=timedelta(seconds=3599)),
        pod("old", "n1", phase="Failed", age=timedelta(seconds=3600)),
        pod("well", "n1", phase="Running", age=timedelta(hours=2)),
    ]
    assert run("RemoveFailedPods", {}, [node("n1")], pods) == ["old"], "an hour by default"
    failed = [pod("a", "n1", phase="Failed", reason="NodeAffinity"), pod("b", "n1", phase="Failed", reason="Evicted")]
    assert run("RemoveFailedPods", {"reasons": ["NodeAffinity"]}, [node("n1")], failed) == ["a"]
    assert run("RemoveFailedPods", {"excludeOwnerKinds": ["ReplicaSet"]}, [node("n1")], failed) == []


def test_reasons_of_init_containers_count_where_that_is_asked_for() -> None:
    init = (ContainerFacts(init=True, reason="OOMKilled"),)
    pods = [pod("a", "n1", phase="Failed", containers=init)]
    args = {"reasons": ["OOMKilled"]}
    assert run("RemoveFailedPods", args, [node("n1")], pods) == []
    assert run("RemoveFailedPods", {**args, "includingInitContainers": True}, [node("n1")], pods) == ["a"]


def test_restarts_of_all_containers_are_added() -> None:
    twice = ContainerFacts(restarts=2)
    pods = [pod(name, "n1", containers=(ContainerFacts(restarts=count), twice)) for name, count in (("a", 2), ("b", 3))]
    assert run("RemovePodsHavingTooManyRestarts", {"podRestartThreshold": 5}, [node("n1")], pods) == ["b"]


def test_a_node_that_has_reached_its_limit_is_left() -> None:
    pods = [pod(name, on, containers=(ContainerFacts(restarts=9),)) for name, on in (("a", "n1"), ("b", "n1"), ("c", "n2"))]
    limits = CycleLimits(max_no_of_pods_to_evict_per_node=1)
    args = {"podRestartThreshold": 1}
    assert run("RemovePodsHavingTooManyRestarts", args, [node("n1"), node("n2")], pods, limits=limits) == ["a", "c"]


# -- what was placed and would not be placed again -----------------------------------------------------------------------


def test_a_pod_goes_that_does_not_tolerate_its_node_unless_the_taint_is_excluded() -> None:
    hard = Taint(key="disk", value="bad", effect="NoSchedule")
    tainted = node("n1", taints=[hard, Taint(key="soft", effect="PreferNoSchedule")])
    exists = [{"key": "disk", "operator": "Exists"}]
    pods = [pod("a", "n1"), pod("b", "n1", tolerations=exists)]
    assert run("RemovePodsViolatingNodeTaints", {}, [tainted], pods) == ["a"]
    assert run("RemovePodsViolatingNodeTaints", {"excludedTaints": ["disk=bad"]}, [tainted], pods) == []
    assert run("RemovePodsViolatingNodeTaints", {"excludedTaints": ["disk=good"]}, [tainted], pods) == ["a"]
    soft = {"includePreferNoSchedule": True, "excludedTaints": ["disk"]}
    assert run("RemovePodsViolatingNodeTaints", soft, [tainted], pods) == ["a", "b"]


def test_a_pod_whose_affinity_its_node_lost_goes_only_if_some_node_fits() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pods = [pod("a", "n1", affinity={"nodeAffinity": required}), pod("b", "n1")]
    args = {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]}
    fits, full = node("n2", labels={"disk": "ssd"}), {"cpu": 100, "pods": 1}
    plugin = "RemovePodsViolatingNodeAffinity"
    assert run(plugin, args, [node("n1"), fits], pods) == ["a"]
    assert run(plugin, args, [node("n1"), node("n2")], pods) == []
    assert run(plugin, args, [node("n1"), node("n2", labels={"disk": "ssd"}, allocatable=full)], pods) == []
    assert run(plugin, args, [node("n1", labels={"disk": "ssd"}), fits], pods) == []


def test_of_two_pods_that_exclude_each_other_the_one_of_lower_priority_goes() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [
        pod("a", "n1", labels={"app": "db"}, affinity=apart, priority=10),
        pod("b", "n1", labels={"app": "db"}, affinity=apart, priority=5),
        pod("c", "n2", labels={"app": "db"}, affinity=apart),
        pod("d", "n2", labels={"app": "db"}, affinity=apart, namespace="other"),
    ]
    plugin = "RemovePodsViolatingInterPodAntiAffinity"
    assert run(plugin, {}, [node("n1"), node("n2")], pods) == ["b"], "others are in another namespace"
    assert run(plugin, {}, [node("n1")], pods, stays=["b"]) == ["a"]


def test_pods_without_a_priority_come_first_then_by_priority_then_by_qos() -> None:
    limits = {"cpu": "500m", "memory": "1Gi"}
    assert [each.name for each in low_priority_first([pod("b", "n1"), pod("a", "n1")])] == ["a", "b"]
    pods = [
        pod("high", "n1", priority=9),
        pod("guaranteed", "n1", requests=limits, limits=limits, priority=1),
        pod("without-requests", "n1", requests={}, priority=1),
        pod("partly", "n1", priority=1),
        pod("none", "n1"),
    ]
    order = [each.name for each in low_priority_first(pods)]
    assert order == ["none", "without-requests", "partly", "guaranteed", "high"]


# -- duplicates -----------------------------------------------------------------------------------------------------------


def test_duplicates_have_the_same_owner_namespace_and_images() -> None:
    pods = [
        pod("a", "n1"),
        pod("b", "n1"),
        pod("c", "n1", image="web:2"),
        pod("d", "n1", namespace="other"),
        pod("e", "n1", owner="api"),
        pod("f", "n2"),
    ]
    found = find_duplicates([("n1", pods[:5]), ("n2", pods[5:])])
    (key,) = [owner for owner, each in found.items() if each.by_node]
    assert key == ("default", "ReplicaSet", "web", ("web:1",))
    assert found[key].count == 3
    assert [each.name for each in found[key].by_node["n1"]] == ["b"]


def test_only_nodes_that_take_the_pods_count_as_targets() -> None:
    closed = node("closed", taints=[Taint(key="gpu", effect="NoSchedule")])
    nodes = [node("n1"), node("n2"), closed, node("n3", unschedulable=True)]
    assert target_nodes([pod("a", "n1")], nodes) == {"n1", "n2", "n3"}
    assert target_nodes([pod("a", "n1", nodeSelector={"zone": "x"})], [*nodes, node("x", labels={"zone": "x"})]) == set()


def test_every_node_keeps_its_even_share_rounded_up() -> None:
    pods = [pod(f"a{index}", "n1") for index in range(5)] + [pod(f"b{index}", "n2") for index in range(3)] + [pod("c0", "n3")]
    nodes = [node("n1"), node("n2"), node("n3")]
    assert run("RemoveDuplicates", {}, nodes, pods) == ["a3", "a4"]
    assert run("RemoveDuplicates", {"excludeOwnerKinds": ["ReplicaSet"]}, nodes, pods) == []
    assert run("RemoveDuplicates", {}, nodes[:1], pods) == [], "nowhere else to go"


def test_a_pod_of_two_owners_goes_once() -> None:
    pods = [pod(f"a{index}", "n1", owner=None) for index in range(4)]
    owners = [owner_reference("one"), {**owner_reference("two"), "controller": False}]
    with_owners = []
    for each in pods:
        document = pod_document(each.name, requests={"cpu": "1"})
        document["metadata"]["ownerReferences"] = owners
        with_owners.append(msgspec.structs.replace(each, pod=decode_pod(msgspec.json.encode(document))))
    assert run("RemoveDuplicates", {}, [node("n1"), node("n2")], with_owners) == ["a2", "a3"]


# -- spread ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "skew", "expected"),
    [
        ([0, 2], 1, [(1, 1)]),
        ([0, 1, 3, 5], 1, [(3, 2), (3, 1)]),
        ([1, 2], 1, []),
        ([0, 3], 2, [(1, 1)]),
        ([3, 3, 9], 1, [(2, 2), (2, 2)]),
        ([0, 10], 4, [(1, 3)]),
        ([0, 4, 4, 4], 1, [(3, 1), (2, 1), (1, 1)]),
    ],
)
def test_how_many_pods_leave_which_domain(sizes: list[int], skew: int, expected: list[tuple[int, int]]) -> None:
    assert spread(sizes, skew) == expected


SELECTED = {"labelSelector": {"matchLabels": {"app": "web"}}}
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **SELECTED}]


def zones() -> list[NodeFacts]:
    return [node(f"n-{zone}", labels={"zone": zone}) for zone in ("a", "b")]


def web(name: str, zone: str, **more: Any) -> PodFacts:
    return pod(name, f"n-{zone}", labels={"app": "web"}, topologySpreadConstraints=SPREAD, **more)


def test_a_domain_with_too_many_pods_gives_some_to_the_smaller_one() -> None:
    pods = [web(f"p{index}", "a") for index in range(4)]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    assert run(plugin, {}, zones(), pods) == ["p2", "p3"]
    assert run(plugin, {}, zones(), pods, stays=["p3"]) == ["p1", "p2"], "who stays anyway is counted first"
    assert run(plugin, {"namespaces": {"exclude": ["default"]}}, zones(), pods) == []
    assert run(plugin, {"labelSelector": {"matchLabels": {"app": "api"}}}, zones(), pods) == []


def test_terminating_pods_do_not_count_and_pinned_ones_leave_last() -> None:
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    ending = [web("p0", "a"), web("p1", "a", deleted=NOW.isoformat())]
    assert run(plugin, {}, zones(), ending) == []
    pinned = [web("p0", "a"), web("p1", "a", nodeSelector={"zone": "a"})]
    assert run(plugin, {}, zones(), pinned) == ["p0"]


def test_soft_constraints_count_where_that_is_asked_for_and_equal_ones_once() -> None:
    soft = [{**SPREAD[0], "whenUnsatisfiable": "ScheduleAnyway"}]
    pods = [pod(f"p{index}", "n-a", labels={"app": "web"}, topologySpreadConstraints=soft) for index in range(2)]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    assert run(plugin, {}, zones(), pods) == []
    assert run(plugin, {"includeSoftConstraints": True}, zones(), pods) == ["p1"]
    constraint = msgspec.convert(SPREAD[0], TopologySpreadConstraint)
    assert constraints_of([web("a", "a"), web("b", "b")], soft=False) == [constraint]
