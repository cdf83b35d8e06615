"""`colocation-config`: how much of a node is overcommitted, configured for the cluster, for groups of nodes, and on the node.

In: the section's text, a node's labels and annotations. Out: the node's ColocationStrategy. Source: Koordinator
colocation config:

    strategy = defaults <- cluster part <- first matching node entry <- annotation colocation-strategy <- ratio labels

A cluster part that does not parse or is out of range rejects the section. A node entry that is out of range falls back
to the cluster strategy. A node cannot be enabled while the cluster is not.

Events have the strategy without the defaults of METRIC_FIELDS: metrics-ingest fills in its own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import selects_if_valid
from cotenant.model.names import ANNOTATION_COLOCATION_STRATEGY, LABEL_CPU_RECLAIM_RATIO, LABEL_MEMORY_RECLAIM_RATIO
from cotenant_batch_resource_calculator.config.json_overlay import (
    ConfigError,
    JsonObject,
    camel_name,
    canonical,
    decode_object,
    fit,
    overlay,
)
from cotenant_batch_resource_calculator.config.risk import read_risk_budget

KEY = "colocation-config"
LABEL_MID_STATIC_CPU_RATIO = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
LABEL_MID_STATIC_MEMORY_RATIO = "node.koordinator.sh/mid-static-memory-reserved-ratio"
_RATIO_LABELS = (
    (LABEL_CPU_RECLAIM_RATIO, "cpuReclaimThresholdPercent"),
    (LABEL_MEMORY_RECLAIM_RATIO, "memoryReclaimThresholdPercent"),
    (LABEL_MID_STATIC_CPU_RATIO, "midStaticCPUReservedPercent"),
    (LABEL_MID_STATIC_MEMORY_RATIO, "midStaticMemoryReservedPercent"),
)
_RATIO_NAMES = frozenset(label for label, _ in _RATIO_LABELS)
_MAX_RATIO = 100.0


class AggregatePolicy(msgspec.Struct, frozen=True, rename=camel_name, omit_defaults=True):
    """Windows of the node's aggregated usage, as duration texts."""

    durations: list[str] = []


class ColocationStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """A strategy as configured; None: not set. Percent values are integers."""

    enable: bool | None = None
    metric_aggregate_duration_seconds: int | None = None
    metric_report_interval_seconds: int | None = None
    metric_aggregate_policy: AggregatePolicy | None = None
    metric_memory_collect_policy: str | None = None
    cpu_reclaim_threshold_percent: int | None = None
    cpu_calculate_policy: str | None = None
    memory_reclaim_threshold_percent: int | None = None
    memory_calculate_policy: str | None = None
    degrade_time_minutes: int | None = None
    update_time_threshold_seconds: int | None = None
    resource_diff_threshold: float | None = None
    mid_cpu_threshold_percent: int | None = None
    mid_memory_threshold_percent: int | None = None
    mid_unallocated_percent: int | None = None
    mid_reclaim_mode: str | None = None
    mid_static_cpu_reserved_percent: int | None = None
    mid_static_memory_reserved_percent: int | None = None
    batch_cpu_threshold_percent: int | None = None
    batch_memory_threshold_percent: int | None = None
    extensions: dict[str, msgspec.Raw] | None = None
    """By name; `riskBudget` is read here (`config.risk`), others by other services."""


