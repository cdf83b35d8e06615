"""One step of a container's CFS quota: up while it is throttled, down while the node is loaded, never outside of its bounds.

In: configuration, state of the share pool, present quota (µs per 100 ms), whether the limiter allows more, the throttled part
of the last sample's periods. Out: the next quota.

    up 1.2 times, down 0.8 times, within limit .. limit * cfsQuotaBurstPercent; another policy: the limit
    the limiter denies: down;  throttled: up;  else it remains;  overload turns up and remain into down, cooling and unknown up
    into remain

The pod's quota changes by the sum of its containers' changes. Source: CPU burst, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from cotenant_node_executor.strategies.cpu.burst.config import BurstConfig
from cotenant_node_executor.strategies.cpu.burst.share_pool import PoolState

UP, DOWN = 1.2, 0.8


class Operation(Enum):
    RESET = "reset"
    UP = "up"
    DOWN = "down"
    REMAIN = "remain"


def operation(config: BurstConfig, state: PoolState, throttled_ratio: float | None, admitted: bool) -> Operation:
    """What to do with a container's quota."""
    if not config.bursts_by_quota:
        return Operation.RESET
    if not admitted:
        return Operation.DOWN
    chosen = Operation.UP if throttled_ratio is not None and throttled_ratio > 0 else Operation.REMAIN
    if state is PoolState.OVERLOAD:
        return Operation.DOWN
    if state is not PoolState.IDLE and chosen is Operation.UP:
        return Operation.REMAIN
    return chosen


def ceiling_us(config: BurstConfig, base_us: int) -> int:
    """The largest quota of a container whose limit is `base_us`."""
    percent = config.cfs_quota_burst_percent
    return base_us * percent // 100 if percent is not None and percent > 100 else base_us


def next_quota_us(config: BurstConfig, chosen: Operation, base_us: int, current_us: int) -> int:
    """A container's next quota."""
    match chosen:
        case Operation.UP:
            target = int(current_us * UP)
        case Operation.DOWN:
            target = int(current_us * DOWN)
        case Operation.RESET:
            target = base_us
        case Operation.REMAIN:
            target = current_us
    return max(min(target, ceiling_us(config, base_us)), base_us)


def next_pod_quota_us(current_us: int, changes_us: Iterable[int]) -> int:
    """The pod's quota after these changes of its containers'; an unlimited one stays so."""
    for change in changes_us:
        if current_us > 0:
            current_us += change
    return current_us
