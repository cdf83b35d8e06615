"""Memory relief: the milder steps before an eviction.

In: the node's memory, the best-effort group's memory and pressure, the thresholds of memory eviction. Out: a reason to place no
further best-effort pods; memory.high of the best-effort group; memory to reclaim from it.

| step | begins at, in percent of the node's memory | ends |
|---|---|---|
| no further best-effort pods: condition and taint | `memoryStopPlacingPercent`, by default lower - 3 | 2 below |
| memory.high and reclaim on best-effort | `memoryReclaimPercent`, by default lower - 1 | 2 below |
| eviction | `memoryEvictThresholdPercent` | `evict` |

    over = used - (reclaim percent - 2) % of the node
    memory.high = best-effort usage - over; it falls by at most a tenth of that in one step, never below half of what
                  best-effort used when the step began, and does not rise before the step ends

Memory is reclaimed while the group's memory pressure (some, avg10) is below `memoryReclaimPressurePercent` (5): with
`memory.reclaim` as much as is over, at most 256 MiB at a time; with `memory.force_empty` the page cache of the pod that has the
most. If cold memory is measured, it is reclaimed first: pod by pod, the coldest first, each once a reading, as the rest of it
may be hot. On a kernel without memory.high there is only reclaim. On while the gate BEMemoryEvict is.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.sampling.snapshot import GroupUsage, UsageSnapshot
from cotenant_node_executor.strategies.memory.evict import BE_MEMORY_EVICT, band, used_percent
from cotenant_node_executor.strategies.readings import MIN_CACHE_BYTES, STALL_PERCENT, page_cache_bytes, stalls_for_memory
from cotenant_node_executor.strategies.sections import THRESHOLD, SectionShape, is_asked, lower_name, section
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import (
    Cause,
    Desired,
    DesiredValues,
    Input,
    NodePolicy,
    Reclaim,
    Strategy,
    StrategyDecision,
    StrategyOrder,
)
from cotenant_node_executor.targets.cgroup.files import PAGE_BYTES
from cotenant_node_executor.targets.interface import BESTEFFORT, RECLAIM, UNLIMITED_TEXT, CgroupVersion, Knob

NAME = "memory-relief"
BACK = 2
"""Percent below its beginning at which a step ends."""
STOP_BELOW_LOWER, RECLAIM_BELOW_LOWER = 3, 1
MAX_RECLAIM_BYTES = 256 * 1024**2


class ReliefConfig(Struct, frozen=True, kw_only=True, rename=lower_name):
    """The thresholds in percent; None: the default."""

    enable: bool | None = None
    memory_evict_threshold_percent: int | None = 70
    memory_evict_lower_percent: int | None = None
    memory_stop_placing_percent: int | None = None
    memory_reclaim_percent: int | None = None
    memory_reclaim_pressure_percent: int | None = None


class Relief(Struct, frozen=True):
    """The last decision. `high_bytes` -1: no bound. `began_bytes`: what best-effort used when the step began."""

    used_percent: int = 0
    stop_percent: int = 0
    reclaim_percent: int = 0
    stopped: bool = False
    relieving: bool = False
    high_bytes: int = -1
    began_bytes: int = 0
    cold: Mapping[str, int] | None = None
    """The last reading of cold memory that was used."""
    asked_cold: frozenset[str] = frozenset()
    """Uids of the pods whose cold memory by that reading was reclaimed."""


def steps(config: ReliefConfig) -> tuple[int, int] | None:
    """Return where placing stops and where relief begins, in percent; None where eviction has no thresholds."""
    limits = band(config.memory_evict_threshold_percent, config.memory_evict_lower_percent)
    if limits is None:
        return None
    stop, relief = config.memory_stop_placing_percent, config.memory_reclaim_percent
    lower = limits[1]
    return (
        max(lower - STOP_BELOW_LOWER, 1) if stop is None else stop,
        max(lower - RECLAIM_BELOW_LOWER, 1) if relief is None else relief,
    )


def holds_on(percent: int, begins: int, before: bool) -> bool:
    """Whether a step is on: from its beginning until BACK below it."""
    return percent >= begins or (before and percent > begins - BACK)


def next_high(best_effort_bytes: int, over_bytes: int, before: Relief) -> int:
    """Return memory.high for the best-effort group, by whole pages."""
    began = before.began_bytes if before.relieving else best_effort_bytes
    lowest = max(best_effort_bytes * 9 // 10, began // 2)
    wanted = max(best_effort_bytes - over_bytes, lowest)
    if before.relieving and before.high_bytes >= 0:
        wanted = min(wanted, before.high_bytes)
    return wanted // PAGE_BYTES * PAGE_BYTES


@by_identity
def _config(slo: NodeSLORendered) -> ReliefConfig:
    return section(slo, THRESHOLD, ReliefConfig)


def relief(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Decide the steps."""
    before = memory if isinstance(memory, Relief) else None
    slo, snapshot = situation.slo, situation.snapshot
    config = _config(slo) if slo is not None else ReliefConfig()
    levels = steps(config) if config.enable else None
    if slo is None or snapshot is None or levels is None or situation.node.memory_bytes <= 0:
        if before is None or before.high_bytes >= 0:
            return StrategyDecision(_high(situation, -1, "memory relief is off"), memory=Relief())
        return StrategyDecision(memory=Relief())
    last = before or Relief()
    percent = used_percent(situation.node.memory_bytes, snapshot.node.memory_bytes)
    stop, begins = levels
    now = Relief(percent, stop, begins, holds_on(percent, stop, last.stopped))
    if not holds_on(percent, begins, last.relieving):
        why = f"node memory {percent}% used, below {begins}%"
        return StrategyDecision(_high(situation, -1, why), memory=now)
    return _relieve(situation, snapshot, config, now, last)


