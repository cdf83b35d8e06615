"""The sections that make a NodeSLO: thresholds, QoS, CPU burst, system, host applications.

In: a section's text. Out: the strategy for each node, merged with the defaults; or a ConfigError, and the caller keeps the
previous section. Source: Koordinator slo-controller-config. Sections are independent: a rejected one does not affect the
others. The first node entry whose selector matches is merged with the cluster strategy; host applications are not merged,
the entry's list replaces the cluster's. A node entry without a network bandwidth keeps the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.selectors import selects_if_valid
from cotenant_batch_resource_calculator.config.json_overlay import (
    ConfigError,
    JsonObject,
    JsonValue,
    camel_name,
    canonical,
    decode_object,
    fit,
    overlay,
)
from cotenant_batch_resource_calculator.config.qos import ResourceQOSStrategy

HOST_APPLICATIONS_KEY = "host-application-config"


class ThresholdStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """When and how batch pods are suppressed. Percent values are 0..100; None: not set."""

    dry_run: bool | None = None
    enable: bool | None = None
    cpu_suppress_threshold_percent: int | None = None
    cpu_suppress_min_percent: int | None = None
    cpu_suppress_policy: str | None = None
    memory_evict_threshold_percent: int | None = None
    memory_evict_lower_percent: int | None = None
    memory_stop_placing_percent: int | None = None
    memory_reclaim_percent: int | None = None
    memory_reclaim_pressure_percent: int | None = None
    cpu_evict_be_satisfaction_upper_percent: int | None = None
    cpu_evict_be_satisfaction_lower_percent: int | None = None
    cpu_evict_be_usage_threshold_percent: int | None = None
    cpu_evict_time_window_seconds: int | None = None
    cpu_evict_policy: str | None = None
    cpu_evict_threshold_percent: int | None = None
    cpu_evict_lower_percent: int | None = None
    cpu_allocatable_evict_threshold_percent: int | None = None
    cpu_allocatable_evict_lower_percent: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    evict_enabled_priority_threshold: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class CPUBurstStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """CPU burst of latency-sensitive pods."""

    dry_run: bool | None = None
    policy: str | None = None
    cpu_burst_percent: int | None = None
    cfs_quota_burst_percent: int | None = None
    cfs_quota_burst_period_seconds: int | None = None
    share_pool_threshold_percent: int | None = None


class SystemStrategy(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Kernel settings of the node."""

    dry_run: bool | None = None
    min_free_kbytes_factor: int | None = None
    watermark_scale_factor: int | None = None
    memcg_reap_back_ground: int | None = None
    total_network_bandwidth: str | int | None = None
    sched_group_identity_enabled: int | None = None
    sched_idle_saver_wmark: int | None = None
    sched_features: dict[str, bool] | None = None
    page_cache_limit_enabled: int | bool | None = None


