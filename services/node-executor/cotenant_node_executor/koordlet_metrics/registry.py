"""The metrics of koordlet, by its names and labels: dashboards made for it read this executor.

In: the core of one node. Out: values with their labels, computed when they are read. Counters start at 0 with each load and
keep koordlet's names, which do not end in `_total`. A container without an id in kubelet's status has the `container_id`
`<pod uid>/<container>`.
Source: koordlet's metrics (v1.8).

They go to the page of Prometheus directly, since OpenTelemetry's SDK would triple the cost of their thousands of series, and
through the SDK only where metrics are exported by OTLP as well.

Bound: those of `node`, `pods` and `strategies`; a process of several (simulated) nodes shows none of these.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial

from opentelemetry.metrics import Meter
from prometheus_client import REGISTRY, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from cotenant.runtime.figures import Value, show
from cotenant_node_executor.koordlet_metrics import node, pods, strategies
from cotenant_node_executor.koordlet_metrics.values import Defined, OfCore
from cotenant_node_executor.shell import ExecutorShell

TRIES = 3

METRICS: tuple[Defined, ...] = (*node.METRICS, *pods.METRICS, *strategies.METRICS)


def register(shell: ExecutorShell, meter: Meter | None, registry: CollectorRegistry = REGISTRY) -> None:
    """Show the metrics of a process with this node only. `meter`: where metrics are exported by OTLP, too."""
    started = time.time()
    metrics = (*METRICS, ("start_time", "When the executor started, since the epoch", lambda _: [(started, {})]))
    if meter is None:
        registry.register(_Page(shell, metrics))
        return
    for name, description, read in metrics:
        show(meter, f"koordlet_{name}", description, partial(_of_node, shell, read))


class _Page(Collector):
    """What the page shows of one node."""

    def __init__(self, shell: ExecutorShell, metrics: Iterable[Defined]) -> None:
        self._shell = shell
        self._metrics = metrics

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not read values to know their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics that have a value."""
        for name, description, read in self._metrics:
            family = Metric(f"koordlet_{name}", description, "gauge")
            for value, labels in _of_node(self._shell, read):
                family.add_sample(family.name, labels, value)
            if family.samples:
                yield family


def _of_node(shell: ExecutorShell, read: OfCore) -> Iterable[Value]:
    own = {"node": shell.node.name}
    for _ in range(TRIES):
        try:
            return [(value, own | labels) for value, labels in read(shell.node.core)]
        except RuntimeError:  # a table grew meanwhile: this thread is not the one that runs the cycles
            continue
    return []
