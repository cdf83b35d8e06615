"""How long a container may use more than its limit: a bucket of tokens, one for each percent and second above it.

In: the configuration, the bucket, the time, usage in percent of the limit. Out: the new bucket, and whether a quota may grow.

    capacity = period * (percent - 100);  a new bucket holds at most half of it
    usage >= 100 %: takes (usage - 100) * seconds;  below 60 %: gives (100 - usage) * seconds;  within -capacity .. capacity
    allowed while there are tokens;  without a period (null or negative) always;  with a percent below 100 never

Seconds are whole; the rest of a second counts the next time, so that a loop of 0.99 s moves tokens too. Source: CPU burst,
koordlet rule, which loses that rest.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant_node_executor.strategies.cpu.burst.config import BurstConfig

SECOND_NS = 1_000_000_000
SAVES_BELOW_PERCENT = 60


class Bucket(Struct, frozen=True):
    """Tokens as of `at_ns`."""

    capacity: int
    tokens: int
    at_ns: int


def limits(config: BurstConfig) -> bool:
    """Whether the configuration has a limiter at all."""
    period = config.cfs_quota_burst_period_seconds
    return period is not None and period >= 0


def capacity_of(period_seconds: int, percent: int) -> int:
    """The largest number of tokens."""
    return period_seconds * (percent - 100)


def new_bucket(capacity: int, ratio: float, now_ns: int) -> Bucket:
    """A bucket that is filled to `ratio` of its capacity."""
    return Bucket(capacity, int(capacity * ratio), now_ns)


def after(bucket: Bucket, usage_percent: int, now_ns: int) -> Bucket:
    """The bucket at a later time."""
    seconds = max(now_ns - bucket.at_ns, 0) // SECOND_NS
    tokens = bucket.tokens
    if usage_percent >= 100:
        tokens -= (usage_percent - 100) * seconds
    elif usage_percent < SAVES_BELOW_PERCENT:
        tokens += (100 - usage_percent) * seconds
    tokens = min(max(tokens, -bucket.capacity), bucket.capacity)
    return Bucket(bucket.capacity, tokens, bucket.at_ns + seconds * SECOND_NS)


def allowed(bucket: Bucket) -> bool:
    """Whether there are tokens."""
    return bucket.tokens > 0


def usage_percent(used_milli: float | None, limit_milli: int) -> int:
    """Usage in percent of the limit; 100 without a sample."""
    return 100 if used_milli is None or limit_milli <= 0 else int(used_milli / limit_milli * 100)


def admit(
    config: BurstConfig, bucket: Bucket | None, usage: int, now_ns: int, initial_ratio: float
) -> tuple[bool, Bucket | None]:
    """Whether a quota may grow now, and the bucket to remember.

    A bucket of another configuration, or one that was not used for two periods, starts again.
    """
    if not limits(config):
        return True, None
    period, percent = config.cfs_quota_burst_period_seconds or 0, config.cfs_quota_burst_percent
    if percent is None or percent < 100:
        return False, None
    capacity = capacity_of(period, percent)
    if bucket is None or bucket.capacity != capacity or now_ns - bucket.at_ns > 2 * period * SECOND_NS + SECOND_NS:
        bucket = new_bucket(capacity, initial_ratio, now_ns)
    moved = after(bucket, usage, now_ns)
    return allowed(moved), moved
