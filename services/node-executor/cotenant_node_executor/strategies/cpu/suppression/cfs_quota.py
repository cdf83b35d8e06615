"""Suppression by quota: the CFS quota of the best-effort group.

In: the suppress quantity, the node's capacity, the present quota. Out: the quota to write (µs per 100 ms), or None where
the present one stays.

    target = max(quantity * 100, 2000);  changes below 1 % of the node are skipped, unless the target is the floor;
    growth is at most 10 % of the node per cycle; a decrease applies at once. From unlimited the target applies in full.

The 1 % dead band does not apply to the first quota after unlimited.
Source: CPU suppress with the cfsQuota policy, koordlet rule (first quota: v1.8).
"""

from __future__ import annotations

PERIOD_US = 100_000
FLOOR_US = 2_000
UNLIMITED = -1


def next_quota(quantity_milli: int, capacity_milli: int, current_us: int) -> int | None:
    """The best-effort group's next quota in µs per 100 ms period; None for no change."""
    target = max(quantity_milli * PERIOD_US // 1000, FLOOR_US)
    if current_us == UNLIMITED:
        return target
    node_us = -(-capacity_milli // 1000) * PERIOD_US
    if abs(target - current_us) * 100 < node_us and target != FLOOR_US:
        return None
    if (target - current_us) * 10 > node_us:
        target = current_us + node_us // 10
    return None if target == current_us else target
