"""The metrics of koordlet, by its names and labels: dashboards made for it read this executor.

In: the core of one node. Out: values with their labels, computed when they are read. Counters start at 0 with each load and
keep koordlet's names, which do not end in `_total`. A container has no id here, so `container_id` is `<pod uid>/<container>`.
Source: koordlet's metrics (v1.8).

Bound: those of `node`, `pods` and `strategies`; a process of several (simulated) nodes shows none of these.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

from opentelemetry.metrics import Meter

from cotenant.runtime.figures import Value, show
from cotenant_node_executor.koordlet_metrics import node, pods, strategies
from cotenant_node_executor.koordlet_metrics.values import Metric, OfCore
from cotenant_node_executor.shell import ExecutorShell

TRIES = 3

METRICS: tuple[Metric, ...] = (*node.METRICS, *pods.METRICS, *strategies.METRICS)


def register(meter: Meter, shell: ExecutorShell) -> None:
    """Show the metrics of a process with this node only."""
    started = time.time()
    for name, description, read in METRICS:
        show(meter, f"koordlet_{name}", description, partial(_of_node, shell, read))
    own = {"node": shell.node.name}
    show(meter, "koordlet_start_time", "When the executor started, since the epoch", lambda: [(started, own)])


def _of_node(shell: ExecutorShell, read: OfCore) -> Iterable[Value]:
    own = {"node": shell.node.name}
    for _ in range(TRIES):
        try:
            return [(value, own | labels) for value, labels in read(shell.node.core)]
        except RuntimeError:  # a table grew meanwhile: this thread is not the one that runs the cycles
            continue
    return []
