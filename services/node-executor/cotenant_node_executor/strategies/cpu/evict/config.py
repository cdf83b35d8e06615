"""The NodeSLO's configuration of eviction for CPU.

In: section `resourceUsedThresholdWithBE`. Out: the features that are on. `enable` of the section and the fields of a feature
switch it on: both satisfaction percents; threshold and priority bound of usage; both percents and the priority bound of
allocatable.
"""

from __future__ import annotations

from msgspec import Struct, field

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.bounds import Int32
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.strategies.cpu.evict.satisfaction import SatisfactionConfig
from cotenant_node_executor.strategies.pod_eviction import HIGHEST_BY_OFFER
from cotenant_node_executor.strategies.sections import THRESHOLD, readable_section


class ByUsage(Struct, frozen=True):
    """CPUEvict, in percent of the node's capacity."""

    threshold_percent: int
    lower_percent: int | None
    up_to_priority: int


class ByAllocatable(Struct, frozen=True):
    """CPUAllocatableEvict, in percent of the node's allocatable."""

    threshold_percent: int
    lower_percent: int
    up_to_priority: int


class CpuEvictConfig(Struct, frozen=True):
    """The features that are on; None for one that is off."""

    window: SatisfactionConfig
    """The section's window counts for all features."""
    satisfaction: SatisfactionConfig | None
    usage: ByUsage | None
    allocatable: ByAllocatable | None


class CpuEvictSection(Struct, frozen=True, rename="camel"):
    """The section; None: unset."""

    enable: bool | None = None
    upper: Int32 | None = field(default=None, name="cpuEvictBESatisfactionUpperPercent")
    lower: Int32 | None = field(default=None, name="cpuEvictBESatisfactionLowerPercent")
    usage_threshold: Int32 | None = field(default=None, name="cpuEvictBEUsageThresholdPercent")
    cpu_evict_time_window_seconds: Int32 | None = None
    cpu_evict_policy: str = "evictByRealLimit"
    cpu_evict_threshold_percent: Int32 | None = None
    cpu_evict_lower_percent: Int32 | None = None
    evict_enabled_priority_threshold: Int32 | None = None
    cpu_allocatable_evict_threshold_percent: Int32 | None = None
    cpu_allocatable_evict_lower_percent: Int32 | None = None
    allocatable_evict_priority_threshold: Int32 | None = None


_section = readable_section(THRESHOLD, CpuEvictSection)


@by_identity
def evict_config(slo: NodeSLORendered) -> CpuEvictConfig | None:
    """The configuration where some feature is on; None elsewhere."""
    found = _section(slo)
    if found is None or found.enable is not True:
        return None
    window = SatisfactionConfig(
        found.upper, found.lower, found.usage_threshold, found.cpu_evict_time_window_seconds, found.cpu_evict_policy
    )
    config = CpuEvictConfig(window, window if window.valid else None, _by_usage(found), _by_allocatable(found))
    return config if config.satisfaction or config.usage or config.allocatable else None


def _by_usage(found: CpuEvictSection) -> ByUsage | None:
    threshold, up_to = found.cpu_evict_threshold_percent, found.evict_enabled_priority_threshold
    if threshold is None or up_to is None:
        return None
    return ByUsage(threshold, found.cpu_evict_lower_percent, up_to)


def _by_allocatable(found: CpuEvictSection) -> ByAllocatable | None:
    threshold, lower = found.cpu_allocatable_evict_threshold_percent, found.cpu_allocatable_evict_lower_percent
    up_to = found.allocatable_evict_priority_threshold
    if threshold is None or lower is None or up_to is None or lower >= threshold or up_to > HIGHEST_BY_OFFER:
        return None
    return ByAllocatable(threshold, lower, up_to)
