"""The schema of the node configuration: one table per section.

In: a section of the ConfigMap `slo-controller-config` as JSON values. Out: field errors, for the cluster's strategy and for
each entry of nodes: values of the wrong type, out of their range, or none of the known ones. Of a pair each side needs the
other, and the lower one is below the upper one. Member names match in any case, members that are not named here are carried
as they are. Source: the `validate` tags of Koordinator's API types, as of 1.8, and what its controllers cannot work with:
unknown policies, ratios of normalisation outside 1..5, of amplification outside 1..1,000,000; and cotenant's own risk budget.
batch-resource-calculator can read everything that is accepted here.

Over 300 lines: most of it is the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from cotenant.api.validation.fields import FieldError, invalid, required, wrong_type
from cotenant.domain.amplification import MAX_RATIO
from cotenant.domain.qos import QoSClass
from cotenant.model.tiers import PriorityClass
from cotenant_gateway.admission.node_configuration.risk_budget import extensions
from cotenant_gateway.admission.node_configuration.values import (
    Check,
    Json,
    bandwidth,
    durations,
    each_element,
    each_member,
    flag,
    integer,
    mapping,
    member,
    members_of,
    number,
    one_of,
    percent_or_amount,
    text,
    whole,
)

MAX_ENTRIES = 256


class StrategyRules(msgspec.Struct, frozen=True):
    """The members of a strategy with their checks, pairs of lower and upper bound in percent, and strategies within."""

    checks: Mapping[str, Check] = {}
    pairs: tuple[tuple[str, str], ...] = ()
    within: Mapping[str, StrategyRules] = {}


class SectionRules(msgspec.Struct, frozen=True):
    """A section: the member that holds the cluster's strategy ("" for the section itself), that of the nodes' entries."""

    cluster: str
    entries: str
    rules: StrategyRules
    by_node: bool = True
    """Whether Koordinator's webhooks check that the entries do not overlap; else the first that selects a node applies."""


_PERCENT = whole(0, 100)
_SWITCH = whole(0, 1)
_FROM_0 = whole(0)
_FROM_1 = whole(1)
_RATIO = number(None, 1.0, 5.0)

