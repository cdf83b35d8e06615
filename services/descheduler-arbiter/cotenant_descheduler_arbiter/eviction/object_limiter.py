"""Rate limit of evictions per workload or namespace: a token bucket, replayed from the times of past evictions.

    rate = max migrating / duration, size = burst (1 unless given); the bucket is full at the first eviction
    each eviction takes one token if there is one; limited = tokens - 1 < 0
    the bucket is dropped 1.5 x duration after the last eviction; duration 0 or max migrating 0: no limit

The bucket has no stored counter: it is computed from the evictions on the log.

Source: koord-descheduler migration controller (object limiters), Go's rate.Limiter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

FORGET_FACTOR = 1.5


def tokens_left(evictions: Sequence[datetime], rate_per_second: float, burst: int, now: datetime) -> float:
    """Return the tokens in a bucket now; `evictions`: times in ascending order."""
    tokens = float(burst)
    last: datetime | None = None
    for at in evictions:
        if last is not None:
            tokens = min(float(burst), tokens + max((at - last).total_seconds(), 0.0) * rate_per_second)
        if tokens >= 1:
            tokens -= 1
        last = at
    if last is not None:
        tokens = min(float(burst), tokens + max((now - last).total_seconds(), 0.0) * rate_per_second)
    return tokens


def limited(
    evictions: Sequence[datetime], *, duration: timedelta, max_migrating: int, burst: int, now: datetime
) -> bool:
    """Whether one more eviction must wait. `evictions`: times for the same workload or namespace, ascending."""
    if duration <= timedelta(0) or max_migrating <= 0 or not evictions:
        return False
    if now - evictions[-1] > duration * FORGET_FACTOR:
        return False
    rate = max_migrating / duration.total_seconds()
    return tokens_left(evictions, rate, burst if burst > 0 else 1, now) - 1 < 0
