"""All strategies of a node in order of precedence: of two that desire a value for one target the first wins."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant_node_executor.strategies import (
    batch_pods,
    cpu_normalization,
    cpusets,
    identity,
    idle,
    pod_values,
    suppress,
)
from cotenant_node_executor.strategies.core_sched import strategy as core_sched
from cotenant_node_executor.strategies.cpu_burst import strategy as cpu_burst
from cotenant_node_executor.strategies.cpu_evict import strategy as cpu_evict
from cotenant_node_executor.strategies.strategy import Strategy
from cotenant_node_executor.targets.address import Attribute

STRATEGIES: tuple[Strategy, ...] = (
    suppress.STRATEGY,
    core_sched.STRATEGY,
    identity.STRATEGY,
    idle.STRATEGY,
    cpusets.STRATEGY,
    cpu_burst.STRATEGY,
    cpu_normalization.STRATEGY,
    cpu_evict.STRATEGY,
    batch_pods.STRATEGY,
    pod_values.STRATEGY,
)


def precedence(strategies: Sequence[Strategy]) -> dict[Attribute, tuple[str, ...]]:
    """The names of the strategies that may set each attribute, highest precedence first."""
    found: dict[Attribute, tuple[str, ...]] = {}
    for strategy in strategies:
        for attribute in strategy.sets:
            found[attribute] = (*found.get(attribute, ()), strategy.name)
    return found
