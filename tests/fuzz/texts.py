"""What labels and annotations hold: keys that services read, found in their modules, and examples to make values from.

In: the loaded modules of the services. Out: keys; for those whose values have a grammar, right values as text or as JSON,
which `annotation` changes at some leaves. A key without an example gets plain words and numbers.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from random import Random
from typing import Any

from cotenant.domain.quota import names as quota
from cotenant.model import names
from tests.fuzz.extremes import QUANTITIES, SPANS, heated, json_bytes, text

_KEY = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]+")
_LABELS = re.compile(r"_?LABEL|.*TREE|.*QUOTA")

RESOURCES = (
    "cpu", "memory", "cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "example.com/card",
    "kubernetes.io/batch-cpu",
    "kubernetes.io/batch-memory", "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory", "koordinator.sh/gpu-core",
    "nvidia.com/gpu",
)  # fmt: skip
AMOUNTS: dict[str, Any] = {"cpu": "4", "memory": "1Gi"}
BATCH: dict[str, Any] = {"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": "1Gi"}
THRESHOLDS: dict[str, Any] = {
    "usageThresholds": {"cpu": 60, "memory": 80},
    "prodUsageThresholds": {"cpu": 50},
    "aggregatedUsage": {"usageThresholds": {"cpu": 70}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m0s"},
}
STRATEGY: dict[str, Any] = {
    "enable": True,
    "cpuReclaimThresholdPercent": 60,
    "memoryReclaimThresholdPercent": 65,
    "cpuCalculatePolicy": "maxUsageRequest",
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
    "metricReportIntervalSeconds": 60,
    "metricAggregatePolicy": {"durations": ["5m0s"]},
    "midCPUThresholdPercent": 100,
    "midUnallocatedPercent": 10,
    "batchCPUThresholdPercent": 90,
}
QOS: dict[str, Any] = {
    "policies": {"cpuPolicy": "groupIdentity"},
    "beClass": {
        "cpuQOS": {"enable": True, "groupIdentity": -1},
        "memoryQOS": {"enable": True, "minLimitPercent": 10, "wmarkRatio": 95, "oomKillGroup": 1},
        "resctrlQOS": {"enable": True, "catRangeStartPercent": 0, "catRangeEndPercent": 30, "mbaPercent": 100},
        "blkioQOS": {
            "enable": True,
            "blocks": [{"type": "device", "name": "/dev/vda", "ioCfg": {"readIOPS": 20, "ioWeightPercent": 50}}],
        },
        "networkQOS": {"enable": True, "ingressRequest": "10M", "egressLimit": 50},
    },
}
SUPPRESSION: dict[str, Any] = {
    "enable": True,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressMinPercent": 10,
    "cpuSuppressPolicy": "cfsQuota",
    "memoryEvictThresholdPercent": 70,
    "memoryEvictLowerPercent": 65,
    "cpuEvictBEUsageThresholdPercent": 90,
    "cpuEvictBESatisfactionUpperPercent": 80,
    "cpuEvictBESatisfactionLowerPercent": 60,
    "cpuEvictTimeWindowSeconds": 60,
    "cpuEvictPolicy": "evictByRealLimit",
}
_SELECTOR = {"matchLabels": {"zone": "a"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
_APPLICATION = {
    "name": "nginx",
    "priority": "koord-prod",
    "qos": "LS",
    "cgroupPath": {"base": "CgroupRoot", "relativePath": "x"},
}
CONFIGURATION: dict[str, Any] = {
    "colocation-config": {
        **STRATEGY,
        "nodeConfigs": [{"name": "a", "nodeSelector": _SELECTOR, "cpuReclaimThresholdPercent": 70}],
    },
    "resource-threshold-config": {
        "clusterStrategy": SUPPRESSION,
        "nodeStrategies": [{"name": "a", "nodeSelector": _SELECTOR, **SUPPRESSION}],
    },
    "resource-qos-config": {"clusterStrategy": QOS, "nodeStrategies": [{"nodeSelector": _SELECTOR, **QOS}]},
    "cpu-burst-config": {"clusterStrategy": {"policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300}},
    "system-config": {
        "clusterStrategy": {"minFreeKbytesFactor": 100, "watermarkScaleFactor": 150, "totalNetworkBandwidth": "10G"}
    },
    "host-application-config": {
        "applications": [_APPLICATION],
        "nodeConfigs": [{"nodeSelector": _SELECTOR, "applications": [_APPLICATION]}],
    },
    "cpu-normalization-config": {
        "enable": True,
        "defaultRatio": 1.1,
        "ratioModel": {"Xeon": {"baseRatio": 1.5, "hyperThreadTurboEnabledRatio": 1.2}, "x": {"baseRatio": 1.5}},
        "nodeConfigs": [{"nodeSelector": _SELECTOR, "enable": False}],
    },
    "resource-amplification-config": {
        "enable": True,
        "resourceAmplificationRatio": {"cpu": 1.5, "memory": 1.2},
        "nodeConfigs": [{"nodeSelector": _SELECTOR, "resourceAmplificationRatio": {"cpu": 2}}],
    },
    "enable": "true",
    "rules": [{"name": "owned", "requiredLabels": ["app"], "namespaceWhitelist": ["team"]}],
}
"""Data of the ConfigMap of the node configuration, by key."""

_EXAMPLES: dict[str, tuple[Any, ...]] = {
    names.ANNOTATION_EXTENDED_RESOURCE_SPEC: ({"containers": {"main": {"requests": BATCH, "limits": BATCH}}},),
    names.ANNOTATION_RESOURCE_STATUS: (
        {"cpuset": "0-3"},
        {"cpuset": "0,2", "numaNodeResources": [{"node": 0, "resources": AMOUNTS}]},
    ),
    names.ANNOTATION_NODE_RESERVATION: (
        {"resources": AMOUNTS, "applyPolicy": "Default"},
        {"reservedCPUs": "0-1", "applyPolicy": "ReservedCPUsOnly"},
    ),
    names.ANNOTATION_COLOCATION_STRATEGY: (STRATEGY,),
    names.ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE: ({"resources": BATCH},),
    names.ANNOTATION_THIRD_PARTY_ALLOCATIONS: (
        {"allocations": [{"name": "hadoop-yarn", "priority": "koord-batch", "resources": BATCH}]},
    ),
    names.ANNOTATION_RAW_ALLOCATABLE: (AMOUNTS,),
    names.ANNOTATION_CPU_NORMALIZATION_RATIO: ("1.2", "1", "0"),
    names.ANNOTATION_AMPLIFICATION_RATIO: ({"cpu": 1.2}, {"cpu": 2, "memory": 1.5}),
    names.ANNOTATION_CPU_BASIC_INFO: ({"cpuModel": "x", "hyperThreadEnabled": True, "turboEnabled": True},),
    names.LABEL_CPU_NORMALIZATION_ENABLED: ("true", "false", "maybe"),
    names.LABEL_NUMA_RESERVATION: ("true", "false"),
    "node.koordinator.sh/network-bandwidth": ("10M", "10G"),
    "pod.koordinator.sh/replace-resources": ("cpu:kubernetes.io/batch-cpu", "memory:,cpu:kubernetes.io/mid-cpu", "cpu:"),
    "config.koordinator.sh/controller-managed": ("true", "false"),
    "scheduling.koordinator.sh/usage-thresholds": (THRESHOLDS,),
    "scheduling.koordinator.sh/load-estimated-scaling-factors": ({"cpu": 80, "memory": 70},),
    "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled": ("30",),
    "scheduling.koordinator.sh/load-estimated-seconds-after-initialized": ("30",),
    "koordinator.sh/cpuQOS": ({"groupIdentity": 2}, {"enable": True, "groupIdentity": -1}),
    quota.ANNOTATION_SHARED_WEIGHT: (AMOUNTS,),
    quota.ANNOTATION_TOTAL: (AMOUNTS,),
    quota.ANNOTATION_GUARANTEED: (AMOUNTS,),
    quota.ANNOTATION_NAMESPACES: (["team", "default"],),
    quota.ANNOTATION_STRICT_KEYS: (["cpu"],),
    "cotenant.io/simulated-usage": ("cpu=500m..1500m,memory=64Mi..128Mi,period=10m", "cpu=1,memory=1Gi", "cpu=1,from=start"),
    "cotenant.io/simulated-duration": SPANS[:4],
    "cotenant.io/simulated-exit-code": ("0", "1"),
    "yarn.hadoop.apache.org/node-id": ("n1:8041", "n2:8041"),
    "yarn.hadoop.apache.org/cluster-id": ("", "yarn-2"),
    "app.kubernetes.io/component": ("node-manager",),
    "controller.kubernetes.io/pod-deletion-cost": ("100", "-100", "2147483647"),
    "scheduling.koordinator.sh/eviction-cost": ("100", "2147483647"),
    names.LABEL_QOS_CLASS: ("LSE", "LSR", "LS", "BE", "SYSTEM"),
    names.LABEL_PRIORITY_CLASS: ("koord-prod", "koord-mid", "koord-batch", "koord-free"),
    names.LABEL_PRIORITY: ("5500", "9000"),
    quota.LABEL_QUOTA: ("team", "root", "koordinator-default-quota", "child"),
    quota.LABEL_PARENT: ("team", "root", "koordinator-root-quota", "child"),
    quota.LABEL_TREE: ("", "tree"),
    "kubernetes.io/metadata.name": ("default", "team"),
}
_PLAIN = ("true", "false", "web", "a", "b", "", "1", "0", "50", "0.5", "100")
APP_LABELS = ("app", "zone", "kubernetes.io/hostname", "topology.kubernetes.io/zone")


@cache
def _constants() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keys of labels, and of annotations, that the loaded services name as constants."""
    labels, annotations = set(APP_LABELS), set[str]()
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("cotenant")]:
        for name, value in sorted(vars(module).items()):
            if isinstance(value, str) and _KEY.fullmatch(value) and not value.endswith(("/v1", "/v1alpha1")):
                (labels if _LABELS.match(name) else annotations).add(value)
    annotations.update(key for key in _EXAMPLES if "label" not in key.lower())
    return tuple(sorted(labels)), tuple(sorted(annotations))


def label_keys() -> tuple[str, ...]:
    """Keys of labels that some service reads."""
    return _constants()[0]


def annotation_keys() -> tuple[str, ...]:
    """Keys of annotations that some service reads."""
    return _constants()[1]


def value_of(random: Random, key: str, heat: float) -> str:
    """The value of a label or an annotation; with this probability each of its leaves is another one."""
    if random.random() < heat / 3:
        return text(random)
    return as_text(random, random.choice(_EXAMPLES.get(key, (*_PLAIN, *QUANTITIES[:6]))), heat)


def as_text(random: Random, example: Any, heat: float) -> str:
    """An example as text; its leaves heated."""
    changed = heated(random, example, heat)
    return changed if isinstance(changed, str) else json_bytes(changed).decode()
