"""Which pods may be evicted at all, in which order they go, and on which nodes they would fit."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import decode_pod
from cotenant_descheduler_arbiter.config.policy import EvictableRules
from cotenant_descheduler_arbiter.eviction.evictable import below_max_cost, forced, parse_cost, why_not_evictable
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.eviction.order import sort_pods
from cotenant_descheduler_arbiter.low_node_load.sorting import sort_pods_by_excess
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from tests.builders import container, encoded, owner_reference, pod_document

OWNER = owner_reference("web")
EVICT = "descheduler.alpha.kubernetes.io/evict"
EVICTION_COST = "scheduling.koordinator.sh/eviction-cost"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
ANY = EvictableRules()


def facts(
    name: str = "p",
    *,
    owner: dict[str, object] | None = OWNER,
    phase: str = "Running",
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    amounts: dict[str, int] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    deleted: str | None = None,
    **spec: Any,
) -> PodFacts:
    document = pod_document(
        name, namespace="n", annotations=annotations, labels=labels, created=created, deleted=deleted, **spec
    )
    document["metadata"]["ownerReferences"] = [owner] if owner else []
    return PodFacts(pod=decode_pod(encoded(document)), phase=phase, amounts=tuple((amounts or {}).items()))


def skipping(*gates: str, **rules: object) -> EvictableRules:
    return EvictableRules(skip_gates=frozenset(gates), **rules)  # type: ignore[arg-type]


# -- may it be evicted at all --------------------------------------------------------------------------------------


def test_a_pod_with_an_owner_may_go_and_a_bare_one_may_not() -> None:
    assert why_not_evictable(facts(), ANY) is None
    assert why_not_evictable(facts(owner=None), ANY) == "it has no owner that would create it again"


def test_bare_pods_are_evictable_where_the_rules_allow_it() -> None:
    failed, running = facts(owner=None, phase="Failed"), facts(owner=None)
    assert why_not_evictable(failed, ANY) is not None
    assert why_not_evictable(failed, EvictableRules(evict_failed_bare_pods=True)) is None
    assert why_not_evictable(running, EvictableRules(evict_failed_bare_pods=True)) is not None
    assert why_not_evictable(running, EvictableRules(evict_all_bare_pods=True)) is None
    assert why_not_evictable(running, skipping("BarePods")) is None


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (facts(owner={**OWNER, "kind": "DaemonSet"}), "it belongs to a DaemonSet"),
        (facts(annotations={"kubernetes.io/config.mirror": ""}), "it is a mirror pod"),
        (facts(annotations={"kubernetes.io/config.source": "file"}), "it is a static pod"),
        (facts(deleted="2026-01-01T00:00:00Z"), "it is terminating already"),
    ],
)
def test_static_mirror_daemon_and_terminating_pods_stay(pod: PodFacts, reason: str) -> None:
    assert why_not_evictable(pod, EvictableRules(evict_all_bare_pods=True)) == reason


def test_a_pod_of_the_api_is_not_static() -> None:
    assert why_not_evictable(facts(annotations={"kubernetes.io/config.source": "api"}), ANY) is None


def test_the_evict_annotation_overrides_every_filter() -> None:
    pod = facts(owner={**OWNER, "kind": "DaemonSet"}, annotations={EVICT: "false"})
    assert forced(pod.pod)
    assert not forced(facts().pod)
    assert why_not_evictable(pod, ANY) is None


@pytest.mark.parametrize(
    ("priority", "rules", "stays"),
    [
        (2_000_000_000, ANY, True),
        (1_999_999_999, ANY, False),
        (None, ANY, False),
        (2_000_000_000, EvictableRules(evict_system_critical_pods=True), False),
        (2_000_000_000, skipping("SystemCritical"), False),
        (100, EvictableRules(priority_threshold=100), True),
        (99, EvictableRules(priority_threshold=100), False),
        (None, EvictableRules(priority_threshold=100), False),
        (100, EvictableRules(priority_threshold=100, evict_system_critical_pods=True), False),
        (100, skipping("PriorityThreshold", priority_threshold=100), False),
        (100, skipping("SystemCritical", priority_threshold=100), True),
        (2_000_000_000, skipping("PriorityThreshold"), True),
    ],
)
def test_important_pods_stay(priority: int | None, rules: EvictableRules, stays: bool) -> None:
    assert (why_not_evictable(facts(priority=priority), rules) is not None) is stays


HOST_PATH = {"name": "v", "hostPath": {"path": "/"}}
EMPTY_DIR = {"name": "v", "emptyDir": {}}
CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    ("volumes", "rules", "reason"),
    [
        ([HOST_PATH], ANY, "it uses local storage"),
        ([EMPTY_DIR], ANY, "it uses local storage"),
        ([EMPTY_DIR], EvictableRules(evict_local_storage_pods=True), None),
        ([EMPTY_DIR], skipping("LocalStorage"), None),
        ([{"name": "v", "configMap": {}, "emptyDir": None}], ANY, None),
        ([CLAIM], ANY, None),
        ([CLAIM], EvictableRules(ignore_pvc_pods=True), "it uses a persistent volume claim"),
        ([CLAIM], skipping("PVC", ignore_pvc_pods=True), None),
        ([{"name": "v", "configMap": {}}], EvictableRules(ignore_pvc_pods=True), None),
        (["unreadable"], ANY, "it uses local storage"),
    ],
)
def test_pods_with_storage_stay_by_the_rules(volumes: list[object], rules: EvictableRules, reason: str | None) -> None:
    assert why_not_evictable(facts(volumes=volumes), rules) == reason


def test_what_the_label_selector_does_not_select_stays() -> None:
    selector = LabelSelector(match_labels={"app": "web"})
    selecting = EvictableRules(label_selector=selector)
    assert why_not_evictable(facts(labels={"app": "web"}), selecting) is None
    assert why_not_evictable(facts(), selecting) == "the label selector does not select it"
    assert why_not_evictable(facts(), skipping("LabelSelector", label_selector=selector)) is None


# -- costs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        (None, 0),
        ("0", 0),
        ("7", 7),
        ("-7", -7),
        ("100", 100),
        ("2147483647", 2_147_483_647),
        ("2147483648", 0),
        ("-2147483648", -2_147_483_648),
        ("-2147483649", 0),
        ("00000000001", 0),
        ("+7", 0),
        ("07", 0),
        ("-07", 0),
        ("-0", 0),
        ("", 0),
        ("-", 0),
        ("1.5", 0),
        ("\u0663", 0),
        ("seven", 0),
    ],
)
def test_a_cost_is_a_plain_int32_or_nothing(text: str | None, cost: int) -> None:
    assert parse_cost(text) == cost


def test_the_largest_cost_means_never() -> None:
    assert not below_max_cost(facts(annotations={EVICTION_COST: "2147483647"}).pod)
    assert below_max_cost(facts(annotations={EVICTION_COST: "2147483646"}).pod)
    assert below_max_cost(facts().pod)


# -- the order of eviction -----------------------------------------------------------------------------------------


def limits(cpu: str) -> dict[str, Any]:
    """Containers whose requests are their limits: Guaranteed."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return {"containers": [container(requests=amounts, limits=amounts)]}


