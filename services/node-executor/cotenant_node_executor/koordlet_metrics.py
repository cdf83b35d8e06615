"""The metrics of koordlet, by its names and labels: dashboards made for it read this executor.

In: the core of one node. Out: values with their labels, computed when they are read. Counters start at 0 with each load and
keep koordlet's names, which do not end in `_total`. A container has no id here, so `container_id` is `<pod uid>/<container>`.
Source: koordlet's metrics (v1.8).

Bound: the node's pods and containers; a process of several (simulated) nodes shows none of these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from opentelemetry.metrics import Meter

from cotenant.api.objects.pod import Container, Pod
from cotenant.domain.node import overcommitted_amounts
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cotenant.model.quantities import QuantityError, Scalar, parse_value
from cotenant.runtime.figures import Value, show
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.placed import DecodedPlacement
from cotenant_node_executor.sampling.snapshot import GroupUsage, UsageSnapshot
from cotenant_node_executor.shell import ExecutorShell
from cotenant_node_executor.strategies.cpu.burst import strategy as burst
from cotenant_node_executor.strategies.cpu.evict import strategy as cpu_evict
from cotenant_node_executor.strategies.cpu.suppression import strategy as suppression
from cotenant_node_executor.strategies.memory import evict as memory_evict
from cotenant_node_executor.strategies.pod_view import BESTEFFORT
from cotenant_node_executor.targets.interface import Knob

EVICTION_REASONS = {cpu_evict.NAME: "EvictPodByBECPUSatisfaction", memory_evict.NAME: "EvictPodByNodeMemoryUsage"}
"""By strategy; another one's reason is its name."""
OVERCOMMITTED = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}
"""With their units: batch-cpu and mid-cpu count milli-CPU."""

TRIES = 3

OfCore = Callable[[ExecutorCore], Iterable[Value]]


def register(meter: Meter, shell: ExecutorShell) -> None:
    """Show the metrics of a process with this node only."""
    started = time.time()
    for name, description, read in METRICS:
        show(meter, f"koordlet_{name}", description, partial(_of_node, shell, read))
    node = {"node": shell.node.name}
    show(meter, "koordlet_start_time", "When the executor started, since the epoch", lambda: [(started, node)])


def _of_node(shell: ExecutorShell, read: OfCore) -> Iterable[Value]:
    node = {"node": shell.node.name}
    for _ in range(TRIES):
        try:
            return [(value, node | labels) for value, labels in read(shell.node.core)]
        except RuntimeError:  # a table grew meanwhile: this thread is not the one that runs the cycles
            continue
    return []


def _snapshot(core: ExecutorCore) -> UsageSnapshot | None:
    return core.seen.snapshot if core.seen is not None else None


def _from_snapshot(read: Callable[[UsageSnapshot], Iterable[Value]]) -> OfCore:
    def values(core: ExecutorCore) -> Iterable[Value]:
        snapshot = _snapshot(core)
        return read(snapshot) if snapshot is not None else ()

    return values


def _usage(cpu_milli: int | None, memory_bytes: int | None) -> Iterator[Value]:
    if cpu_milli is not None:
        yield cpu_milli / 1000, {"resource": "cpu", "unit": "core"}
    if memory_bytes is not None:
        yield memory_bytes, {"resource": "memory", "unit": "byte"}


def _node_cpu(snapshot: UsageSnapshot) -> Iterator[Value]:
    if snapshot.node.cpu_milli is not None:
        yield snapshot.node.cpu_milli / 1000, {}


def _node_memory(snapshot: UsageSnapshot) -> Iterator[Value]:
    yield snapshot.node.memory_bytes, {}


def _node_usage(snapshot: UsageSnapshot) -> Iterator[Value]:
    return _usage(snapshot.node.cpu_milli, snapshot.node.memory_bytes)


def _system_usage(snapshot: UsageSnapshot) -> Iterator[Value]:
    return _usage(snapshot.system.cpu_milli, snapshot.system.memory_bytes)