COLOCATION = StrategyRules(
    {
        "enable": flag,
        "metricAggregateDurationSeconds": _FROM_1,
        "metricReportIntervalSeconds": _FROM_1,
        "metricAggregatePolicy": members_of({"durations": durations}),
        "metricMemoryCollectPolicy": one_of(
            "usageWithoutPageCache", "usageWithHotPageCache", "usageWithPageCache", may_be_empty=False
        ),
        "cpuReclaimThresholdPercent": _FROM_0,
        "cpuCalculatePolicy": text,
        "memoryReclaimThresholdPercent": _FROM_0,
        "memoryCalculatePolicy": text,
        "degradeTimeMinutes": _FROM_1,
        "updateTimeThresholdSeconds": _FROM_1,
        "resourceDiffThreshold": number(0.0, None, 1.0),
        "midCPUThresholdPercent": _PERCENT,
        "midMemoryThresholdPercent": _PERCENT,
        "midUnallocatedPercent": _PERCENT,
        "midReclaimMode": text,
        "midStaticCPUReservedPercent": _PERCENT,
        "midStaticMemoryReservedPercent": _PERCENT,
        "batchCPUThresholdPercent": _FROM_0,
        "batchMemoryThresholdPercent": _FROM_0,
        "extensions": extensions,
    },
)
_THRESHOLDS = StrategyRules(
    {
        "dryRun": flag,
        "enable": flag,
        "cpuSuppressThresholdPercent": _PERCENT,
        "cpuSuppressMinPercent": _PERCENT,
        "cpuSuppressPolicy": one_of("cpuset", "cfsQuota"),
        "memoryStopPlacingPercent": _PERCENT,
        "memoryReclaimPercent": _PERCENT,
        "memoryReclaimPressurePercent": _PERCENT,
        "cpuEvictBEUsageThresholdPercent": _PERCENT,
        "cpuEvictTimeWindowSeconds": _FROM_1,
        "cpuEvictPolicy": one_of("evictByRealLimit", "evictByAllocatable"),
        "evictEnabledPriorityThreshold": whole(0, 7999),
        "allocatableEvictPriorityThreshold": whole(0, 7999),
    },
    pairs=(
        ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
        ("cpuEvictBESatisfactionLowerPercent", "cpuEvictBESatisfactionUpperPercent"),
        ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
        ("cpuAllocatableEvictLowerPercent", "cpuAllocatableEvictThresholdPercent"),
        ("memoryAllocatableEvictLowerPercent", "memoryAllocatableEvictThresholdPercent"),
    ),
)
_BURST = StrategyRules(
    {
        "dryRun": flag,
        "policy": one_of("none", "cpuBurstOnly", "cfsQuotaBurstOnly", "auto"),
        "cpuBurstPercent": whole(1, 10_000),
        "cfsQuotaBurstPercent": whole(100),
        "cfsQuotaBurstPeriodSeconds": whole(-1),
        "sharePoolThresholdPercent": _PERCENT,
    }
)
_SYSTEM = StrategyRules(
    {
        "dryRun": flag,
        "minFreeKbytesFactor": _FROM_1,
        "watermarkScaleFactor": whole(1, 400),
        "memcgReapBackGround": _SWITCH,
        "totalNetworkBandwidth": bandwidth,
        "schedGroupIdentityEnabled": integer,
        "schedIdleSaverWmark": integer,
        "schedFeatures": each_member(flag),
        "pageCacheLimitEnabled": _SWITCH,
    }
)
NETWORK_REQUESTS = ("ingressRequest", "egressRequest")
_NETWORK = ("ingressRequest", "ingressLimit", "egressRequest", "egressLimit")
_IO_LIMITS = ("readIOPS", "writeIOPS", "readBPS", "writeBPS", "readLatency", "writeLatency")
_IO_MODEL = tuple(f"model{way}{what}" for way in ("Read", "Write") for what in ("BPS", "SeqIOPS", "RandIOPS"))
_IO = {
    **dict.fromkeys(_IO_LIMITS, _FROM_0),
    **dict.fromkeys(_IO_MODEL, _FROM_1),
    **dict.fromkeys(("readLatencyPercent", "writeLatencyPercent"), _PERCENT),
    "ioWeightPercent": whole(1, 100),
    "enableUserModel": flag,
}
_BLOCK = members_of({"name": text, "type": one_of("device", "volumegroup", "podvolume"), "ioCfg": members_of(_IO)})
_PART: Mapping[str, Check] = {"dryRun": flag, "enable": flag}
"""What every part of a class has."""
_CLASS = StrategyRules(
    within={
        "cpuQOS": StrategyRules(
            {
                **_PART,
                "groupIdentity": whole(-1, 2),
                "schedIdle": _SWITCH,
                "coreExpeller": flag,
                "cpuClass": one_of("none", "fair", "realtime"),
            }
        ),
        "resctrlQOS": StrategyRules(
            {**_PART, "mbaPercent": _PERCENT, "mbaMBps": _FROM_1}, pairs=(("catRangeStartPercent", "catRangeEndPercent"),)
        ),
        "memoryQOS": StrategyRules(
            {
                **_PART,
                "minLimitPercent": _PERCENT,
                "lowLimitPercent": _PERCENT,
                "throttlingPercent": _PERCENT,
                "wmarkRatio": _PERCENT,
                "wmarkScalePermill": whole(1, 1000),
                "wmarkMinAdj": whole(-25, 50),
                "priorityEnable": _SWITCH,
                "priority": whole(0, 12),
                "oomKillGroup": _SWITCH,
                "pageCacheLimitEnable": _SWITCH,
                "pageCacheLimitSync": _SWITCH,
                "pageCacheLimitSize": _FROM_0,
            }
        ),
        "blkioQOS": StrategyRules({**_PART, "blocks": each_element(_BLOCK)}),
        "networkQOS": StrategyRules({**_PART, **dict.fromkeys(_NETWORK, percent_or_amount)}),
    }
)
QOS_CLASSES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
_POLICIES = StrategyRules({"cpuPolicy": one_of("groupIdentity", "coreSched"), "netQOSPolicy": one_of("tc", "terway-qos")})
_QOS = StrategyRules({"dryRun": flag}, within={"policies": _POLICIES, **dict.fromkeys(QOS_CLASSES, _CLASS)})
_APPLICATION = members_of(
    {
        "name": text,
        "priority": one_of(*(tier.value for tier in PriorityClass if tier)),
        "qos": one_of(*(qos.value for qos in QoSClass if qos)),
        "cgroupPath": members_of(
            {
                "base": one_of("CgroupRoot", "Kubepods", "KubepodsBurstable", "KubepodsBesteffort"),
                "parentDir": text,
                "relativePath": text,
            }
        ),
        "strategy": mapping,
    },
    needed=("name",),
)
_MODEL = members_of(
    dict.fromkeys(("baseRatio", "hyperThreadEnabledRatio", "turboEnabledRatio", "hyperThreadTurboEnabledRatio"), _RATIO)
)
_NORMALIZATION = StrategyRules({"enable": flag, "ratioModel": each_member(_MODEL), "defaultRatio": _RATIO})
_AMPLIFICATION = StrategyRules({"enable": flag, "resourceAmplificationRatio": each_member(number(None, 1.0, MAX_RATIO))})

