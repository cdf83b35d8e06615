"""An executor's own metrics, summed over the nodes of its process: suppression, values refused by the kernel, waiting events.

In: the nodes' shells. Out: metrics, computed when they are read. Bound: none has a label of a node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from opentelemetry.metrics import Meter

from cotenant.log.contract import EXECUTION, USAGE
from cotenant.runtime.figures import Figures, Value, show
from cotenant_node_executor.shell import ExecutorShell
from cotenant_node_executor.strategies.cpu.suppression.strategy import CAPACITY, NAME, QUANTITY


def register(meter: Meter, figures: Figures, shells: Sequence[ExecutorShell]) -> None:
    """Show the metrics of a process with these nodes."""
    figures.register(meter)

    def summed(name: str, description: str, of_node: Callable[[ExecutorShell], float], *, counter: bool = False) -> None:
        show(meter, name, description, lambda: [(sum(map(of_node, shells)), {})], counter=counter)

    summed("cotenant_executor_nodes", "Nodes of this process", lambda _: 1)
    summed("cotenant_executor_pods", "Pods placed here", lambda shell: len(shell.node.core.placed))
    summed("cotenant_executor_suppressing_nodes", "Nodes whose batch pods are suppressed to what services leave", _suppresses)
    summed("cotenant_executor_suppressing_cpu_cores", "CPUs of these nodes", lambda shell: _cores(shell, CAPACITY))
    summed("cotenant_executor_best_effort_cpu_cores", "CPUs that batch may use there", lambda shell: _cores(shell, QUANTITY))
    summed(
        "cotenant_executor_written_values",
        "Values of control groups and other targets that were written",
        lambda shell: shell.node.written_values,
        counter=True,
    )
    summed(
        "cotenant_executor_refused_values",
        "Values that the kernel refused; repeated refusals of one value count once",
        lambda shell: shell.node.refused_values,
        counter=True,
    )
    summed(
        "cotenant_executor_unsent_events",
        "Usage messages and execution events that wait for the server",
        lambda shell: shell.outbox.waiting,
    )

    def dropped() -> Iterable[Value]:
        return [(sum(shell.outbox.dropped_of[stream] for shell in shells), {"stream": stream}) for stream in (EXECUTION, USAGE)]

    def oldest() -> Iterable[Value]:
        since = [found for shell in shells if (found := shell.outbox.waiting_since_ns) is not None]
        return [(max(0.0, time.time() - min(since) / 1e9) if since else 0.0, {})]

    show(
        meter, "cotenant_executor_dropped_events", "Usage messages and execution events dropped", dropped, counter=True
    )
    show(meter, "cotenant_executor_oldest_unsent_seconds", "Age of the oldest event that waits for the server", oldest)


def _cores(shell: ExecutorShell, figure: str) -> float:
    return max(0, shell.node.core.figures(NAME).get(figure, 0)) / 1000


def _suppresses(shell: ExecutorShell) -> int:
    return int(bool(shell.node.core.figures(NAME)))