def _numa_usage(core: ExecutorCore) -> Iterator[Value]:
    seen = core.seen
    for each in seen.slow.numa if seen is not None and seen.slow is not None else ():
        for value, labels in _usage(each.cpu_milli, each.memory_bytes):
            yield value, {"numa_node_id": str(each.node), **labels}


def _best_effort_memory(core: ExecutorCore) -> Iterator[Value]:
    seen = core.seen
    for each in seen.slow.numa if seen is not None and seen.slow is not None else ():
        if each.best_effort_bytes is not None:
            yield each.best_effort_bytes, {"numa_node_id": str(each.node)}


def _services_cpu(snapshot: UsageSnapshot) -> Iterator[Value]:
    yield sum(each.usage.cpu_milli or 0 for each in snapshot.pods.values() if each.tier != BESTEFFORT) / 1000, {}


def _batch_cpu(snapshot: UsageSnapshot) -> Iterator[Value]:
    """The best-effort group, which has YARN's containers too; its pods where it is not measured (the simulated machine)."""
    group = snapshot.tiers.get(BESTEFFORT)
    pods = sum(each.usage.cpu_milli or 0 for each in snapshot.pods.values() if each.tier == BESTEFFORT)
    yield (pods if group is None or group.cpu_milli is None else group.cpu_milli) / 1000, {}


def _suppressed(core: ExecutorCore) -> Iterator[Value]:
    figures = core.figures(suppression.NAME)
    if figures and core.slo is not None:
        yield max(0, figures.get(suppression.QUANTITY, 0)) / 1000, {"type": core.slo.cpu_suppress_policy}


def _applications(core: ExecutorCore) -> Iterator[Value]:
    snapshot = _snapshot(core)
    found = snapshot.host_applications if snapshot is not None else {}
    for asked in core.wanted.host_applications:
        if asked.name in found:
            own = {"host_application_name": asked.name, "priority_class": asked.priority, "qos": asked.qos}
            usage = found[asked.name].usage
            for value, labels in _usage(usage.cpu_milli, usage.memory_bytes):
                yield value, {**own, "resource": labels["resource"]}


def _evictions(core: ExecutorCore) -> Iterator[Value]:
    counts = dict.fromkeys(EVICTION_REASONS.values(), 0)
    for strategy, count in core.evictions.count.items():
        reason = EVICTION_REASONS.get(strategy, strategy)
        counts[reason] = counts.get(reason, 0) + count
    for reason, count in sorted(counts.items()):
        yield count, {"reason": reason}


def _evicted(core: ExecutorCore) -> Iterator[Value]:
    """The pods that are being evicted: koordlet keeps a series for each pod that it ever evicted."""
    for (namespace, name), placed in sorted(core.placed.items()):
        begun = core.evictions.begun(placed.placement.uid)
        if begun is not None:
            reason = EVICTION_REASONS.get(begun.strategy, begun.strategy)
            yield 1, {"pod_namespace": namespace, "pod_name": name, "reason": reason}


def _allocatable(core: ExecutorCore) -> Iterator[Value]:
    resources = core.resources
    offered = {} if resources is None or resources.withdrawn else overcommitted_amounts(resources)
    for name, unit in OVERCOMMITTED.items():
        yield offered.get(name, 0), {"resource": name, "unit": unit}


def _pods(core: ExecutorCore) -> Iterator[tuple[DecodedPlacement, Pod, dict[str, str]]]:
    for (namespace, name), placed in sorted(core.placed.items()):
        if placed.view is not None:
            own = {"pod_uid": placed.placement.uid, "pod_name": name, "pod_namespace": namespace}
            yield placed, placed.view.manifest, own


def _container(pod: dict[str, str], container: Container) -> dict[str, str]:
    return {**pod, "container_id": f"{pod['pod_uid']}/{container.name}", "container_name": container.name}