SECTIONS: Mapping[str, SectionRules] = {
    "colocation-config": SectionRules("", "nodeConfigs", COLOCATION),
    "resource-threshold-config": SectionRules("clusterStrategy", "nodeStrategies", _THRESHOLDS),
    "resource-qos-config": SectionRules("clusterStrategy", "nodeStrategies", _QOS),
    "system-config": SectionRules("clusterStrategy", "nodeStrategies", _SYSTEM),
    "cpu-burst-config": SectionRules("clusterStrategy", "nodeStrategies", _BURST),
    "host-application-config": SectionRules(
        "", "nodeConfigs", StrategyRules({"applications": each_element(_APPLICATION)}), by_node=False
    ),
    "cpu-normalization-config": SectionRules("", "nodeConfigs", _NORMALIZATION, by_node=False),
    "resource-amplification-config": SectionRules("", "nodeConfigs", _AMPLIFICATION, by_node=False),
}
"""The sections that are checked, in order."""


def section_errors(path: str, section: SectionRules, config: Json) -> list[FieldError]:
    """Return the values of a section that are out of range, for the cluster and for each entry of nodes."""
    if not isinstance(config, dict):
        return [wrong_type(path, "must be an object")]
    cluster = member(config, section.cluster) if section.cluster else config
    found = strategy_errors(f"{path}.{section.cluster}" if section.cluster else path, section.rules, cluster)
    entries = member(config, section.entries)
    if not isinstance(entries, list):
        return found if entries is None else [*found, wrong_type(f"{path}.{section.entries}", "must be an array")]
    if len(entries) > MAX_ENTRIES:
        return [*found, invalid(f"{path}.{section.entries}", len(entries), f"must have at most {MAX_ENTRIES} entries")]
    for index, entry in enumerate(entries):
        where = f"{path}.{section.entries}[{index}]"
        name = member(entry, "name")
        found += text(f"{where}.name", name) if name is not None else []
        found += strategy_errors(where, section.rules, entry)
    return found


def strategy_errors(path: str, rules: StrategyRules, strategy: Json) -> list[FieldError]:
    """Return the values of one strategy that are out of range."""
    if strategy is None:
        return []
    if not isinstance(strategy, dict):
        return [wrong_type(path, "must be an object")]
    found: list[FieldError] = []
    for name, check in rules.checks.items():
        value = member(strategy, name)
        if value is not None:
            found += check(f"{path}.{name}", value)
    for lower, upper in rules.pairs:
        found += _pair_errors(path, (lower, upper), (member(strategy, lower), member(strategy, upper)))
    for name, inner in rules.within.items():
        found += strategy_errors(f"{path}.{name}", inner, member(strategy, name))
    return found


def null_objects(path: str, section: SectionRules, config: Json) -> Iterator[str]:
    """Yield the paths of strategies, and of the objects within them, that are null: they count as absent."""
    if section.cluster:
        yield from _null_members(path, section.cluster, section.rules, config)
    else:
        yield from _nulls_within(path, section.rules, config)
    entries = member(config, section.entries)
    for index, entry in enumerate(entries[:MAX_ENTRIES] if isinstance(entries, list) else ()):
        yield from _nulls_within(f"{path}.{section.entries}[{index}]", section.rules, entry)


def _null_members(path: str, name: str, rules: StrategyRules, holder: Json) -> Iterator[str]:
    given = member(holder, name)
    if given is not None:
        yield from _nulls_within(f"{path}.{name}", rules, given)
    elif isinstance(holder, dict) and any(key.lower() == name.lower() for key in holder):
        yield f"{path}.{name}"


def _nulls_within(path: str, rules: StrategyRules, strategy: Json) -> Iterator[str]:
    for name, inner in rules.within.items():
        yield from _null_members(path, name, inner, strategy)


def _pair_errors(path: str, names: tuple[str, str], values: tuple[Json, Json]) -> list[FieldError]:
    named = zip(names, values, strict=True)
    found = [error for name, value in named if value is not None for error in _PERCENT(f"{path}.{name}", value)]
    lower, upper = values
    if found or (lower is None and upper is None):
        return found
    if lower is None or upper is None:
        missing, present = names if lower is None else names[::-1]
        return [required(f"{path}.{missing}", f"{present} is set: it needs both")]
    if isinstance(lower, int) and isinstance(upper, int) and lower >= upper:
        return [invalid(f"{path}.{names[0]}", lower, f"must be below {names[1]}, which is {upper}")]
    return []
