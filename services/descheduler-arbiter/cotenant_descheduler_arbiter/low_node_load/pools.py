"""Node pools: groups of nodes that share thresholds and weights.

In: the pool's arguments and measured nodes. Out: the pool's nodes, and each node's load with its bands.

A pool takes the nodes that match its selector and that no earlier pool has acted on; a pool without a selector matches all
nodes. (In koord-descheduler a pool without a selector acts on the same node again.) The weight of a resource is 1 for
cpu, memory and each resource in a threshold map, unless a positive weight is configured.

Source: koord-descheduler LowNodeLoad.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import predicate
from cotenant_descheduler_arbiter.config.policy import NodePool
from cotenant_descheduler_arbiter.low_node_load.classify import NodeLoad
from cotenant_descheduler_arbiter.low_node_load.thresholds import (
    Band,
    band_amounts,
    band_percent,
    fill_band,
    mean_percent,
    pool_resources,
)
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode


class JudgedPool(msgspec.Struct, frozen=True):
    """A pool's loads by node name, and the percentages in force."""

    loads: dict[str, NodeLoad]
    band: Band
    prod_band: Band


def filter_nodes(
    selector: LabelSelector | None, nodes: Sequence[tuple[str, Mapping[str, str]]], processed: Collection[str]
) -> list[str]:
    """Return the names of the nodes (name, labels) that a pool takes. Raises SelectorError."""
    selected = predicate(selector, absent=True)
    return [name for name, labels in nodes if name not in processed and selected(labels)]


def judge(pool: NodePool, nodes: Sequence[MeasuredNode]) -> JudgedPool:
    """Return every node's usage with its bands."""
    deviation = pool.use_deviation_thresholds
    resources = pool_resources(
        pool.low_thresholds, pool.high_thresholds, pool.prod_low_thresholds, pool.prod_high_thresholds
    )
    band = fill_band(pool.low_thresholds, pool.high_thresholds, resources, deviation=deviation)
    prod_band = fill_band(pool.prod_low_thresholds, pool.prod_high_thresholds, resources, deviation=deviation)
    if deviation:
        band = band_percent(
            band, mean_percent([(node.usage, node.facts.capacity_for_load) for node in nodes], resources)
        )
        prod_band = band_percent(
            prod_band, mean_percent([(node.prod_usage, node.facts.capacity_for_load) for node in nodes], resources)
        )
    return JudgedPool(
        loads={
            node.facts.name: NodeLoad(
                name=node.facts.name,
                allocatable=node.facts.capacity_for_load,
                usage=node.usage,
                prod_usage=node.prod_usage,
                band=band_amounts(band, node.facts.capacity_for_load),
                prod_band=band_amounts(prod_band, node.facts.capacity_for_load),
                unschedulable=node.facts.unschedulable,
            )
            for node in nodes
        },
        band=band,
        prod_band=prod_band,
    )