def _amounts(of: Callable[[Container], dict[str, Scalar]], core: ExecutorCore) -> Iterator[Value]:
    for _, pod, own in _pods(core):
        for container in pod.spec.containers:
            amounts = of(container)
            for name, unit in OVERCOMMITTED.items():
                try:
                    if name in amounts:
                        yield parse_value(amounts[name]), {**_container(own, container), "resource": name, "unit": unit}
                except QuantityError:
                    continue


def _pressures(core: ExecutorCore) -> Iterator[Value]:
    snapshot = _snapshot(core)
    pods = snapshot.pods if snapshot is not None else {}
    for placed, _, own in _pods(core):
        sample = pods.get(placed.placement.uid)
        if sample is not None:
            yield from ((value, {**own, **labels}) for value, labels in _stalls(sample.usage))


def _stalls(usage: GroupUsage) -> Iterator[Value]:
    for name, found in (("cpu", usage.pressure.cpu), ("mem", usage.pressure.memory), ("io", usage.pressure.io)):
        if found is None:
            continue
        supported = str(usage.pressure.cpu is not None and usage.pressure.cpu.full_supported).lower()
        for degree, line in (("some", found.some), ("full", found.full)):
            for precision, value in (("avg10", line.avg10), ("avg60", line.avg60), ("avg300", line.avg300)):
                labels = {"psi_resource_type": name, "psi_precision": precision, "psi_degree": degree}
                yield value, {**labels, "cpu_full_supported": supported}


def _scaled(knob: Knob, core: ExecutorCore) -> Iterator[Value]:
    for placed, pod, own in _pods(core):
        assert placed.view is not None
        for container in pod.spec.containers:
            desired = core.desired(f"{placed.view.group}/{container.name}", knob)
            if desired is not None and desired.strategy == burst.NAME:
                labels = _container(own, container)
                del labels["pod_uid"]
                yield float(desired.value), labels


METRICS: tuple[tuple[str, str, OfCore], ...] = (
    ("node_used_cpu_cores", "CPU that the node uses", _from_snapshot(_node_cpu)),
    ("node_used_memory_bytes", "Memory that the node uses, without page cache", _from_snapshot(_node_memory)),
    ("node_metric_node_usage", "Usage of the node by resource", _from_snapshot(_node_usage)),
    ("node_metric_system_usage", "Usage outside of pods and host applications", _from_snapshot(_system_usage)),
    ("node_metric_numa_node_usage", "Usage of each NUMA node", _numa_usage),
    ("node_resource_allocatable", "Batch and mid resources that the node offers", _allocatable),
    ("be_suppress_cpu_cores", "CPU that best-effort work may use, by the policy of suppression", _suppressed),
    ("be_suppress_ls_used_cpu_cores", "CPU that pods other than best-effort use", _from_snapshot(_services_cpu)),
    ("be_suppress_be_used_cpu_cores", "CPU that best-effort work uses", _from_snapshot(_batch_cpu)),
    ("be_numa_node_memory_bytes", "Memory of best-effort work on each NUMA node", _best_effort_memory),
    ("host_application_resource_usage", "CPU in cores and memory in bytes by host application", _applications),
    ("pod_eviction", "Evictions begun, by reason", _evictions),
    ("pod_eviction_detail", "Pods that are being evicted", _evicted),
    ("pod_psi", "Stalled share of time of a pod, in percent", _pressures),
    ("container_resource_requests", "Batch and mid resources requested", partial(_amounts, lambda one: one.resources.requests)),
    ("container_resource_limits", "Limits of batch and mid resources", partial(_amounts, lambda one: one.resources.limits)),
    ("container_scaled_cfs_quota_us", "Quotas that CPU burst has set", partial(_scaled, Knob.CPU_QUOTA)),
    ("container_scaled_cfs_burst_us", "Bursts that CPU burst has set", partial(_scaled, Knob.CPU_BURST)),
)
"""Name without its prefix, description, values."""
