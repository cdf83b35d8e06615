"""The workload of a benchmark: nodes with a fresh metric each, quotas, and pods.

In: numbers, shapes, the percentage with constraints (`constraints`); or a folder with openb's tables
(`openb_node_list_all_node.csv`, `openb_pod_list_default.csv`, Alibaba cluster-trace-gpu-v2023), repeated until there are
enough. Out: events, ready to be stored. Nothing is drawn at random: the same arguments give the same workload.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.domain.quota.names import LABEL_PARENT, LABEL_QUOTA, ROOT
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.objects import ObjectStored
from cotenant.model.names import LABEL_QOS_CLASS, SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import metrics_subject, node_subject, object_subject, pod_subject, resources_subject
from cotenant_verification.bench.constraints import (
    DEDICATED,
    HOSTNAME,
    LARGE_IMAGE,
    PLAIN_IMAGE,
    QUOTA,
    RACK,
    TIGHT_QUOTA,
    ZONE,
    Constraints,
    constraints,
    how_many,
)
from cotenant_verification.bench.quota_levels import leaf_name, leaf_parents, leaves, upper_levels
from cotenant_verification.bench.reserved import CLAIM, claim_of, pod_rules, reservation_events, takes_reservations

NAMESPACE = "bench"
MIB = 1 << 20
SOURCE = "/bench"
METRIC_INTERVAL_SECONDS = 60
NVIDIA_GPU = "nvidia.com/gpu"
UNLIMITED = 1 << 50
PLAIN = Constraints()


class WorkloadError(ValueError):
    """The workload cannot be built; the text states what is wrong with the input."""


class BenchWorkload(msgspec.Struct, frozen=True):
    """Rows of allocatable (nodes) and requests (pods), as Kubernetes writes them; both are repeated in turn. `mix` percent of
    the pods carry constraints; every `gang` pods, one after the other, are a gang."""

    nodes: int
    pods: int
    node_kinds: tuple[dict[str, str], ...]
    pod_kinds: tuple[dict[str, str], ...]
    mix: int = 0
    gang: int = 0
    reservations: int = 0
    """Reservations that a third of the pods may use (`reserved`)."""
    reservation_rules: bool = False
    """They differ in policy and owners, and their pods in affinity."""
    quotas: int = 0
    """The number of quotas, four levels deep, each pod in one of the lowest level; 0: one that has room for all."""

    def constrained(self, upto: int) -> int:
        """How many of the first `upto` pods carry constraints; they are spread evenly."""
        return upto * self.mix // 100


def synthetic(nodes: int, pods: int, shapes: int, mix: int = 0, gang: int = 0, reservations: int = 0) -> BenchWorkload:
    """Equal nodes of 64 cores; pods of `shapes` different requests in turn."""
    return BenchWorkload(
        nodes,
        pods,
        ({"cpu": "64", "memory": "256Gi", "pods": "250"},),
        tuple({"cpu": f"{100 + shape}m", "memory": "256Mi"} for shape in range(shapes)),
        mix,
        gang,
        reservations,
    )


def openb(nodes: int, pods: int, folder: Path, mix: int = 0, gang: int = 0, reservations: int = 0) -> BenchWorkload:
    """The nodes and pods of openb in their order; whole GPUs are a resource, shares of one count as one. Raises WorkloadError
    where the tables are not there or not openb's."""
    node_kinds = tuple(
        {"cpu": f"{row['cpu_milli']}m", "memory": f"{row['memory_mib']}Mi", NVIDIA_GPU: row["gpu"], "pods": "250"}
        for row in _table(folder / "openb_node_list_all_node.csv", ("cpu_milli", "memory_mib", "gpu"))
    )
    pod_kinds = tuple(
        {
            "cpu": f"{row['cpu_milli']}m",
            "memory": f"{row['memory_mib']}Mi",
            **({NVIDIA_GPU: row["num_gpu"]} if int(row["num_gpu"]) else {}),
        }
        for row in _table(folder / "openb_pod_list_default.csv", ("cpu_milli", "memory_mib", "num_gpu"))
    )
    return BenchWorkload(nodes, pods, node_kinds, pod_kinds, mix, gang, reservations)


