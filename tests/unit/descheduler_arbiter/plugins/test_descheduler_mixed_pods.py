"""Plugins on nodes where pods that stay stand before pods that go, and on nodes at a bound."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cotenant.api.objects.node import Taint
from cotenant_descheduler_arbiter.state.facts import PodFacts
from tests.unit.descheduler_arbiter.plugins.builders_plugins import NOW, node, pod, run


def test_failed_pods_that_stay_do_not_hide_those_behind_them() -> None:
    pods = [
        pod("a", "n1", phase="Failed", age=timedelta(seconds=1)),
        pod("b", "n1", phase="Failed", owner="batch", reason="Evicted"),
        pod("c", "n1", phase="Failed", reason="OOMKilled"),
    ]
    assert run("RemoveFailedPods", {"reasons": ["OOMKilled"]}, [node("n1")], pods) == ["c"]


def test_a_pod_with_only_node_affinity_excludes_nobody() -> None:
    pods = [pod("a", "n1", affinity={"nodeAffinity": {}}), pod("b", "n1")]
    assert run("RemovePodsViolatingInterPodAntiAffinity", {}, [node("n1")], pods) == []


def test_of_pods_with_affinity_those_that_fit_and_those_of_other_namespaces_stay() -> None:
    def bound_to(disk: str) -> dict[str, object]:
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": [disk]}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    nodes = [node("n1", labels={"disk": "hdd"}), node("n2", labels={"disk": "ssd"})]
    pods = [
        pod("a", "n1", affinity=bound_to("hdd")),
        pod("b", "n1", affinity=bound_to("ssd"), namespace="kept"),
        pod("c", "n1", affinity=bound_to("ssd")),
    ]
    required = ["requiredDuringSchedulingIgnoredDuringExecution"]
    args = {"nodeAffinityType": required, "namespaces": {"exclude": ["kept"]}}
    assert run("RemovePodsViolatingNodeAffinity", args, nodes, pods) == ["c"]


def test_duplicates_of_one_owner_with_nowhere_to_go_do_not_hide_those_of_another() -> None:
    pods = [pod(f"api-{index}", "n1", owner="api", nodeSelector={"zone": "x"}) for index in range(3)]
    pods += [pod(f"web-{index}", "n1") for index in range(3)]
    nodes = [node("n1", labels={"zone": "x"}), node("n2")]
    assert run("RemoveDuplicates", {}, nodes, pods) == ["web-2"]


def test_the_most_used_node_is_relieved_first_and_what_stays_does_not_stop_it() -> None:
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}, "evictableNamespaces": {"exclude": ["kept"]}}
    pods = [pod("a-0", "n1", cpu="3", namespace="kept"), pod("a-1", "n1", cpu="3")]
    pods += [pod("b-0", "n2", cpu="4"), pod("b-1", "n2", cpu="5")]
    assert run("LowNodeUtilization", args, [node("n1"), node("n2"), node("n3")], pods) == ["b-0", "a-1"], "one core is left"
    assert run("LowNodeUtilization", args, [node("n1"), node("n3")], pods) == ["a-1"]


def test_as_many_thin_nodes_as_are_allowed_are_left_alone() -> None:
    pods = [pod("a", "n1", cpu="1"), pod("b", "n2", cpu="5")]
    args = {"thresholds": {"cpu": 20}, "numberOfNodes": 1}
    assert run("HighNodeUtilization", args, [node("n1"), node("n2")], pods) == []
    assert run("HighNodeUtilization", {**args, "numberOfNodes": 0}, [node("n1"), node("n2")], pods) == ["a"]


def test_tolerating_one_destination_is_enough() -> None:
    closed = [Taint(key="gpu", effect="NoSchedule")]
    pods = [pod("a", "n1", cpu="1"), pod("b", "n2", cpu="5"), pod("c", "n3", cpu="5")]
    args = {"thresholds": {"cpu": 20}}
    assert run("HighNodeUtilization", args, [node("n1"), node("n2", taints=closed), node("n3")], pods) == ["a"]
    assert run("HighNodeUtilization", args, [node("n1"), node("n2", taints=closed)], pods) == []


SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


def spread_pods(zone: str, count: int, **more: Any) -> list[PodFacts]:
    labels = {"app": "web"}
    names = [f"{zone}{index}" for index in range(count)]
    return [pod(name, f"n-{zone}", labels=labels, topologySpreadConstraints=SPREAD, **more) for name in names]


def test_pods_leave_for_domains_below_the_mean_only() -> None:
    nodes = [node(f"n-{zone}", labels={"zone": zone}) for zone in "abc"]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    assert run(plugin, {}, nodes, spread_pods("c", 3)) == ["c1", "c2"]
    pods = [*spread_pods("b", 2), *spread_pods("c", 4)]
    assert run(plugin, {}, nodes, pods) == ["c2", "c3"]
    to_b = [*spread_pods("b", 2), *spread_pods("c", 4, nodeSelector={"zone": "b"})]
    assert run(plugin, {}, nodes, to_b) == [], "domain b is at the mean"


def test_where_no_node_has_the_topology_key_nothing_is_spread() -> None:
    assert run("RemovePodsViolatingTopologySpreadConstraint", {}, [node("n-a"), node("n-b")], spread_pods("a", 4)) == []


def test_an_owner_without_duplicates_does_not_hide_one_that_has_some() -> None:
    pods = [pod("api", "n1", owner="api"), *(pod(f"web-{index}", "n1") for index in range(3))]
    assert run("RemoveDuplicates", {}, [node("n1"), node("n2")], pods) == ["web-2"]


def test_pods_with_node_affinity_leave_last_and_those_with_pod_affinity_like_others() -> None:
    nodes = [node(f"n-{zone}", labels={"zone": zone}) for zone in "ab"]
    plugin = "RemovePodsViolatingTopologySpreadConstraint"
    first, second = spread_pods("a", 2)
    to_nodes: dict[str, Any] = {"affinity": {"nodeAffinity": {}}}
    to_pods: dict[str, Any] = {"affinity": {"podAffinity": {}}}
    assert run(plugin, {}, nodes, [first, *spread_pods("a", 2, **to_nodes)[1:]]) == ["a0"]
    assert run(plugin, {}, nodes, [first, *spread_pods("a", 2, **to_pods)[1:]]) == ["a1"]
    assert run(plugin, {}, nodes, [*spread_pods("a", 1, **to_pods), second]) == ["a1"]


def test_a_pod_of_the_future_has_no_age() -> None:
    failed = [pod("a", "n1", phase="Failed", age=timedelta(minutes=-1))]
    assert run("RemoveFailedPods", {"minPodLifetimeSeconds": 1}, [node("n1")], failed) == []
    assert run("RemoveFailedPods", {"minPodLifetimeSeconds": 0}, [node("n1")], failed) == ["a"]


def test_a_terminating_pod_does_not_hide_the_others_of_its_domain() -> None:
    nodes = [node(f"n-{zone}", labels={"zone": zone}) for zone in "ab"]
    ending = spread_pods("a", 1, deleted=NOW.isoformat())
    assert run("RemovePodsViolatingTopologySpreadConstraint", {}, nodes, [*ending, *spread_pods("a", 4)[1:]]) == ["a3"]


def test_a_pod_that_no_destination_tolerates_does_not_hide_the_next_one() -> None:
    closed = [Taint(key="gpu", effect="NoSchedule")]
    exists = [{"key": "gpu", "operator": "Exists"}]
    pods = [pod("a", "n1", cpu="1"), pod("b", "n1", cpu="500m", tolerations=exists), pod("c", "n2", cpu="5")]
    assert run("HighNodeUtilization", {"thresholds": {"cpu": 20}}, [node("n1"), node("n2", taints=closed)], pods) == ["b"]
