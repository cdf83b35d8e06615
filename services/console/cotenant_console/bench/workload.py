"""What a benchmark schedules: nodes with a fresh metric each, and pods.

In: how many, of how many shapes; or a folder with openb's tables (`openb_node_list_all_node.csv`,
`openb_pod_list_default.csv`, Alibaba cluster-trace-gpu-v2023), repeated until there are enough. Out: events, ready to be
stored. Nothing is drawn at random: the same arguments give the same workload.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from cotenant.events.envelope import Event, Payload
from cotenant.events.metrics import NodeMetricComputed, Usage
from cotenant.events.objects import ObjectStored
from cotenant.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant.subjects import metrics_subject, node_subject, object_subject, pod_subject

NAMESPACE = "bench"
MIB = 1 << 20
SOURCE = "/bench"
METRIC_INTERVAL_SECONDS = 60
GPU = "nvidia.com/gpu"


class Workload(msgspec.Struct, frozen=True):
    """Rows of allocatable (nodes) and requests (pods), as Kubernetes writes them; both are repeated in turn."""

    nodes: int
    pods: int
    node_kinds: tuple[dict[str, str], ...]
    pod_kinds: tuple[dict[str, str], ...]


def synthetic(nodes: int, pods: int, shapes: int) -> Workload:
    """Equal nodes of 64 cores; pods of `shapes` different requests in turn."""
    return Workload(
        nodes,
        pods,
        ({"cpu": "64", "memory": "256Gi", "pods": "250"},),
        tuple({"cpu": f"{100 + shape}m", "memory": "256Mi"} for shape in range(shapes)),
    )


def openb(nodes: int, pods: int, folder: Path) -> Workload:
    """The nodes and pods of openb in their order; whole GPUs are a resource, shares of one count as one."""
    with (folder / "openb_node_list_all_node.csv").open(newline="") as file:
        node_kinds = tuple(
            {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", GPU: row["gpu"], "pods": "250"}
            for row in csv.DictReader(file)
        )
    with (folder / "openb_pod_list_default.csv").open(newline="") as file:
        pod_kinds = tuple(
            {
                "cpu": f"{row['cpu_milli']}m",
                "memory": f"{row['memory_mib']}Mi",
                **({GPU: row["num_gpu"]} if int(row["num_gpu"]) else {}),
            }
            for row in csv.DictReader(file)
        )
    return Workload(nodes, pods, node_kinds, pod_kinds)


def node_name(i: int) -> str:
    """The name of the i-th node."""
    return f"node-{i:06}"


def node_events(workload: Workload, now: datetime) -> Iterator[Event]:
    """Every node's object and its metric: 1 to 6 % of 100 cores in use, so that no two neighbours are worth the same."""
    for i in range(workload.nodes):
        name = node_name(i)
        allocatable = workload.node_kinds[i % len(workload.node_kinds)]
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": f"zone-{i % 3}"}},
            "status": {"allocatable": allocatable},
        }
        yield _event(node_subject(name), ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))), now)
        usage = Usage(cpu_milli=1000 + i % 500, memory_bytes=(512 + i % 512) * MIB)
        metric = NodeMetricComputed(
            node=name, update_time=now, report_interval_seconds=METRIC_INTERVAL_SECONDS, node_usage=usage
        )
        yield _event(metrics_subject(name), metric, now)


def stack_events(now: datetime) -> Iterator[Event]:
    """What the other services need: the pods' namespace, and colocation switched on."""
    colocation = msgspec.json.encode({"enable": True}).decode()
    for version, kind, plural, namespace, name, data in (
        ("v1", "Namespace", "namespaces", "", NAMESPACE, {}),
        ("v1", "ConfigMap", "configmaps", SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME, {"data": {"colocation-config": colocation}}),
    ):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        document = {"apiVersion": version, "kind": kind, "metadata": metadata, **data}
        stored = ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
        yield _event(object_subject("", plural, namespace, name), stored, now)


def pod_name(i: int) -> str:
    """The name of the i-th pod."""
    return f"pod-{i:07}"


def pod_document(workload: Workload, i: int, now: datetime) -> bytes:
    """The manifest of the i-th pod, as it stands on the log."""
    resources = workload.pod_kinds[i % len(workload.pod_kinds)]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(i),
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-0000-0000-{i:012}",
            "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {"app": NAMESPACE, "koordinator.sh/qosClass": "LS"},
        },
        "spec": {
            "containers": [{"name": "main", "image": "bench", "resources": {"requests": resources, "limits": resources}}],
            "priority": 9500,
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
        },
    }
    return msgspec.json.encode(document)


def pod_event(workload: Workload, i: int, now: datetime) -> Event:
    """The object of the i-th pod."""
    stored = ObjectStored(object=msgspec.Raw(pod_document(workload, i, now)))
    return _event(pod_subject(NAMESPACE, pod_name(i)), stored, now)


def pod_number(name: str) -> int:
    """The number of a pod by its name."""
    return int(name.rpartition("-")[2])


def _event(subject: str, data: Payload, now: datetime) -> Event:
    return Event(subject=subject, data=data, time=now, id=f"bench/{subject}", source=SOURCE)