def _table(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows of one table; all of `columns` hold whole numbers."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(f"{path} cannot be read: {error}; expected a table of openb (cluster-trace-gpu-v2023)") from error
    for number, row in enumerate(rows, 2):
        for column in columns:
            if not (row.get(column) or "").isdigit():
                raise WorkloadError(f"{path}, line {number}: {column} is {row.get(column)!r}; expected a whole number")
    if not rows:
        raise WorkloadError(f"{path} has no rows")
    return rows


def node_name(i: int) -> str:
    """The name of the i-th node."""
    return f"node-{i:06}"


def _node_document(workload: BenchWorkload, i: int) -> dict[str, Any]:
    """The object of the i-th node. One node in 50 is dedicated, one has a PreferNoSchedule taint; one in 100 is cordoned."""
    name = node_name(i)
    labels = {HOSTNAME: name, ZONE: f"zone-{i % 3}", RACK: f"rack-{i // 40}"}
    spec: dict[str, Any] = {}
    if i % 50 == 49:
        labels[DEDICATED] = "bench"
        spec["taints"] = [{"key": DEDICATED, "value": "bench", "effect": "NoSchedule"}]
    elif i % 50 == 24:
        spec["taints"] = [{"key": "spot", "effect": "PreferNoSchedule"}]
    elif i % 100 == 37:
        spec["unschedulable"] = True
    images = [{"names": [PLAIN_IMAGE], "sizeBytes": 100 * MIB}]
    if i % 3 == 0:
        images.append({"names": [LARGE_IMAGE], "sizeBytes": 900 * MIB})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": workload.node_kinds[i % len(workload.node_kinds)], "images": images},
    }


def node_events(workload: BenchWorkload, now: datetime, *, lent: bool = True) -> Iterator[Event]:
    """Every node's object and its metric: 1 to 6 % of 100 cores in use, so that no two neighbours have the same score; and, if
    no calculator runs, its batch and mid resources."""
    for i in range(workload.nodes):
        name = node_name(i)
        yield _event(node_subject(name), _stored(_node_document(workload, i)), now)
        usage = Usage(cpu_milli=1000 + i % 500, memory_bytes=(512 + i % 512) * MIB)
        metric = NodeMetricComputed(
            node=name, update_time=now, report_interval_seconds=METRIC_INTERVAL_SECONDS, node_usage=usage
        )
        yield _event(metrics_subject(name), metric, now)
        if lent:
            resources = NodeResources(
                node=name,
                batch_cpu_milli=16_000,
                batch_memory_bytes=64 << 30,
                mid_cpu_milli=8_000,
                mid_memory_bytes=32 << 30,
                update_time=now,
            )
            yield _event(resources_subject(name), resources, now)


def reserved_events(workload: BenchWorkload, now: datetime) -> Iterator[Event]:
    """The reservations, with the shares of nodes that they have."""
    nodes = [node_name(i) for i in range(workload.nodes) if takes_reservations(i)]
    for subject, data in reservation_events(nodes, workload.pod_kinds, workload.reservations, now, workload.reservation_rules):
        yield _event(subject, data, now)


