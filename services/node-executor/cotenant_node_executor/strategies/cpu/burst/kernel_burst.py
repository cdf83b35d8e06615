"""The kernel's own burst (`cpu.cfs_burst_us`): CPU time that a group may save up and use in one period.

In: a pod's configuration, its containers' CPU limits (milli-CPU). Out: microseconds for each container and, as their sum, for
the pod: limit * cpuBurstPercent of a 100 ms period, 0 without a limit or with another policy. Source: CPU burst, koordlet
rule.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant_node_executor.strategies.cpu.burst.config import BurstConfig
from cotenant_node_executor.targets.convert import PERIOD_US

MAX_BURST_US = 100_000_000
"""Larger values are invalid on every kernel."""


def container_burst_us(config: BurstConfig, limit_milli: int | None) -> int:
    """One container's burst."""
    if not config.bursts_in_kernel or not limit_milli or limit_milli < 0 or not config.cpu_burst_percent:
        return 0
    return max(int(limit_milli / 1000 * (config.cpu_burst_percent / 100) * PERIOD_US), 0)


def pod_bursts_us(config: BurstConfig, limits_milli: Sequence[int | None]) -> tuple[int, tuple[int, ...]]:
    """The pod's burst, and that of each container."""
    containers = tuple([container_burst_us(config, limit) for limit in limits_milli])
    return sum(containers), containers
