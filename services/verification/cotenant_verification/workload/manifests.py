"""The manifests of a chaos run.

In: a name and an entry's arguments. Out: documents as a user of Koordinator would write them. Over 300 lines: one short
function for each kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cotenant.domain.gangs import LABEL_POD_GROUP
from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant_console.api.client import Document, Json
from cotenant_verification.simulate.openb import GPU_MODEL_LABEL, NVIDIA_GPU, asked_gpus
from cotenant_verification.workload.pod_constraints import REVISION_LABEL, ZONE, constrain
from cotenant_verification.workload.schedule import located

GANG = "gang.scheduling.koordinator.sh"
QUOTA = "quota.scheduling.koordinator.sh"
QOS_LABEL = "koordinator.sh/qosClass"
USAGE = "cotenant.io/simulated-usage"
DURATION = "cotenant.io/simulated-duration"
PROFILE_REVISION = "chaos.cotenant.io/profile-revision"
EXIT_CODE = "cotenant.io/simulated-exit-code"
CLAIM = "chaos.cotenant.io/claim"
EVICTION_ENABLED, EVICTION_PRIORITY = "koordinator.sh/eviction-enabled", "koordinator.sh/eviction-priority"
SCHEDULING = "scheduling.koordinator.sh"
Args = Mapping[str, int | str]


def _requests(args: Args) -> Document:
    memory = f"{args['memory_mib']}Mi"
    if args["class"] == "batch":
        return {"kubernetes.io/batch-cpu": str(args["cpu"]), "kubernetes.io/batch-memory": memory}
    return {"cpu": f"{args['cpu']}m", "memory": memory}


def resized(args: Args) -> Document:
    """The patch that resizes a pod's container in place."""
    requests = _requests(args)
    resources: Document = {"requests": requests, **({"limits": dict(requests)} if args["class"] == "batch" else {})}
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


def pod(target: str, args: Args) -> Document:
    """A service (`ls`), a batch job on overcommitted resources (`batch`), or a job on the machine's own resources (`job`).
    `evicted_at`: it permits its eviction by its node, with this eviction priority. `protected`: `quota`, not preemptible;
    `preemption`, not to be preempted."""
    namespace, name = located(target)
    kind = args["class"]
    requests = _requests(args)
    labels: Document = {"app": str(args.get("app", kind)), QOS_LABEL: "BE" if kind == "batch" else "LS"}
    if "revision" in args:
        labels[REVISION_LABEL] = str(args["revision"])
    if "quota" in args:
        labels[f"{QUOTA}/name"] = str(args["quota"])
    if args.get("protected") == "quota":
        labels[f"{QUOTA}/preemptible"] = "false"
    elif args.get("protected") == "preemption":
        labels[f"{SCHEDULING}/disable-preemptible"] = "true"
    if "claim" in args:
        labels[CLAIM] = str(args["claim"])
    if "evicted_at" in args:
        labels[EVICTION_ENABLED] = "true"
    annotations: Document = {USAGE: _usage(args)} if "period" in args else {}
    if "lasts" in args:
        annotations |= {DURATION: f"{args['lasts']}s", EXIT_CODE: str(args.get("exit", 0))}
    if "evicted_at" in args:
        annotations[EVICTION_PRIORITY] = str(args["evicted_at"])
    if "acts_for" in args:
        labels[f"{SCHEDULING}/operating-mode"] = "Reservation"
        owner: Document = {"labelSelector": {"matchLabels": {CLAIM: str(args["acts_for"])}}}
        annotations[f"{SCHEDULING}/reservation-owners"] = json.dumps([owner])
    if args.get("reserved_only"):
        annotations[f"{SCHEDULING}/reservation-affinity"] = json.dumps({"reservationSelector": {}})
    if "gang" in args:
        annotations |= {
            f"{GANG}/name": str(args["gang"]),
            f"{GANG}/min-available": str(args["gang_min"]),
            f"{GANG}/mode": str(args["gang_mode"]),
        }
        if "gang_groups" in args:
            annotations[f"{GANG}/groups"] = json.dumps(str(args["gang_groups"]).split("|"))
    if "pod_group" in args:
        labels[LABEL_POD_GROUP] = str(args["pod_group"])
    metadata: Document = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
    if "app" in args:
        uid = f"uid-{namespace}-{args['app']}"
        workload: Document = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": str(args["app"]), "uid": uid}
        metadata["ownerReferences"] = [{**workload, "controller": True}]
    limits: Document = dict(requests) if kind == "batch" else {}
    if "memory_limit" in args:
        limits["memory"] = f"{args['memory_limit']}Mi"
    devices: Document = asked_gpus(int(args["gpu_core"])) if "gpu_core" in args else {}
    if "gpus" in args:
        devices[NVIDIA_GPU] = str(args["gpus"])
    resources: Document = {"requests": requests | devices, "limits": limits | devices}
    spec: Document = {
        "priorityClassName": str(args.get("priority", "koord-batch" if kind == "batch" else "koord-prod")),
        "restartPolicy": "Never" if "lasts" in args else "Always",
        "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
    }
    if "named" in args:
        spec["nodeName"] = str(args["named"])
    if "models" in args:
        models: list[Json] = [*str(args["models"]).split("|")]
        terms: list[Json] = [{"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": "In", "values": models}]}]
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
    if "selects" in args:
        spec["nodeSelector"] = {"kubernetes.io/hostname": str(args["selects"])}
    constrain(spec, args)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _usage(args: Args) -> str:
    """Its usage over a period; `leaks`: growing from each start."""
    parts = [f"cpu={args['use_low']}m..{args['use_high']}m"] if "use_high" in args else []
    if "hold_high" in args:
        parts.append(f"memory={args['hold_low']}Mi..{args['hold_high']}Mi")
    return ",".join([*parts, f"period={args['period']}s", *(["from=start"] if args.get("leaks") else [])])


