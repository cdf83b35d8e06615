"""What the metrics of koordlet have in common: how they are read from a core, labels of usage, pods and containers.

In: the core of one node. Out: values with their labels. Nothing here is called by a cycle, only when metrics are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from cotenant.api.objects.pod import Container, Pod
from cotenant.runtime.figures import Value
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.sampling.slow.readings import SlowReadings
from cotenant_node_executor.sampling.snapshot import UsageSnapshot

OfCore = Callable[[ExecutorCore], Iterable[Value]]
Defined = tuple[str, str, OfCore]
"""Name without its prefix, description, values."""
NOTHING_SLOW = SlowReadings()
T = TypeVar("T")


def snapshot_of(core: ExecutorCore) -> UsageSnapshot | None:
    """The newest sample."""
    return core.seen.snapshot if core.seen is not None else None


def slow_of(core: ExecutorCore) -> SlowReadings:
    """The newest readings of the slow collectors; without any where there are no collectors."""
    return core.seen.slow or NOTHING_SLOW if core.seen is not None else NOTHING_SLOW


def usage(cpu_milli: float | None, memory_bytes: int | None) -> Iterator[Value]:
    """CPU in cores and memory in bytes, each where there is a figure."""
    if cpu_milli is not None:
        yield cpu_milli / 1000, {"resource": "cpu", "unit": "core"}
    if memory_bytes is not None:
        yield memory_bytes, {"resource": "memory", "unit": "byte"}


def pods(core: ExecutorCore) -> Iterator[tuple[str, Pod, dict[str, str], str]]:
    """Each readable pod that is placed here: its uid, itself, its labels, its control group."""
    for (namespace, name), placed in sorted(core.placed.items()):
        if placed.view is not None:
            uid = placed.placement.uid
            own = {"pod_uid": uid, "pod_name": name, "pod_namespace": namespace}
            yield uid, placed.view.manifest, own, placed.view.group


def container_labels(core: ExecutorCore, pod: dict[str, str], container: Container) -> dict[str, str]:
    """The labels of a container, from those of its pod. Its id is the one that kubelet's status states, else made of names."""
    placed = core.placed.get((pod["pod_namespace"], pod["pod_name"]))
    ids = placed.to_run.container_ids if placed is not None and placed.to_run is not None else {}
    own = next((number for number, name in ids.items() if name == container.name), f"{pod['pod_uid']}/{container.name}")
    return {**pod, "container_id": own, "container_name": container.name}


def of_containers(core: ExecutorCore, readings: Mapping[str, T]) -> Iterator[tuple[T, dict[str, str]]]:
    """Each container that has a reading, by its control group: the reading, the container's labels."""
    for _, pod, own, group in pods(core) if readings else ():
        for container in pod.spec.containers:
            found = readings.get(f"{group}/{container.name}")
            if found is not None:
                yield found, container_labels(core, own, container)
