"""Batch resources of each NUMA zone.

In: zone capacities, the node's figures and the pods' zones. Out: one `Amounts` in zone-level units per zone, in the given
order. Node-level system usage and reserve are divided by the number of zones; a pod counts in its allocated zones, in equal
parts, or in all of them; reclaim and batch thresholds are percentages of the zone's capacity. Source: Koordinator batch
resource plugin, NUMA level. Every quotient rounds up to a thousandth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant_batch_resource_calculator.formulas.amounts import (
    THOUSANDTHS,
    ZERO,
    Amounts,
    margin_of,
    split,
    to_zone_level,
)
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchStrategy,
    HighPriorityNeed,
    MeasuredUsage,
    PodNeed,
    is_reclaimed,
    reclaimable,
    threshold_of,
)


def zone_shares(amounts: Amounts, zones: Sequence[int], count: int) -> list[Amounts]:
    """Return a pod's part in each of `count` zones, in the units of `amounts`.

    Ids outside 0..count-1 are ignored; without a valid id every zone gets an equal part. A repeated id makes all parts
    smaller, not that zone's part larger.
    """
    listed = [zone for zone in zones if 0 <= zone < count]
    if not listed:
        return [split(amounts, count)] * count
    part = split(amounts, len(listed))
    return [part if zone in listed else ZERO for zone in range(count)]


def calculate_zones(
    *,
    capacities: Sequence[Amounts],
    node_reserved: Amounts,
    system_used: Amounts,
    pods: Sequence[PodNeed],
    metrics: Mapping[str, MeasuredUsage],
    strategy: BatchStrategy,
) -> list[Amounts]:
    """Return the zones' batch amounts. All inputs are node-level units; `system_used` includes HP host applications."""
    count = len(capacities)
    if not count:
        return []
    request = [ZERO] * count
    used = [ZERO] * count
    max_used_request = [ZERO] * count
    seen: set[str] = set()
    for pod in pods:
        seen.add(pod.key)
        if not pod.high_priority:
            continue
        metric = metrics.get(pod.key)
        pod_request = zone_shares(to_zone_level(pod.request), pod.zones, count)
        pod_usage = zone_shares(to_zone_level(metric.usage), pod.zones, count) if metric is not None else pod_request
        for zone in range(count):
            wanted, measured = pod_request[zone], pod_usage[zone]
            counted = Amounts(wanted.cpu, measured.memory) if pod.exclusive else measured
            request[zone] = request[zone] + wanted
            used[zone] = used[zone] + counted
            max_used_request[zone] = max_used_request[zone] + wanted.larger(measured)
    for key, metric in sorted(metrics.items()):
        if key in seen or is_reclaimed(metric.priority):
            continue
        part = split(to_zone_level(metric.usage), count)
        used = [amount + part for amount in used]
        max_used_request = [amount + part for amount in max_used_request]
    zone_system = split(to_zone_level(system_used), count)
    zone_reserved = split(to_zone_level(node_reserved), count)
    return [
        reclaimable(
            to_zone_level(capacity),
            to_zone_level(margin_of(capacity, strategy.cpu_reclaim_percent, strategy.memory_reclaim_percent)),
            zone_system,
            zone_reserved,
            HighPriorityNeed(request[zone], used[zone], max_used_request[zone]),
            strategy,
        ).smaller(to_zone_level(threshold_of(capacity, strategy)))
        for zone, capacity in enumerate(capacities)
    ]


def whole_bytes(memory_thousandths: int) -> int:
    """Return zone-level memory in bytes, rounded up."""
    return -(-memory_thousandths // THOUSANDTHS)