def _amounts(cpu_milli: int) -> Document:
    return {
        "cpu": f"{cpu_milli}m",
        "kubernetes.io/batch-cpu": str(cpu_milli),
        "memory": f"{cpu_milli * 2}Mi",
        "kubernetes.io/batch-memory": f"{cpu_milli * 2}Mi",
    }


def quota(name: str, args: Args) -> Document:
    """An elastic quota over the machines' own and overcommitted resources."""
    tree = str(args.get("tree", ""))
    root = bool(tree) and not args.get("parent")
    labels: Document = {
        f"{QUOTA}/is-parent": _word(args.get("is_parent", 0)),
        f"{QUOTA}/allow-lent-resource": _word(args.get("lends", 1)),
    }
    if args.get("parent"):
        labels[f"{QUOTA}/parent"] = str(args["parent"])
    if tree:
        labels[f"{QUOTA}/tree-id"] = tree
    if root:
        labels[f"{QUOTA}/is-root"] = "true"
    metadata: Document = {"name": name, "namespace": "default", "labels": labels}
    annotations = _weighed(args)
    if root and "total" in args:
        annotations[f"{QUOTA}/total-resource"] = json.dumps(_amounts(int(args["total"])))
    metadata["annotations"] = annotations
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
        "spec": {"min": _amounts(int(args["min"])), "max": _amounts(int(args["max"]))},
    }


def quota_patch(args: Args) -> Document:
    """New bounds, a new weight."""
    return {
        "metadata": {"annotations": _weighed(args)},
        "spec": {"min": _amounts(int(args["min"])), "max": _amounts(int(args["max"]))},
    }


def _weighed(args: Args) -> dict[str, Json]:
    return {f"{QUOTA}/shared-weight": json.dumps(_amounts(int(args["weight"])))} if "weight" in args else {}


def _word(truth: int | str) -> str:
    return "true" if truth else "false"


def pod_group(name: str, args: Args) -> Document:
    """A gang: its minimum, mode, match policy and group."""
    annotations: Document = {f"{GANG}/mode": str(args["mode"])}
    if "policy" in args:
        annotations[f"{GANG}/match-policy"] = str(args["policy"])
    if "groups" in args:
        annotations[f"{GANG}/groups"] = json.dumps(str(args["groups"]).split("|"))
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"minMember": int(args["min"])},
    }


def quota_profile(name: str, args: Args) -> Document:
    """A quota tree of the nodes of a zone, which may have quotas below its root. `percent`: of what they offer."""
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": name, "namespace": "default", "labels": {f"{QUOTA}/tree-id": name}},
        "spec": {
            "quotaName": name,
            "quotaLabels": {f"{QUOTA}/is-parent": "true"},
            "resourceRatio": str(int(args["percent"]) / 100),
            "nodeSelector": {"matchLabels": {ZONE: str(args["zone"])}},
        },
    }


