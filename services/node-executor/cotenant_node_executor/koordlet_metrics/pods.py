"""The metrics of pods and containers by koordlet's names: batch and mid resources, stalls, cycles and instructions.

In: the placed pods, the newest sample, the newest readings of the slow collectors. Out: values with their labels. Source:
koordlet's metrics (v1.8).

Bound: the node's pods and containers, 18 series of stalls for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cotenant.api.objects.pod import Container
from cotenant.model.quantities import QuantityError, Scalar, parse_value
from cotenant.runtime.figures import Value
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.koordlet_metrics.node import OVERCOMMITTED
from cotenant_node_executor.koordlet_metrics.values import Defined, container_labels, of_containers, pods, slow_of, snapshot_of
from cotenant_node_executor.sampling.snapshot import PressureSet


def _amounts(of: Callable[[Container], dict[str, Scalar]], core: ExecutorCore) -> Iterator[Value]:
    for _, pod, own, _ in pods(core):
        for container in pod.spec.containers:
            amounts = of(container)
            for name, unit in OVERCOMMITTED.items():
                try:
                    if name in amounts:
                        labels = container_labels(core, own, container)
                        yield parse_value(amounts[name]), {**labels, "resource": name, "unit": unit}
                except QuantityError:
                    continue


def _pod_stalls(core: ExecutorCore) -> Iterator[Value]:
    snapshot = snapshot_of(core)
    samples = snapshot.pods if snapshot is not None else {}
    for uid, _, own, _ in pods(core):
        sample = samples.get(uid)
        if sample is not None:
            yield from _stalls(sample.usage.pressure, own)


def _container_stalls(core: ExecutorCore) -> Iterator[Value]:
    for found, own in of_containers(core, slow_of(core).stalls):
        yield from _stalls(found, own)


def _stalls(pressure: PressureSet, own: dict[str, str]) -> Iterator[Value]:
    for name, found in (("cpu", pressure.cpu), ("mem", pressure.memory), ("io", pressure.io)):
        if found is None:
            continue
        supported = str(found.full_supported).lower()
        for degree, line in (("some", found.some), *((("full", found.full),) if found.full_supported else ())):
            for precision, value in (("avg10", line.avg10), ("avg60", line.avg60), ("avg300", line.avg300)):
                labels = {"psi_resource_type": name, "psi_precision": precision, "psi_degree": degree}
                yield value, {**own, **labels, "cpu_full_supported": supported}


def _counters(core: ExecutorCore) -> Iterator[Value]:
    for found, own in of_containers(core, slow_of(core).container_cpi):
        yield found.cycles, {**own, "cpi_field": "cycles"}
        yield found.instructions, {**own, "cpi_field": "instructions"}


METRICS: tuple[Defined, ...] = (
    ("pod_psi", "Stalled share of time of a pod, in percent", _pod_stalls),
    ("container_psi", "Stalled share of time of a container, in percent", _container_stalls),
    ("container_cpi", "Cycles and instructions of a container in its last window", _counters),
    ("container_resource_requests", "Batch and mid resources requested", partial(_amounts, lambda one: one.resources.requests)),
    ("container_resource_limits", "Limits of batch and mid resources", partial(_amounts, lambda one: one.resources.limits)),
)