class CgroupPath(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """The location of a host application's cgroup."""

    base: str = ""
    parent_dir: str = ""
    relative_path: str = ""


class HostApplication(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name, omit_defaults=True):
    """Processes outside of pods that are measured and treated like a pod."""

    name: str = ""
    priority: str = ""
    qos: str = ""
    cgroup_path: CgroupPath | None = None
    strategy: dict[str, msgspec.Raw] | None = None


class _HostEntry(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name):
    name: str = ""
    node_selector: LabelSelector | None = None
    applications: list[HostApplication] = []


class _HostSection(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name):
    applications: list[HostApplication] = []
    node_configs: list[_HostEntry] = []


class _Named(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name):
    name: str = ""
    node_selector: LabelSelector | None = None


class SectionKind(msgspec.Struct, frozen=True):
    """One section: its key in the ConfigMap, its field in the NodeSLO spec, its shape and its defaults."""

    key: str
    field: str
    shape: type[msgspec.Struct]
    defaults: JsonObject


THRESHOLD = SectionKind(
    "resource-threshold-config",
    "resourceUsedThresholdWithBE",
    ThresholdStrategy,
    {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    },
)
QOS = SectionKind("resource-qos-config", "resourceQOSStrategy", ResourceQOSStrategy, {})
CPU_BURST = SectionKind(
    "cpu-burst-config",
    "cpuBurstStrategy",
    CPUBurstStrategy,
    {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    },
)
SYSTEM = SectionKind("system-config", "systemStrategy", SystemStrategy, {"totalNetworkBandwidth": "0"})
STRATEGIES = (THRESHOLD, QOS, CPU_BURST, SYSTEM)

_PLAIN_TEXT = frozenset({"cpuSuppressPolicy", "cpuEvictPolicy", "policy"})
_CHOICES = {
    "cpuSuppressPolicy": ("cpuset", "cfsQuota"),
    "cpuEvictPolicy": ("evictByRealLimit", "evictByAllocatable"),
    "policy": ("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"),
}
_PERCENT_SECTIONS = frozenset({THRESHOLD.key})


class Section(msgspec.Struct, frozen=True):
    """A section in force: the cluster's strategy and the node entries in order, each merged with the cluster's."""

    cluster: JsonObject
    entries: tuple[tuple[LabelSelector | None, JsonObject], ...] = ()


class HostSection(msgspec.Struct, frozen=True):
    """Host applications of the cluster, and of the node entries in order."""

    cluster: list[HostApplication]
    entries: tuple[tuple[LabelSelector | None, list[HostApplication]], ...] = ()


def load_strategies(kind: SectionKind, text: str | None) -> Section:
    """Parse a section and merge it with the defaults; without text the defaults. Raises ConfigError."""
    if text is None:
        return Section(kind.defaults)
    return strategies_of(kind, decode_object(text, kind.key))


def strategies_of(kind: SectionKind, document: JsonObject) -> Section:
    """Return the section of a decoded document. Raises ConfigError."""
    spelled = {key.lower(): value for key, value in document.items()}
    cluster = overlay(kind.defaults, _strategy(kind, spelled.get("clusterstrategy"), f"{kind.key}: clusterStrategy"))
    listed = spelled.get("nodestrategies")
    if listed is not None and not isinstance(listed, list):
        raise ConfigError(f"{kind.key}: nodeStrategies must be a list")
    entries: list[tuple[LabelSelector | None, JsonObject]] = []
    for index, entry in enumerate(listed or []):
        where = f"{kind.key}: nodeStrategies[{index}]"
        strategy = _strategy(kind, entry, where)
        selector = fit(canonical(entry, _Named), _Named, where).node_selector if isinstance(entry, dict) else None
        entries.append((selector, overlay(cluster, strategy)))
    return Section(cluster, tuple(entries))


def _strategy(kind: SectionKind, given: JsonValue, where: str) -> JsonObject:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ConfigError(f"{where} must be an object")
    strategy = {key: value for key, value in canonical(given, kind.shape).items() if not (key in _PLAIN_TEXT and value == "")}
    fit(strategy, kind.shape, where)
    for key, value in strategy.items():
        if key in _CHOICES and value not in _CHOICES[key]:
            raise ConfigError(f"{where}.{key} is {value!r}: must be one of {', '.join(_CHOICES[key])}")
        is_percent = kind.key in _PERCENT_SECTIONS and key.endswith("Percent") and isinstance(value, int)
        if is_percent and not 0 <= int(str(value)) <= 100:
            raise ConfigError(f"{where}.{key} is {value}: must be between 0 and 100")
    return strategy


Entries = Sequence[tuple[LabelSelector | None, object]]


def matching(entries: Entries, labels: Mapping[str, str]) -> int:
    """Return the index of the first entry that matches the labels; -1 for none."""
    for index, (selector, _) in enumerate(entries):
        if selects_if_valid(selector, labels):
            return index
    return -1


def select_strategy(section: Section, labels: Mapping[str, str]) -> JsonObject:
    """Return the strategy for a node with these labels."""
    index = matching(section.entries, labels)
    return section.entries[index][1] if index >= 0 else section.cluster


def load_host_applications(text: str | None) -> HostSection:
    """Parse the host applications; without text none. Raises ConfigError."""
    if text is None:
        return HostSection([])
    document = canonical(decode_object(text, HOST_APPLICATIONS_KEY), _HostSection)
    section = fit(document, _HostSection, HOST_APPLICATIONS_KEY)
    return HostSection(section.applications, tuple((entry.node_selector, entry.applications) for entry in section.node_configs))


def select_host_applications(section: HostSection, labels: Mapping[str, str]) -> list[HostApplication]:
    """Return the applications for a node with these labels."""
    index = matching(section.entries, labels)
    return section.entries[index][1] if index >= 0 else section.cluster