def _relieve(
    situation: Situation, snapshot: UsageSnapshot, config: ReliefConfig, now: Relief, last: Relief
) -> StrategyDecision:
    capacity, used = situation.node.memory_bytes, snapshot.node.memory_bytes
    over = used - capacity * (now.reclaim_percent - BACK) // 100
    group = snapshot.tiers.get(BESTEFFORT)
    held = _with_cache(group) if group is not None else 0
    why = f"node memory {now.used_percent}% used, {over} bytes above {now.reclaim_percent - BACK}%"
    high = next_high(held, over, last) if held > 0 else -1
    orders: tuple[StrategyOrder, ...] = ()
    asked = last.asked_cold if last.cold is situation.cold else frozenset()
    if over > 0 and situation.capabilities.supports(RECLAIM) and not stalls_for_memory(group, _bound_percent(config)):
        coldest = _coldest(situation, snapshot, asked)
        if coldest is not None:
            uid, order = coldest
            asked |= {uid}
            orders = (replace(order, memory_bytes=min(order.memory_bytes, over, MAX_RECLAIM_BYTES), why=why),)
        else:
            orders = _reclaims(situation, snapshot, over, held, why)
    memory = Relief(
        now.used_percent,
        now.stop_percent,
        now.reclaim_percent,
        now.stopped,
        True,
        high,
        last.began_bytes if last.relieving else held,
        situation.cold,
        asked,
    )
    return StrategyDecision(_high(situation, high, why), orders, memory)


def _with_cache(usage: GroupUsage) -> int:
    return usage.memory_with_page_cache_bytes or usage.memory_bytes or 0


def _bound_percent(config: ReliefConfig) -> int:
    """The memory pressure of best-effort from which on nothing is reclaimed."""
    stated = config.memory_reclaim_pressure_percent
    return STALL_PERCENT if stated is None else stated


def _coldest(situation: Situation, snapshot: UsageSnapshot, asked: frozenset[str]) -> tuple[str, Reclaim] | None:
    """The best-effort pod with the most cold page cache that was not reclaimed by this reading yet; None if none has any."""
    cold = situation.cold or {}
    found = [
        (min(cold.get(uid, 0), page_cache_bytes(pod.usage)), pod.usage.group, uid)
        for uid, pod in snapshot.pods.items()
        if pod.tier == BESTEFFORT and uid not in asked and pod.usage.group in situation.groups
    ]
    most, group, uid = max(found, default=(0, "", ""))
    return (uid, Reclaim(group, most, "")) if most >= MIN_CACHE_BYTES else None


def _reclaims(situation: Situation, snapshot: UsageSnapshot, over: int, held: int, why: str) -> tuple[StrategyOrder, ...]:
    if situation.capabilities.version is CgroupVersion.V2:
        amount = min(over, held, MAX_RECLAIM_BYTES)
        return (Reclaim(BESTEFFORT, amount, why),) if amount > 0 else ()
    caches = [
        (page_cache_bytes(pod.usage), pod.usage.group)
        for pod in snapshot.pods.values()
        if pod.tier == BESTEFFORT and pod.usage.group in situation.groups
    ]
    cache, largest = max(caches, default=(0, ""))
    return (Reclaim(largest, cache, why),) if cache >= MIN_CACHE_BYTES else ()


def _high(situation: Situation, value: int, why: str) -> DesiredValues:
    if not situation.capabilities.supports(Knob.MEMORY_HIGH):
        return {}
    text = UNLIMITED_TEXT if value < 0 else str(value)
    return {BESTEFFORT: (Desired(Knob.MEMORY_HIGH, text, NAME, why),)}


def pressure_of(memory: Struct | None) -> str:
    """Why the node shall get no further best-effort pods."""
    if not isinstance(memory, Relief) or not memory.stopped:
        return ""
    return f"node memory {memory.used_percent}% used, no further best-effort pods from {memory.stop_percent}% on"


def figures_of(memory: Struct | None) -> dict[str, int]:
    """The figures of an event."""
    if not isinstance(memory, Relief):
        return {}
    return {
        "node.memory-percent": memory.used_percent,
        "stop-placing.percent": memory.stop_percent,
        "reclaim.percent": memory.reclaim_percent,
        "best-effort-high.memory-bytes": memory.high_bytes,
    }


def strategy(gates: frozenset[str]) -> Strategy:
    """Return the strategy; without its gate it only resets, once, the values of an earlier executor."""
    on = BE_MEMORY_EVICT in gates

    def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
        if on:
            return relief(situation, memory)
        return StrategyDecision({} if memory is not None else _high(situation, -1, "memory relief is off"), memory=Relief())

    def inputs(policy: NodePolicy) -> frozenset[Input]:
        enabled = is_asked(policy.slo, lambda slo: bool(_config(slo).enable))
        return frozenset((Input.USAGE,) if on and enabled else ())

    return Strategy(
        name=NAME,
        topic=NAME,
        sets=(Knob.MEMORY_HIGH,),
        decide=decide,
        inputs=inputs,
        cause=Cause.USAGE,
        figures=figures_of,
        pressure=pressure_of,
        section=THRESHOLD,
        reads=(SectionShape((THRESHOLD,), ReliefConfig),),
    )
