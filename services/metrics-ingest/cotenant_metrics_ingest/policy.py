"""The collect policy of a NodeMetric: how a node's metrics are collected.

In: a NodeMetric's spec, possibly empty. Out: the policy in force. Absent fields have their defaults; a list of durations
replaces the default one. A report interval below 30 s in a spec counts as 30 s, an aggregation window below 60 s as 60 s.
(The service's own configuration may be below both, for demonstrations.) Source: koordlet NodeMetric informer, the newest rule.
"""

import re
from enum import StrEnum

import msgspec

SHORTEST_REPORT_INTERVAL = 30
SHORTEST_AGGREGATE_DURATION = 60


class MemoryPolicy(StrEnum):
    """Which memory counts as used."""

    WITHOUT_PAGE_CACHE = "usageWithoutPageCache"
    WITH_HOT_PAGE_CACHE = "usageWithHotPageCache"
    WITH_PAGE_CACHE = "usageWithPageCache"


class AggregatePolicy(msgspec.Struct, frozen=True, rename="camel"):
    """Windows of the percentiles, as Go durations."""

    durations: tuple[str, ...] = ("5m0s", "10m0s", "30m0s")


class CollectPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """`spec.metricCollectPolicy` with its defaults."""

    aggregate_duration_seconds: int = 300
    report_interval_seconds: int = 60
    node_aggregate_policy: AggregatePolicy = AggregatePolicy()
    node_memory_collect_policy: MemoryPolicy = MemoryPolicy.WITHOUT_PAGE_CACHE


_DECODER = msgspec.json.Decoder(CollectPolicy)


def policy_of(spec: bytes | msgspec.Raw) -> CollectPolicy:
    """The policy of a `metricCollectPolicy` document. Raises msgspec.DecodeError."""
    return _DECODER.decode(spec)


def effective_report_interval(seconds: int | None) -> int:
    """Seconds between two reports, from a spec."""
    return CollectPolicy().report_interval_seconds if seconds is None else max(seconds, SHORTEST_REPORT_INTERVAL)


def effective_aggregate_duration(seconds: int | None) -> int:
    """Seconds of the plain usages' window, from a spec."""
    if seconds is None:
        return CollectPolicy().aggregate_duration_seconds
    return max(seconds, SHORTEST_AGGREGATE_DURATION)


def memory_series(object_kind: str, policy: MemoryPolicy, cold_memory_started: bool) -> str:
    """Return the memory series of an object (`node`, `pod`, `host_application`, `system`); the system has only one."""
    if object_kind == "system":
        return "sys_memory_usage"
    if policy is MemoryPolicy.WITH_HOT_PAGE_CACHE and cold_memory_started:
        return f"{object_kind}_memory_with_hot_page_usage"
    if policy is MemoryPolicy.WITH_PAGE_CACHE:
        return f"{object_kind}_memory_usage_with_page_cache"
    return f"{object_kind}_memory_usage"


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


def duration_ms(text: str) -> int:
    """Milliseconds of a Go duration such as `5m0s`. Raises ValueError on anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"duration {text!r} is malformed: expected a Go duration such as 5m0s or 90s")
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return int(((hours * 60 + minutes) * 60 + seconds) * 1000 + milliseconds)