class NodeEntry(ColocationStrategy, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """A strategy for the nodes that match the selector."""

    name: str = ""
    node_selector: LabelSelector | None = None


class _Section(ColocationStrategy, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    node_configs: list[NodeEntry] = []


class NodeStrategy(msgspec.Struct, frozen=True):
    """A node entry in force: `strategy` for the nodes that match `selector`. `name`: the user's, for messages; `fault`: why the
    cluster's strategy counts in its place; `given`: the fields that are no defaults."""

    selector: LabelSelector | None
    strategy: JsonObject
    name: str = ""
    fault: str = ""
    given: frozenset[str] = frozenset()


class SelectedStrategy(msgspec.Struct, frozen=True):
    """A strategy before a node's own annotation and labels: as a document, typed, and as the JSON of events. `group`: the node
    entry's name or place, empty for the cluster's; `fault`: why the cluster's strategy counts in place of that entry's."""

    document: JsonObject
    strategy: ColocationStrategy
    text: msgspec.Raw
    group: str = ""
    fault: str = ""


class ColocationConfig(msgspec.Struct, frozen=True):
    """The section in force: the cluster's strategy and the node entries in order, as overlay documents."""

    cluster: JsonObject
    given: frozenset[str] = frozenset()
    """The fields of the cluster's strategy that are no defaults."""
    entries: tuple[NodeStrategy, ...] = ()
    fallen_back: tuple[str, ...] = ()
    """Names (or positions) of node entries that are out of range and count as the cluster strategy."""
    choices: tuple[SelectedStrategy, ...] = ()
    """Computed once: for each entry, and last for the cluster."""


STRATEGY_DEFAULTS: JsonObject = {
    "enable": False,
    "metricAggregateDurationSeconds": 300,
    "metricReportIntervalSeconds": 60,
    "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
    "metricMemoryCollectPolicy": "usageWithoutPageCache",
    "cpuReclaimThresholdPercent": 60,
    "cpuCalculatePolicy": "usage",
    "memoryReclaimThresholdPercent": 65,
    "memoryCalculatePolicy": "usage",
    "degradeTimeMinutes": 15,
    "updateTimeThresholdSeconds": 300,
    "resourceDiffThreshold": 0.1,
    "midCPUThresholdPercent": 100,
    "midMemoryThresholdPercent": 100,
    "midUnallocatedPercent": 0,
    "midStaticCPUReservedPercent": 0,
    "midStaticMemoryReservedPercent": 0,
}
METRIC_FIELDS = frozenset(name for name in STRATEGY_DEFAULTS if name.startswith("metric"))
"""How a node is measured."""

_POSITIVE = (
    "metric_aggregate_duration_seconds",
    "metric_report_interval_seconds",
    "degrade_time_minutes",
    "update_time_threshold_seconds",
    "resource_diff_threshold",
)
_NOT_NEGATIVE = (
    "cpu_reclaim_threshold_percent",
    "memory_reclaim_threshold_percent",
    "batch_cpu_threshold_percent",
    "batch_memory_threshold_percent",
    "mid_static_cpu_reserved_percent",
    "mid_static_memory_reserved_percent",
)
_PERCENT = ("mid_cpu_threshold_percent", "mid_memory_threshold_percent", "mid_unallocated_percent")


def out_of_range(strategy: ColocationStrategy) -> str:
    """Return the field that is out of range and its bound; empty if the strategy is valid."""
    for field in _POSITIVE:
        if (value := getattr(strategy, field)) is not None and not value > 0:
            return f"{camel_name(field)} is {value}: must be greater than 0"
    for field in _NOT_NEGATIVE:
        if (value := getattr(strategy, field)) is not None and value < 0:
            return f"{camel_name(field)} is {value}: must not be negative"
    for field in _PERCENT:
        if (value := getattr(strategy, field)) is not None and not 0 <= value <= 100:
            return f"{camel_name(field)} is {value}: must be between 0 and 100"
    if strategy.metric_memory_collect_policy == "":
        return "metricMemoryCollectPolicy must not be empty"
    try:
        read_risk_budget(strategy.extensions, 0)
    except ConfigError as error:
        return str(error)
    return ""


def _entry_parts(document: JsonObject) -> list[JsonObject]:
    entries = document.get("nodeConfigs")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _strategy_fields(document: JsonObject) -> JsonObject:
    return {key: value for key, value in document.items() if key not in ("name", "nodeSelector", "nodeConfigs")}


def load(text: str | None) -> ColocationConfig:
    """Parse the section; without text the defaults. Raises ConfigError."""
    if not text:
        return _with_choices(ColocationConfig(STRATEGY_DEFAULTS))
    return of_document(decode_object(text, KEY))


def of_document(given: JsonObject, *, defaults: JsonObject = STRATEGY_DEFAULTS) -> ColocationConfig:
    """Return the configuration of a decoded section, laid over the defaults. Raises ConfigError."""
    document = canonical(given, _Section)
    section = fit(document, _Section, KEY)
    cluster_fields = _strategy_fields(document)
    cluster, given_fields = overlay(defaults, cluster_fields), frozenset(cluster_fields)
    wrong = out_of_range(fit(cluster, ColocationStrategy, KEY))
    if wrong:
        raise ConfigError(f"{KEY}: {wrong}")
    entries: list[NodeStrategy] = []
    fallen_back: list[str] = []
    for index, (entry, part) in enumerate(zip(section.node_configs, _entry_parts(document), strict=True)):
        fields = _strategy_fields(part)
        merged, merged_fields = overlay(cluster, fields), given_fields.union(fields)
        fault = out_of_range(fit(merged, ColocationStrategy, KEY))
        if fault:
            merged, merged_fields = cluster, given_fields
            fallen_back.append(entry.name or f"nodeConfigs[{index}]")
        entries.append(NodeStrategy(entry.node_selector, merged, entry.name, fault, merged_fields))
    return _with_choices(ColocationConfig(cluster, given_fields, tuple(entries), tuple(fallen_back)))


def _with_choices(config: ColocationConfig) -> ColocationConfig:
    choices = [
        chosen(overlay(config.cluster, entry.strategy), entry.name or f"nodeConfigs[{index}]", entry.fault, entry.given)
        for index, entry in enumerate(config.entries)
    ]
    return msgspec.structs.replace(config, choices=(*choices, chosen(config.cluster, given=config.given)))


def chosen(
    document: JsonObject, group: str = "", fault: str = "", given: frozenset[str] = METRIC_FIELDS
) -> SelectedStrategy:
    """Return a strategy's forms; those of METRIC_FIELDS that are not given are no part of its JSON. Raises ConfigError for an
    invalid document."""
    stored = {name: value for name, value in document.items() if name in given or name not in METRIC_FIELDS}
    text = msgspec.Raw(msgspec.json.encode(stored, order="deterministic"))
    return SelectedStrategy(document, fit(document, ColocationStrategy, KEY), text, group, fault)


def choose(config: ColocationConfig, labels: Mapping[str, str]) -> SelectedStrategy:
    """Return a node's strategy without its own annotation and labels: the first matching entry, else the cluster's."""
    for index, entry in enumerate(config.entries):
        if selects_if_valid(entry.selector, labels):
            return config.choices[index]
    return config.choices[-1]


def on_node(
    base: SelectedStrategy, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> tuple[ColocationStrategy, str]:
    """Return the strategy with the node's own annotation and labels applied, and the errors of invalid ones.

    A ratio label becomes trunc(ratio * 100) percent; one that is not a number between 0 and 100 is ignored.
    """
    text = annotations.get(ANNOTATION_COLOCATION_STRATEGY)
    if text is None and _RATIO_NAMES.isdisjoint(labels):
        return base.strategy, ""
    merged = base.document
    ignored = ""
    if text is not None:
        try:
            given = canonical(decode_object(text, ANNOTATION_COLOCATION_STRATEGY), ColocationStrategy)
            laid = overlay(base.document, given)
            wrong = out_of_range(fit(laid, ColocationStrategy, ANNOTATION_COLOCATION_STRATEGY))
            if wrong:
                raise ConfigError(f"{ANNOTATION_COLOCATION_STRATEGY}: {wrong}")
            merged = laid
        except ConfigError as error:
            ignored = f"annotation ignored: {error}"
    for label, field in _RATIO_LABELS:
        percent = ratio_percent(labels.get(label))
        if percent is not None:
            merged = {**merged, field: percent}
    return fit(merged, ColocationStrategy, KEY), ignored


def ratio_percent(text: str | None) -> int | None:
    """Return a ratio label as integer percent (double arithmetic, truncated); None if it is invalid."""
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        return None
    return int(ratio * 100) if 0 <= ratio <= _MAX_RATIO else None


def is_enabled(cluster_enable: bool, strategy: ColocationStrategy) -> bool:
    """Whether the node offers batch resources: both the cluster and the node must enable it."""
    return cluster_enable and strategy.enable is True
