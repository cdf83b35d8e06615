"""Spread constraints of pods that state none: kube-scheduler's System default and lists of one's own."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.state.reading.default_spread import Defaulting, PodTopologySpreadArgs
from tests.unit.scheduler.builders_scheduler import Story, node, pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
SYSTEM = PodTopologySpreadArgs(defaulting_type=Defaulting.SYSTEM)


def args(**found: Any) -> PodTopologySpreadArgs:
    return msgspec.convert(found, PodTopologySpreadArgs)


def constraint(key: str = ZONE, skew: int = 1, effect: str = "DoNotSchedule") -> dict[str, Any]:
    return {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": effect}


def owned(name: str, kind: str = "ReplicaSet", labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    document = pod(name, cpu="100m", memory="1Mi", labels={"app": "web"} if labels is None else labels, **more)
    document["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": "u", "controller": True}
    ]
    return document


def story(spread: PodTopologySpreadArgs | None, *zones: str, sizes: str = "8") -> Story:
    """A node a zone, and `""` for one without the label; the first has by far the most room, so it is best but for spread."""
    found = Story(SchedulerConfig(pod_topology_spread=spread or PodTopologySpreadArgs()))
    for index, zone in enumerate(zones):
        labels = {HOST: f"n{index}"} | ({ZONE: zone} if zone else {})
        found.node(node(f"n{index}", cpu="64" if not index else sizes, memory="512Gi" if not index else "32Gi", labels=labels))
    return found


def placed(found: Story) -> Counter[str]:
    found.settle()
    return Counter(found.placed().values())


def test_pods_of_a_replica_set_are_spread_over_hosts_by_the_system_default() -> None:
    found = story(SYSTEM, "a", "b", "c")
    found.pods(*[owned(f"w{i}") for i in range(6)])
    assert placed(found) == {"n0": 2, "n1": 2, "n2": 2}


def test_without_the_configuration_they_are_not() -> None:
    found = story(None, "a", "b", "c")
    found.pods(*[owned(f"w{i}") for i in range(6)])
    assert placed(found) == {"n0": 6}


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "StatefulSet"])
def test_pods_of_these_controllers_are_spread(kind: str) -> None:
    found = story(SYSTEM, "a", "b")
    found.pods(*[owned(f"w{i}", kind) for i in range(4)])
    assert placed(found) == {"n0": 2, "n1": 2}


@pytest.mark.parametrize("kind", ["Job", "DaemonSet", ""])
def test_pods_of_others_are_not(kind: str) -> None:
    found = story(SYSTEM, "a", "b")
    found.pods(*[owned(f"w{i}", kind) if kind else pod(f"w{i}", cpu="100m", memory="1Mi") for i in range(4)])
    assert placed(found) == {"n0": 4}


def test_pods_without_labels_are_not() -> None:
    found = story(SYSTEM, "a", "b")
    found.pods(*[owned(f"w{i}", labels={}) for i in range(4)])
    assert placed(found) == {"n0": 4}


def test_the_pods_of_a_stateful_set_count_together_though_labels_of_each_differ() -> None:
    found = story(args(defaultConstraints=[constraint(HOST)]), "a", "b")
    for i in range(4):
        own = {"statefulset.kubernetes.io/pod-name": f"db-{i}", "apps.kubernetes.io/pod-index": str(i)}
        found.pod(owned(f"db-{i}", "StatefulSet", {"app": "db", "controller-revision-hash": f"r{i % 2}"} | own))
    assert placed(found) == {"n0": 2, "n1": 2}


def test_pods_of_another_workload_or_namespace_do_not_count() -> None:
    found = story(args(defaultConstraints=[constraint(HOST)]), "a", "b")
    found.pods(*[owned(f"w{i}", labels={"app": "other"}, nodeName="n1") for i in range(3)])
    found.pods(*[owned(f"v{i}", namespace="elsewhere", nodeName="n1") for i in range(3)])
    found.settle()
    found.pods(owned("x0"), owned("x1"))
    found.settle()
    assert {found.node_of("x0"), found.node_of("x1")} == {"n0", "n1"}


def test_constraints_that_a_pod_states_replace_the_defaults() -> None:
    found = story(args(defaultConstraints=[constraint(HOST)]), "a", "b")
    own = {**constraint("rack", effect="ScheduleAnyway"), "labelSelector": {"matchLabels": {"app": "web"}}}
    found.pods(*[owned(f"w{i}", topologySpreadConstraints=[own]) for i in range(4)])
    assert placed(found) == {"n0": 4}


def test_the_system_default_does_not_shun_nodes_without_a_zone() -> None:
    # A soft constraint of one's own scores 0 where the label is missing; the system's does not.
    found = story(SYSTEM, "a", "")
    found.pods(*[owned(f"w{i}") for i in range(4)])
    assert placed(found)["n1"] >= 2
    soft = [constraint(key, effect="ScheduleAnyway") for key in (HOST, ZONE)]
    found = story(args(defaultConstraints=soft), "a", "")
    found.pods(*[owned(f"w{i}") for i in range(4)])
    assert placed(found) == {"n0": 4}


def test_a_hard_default_keeps_pods_waiting() -> None:
    found = story(args(defaultConstraints=[constraint(ZONE)]), "a", "b", sizes="100m")
    found.pods(*[owned(f"w{i}") for i in range(4)])
    assert placed(found) == {"n0": 2, "n1": 1}
    found.later(2)
    found.settle()
    waiting = found.waiting("w3")
    assert waiting is not None
    assert "didn't match pod topology spread constraints" in waiting.message


def test_a_pod_that_is_read_again_after_a_load_is_spread_alike() -> None:
    found = story(SYSTEM, "a", "b")
    found.pods(*[owned(f"w{i}") for i in range(3)])
    found.settle()
    core = found.reloaded()
    found.pod(owned("w3"))
    core.apply(found.last["objects.core.pods.default.w3"])
    events = [event.subject for event in core.decide(found.now)]
    assert events == [event.subject for event in found.decide()]


@pytest.mark.parametrize(
    "wrong",
    [
        {"defaultingType": "System", "defaultConstraints": [constraint()]},
        {"defaultConstraints": [constraint(), constraint(skew=2)]},
        {"defaultConstraints": [constraint(skew=0)]},
        {"defaultConstraints": [constraint(skew=10**18)]},
        {"defaultConstraints": [constraint("")]},
        {"defaultConstraints": [constraint(effect="Sometimes")]},
        {"defaultConstraints": [constraint() | {"labelSelector": {}}]},
        {"defaultConstraints": [constraint(f"k{i}") for i in range(17)]},
        {"defaultingType": "All"},
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"podTopologySpread": wrong}), type=SchedulerConfig)
