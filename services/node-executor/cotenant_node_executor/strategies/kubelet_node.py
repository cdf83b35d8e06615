"""The strategies of a node whose pods kubelet runs: all but those that kubelet's own layout excludes, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from cotenant_node_executor.strategies.cpu.protection import realtime, spread
from cotenant_node_executor.strategies.pods import pod_values
from cotenant_node_executor.strategies.strategy import Strategy

OFF: Mapping[str, str] = {
    pod_values.STRATEGY.name: "kubelet writes the plain values of its pods itself",
    spread.STRATEGY.name: (
        "it makes the best-effort directory idle, whose shares kubelet writes every minute (the kernel refuses the shares of "
        "an idle group), and moves threads that kubelet's CPU manager owns"
    ),
    realtime.STRATEGY.name: "budgets of real-time groups must be given from kubelet's root downwards, which the runtime resets",
}
"""Why, by the strategy's name."""


def on_kubelet_node(strategies: tuple[Strategy, ...]) -> tuple[Strategy, ...]:
    """Return those that are on."""
    return tuple([each for each in strategies if each.name not in OFF])