def move(name: str, args: Args) -> Document:
    """A user's request to move a pod."""
    namespace, pod = located(str(args["pod"]))
    spec: Document = {
        "podRef": {"namespace": namespace, "name": pod},
        "mode": str(args.get("mode", "EvictDirectly")),
        "paused": bool(args.get("paused", 0)),
    }
    if args.get("ttl"):
        spec["ttl"] = f"{args['ttl']}s"
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": name},
        "spec": spec,
    }


def reservation(name: str, args: Args) -> Document:
    """Room for pods that claim it."""
    requests: Document = {"cpu": f"{args['cpu']}m", "memory": f"{args['memory_mib']}Mi"}
    containers: list[Json] = [{"name": "main", "resources": {"requests": requests}}]
    owners: list[Json] = [{"labelSelector": {"matchLabels": {CLAIM: name}}}]
    return {
        "apiVersion": f"{SCHEDULING}/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"containers": containers, "priority": 9500}},
            "owners": owners,
            "ttl": f"{args['ttl']}s",
            "allocateOnce": bool(args["once"]),
            "allocatePolicy": str(args["policy"]),
        },
    }


def profile(name: str, args: Args) -> Document:
    """A colocation profile, which marks pods with its revision; `lends`: it turns them into batch pods; `broken`: it
    contradicts itself."""
    spec: Document = {
        "selector": {"matchLabels": {"app": name}},
        "probability": int(args.get("percent", 100)),
        "qosClass": "BE" if args.get("lends") else None,
        "priorityClassName": "koord-batch" if args.get("lends") else None,
        "labels": {PROFILE_REVISION: str(args["revision"])},
    }
    if args.get("broken"):
        spec |= {"qosClass": "BE", "priorityClassName": "koord-prod"}
    return {
        "apiVersion": "config.koordinator.sh/v1alpha1",
        "kind": "ClusterColocationProfile",
        "metadata": {"name": name},
        "spec": spec,
    }


def budget(target: str, app: str, min_available: int) -> Document:
    """A disruption budget of one application."""
    namespace, name = located(target)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


_BY_PRIORITY = {
    "memory_used": "memoryEvict",
    "cpu_used": "cpuEvict",
    "memory_asked": "memoryAllocatableEvict",
    "cpu_asked": "cpuAllocatableEvict",
}
"""Thresholds of the NodeSLO by the argument that sets them."""
MOST_PRIORITY = 7_999
"""Pods of mid, batch and free priority; prod is above."""


def node_config(args: Args) -> Document:
    """The node configuration; `broken`: one that must be rejected and change nothing. `satisfied`: best-effort pods are evicted
    while they get less than this percentage of their CPU. `memory_used`, `cpu_used`, `memory_asked`, `cpu_asked`: pods that
    permit it are evicted by priority while the node's usage, or the requests of what it lends, are above this percentage."""
    colocation = {"enable": True, "cpuReclaimThresholdPercent": args["reclaim"], "memoryReclaimThresholdPercent": 65}
    strategy: Document = {
        "enable": True,
        "cpuSuppressThresholdPercent": args["threshold"],
        "cpuSuppressPolicy": args["policy"],
    }
    if "satisfied" in args:
        strategy["cpuEvictBESatisfactionLowerPercent"] = args["satisfied"]
        strategy["cpuEvictBESatisfactionUpperPercent"] = int(args["satisfied"]) + 10
        strategy["cpuEvictBEUsageThresholdPercent"] = 50
        strategy["cpuEvictTimeWindowSeconds"] = 5
    for name, field in _BY_PRIORITY.items():
        if name in args:
            strategy[f"{field}ThresholdPercent"] = args[name]
            strategy[f"{field}LowerPercent"] = int(args[name]) - 10
            strategy["evictEnabledPriorityThreshold"] = strategy["allocatableEvictPriorityThreshold"] = MOST_PRIORITY
    thresholds: Document = {"clusterStrategy": strategy}
    if args.get("broken"):
        colocation["degradeTimeMinutes"] = -1
    data: Document = {
        "colocation-config": json.dumps(colocation),
        "resource-threshold-config": "{]" if args.get("broken") else json.dumps(thresholds),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SLO_CONFIG_NAME, "namespace": SLO_CONFIG_NAMESPACE},
        "data": data,
    }