def tier(name: str) -> dict[str, str]:
    return {"koordinator.sh/priority-class": name}


def qos(name: str) -> dict[str, str]:
    return {"koordinator.sh/priority-class": "koord-prod", "koordinator.sh/qosClass": name}


BURSTABLE: dict[str, Any] = {"containers": [container(requests={"cpu": "1"})]}
PROD = tier("koord-prod")
KEYS: dict[str, list[dict[str, Any]]] = {
    "priority class": [{"labels": tier(f"koord-{name}")} for name in ("free", "batch", "mid", "prod")],
    "priority": [{"labels": PROD, "priority": priority} for priority in (-1, None, 1)],
    "Kubernetes QoS": [{"labels": qos("LS"), **spec} for spec in ({}, BURSTABLE, limits("1"))],
    "QoS class": [{"labels": qos(name)} for name in ("BE", "LS", "LSR", "LSE")],
    "LSR before SYSTEM": [{"labels": qos("LSR")}, {"labels": qos("SYSTEM")}],
    "deletion cost": [{"annotations": {DELETION_COST: "-1"}}, {}, {"annotations": {DELETION_COST: "1"}}],
    "eviction cost": [{"annotations": {EVICTION_COST: "-1"}}, {}, {"annotations": {EVICTION_COST: "1"}}],
    "newest first": [{"created": "2026-01-01T00:00:01Z"}, {}, {"created": "2025-12-31T23:59:59Z"}],
}
"""By key, pods in the order in which they go. They are named a, b, c ..., the opposite of how names decide."""


