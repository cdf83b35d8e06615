"""The reason text of an eviction by load: the usages above their thresholds.

    node is overutilized, node cpu usage(66.67%)>threshold(50.00%), node memory usage(...)>threshold(...)

Only over-used resources, in lexicographic order; percent = 100 * usage / allocatable with two decimals; the prefix is `prod`
where the usage of prod pods is compared.

Source: koord-descheduler LowNodeLoad.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant_descheduler_arbiter.low_node_load.classify import over_resources


def over_utilized_reason(
    usage: Mapping[str, int],
    high: Mapping[str, int],
    high_percent: Mapping[str, float],
    allocatable: Mapping[str, int],
    *,
    prod: bool,
) -> str:
    """Return the reason; `high` are the amounts of `high_percent` on this node."""
    prefix = "prod" if prod else "node"
    items = []
    for name in over_resources(usage, high):
        capacity = allocatable.get(name, 0)
        percent = 100.0 * usage.get(name, 0) / capacity if capacity else 0.0
        items.append(f"{prefix} {name} usage({percent:.2f}%)>threshold({high_percent.get(name, 0.0):.2f}%)")
    return "node is overutilized, " + ", ".join(items)
