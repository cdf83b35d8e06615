"""The manifests of a chaos run: what its users write.

In: a name and an entry's arguments. Out: documents as a user of Koordinator would write them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from cotenant_console.api.client import Document

QUOTA_LABEL = "quota.scheduling.koordinator.sh/name"
QOS_LABEL = "koordinator.sh/qosClass"
USAGE = "cotenant.io/simulated-usage"
DURATION = "cotenant.io/simulated-duration"
EXIT_CODE = "cotenant.io/simulated-exit-code"
Args = Mapping[str, int | str]


def pod(name: str, args: Args) -> Document:
    """A service (`ls`), a job on borrowed resources (`batch`), or a job on the machine's own (`job`)."""
    kind = args["class"]
    memory = f"{args['memory_mib']}Mi"
    borrowed = {"kubernetes.io/batch-cpu": str(args["cpu"]), "kubernetes.io/batch-memory": memory}
    own = {"cpu": f"{args['cpu']}m", "memory": memory}
    requests: Document = dict(borrowed if kind == "batch" else own)
    labels: Document = {"app": str(args.get("app", kind)), QOS_LABEL: "BE" if kind == "batch" else "LS"}
    if "quota" in args:
        labels[QUOTA_LABEL] = str(args["quota"])
    annotations: Document = {}
    if "use_high" in args:
        annotations[USAGE] = f"cpu={args['use_low']}m..{args['use_high']}m,period={args['period']}s"
    if "lasts" in args:
        annotations |= {DURATION: f"{args['lasts']}s", EXIT_CODE: str(args.get("exit", 0))}
    metadata: Document = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations}
    if "app" in args:
        owner: Document = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": str(args["app"]), "uid": f"uid-{args['app']}"}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    resources: Document = {"requests": requests, "limits": dict(borrowed) if kind == "batch" else {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "priorityClassName": "koord-batch" if kind == "batch" else "koord-prod",
            "restartPolicy": "Never" if "lasts" in args else "Always",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "simulated", "resources": resources}],
        },
    }


def _amounts(cpu_milli: int) -> Document:
    return {
        "cpu": f"{cpu_milli}m",
        "kubernetes.io/batch-cpu": str(cpu_milli),
        "memory": f"{cpu_milli * 2}Mi",
        "kubernetes.io/batch-memory": f"{cpu_milli * 2}Mi",
    }


def quota(name: str, least: int, most: int) -> Document:
    """An elastic quota over the machines' own and the borrowed resources."""
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"min": _amounts(least), "max": _amounts(most)},
    }


def quota_patch(least: int, most: int) -> Document:
    """New bounds."""
    return {"spec": {"min": _amounts(least), "max": _amounts(most)}}


def budget(name: str, app: str, min_available: int) -> Document:
    """A disruption budget of one application."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    }


def node_config(args: Args) -> Document:
    """The node configuration; `broken`: one that must be rejected and change nothing."""
    colocation = {"enable": True, "cpuReclaimThresholdPercent": args["reclaim"], "memoryReclaimThresholdPercent": 65}
    thresholds = {
        "clusterStrategy": {
            "enable": True,
            "cpuSuppressThresholdPercent": args["threshold"],
            "cpuSuppressPolicy": args["policy"],
        }
    }
    if args.get("broken"):
        colocation["degradeTimeMinutes"] = -1
    data: Document = {
        "colocation-config": json.dumps(colocation),
        "resource-threshold-config": "{]" if args.get("broken") else json.dumps(thresholds),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": "koordinator-system"},
        "data": data,
    }