@pytest.mark.parametrize("key", KEYS)
def test_pods_go_in_the_order_of_their_keys(key: str) -> None:
    pods = [facts("abcde"[place], **fields) for place, fields in enumerate(KEYS[key])]
    names = [pod.name for pod in pods]
    assert [pod.name for pod in sort_pods(pods)] == names
    assert [pod.name for pod in sort_pods(pods[::-1])] == names


def test_of_equal_pods_the_last_name_goes_first() -> None:
    assert [pod.name for pod in sort_pods([facts("b"), facts("c"), facts("a")])] == ["c", "b", "a"]


def test_lse_and_system_are_equals_and_the_name_decides() -> None:
    assert [pod.name for pod in sort_pods([facts("a", labels=qos("LSE")), facts("b", labels=qos("SYSTEM"))])] == ["b", "a"]


def test_the_pod_that_covers_the_excess_best_goes_first_and_unmeasured_ones_last() -> None:
    pods = [(facts("a"), {"cpu": 50}), (facts("b"), {"cpu": 110}), (facts("z"), None), (facts("d"), {"cpu": 0})]
    assert [pod.name for pod in sort_pods_by_excess(pods, {"cpu": 100}, {"cpu": 1})] == ["b", "a", "d", "z"]
    assert [pod.name for pod in sort_pods([pod for pod, _ in pods])] == ["z", "d", "b", "a"]


# -- would it fit --------------------------------------------------------------------------------------------------


def node(**fields: object) -> NodeFacts:
    return NodeFacts(**{"name": "n1", "labels": {"zone": "a"}, "allocatable": {"cpu": 100, "pods": 2}, **fields})  # type: ignore[arg-type]


def required(*values: str) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("pod", "place", "reason"),
    [
        (facts(), node(), None),
        (facts(), node(unschedulable=True), "the node is unschedulable"),
        (facts(nodeSelector={"zone": "a"}), node(), None),
        (facts(nodeSelector={"zone": "b"}), node(), "node selector zone=b does not match"),
        (facts(**required("a", "b")), node(), None),
        (facts(**required("b")), node(), "required node affinity does not match"),
        (facts(affinity={"nodeAffinity": {}}), node(), None),
        (facts(), node(taints=(Taint(key="k", effect="NoSchedule"),)), "taint k:NoSchedule is not tolerated"),
        (facts(), node(taints=(Taint(key="k", effect="NoExecute"),)), "taint k:NoExecute is not tolerated"),
        (facts(), node(taints=(Taint(key="k", effect="PreferNoSchedule"),)), None),
        (facts(tolerations=[{"operator": "Exists"}]), node(taints=(Taint(key="k", effect="NoSchedule"),)), None),
        (facts(amounts={"cpu": 40}), node(requested={"cpu": 60}), None),
        (facts(amounts={"cpu": 41}), node(requested={"cpu": 60}), "requests 41 of cpu, 40 free"),
        (facts(amounts={"cpu": 100}), node(), None),
        (facts(amounts={"cpu": 1}), node(requested={"cpu": 120}), "requests 1 of cpu, 0 free"),
        (facts(amounts={"cpu": 0}), node(requested={"cpu": 120}), None),
        (facts(amounts={"gpu": 1}), node(), "requests 1 of gpu, 0 free"),
        (facts(), node(pod_count=1), None),
        (facts(), node(pod_count=2), "all 2 pod slots are taken"),
        (facts(), node(allocatable={"cpu": 1}, pod_count=500), None),
    ],
)
def test_what_keeps_a_pod_off_a_node(pod: PodFacts, place: NodeFacts, reason: str | None) -> None:
    assert misfit(pod, place) == reason
