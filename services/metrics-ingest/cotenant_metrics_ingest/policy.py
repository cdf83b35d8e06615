"""The collect policy of a NodeMetric: how a node's metrics are collected.

In: a node's colocation strategy, as the resource calculator stores it in `node.<node>.resources`, and the annotation of the
Node object that overlays it. Out: the policy in force. A strategy counts while it is enabled. A field that nobody has set
is the service's own configuration, which may be below the floors, for demonstrations: of a strategy, a report interval below
30 s counts as 30 s, an aggregation window below 60 s as 60 s. Sources: koord-manager nodemetric controller, koordlet NodeMetric
informer, the newest rule.
"""

from enum import StrEnum

import msgspec

from cotenant.model.metric_windows import windows_seconds

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


class StrategyPolicy(msgspec.Struct, frozen=True):
    """The policy of a node's strategy. `given`: the fields of the spec that the strategy sets."""

    policy: CollectPolicy = CollectPolicy()
    given: frozenset[str] = frozenset()


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


WITH_PAGE_CACHE = "memory_usage_with_page_cache"
WITH_HOT_PAGE_CACHE = "memory_with_hot_page_usage"
WITHOUT_PAGE_CACHE = "memory_usage"


def memory_series(policy: MemoryPolicy, *, cold_memory_started: bool) -> str:
    """Return the memory series of node, pods and host applications; the system has only the one without page cache."""
    if policy is MemoryPolicy.WITH_HOT_PAGE_CACHE and cold_memory_started:
        return WITH_HOT_PAGE_CACHE
    return WITH_PAGE_CACHE if policy is MemoryPolicy.WITH_PAGE_CACHE else WITHOUT_PAGE_CACHE


class PolicyInForce(msgspec.Struct, frozen=True):
    """A node's policy as the service follows it."""

    report_interval_seconds: float
    aggregate_seconds: int
    durations_seconds: tuple[int, ...]
    memory: MemoryPolicy


LONGEST_AGGREGATE_SECONDS = 86400
AGGREGATE_DURATION, REPORT_INTERVAL = "aggregateDurationSeconds", "reportIntervalSeconds"
AGGREGATE_POLICY = "nodeAggregatePolicy"
_NOTHING = StrategyPolicy()
_FIELDS = {
    "metricaggregatedurationseconds": AGGREGATE_DURATION,
    "metricreportintervalseconds": REPORT_INTERVAL,
    "metricaggregatepolicy": AGGREGATE_POLICY,
    "metricmemorycollectpolicy": "nodeMemoryCollectPolicy",
}
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _given(document: bytes | msgspec.Raw | str) -> dict[str, msgspec.Raw]:
    """The fields of a strategy by name in lower case (names match without case), null left out."""
    try:
        return {name.lower(): value for name, value in _OBJECT.decode(document).items() if bytes(value) != b"null"}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}


def collect_policy(strategy: bytes | msgspec.Raw, annotation: str = "") -> StrategyPolicy:
    """The policy of a node's strategy, which sets nothing if it is not enabled or cannot be read."""
    given = _given(strategy) | (_given(annotation) if annotation else {})
    if bytes(given.get("enable", b"")) != b"true":
        return _NOTHING
    spec = {name: given[field] for field, name in _FIELDS.items() if field in given}
    try:
        policy = policy_of(msgspec.json.encode(spec))
    except msgspec.DecodeError:
        return _NOTHING
    possible = policy.aggregate_duration_seconds > 0 and policy.report_interval_seconds > 0
    return StrategyPolicy(policy, frozenset(spec)) if possible else _NOTHING


FORECAST = "forecast"
BY_TIME_OF_DAY = b'"timeOfDay"'


def wants_time_of_day(strategy: bytes | msgspec.Raw, annotation: str = "") -> bool:
    """Whether a node's strategy is enabled and chooses the forecast by time of day: `extensions.forecast` is `timeOfDay`."""
    documents = [_given(strategy), *([_given(annotation)] if annotation else [])]
    enabled, extensions = b"", dict[str, msgspec.Raw]()
    for document in documents:
        enabled = bytes(document.get("enable", enabled))
        try:
            extensions |= _OBJECT.decode(document.get("extensions", msgspec.Raw(b"{}")))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return enabled == b"true" and bytes(extensions.get(FORECAST, b"")) == BY_TIME_OF_DAY


def policy_in_force(strategy: StrategyPolicy, own: PolicyInForce) -> PolicyInForce:
    """The policy with its floors; `own` is the service's, for fields that are not given and for invalid windows."""
    policy, given = strategy.policy, strategy.given
    report, aggregate = own.report_interval_seconds, own.aggregate_seconds
    if REPORT_INTERVAL in given:
        report = min(effective_report_interval(policy.report_interval_seconds), LONGEST_AGGREGATE_SECONDS)
    if AGGREGATE_DURATION in given:
        aggregate = min(effective_aggregate_duration(policy.aggregate_duration_seconds), LONGEST_AGGREGATE_SECONDS)
    windows = windows_seconds(policy.node_aggregate_policy.durations) if AGGREGATE_POLICY in given else ()
    return PolicyInForce(report, aggregate, windows or own.durations_seconds, policy.node_memory_collect_policy)
