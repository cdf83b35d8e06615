"""How much batch CPU to release because best-effort work gets too little of its requests.

In: usage, request and real limit of best-effort (milli-CPU), as an average over the window and as the last sample; the node's
batch-cpu; the configuration. Out: milli-CPU of requests to release, 0 for none.

    limit        = real limit, or batch-cpu with policy evictByAllocatable (0 counts as 1, missing as none)
    busy         = limit below one CPU, or usage / limit >= usage threshold (90 %)
    satisfaction = limit / request;  release = request * (upper - satisfaction) while it is at or below `lower`

Both the average and the last sample must require it, and the smaller amount counts. A window without a third of its samples
is ignored. Source: BECPUEvict, koordlet rule; the window of one collection interval is v1.7's.
"""

from __future__ import annotations

from msgspec import Struct

DEFAULT_USAGE_THRESHOLD_PERCENT = 90
BY_ALLOCATABLE = "evictByAllocatable"
MAX_LOWER_PERCENT = 60


class SatisfactionConfig(Struct, frozen=True):
    """Percent values; None: not set."""

    upper_percent: int | None = None
    lower_percent: int | None = None
    usage_threshold_percent: int | None = None
    window_seconds: int | None = None
    policy: str = ""

    @property
    def valid(self) -> bool:
        """Whether best-effort work is evicted for satisfaction at all."""
        lower, upper = self.lower_percent, self.upper_percent
        if lower is None or upper is None:
            return False
        return 0 < lower <= MAX_LOWER_PERCENT and 0 < upper < 100 and upper >= lower

    def window_of(self, interval_seconds: float) -> float:
        """The length of the average."""
        window = self.window_seconds
        return float(window) if window is not None and window > interval_seconds else interval_seconds


class BestEffort(Struct, frozen=True):
    """Figures of best-effort work, in milli-CPU; `count`: of the samples behind them."""

    used_milli: float
    request_milli: float
    real_limit_milli: float
    count: int = 1


def batch_limit(allocatable_milli: int | None) -> int:
    """The limit under policy evictByAllocatable; -1 where the node offers none."""
    if allocatable_milli is None or allocatable_milli < 0:
        return -1
    return allocatable_milli or 1


def busy(config: SatisfactionConfig, used_milli: float, limit_milli: float) -> bool:
    """Whether best-effort work uses its limit."""
    if limit_milli <= 0:
        return False
    threshold = config.usage_threshold_percent
    percent = DEFAULT_USAGE_THRESHOLD_PERCENT if threshold is None else threshold
    return limit_milli < 1000 or used_milli / limit_milli >= percent / 100


def gap_milli(config: SatisfactionConfig, request_milli: float, limit_milli: float) -> int:
    """The requests above what would satisfy the rest; 0 while the satisfaction is above the lower bound."""
    if request_milli <= 0 or config.lower_percent is None or config.upper_percent is None:
        return 0
    satisfaction = limit_milli / request_milli
    if satisfaction > config.lower_percent / 100:
        return 0
    gap = config.upper_percent / 100 - satisfaction
    return int(request_milli * gap) if gap > 0 else 0


def release_milli(
    config: SatisfactionConfig,
    interval_seconds: float,
    allocatable_milli: int | None,
    average: BestEffort,
    current: BestEffort | None,
) -> int:
    """Requests to release, in milli-CPU."""
    if average.count * interval_seconds < config.window_of(interval_seconds) // 3:
        return 0
    by_allocatable = config.policy == BY_ALLOCATABLE
    fixed = batch_limit(allocatable_milli)
    average_limit = fixed if by_allocatable else average.real_limit_milli
    if not busy(config, average.used_milli, average_limit):
        return 0
    release = gap_milli(config, average.request_milli, average_limit)
    if release <= 0 or current is None:
        return 0
    current_limit = fixed if by_allocatable else current.real_limit_milli
    if not busy(config, current.used_milli, current_limit):
        return 0
    if current.request_milli == average.request_milli and current_limit == average_limit:
        return release
    return min(release, gap_milli(config, current.request_milli, current_limit))
