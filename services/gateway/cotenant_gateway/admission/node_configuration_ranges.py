"""What the values of the node configuration may be: one table of ranges a section.

In: a section of the ConfigMap `slo-controller-config` as JSON values. Out: field errors. A range is checked where the value is
set (0 is set, null is not); of a pair each side needs the other, and the lower one is below the upper one. Member names match
in any case, members that are not named here are carried as they are. Source: the `validate` tags of Koordinator's API types,
as of 1.8; its rules of network QoS are not among them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.validation.fields import FieldError, invalid, required, wrong_type

Range = tuple[int, int | None]
Json = object

_PERCENT: Range = (0, 100)
_SWITCH: Range = (0, 1)
_FROM_0: Range = (0, None)
_FROM_1: Range = (1, None)


class Rules(msgspec.Struct, frozen=True):
    """Inclusive ranges of whole numbers, pairs of lower and upper bound, shares above 0 and up to 1, and what stands within."""

    ranges: Mapping[str, Range] = {}
    pairs: tuple[tuple[str, str], ...] = ()
    shares: tuple[str, ...] = ()
    within: Mapping[str, Rules] = {}


class Section(msgspec.Struct, frozen=True):
    """A section: the member that holds the cluster's strategy ("" for the section itself), that of the nodes' entries."""

    cluster: str
    entries: str
    rules: Rules


_COLOCATION = Rules(
    ranges={
        "metricAggregateDurationSeconds": _FROM_1,
        "metricReportIntervalSeconds": _FROM_1,
        "cpuReclaimThresholdPercent": _FROM_0,
        "memoryReclaimThresholdPercent": _FROM_0,
        "degradeTimeMinutes": _FROM_1,
        "updateTimeThresholdSeconds": _FROM_1,
        "midCPUThresholdPercent": _PERCENT,
        "midMemoryThresholdPercent": _PERCENT,
        "midUnallocatedPercent": _PERCENT,
        "midStaticCPUReservedPercent": _PERCENT,
        "midStaticMemoryReservedPercent": _PERCENT,
        "batchCPUThresholdPercent": _FROM_0,
        "batchMemoryThresholdPercent": _FROM_0,
    },
    shares=("resourceDiffThreshold",),
)
_THRESHOLDS = Rules(
    ranges={
        "cpuSuppressThresholdPercent": _PERCENT,
        "cpuSuppressMinPercent": _PERCENT,
        "cpuEvictBEUsageThresholdPercent": _PERCENT,
        "cpuEvictTimeWindowSeconds": _FROM_1,
        "evictEnabledPriorityThreshold": (0, 7999),
        "allocatableEvictPriorityThreshold": (0, 7999),
    },
    pairs=(
        ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
        ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
        ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
        ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
        ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
    ),
)
_BURST = Rules(
    ranges={
        "cpuBurstPercent": (1, 10_000),
        "cfsQuotaBurstPercent": (100, None),
        "cfsQuotaBurstPeriodSeconds": (-1, None),
        "sharePoolThresholdPercent": _PERCENT,
    }
)
_SYSTEM = Rules(
    ranges={"minFreeKbytesFactor": _FROM_1, "watermarkScaleFactor": (1, 400), "memcgReapBackGround": _SWITCH},
)
_CLASS = Rules(
    within={
        "cpuQOS": Rules({"groupIdentity": (-1, 2), "schedIdle": _SWITCH}),
        "resctrlQOS": Rules({"mbaPercent": _PERCENT}, pairs=(("catRangeStartPercent", "catRangeEndPercent"),)),
        "memoryQOS": Rules(
            {
                "minLimitPercent": _PERCENT,
                "lowLimitPercent": _PERCENT,
                "throttlingPercent": _PERCENT,
                "wmarkRatio": _PERCENT,
                "wmarkScalePermill": (1, 1000),
                "wmarkMinAdj": (-25, 50),
                "priorityEnable": _SWITCH,
                "priority": (0, 12),
                "oomKillGroup": _SWITCH,
            }
        ),
    }
)
_QOS = Rules(within=dict.fromkeys(("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot"), _CLASS))

SECTIONS: Mapping[str, Section] = {
    "colocation-config": Section("", "nodeConfigs", _COLOCATION),
    "resource-threshold-config": Section("clusterStrategy", "nodeStrategies", _THRESHOLDS),
    "resource-qos-config": Section("clusterStrategy", "nodeStrategies", _QOS),
    "system-config": Section("clusterStrategy", "nodeStrategies", _SYSTEM),
    "cpu-burst-config": Section("clusterStrategy", "nodeStrategies", _BURST),
}
"""The sections that are checked, in order."""


def member(value: Json, name: str) -> Json:
    """Return a member of a JSON object, its name in any case; None where it is absent or null."""
    if not isinstance(value, dict):
        return None
    return value[name] if name in value else next((value[key] for key in value if key.lower() == name.lower()), None)


def section_errors(path: str, section: Section, config: Json) -> list[FieldError]:
    """Return the values of a section that are out of range, for the cluster and for each entry of nodes."""
    if not isinstance(config, dict):
        return [wrong_type(path, "must be an object")]
    cluster = member(config, section.cluster) if section.cluster else config
    found = strategy_errors(f"{path}.{section.cluster}" if section.cluster else path, section.rules, cluster)
    entries = member(config, section.entries)
    if not isinstance(entries, list):
        return found if entries is None else [*found, wrong_type(f"{path}.{section.entries}", "must be an array")]
    for index, entry in enumerate(entries):
        found += strategy_errors(f"{path}.{section.entries}[{index}]", section.rules, entry)
    return found


def strategy_errors(path: str, rules: Rules, strategy: Json) -> list[FieldError]:
    """Return the values of one strategy that are out of range."""
    if strategy is None:
        return []
    if not isinstance(strategy, dict):
        return [wrong_type(path, "must be an object")]
    found: list[FieldError] = []
    for name, allowed in rules.ranges.items():
        found += _out_of_range(f"{path}.{name}", member(strategy, name), allowed)
    for lower, upper in rules.pairs:
        found += _pair_errors(path, (lower, upper), (member(strategy, lower), member(strategy, upper)))
    for name in rules.shares:
        share = member(strategy, name)
        if share is not None and (isinstance(share, bool) or not isinstance(share, (int, float))):
            found.append(wrong_type(f"{path}.{name}", "must be a number"))
        elif share is not None and not 0 < share <= 1:
            found.append(invalid(f"{path}.{name}", share, "must be above 0 and at most 1"))
    for name, inner in rules.within.items():
        found += strategy_errors(f"{path}.{name}", inner, member(strategy, name))
    return found


def _out_of_range(field: str, value: Json, allowed: Range) -> list[FieldError]:
    low, high = allowed
    if value is None:
        return []
    if isinstance(value, bool) or not isinstance(value, int):
        return [wrong_type(field, "must be a whole number")]
    if value < low or (high is not None and value > high):
        return [invalid(field, value, f"must be at least {low}" + ("" if high is None else f" and at most {high}"))]
    return []


def _pair_errors(path: str, names: tuple[str, str], values: tuple[Json, Json]) -> list[FieldError]:
    named = zip(names, values, strict=True)
    found = [error for name, value in named for error in _out_of_range(f"{path}.{name}", value, _PERCENT)]
    lower, upper = values
    if found or (lower is None and upper is None):
        return found
    if lower is None or upper is None:
        missing, present = names if lower is None else names[::-1]
        return [required(f"{path}.{missing}", f"{present} is set: it needs both")]
    if isinstance(lower, int) and isinstance(upper, int) and lower >= upper:
        return [invalid(f"{path}.{names[0]}", lower, f"must be below {names[1]}, which is {upper}")]
    return []
