"""Priority and QoS classes are resolved at read time."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import (
    KubeQoS,
    QoSClass,
    kube_qos,
    priority_default,
    priority_raw,
    priority_value_default,
    qos_default,
    qos_raw,
)
from cotenant.model.tiers import PriorityClass
from tests.builders import encoded, pod_document


def pod(
    *,
    labels: dict[str, str] | None = None,
    priority: int | None = None,
    requests: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **spec: Any,
) -> Pod:
    return decode_pod(encoded(pod_document(labels=labels, priority=priority, requests=requests, limits=limits, **spec)))


@pytest.mark.parametrize(
    ("value", "tier"),
    [
        (9000, PriorityClass.PROD),
        (9999, PriorityClass.PROD),
        (10000, PriorityClass.NONE),
        (7500, PriorityClass.MID),
        (5000, PriorityClass.BATCH),
        (5999, PriorityClass.BATCH),
        (6000, PriorityClass.NONE),
        (3999, PriorityClass.FREE),
        (-1, PriorityClass.NONE),
        (2_000_001_000, PriorityClass.NONE),
        (None, PriorityClass.NONE),
    ],
)
def test_the_tier_follows_from_the_priority_value(value: int | None, tier: PriorityClass) -> None:
    assert priority_raw(pod(priority=value)) is tier


def test_an_unknown_priority_label_means_none_without_falling_back_to_the_value() -> None:
    assert priority_raw(pod(labels={"koordinator.sh/priority-class": "gold"}, priority=9500)) is PriorityClass.NONE
    assert priority_raw(pod(labels={"koordinator.sh/priority-class": "koord-batch"}, priority=9500)) is PriorityClass.BATCH


def test_qos_comes_from_the_label_and_defaults_by_kubernetes_qos() -> None:
    assert qos_raw(pod(labels={"koordinator.sh/qosClass": "LSE"})) is QoSClass.LSE
    assert qos_raw(pod(labels={"koordinator.sh/qosClass": "gold"})) is QoSClass.NONE
    guaranteed = {"cpu": "1", "memory": "1Gi"}
    assert qos_default(pod(requests=guaranteed, limits=guaranteed)) is QoSClass.LSR
    assert qos_default(pod(requests={"cpu": "1"})) is QoSClass.LS
    assert qos_default(pod()) is QoSClass.BE


def test_kubernetes_qos_looks_at_cpu_and_memory_only() -> None:
    assert kube_qos(pod(requests={"kubernetes.io/batch-cpu": 1000})) is KubeQoS.BEST_EFFORT
    assert kube_qos(pod(requests={"cpu": "0"})) is KubeQoS.BEST_EFFORT
    assert kube_qos(pod(limits={"cpu": "1", "memory": "1Gi"})) is KubeQoS.GUARANTEED
    assert kube_qos(pod(limits={"cpu": "1"})) is KubeQoS.BURSTABLE


def test_an_unlabelled_best_effort_pod_counts_as_batch() -> None:
    assert priority_default(pod()) is PriorityClass.BATCH
    assert priority_default(pod(requests={"cpu": "1"})) is PriorityClass.PROD
    assert priority_value_default(pod()) == 5500
    assert priority_value_default(pod(priority=7123)) == 7123
    assert priority_value_default(None) == 0


def test_pod_requests_follow_kubernetes_rule_for_init_containers_and_overhead() -> None:
    made = pod(
        requests={"cpu": "500m", "memory": "1Gi"},
        limits={"nvidia.com/gpu": 1},
        initContainers=[
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
            {"name": "init", "resources": {"requests": {"cpu": "2", "memory": "10Mi"}}},
        ],
        overhead={"cpu": "50m"},
    )
    assert pod_requests(made) == {"cpu": 2150, "memory": 1 << 30, "nvidia.com/gpu": 1}
