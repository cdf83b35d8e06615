"""All strategies of a node in order of precedence: of two that desire a value for one target the first wins."""

from __future__ import annotations

from collections.abc import Sequence

from cotenant_node_executor.strategies import system_config
from cotenant_node_executor.strategies.cache import resctrl
from cotenant_node_executor.strategies.cpu import cpusets, normalization
from cotenant_node_executor.strategies.cpu.burst import strategy as cpu_burst
from cotenant_node_executor.strategies.cpu.core_sched import strategy as core_sched
from cotenant_node_executor.strategies.cpu.evict import strategy as cpu_evict
from cotenant_node_executor.strategies.cpu.identity import idle
from cotenant_node_executor.strategies.cpu.identity import strategy as identity
from cotenant_node_executor.strategies.cpu.protection import realtime, spread
from cotenant_node_executor.strategies.cpu.suppression import strategy as suppression
from cotenant_node_executor.strategies.disk import blkio
from cotenant_node_executor.strategies.gates import DEFAULT_GATES
from cotenant_node_executor.strategies.memory import evict as memory_evict
from cotenant_node_executor.strategies.memory import oom_scores, page_cache
from cotenant_node_executor.strategies.memory import qos as memory_qos
from cotenant_node_executor.strategies.memory import relief as memory_relief
from cotenant_node_executor.strategies.network import tc, terway
from cotenant_node_executor.strategies.pods import batch_pods, pod_values
from cotenant_node_executor.strategies.strategy import Strategy
from cotenant_node_executor.targets.address import Attribute


def strategies_of(gates: frozenset[str]) -> tuple[Strategy, ...]:
    """The strategies of a node on which these feature gates are on."""
    return (
        suppression.STRATEGY,
        core_sched.STRATEGY,
        identity.STRATEGY,
        idle.STRATEGY,
        spread.STRATEGY,
        realtime.STRATEGY,
        cpusets.STRATEGY,
        cpu_burst.STRATEGY,
        normalization.STRATEGY,
        cpu_evict.STRATEGY,
        batch_pods.STRATEGY,
        pod_values.STRATEGY,
        memory_qos.STRATEGY,
        page_cache.STRATEGY,
        oom_scores.STRATEGY,
        memory_relief.strategy(gates),
        memory_evict.strategy(gates),
        blkio.STRATEGY,
        resctrl.STRATEGY,
        system_config.STRATEGY,
        tc.strategy(gates),
        terway.strategy(gates),
    )


STRATEGIES: tuple[Strategy, ...] = strategies_of(DEFAULT_GATES)


def precedence(strategies: Sequence[Strategy]) -> dict[Attribute, tuple[str, ...]]:
    """The names of the strategies that may set each attribute, highest precedence first."""
    found: dict[Attribute, tuple[str, ...]] = {}
    for strategy in strategies:
        for attribute in strategy.sets:
            found[attribute] = (*found.get(attribute, ()), strategy.name)
    return found