def quota_limits(workload: BenchWorkload) -> dict[str, dict[str, int]]:
    """Max of each quota, cpu in milli-cores: room for every pod, and for half of those of the tight one."""
    most = {"cpu": UNLIMITED, "memory": UNLIMITED}
    tight = max(how_many("tight-quota", workload.constrained(workload.pods)) // 2, 1)
    cpu = max(resource_amount("cpu", kind["cpu"]) for kind in workload.pod_kinds)
    return {QUOTA: most, TIGHT_QUOTA: {"cpu": tight * cpu, "memory": UNLIMITED}}


def quota_events(workload: BenchWorkload, now: datetime) -> Iterator[Event]:
    """The quotas' objects."""
    for name, most in quota_limits(workload).items():
        yield _quota_event(name, ROOT, most, now)
    if not workload.quotas:
        return
    everything = {"cpu": UNLIMITED, "memory": UNLIMITED}
    for name, parent in upper_levels(workload.quotas):
        yield _quota_event(name, parent, everything, now)
    cpu = max(resource_amount("cpu", kind["cpu"]) for kind in workload.pod_kinds)
    room = {"cpu": cpu * -(-workload.pods // leaves(workload.quotas)), "memory": UNLIMITED}
    for index, parent in enumerate(leaf_parents(workload.quotas)):
        yield _quota_event(leaf_name(index), parent, room, now)


def _quota_event(name: str, parent: str, most: dict[str, int], now: datetime) -> Event:
    document = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {LABEL_PARENT: parent}},
        "spec": {"max": {"cpu": f"{most['cpu']}m", "memory": str(most["memory"])}, "min": {}},
    }
    return _event(object_subject("scheduling.sigs.k8s.io", "elasticquotas", NAMESPACE, name), _stored(document), now)


def stack_events(now: datetime) -> Iterator[Event]:
    """Objects that the other services require: the pods' namespace, and colocation enabled."""
    colocation = msgspec.json.encode({"enable": True}).decode()
    for kind, plural, namespace, name, data in (
        ("Namespace", "namespaces", "", NAMESPACE, {}),
        ("ConfigMap", "configmaps", SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME, {"data": {"colocation-config": colocation}}),
    ):
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        document = {"apiVersion": "v1", "kind": kind, "metadata": metadata, **data}
        yield _event(object_subject("", plural, namespace, name), _stored(document), now)


def pod_name(i: int) -> str:
    """The name of the i-th pod."""
    return f"pod-{i:07}"


def pod_document(workload: BenchWorkload, i: int, now: datetime) -> bytes:
    """The manifest of the i-th pod, as it is stored on the log."""
    before = workload.constrained(i)
    wants = constraints(before) if workload.constrained(i + 1) > before else PLAIN
    resources = wants.requests or workload.pod_kinds[i % len(workload.pod_kinds)]
    container: dict[str, Any] = {
        "name": "main",
        "image": wants.image,
        "resources": {"requests": resources, "limits": resources},
    }
    claim = claim_of(i, workload.reservations)
    labels = wants.labels if claim is None else {**wants.labels, CLAIM: claim}
    if wants.host_port:
        container["ports"] = [{"containerPort": 8080, "hostPort": wants.host_port, "protocol": "TCP"}]
    quota = _quota_of(workload, wants, i)
    rules = pod_rules(claim) if claim is not None and workload.reservation_rules else {}
    annotations = rules.pop("annotations", {}) | (_gang(workload, i) if workload.gang else {})
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(i),
            "namespace": NAMESPACE,
            "uid": f"00000000-0000-0000-0000-{i:012}",
            "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": {"app": NAMESPACE, LABEL_QOS_CLASS: wants.qos, LABEL_QUOTA: quota, **labels},
            **({"annotations": annotations} if annotations else {}),
            **rules,
        },
        "spec": {
            "containers": [container],
            "priority": wants.priority,
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            **wants.spec,
        },
    }
    return msgspec.json.encode(document)


def _quota_of(workload: BenchWorkload, wants: Constraints, i: int) -> str:
    return leaf_name(i % leaves(workload.quotas)) if workload.quotas and wants.quota == QUOTA else wants.quota


def _gang(workload: BenchWorkload, i: int) -> dict[str, str]:
    """The i-th pod's gang annotations; the last gang has the remaining pods."""
    number, size = i // workload.gang, min(workload.gang, workload.pods - i // workload.gang * workload.gang)
    return {ANNOTATION_GANG_NAME: f"gang-{number:07}", ANNOTATION_GANG_MIN: str(size)}


def pod_event(workload: BenchWorkload, i: int, now: datetime) -> Event:
    """The object of the i-th pod."""
    data = ObjectStored(object=msgspec.Raw(pod_document(workload, i, now)))
    return _event(pod_subject(NAMESPACE, pod_name(i)), data, now)


def pod_number(name: str) -> int:
    """The number of a pod by its name."""
    return int(name.rpartition("-")[2])


def _stored(document: dict[str, Any]) -> ObjectStored:
    return ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))


def _event(subject: str, data: Payload, now: datetime) -> Event:
    return Event(subject=subject, data=data, time=now, id=f"bench/{subject}", source=SOURCE)
