"""Classifies nodes as low or high: compares a node's measured usage with its band.

In: usage of the node and of its prod pods, the bands of both, whether the node is schedulable. Out: one class per node.

    under = for all r: usage[r] <= low[r]       over = for some r: usage[r] > high[r]  (strict)
    under:     prod over -> PROD_HIGH; prod under -> BOTH_LOW; else LOW
    not under: over -> HIGH; prod over -> PROD_HIGH; prod under -> PROD_LOW; else NORMAL

An unschedulable node is never under, so it is never a destination.

Source: koord-descheduler LowNodeLoad with prod thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from cotenant_descheduler_arbiter.low_node_load.thresholds import BandAmounts


class LoadClass(StrEnum):
    """The class of a node in one cycle."""

    HIGH = "high"
    PROD_HIGH = "prodHigh"
    LOW = "low"
    BOTH_LOW = "bothLow"
    PROD_LOW = "prodLow"
    NORMAL = "normal"


class NodeLoad(msgspec.Struct, frozen=True):
    """A measured node of a pool. Amounts: cpu in milli-cores, the rest in plain units."""

    name: str
    allocatable: dict[str, int]
    usage: dict[str, int]
    prod_usage: dict[str, int]
    band: BandAmounts
    prod_band: BandAmounts
    unschedulable: bool = False


def over_resources(usage: Mapping[str, int], high: Mapping[str, int]) -> tuple[str, ...]:
    """Return the resources whose usage is above the high amount, in lexicographic order."""
    return tuple(sorted(name for name, limit in high.items() if usage.get(name, 0) > limit))


def is_over(usage: Mapping[str, int], high: Mapping[str, int]) -> bool:
    """Whether some resource is above its high amount."""
    return any(usage.get(name, 0) > limit for name, limit in high.items())


def is_under(usage: Mapping[str, int], low: Mapping[str, int]) -> bool:
    """Whether every resource is at or below its low amount."""
    return all(usage.get(name, 0) <= limit for name, limit in low.items())


def classify(load: NodeLoad) -> LoadClass:
    """Return the class of a measured node."""
    prod_over = is_over(load.prod_usage, load.prod_band.high)
    prod_under = not load.unschedulable and is_under(load.prod_usage, load.prod_band.low)
    if not load.unschedulable and is_under(load.usage, load.band.low):
        if prod_over:
            return LoadClass.PROD_HIGH
        return LoadClass.BOTH_LOW if prod_under else LoadClass.LOW
    if is_over(load.usage, load.band.high):
        return LoadClass.HIGH
    if prod_over:
        return LoadClass.PROD_HIGH
    return LoadClass.PROD_LOW if prod_under else LoadClass.NORMAL
