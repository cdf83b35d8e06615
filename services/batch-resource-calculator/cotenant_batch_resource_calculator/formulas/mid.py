"""Mid resources of a node: the capacity that prod pods are predicted not to use, and a share of the unrequested capacity.

In: capacity, usage, reserves, the prediction, the strategy. Out: mid-cpu in milli-CPUs and mid-memory in bytes.
Source: Koordinator mid resource plugin, newest rule.

    unused      = capacity - node usage                                   (no usage: everything 0)
    base        = max(0, min(prediction, unused))                         (no prediction: 0)
    unallocated = max(0, capacity - max(system + prod host applications, node reserve) - requests of prod pods)
    mid         = min(base + unallocated * unallocated percent / 100, capacity * threshold percent / 100)
    static mode : mid = min(capacity * static reserved percent / 100, capacity * threshold percent / 100)
"""

from __future__ import annotations

import msgspec

from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, share

STATIC_MODE = "static"


class MidStrategy(msgspec.Struct, frozen=True):
    """The formula's part of the colocation strategy, in integer percent."""

    cpu_threshold_percent: int = 100
    memory_threshold_percent: int = 100
    unallocated_percent: int = 0
    static: bool = False
    static_cpu_percent: int = 0
    static_memory_percent: int = 0


def _capped(capacity: Amounts, strategy: MidStrategy) -> Amounts:
    return Amounts(
        share(capacity, strategy.cpu_threshold_percent).cpu, share(capacity, strategy.memory_threshold_percent).memory
    )


def calculate_mid(
    *,
    capacity: Amounts,
    node_usage: Amounts | None,
    prod_reclaimable: Amounts,
    system_used: Amounts,
    node_reserved: Amounts,
    prod_request: Amounts,
    strategy: MidStrategy,
) -> Amounts:
    """Return the mid amounts. `system_used` includes prod host applications; `node_usage` None: not measured."""
    cap = _capped(capacity, strategy)
    if strategy.static:
        kept = Amounts(share(capacity, strategy.static_cpu_percent).cpu, share(capacity, strategy.static_memory_percent).memory)
        return kept.smaller(cap).floored()
    unused = ZERO if node_usage is None else capacity - node_usage
    base = prod_reclaimable.smaller(unused).floored()
    unallocated = (capacity - system_used.larger(node_reserved) - prod_request).floored()
    return (base + share(unallocated, strategy.unallocated_percent)).smaller(cap).floored()
