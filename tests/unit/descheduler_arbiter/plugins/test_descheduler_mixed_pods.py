"""Plugins on nodes where pods that stay stand before pods that go, and on nodes at a bound."""

from __future__ import annotations

from datetime import timedelta

from cotenant.api.objects.node import Taint
from tests.unit.descheduler_arbiter.plugins.builders_plugins import node, pod, run


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
