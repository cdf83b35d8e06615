"""Every strategy of a node, in the order of precedence: of two that desire a value for one target the first one wins."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.strategy import Strategy
from cotenant_node_executor.targets.address import Attribute

STRATEGIES: tuple[Strategy, ...] = (
    suppress.STRATEGY,
    identity.STRATEGY,
    idle.STRATEGY,
    batch_pods.STRATEGY,
    pod_values.STRATEGY,
)


def precedence(strategies: Sequence[Strategy]) -> dict[Attribute, tuple[str, ...]]:
    """By attribute the names of the strategies that may set it, the first going before the others."""
    found: dict[Attribute, tuple[str, ...]] = {}
    for strategy in strategies:
        for attribute in strategy.sets:
            found[attribute] = (*found.get(attribute, ()), strategy.name)
    return found
