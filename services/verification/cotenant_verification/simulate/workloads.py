"""Pods and their arrival times from a cluster file.

In: workloads, a seed, a span. Out: Pod documents, each with the moment at which it is created. Random gaps and durations come
from one generator per workload, seeded by the run's seed and the workload's name: adding a workload to the file does not change
the others. The pods of a gang arrive together; annotations name their gang.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant_console.api.client import Document
from cotenant_console.durations import parse_duration_seconds
from cotenant_verification.simulate.cluster_file import ClusterFile, Workload

USAGE = "cotenant.io/simulated-usage"
DURATION = "cotenant.io/simulated-duration"


def arrivals(cluster: ClusterFile, seed: int, span_seconds: float) -> Iterator[tuple[float, Document]]:
    """Seconds since the start and the pod that comes then, workload by workload."""
    for workload in cluster.workloads:
        if workload.arrivals is None:
            for index in range(workload.replicas):
                yield 0.0, pod_document(workload, index, "")
        else:
            yield from _jobs(workload, seed, span_seconds)


def _jobs(workload: Workload, seed: int, span_seconds: float) -> Iterator[tuple[float, Document]]:
    given = workload.arrivals
    assert given is not None
    chance = Random(f"{seed}/{workload.namespace}/{workload.name}")
    rate = 1.0 / parse_duration_seconds(given.every)
    shortest, longest = parse_duration_seconds(given.lasts_from), parse_duration_seconds(given.lasts_to)
    at = 0.0
    for index in range(given.at_most):
        at += chance.expovariate(rate)
        lasts = chance.uniform(shortest, longest)
        if at >= span_seconds:
            return
        together = max(workload.gang, 1)
        for member in range(together):
            yield at, pod_document(workload, index * together + member, f"{round(lasts * 1000)}ms")


def pod_document(workload: Workload, index: int, duration: str) -> Document:
    """One pod of a workload, with its usage as annotations that simulated nodes read."""
    annotations: Document = dict(workload.annotations)
    if workload.gang:
        annotations |= {
            ANNOTATION_GANG_NAME: f"{workload.name}-gang-{index // workload.gang}",
            ANNOTATION_GANG_MIN: str(workload.gang),
        }
    usage = usage_text(workload)
    if usage:
        annotations[USAGE] = usage
    if duration:
        annotations[DURATION] = duration
    resources: Document = {"requests": dict(workload.requests), "limits": dict(workload.limits)}
    spec: Document = {
        "restartPolicy": "Never" if duration else "Always",
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
    }
    if workload.priority_class_name:
        spec["priorityClassName"] = workload.priority_class_name
    metadata: Document = {
        "name": f"{workload.name}-{index}",
        "namespace": workload.namespace,
        "labels": dict(workload.labels),
        "annotations": annotations,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def usage_text(workload: Workload) -> str:
    """One pod's usage, in the annotation's format."""
    parts = []
    if workload.load is not None:
        parts.append(f"cpu={workload.load.night}..{workload.load.noon}")
    elif workload.uses_cpu:
        parts.append(f"cpu={workload.uses_cpu}")
    if workload.uses_memory:
        parts.append(f"memory={workload.uses_memory}")
    if workload.load is not None:
        parts.append(f"period={round(parse_duration_seconds(workload.load.day))}s")
    return ",".join(parts)
