"""Mid resources of a node: the capacity that prod pods are predicted not to use, and a share of the unrequested capacity.

In: capacity, usage, reserves, the prediction, the strategy. Out: mid-cpu in milli-CPUs and mid-memory in bytes, and all terms.
Source: Koordinator mid resource plugin, newest rule. The prediction and the percentages are arguments: a caller that limits how
much of a prediction is offered changes them before. The margin is that of a risk budget; Koordinator has none here.

    unused      = capacity - margin - node usage                          (no usage: 0 of both)
    base        = max(0, min(prediction, unused))                         (no prediction: 0)
    unallocated = max(0, capacity - max(system + prod host applications, node reserve) - requests of prod pods)
    mid         = min(base + unallocated * unallocated percent / 100, capacity * threshold percent / 100)
    static mode : mid = min(capacity * static reserved percent / 100, capacity * threshold percent / 100)
"""

from __future__ import annotations

from cotenant.model.values import Value
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, share

STATIC_MODE = "static"


class MidStrategy(Value, frozen=True):
    """The formula's part of the colocation strategy, in integer percent."""

    cpu_threshold_percent: int = 100
    memory_threshold_percent: int = 100
    unallocated_percent: int = 0
    static: bool = False
    static_cpu_percent: int = 0
    static_memory_percent: int = 0


class MidTerms(Value, frozen=True):
    """All terms of one calculation (milli-CPUs, bytes); `mid` is the result. `measured` False: in static mode only `limit` and
    `mid` are figures."""

    prod_reclaimable: Amounts = ZERO
    unused: Amounts = ZERO
    reclaimed: Amounts = ZERO
    """The part of the prediction that is offered: within unused capacity."""
    reserved: Amounts = ZERO
    unallocated: Amounts = ZERO
    limit: Amounts = ZERO
    mid: Amounts = ZERO
    margin: Amounts = ZERO
    measured: bool = True


def calculate_mid(
    *,
    capacity: Amounts,
    node_usage: Amounts | None,
    prod_reclaimable: Amounts,
    system_used: Amounts,
    node_reserved: Amounts,
    prod_request: Amounts,
    strategy: MidStrategy,
    margin: Amounts = ZERO,
) -> MidTerms:
    """Return the mid amounts and all terms. `system_used` includes prod host applications; `node_usage` None: not measured."""
    limit = _shares(capacity, strategy.cpu_threshold_percent, strategy.memory_threshold_percent)
    if strategy.static:
        kept = _shares(capacity, strategy.static_cpu_percent, strategy.static_memory_percent)
        return MidTerms(limit=limit, mid=kept.smaller(limit).floored(), measured=False)
    reserved = system_used.larger(node_reserved)
    unallocated = (capacity - reserved - prod_request).floored()
    unused = ZERO if node_usage is None else capacity - margin - node_usage
    reclaimed = prod_reclaimable.smaller(unused).floored()
    mid = (reclaimed + share(unallocated, strategy.unallocated_percent)).smaller(limit).floored()
    return MidTerms(prod_reclaimable, unused, reclaimed, reserved, unallocated, limit, mid, margin)


def _shares(capacity: Amounts, cpu_percent: int, memory_percent: int) -> Amounts:
    return Amounts(share(capacity, cpu_percent).cpu, share(capacity, memory_percent).memory)
