"""Memory eviction: pods are evicted while memory usage, or requests of mid and batch memory, are above a threshold.

In: memory of the node and its pods, thresholds of the NodeSLO, mid and batch memory. Out: evictions, repeated while the
pods exist; the evictor carries out each once, and keeps the cool-down.

| feature | compares | evicts |
|---|---|---|
| BEMemoryEvict | memory used, with `memoryEvictThresholdPercent` | pods labelled BE |
| MemoryEvict | the same | pods with `koordinator.sh/eviction-enabled: "true"` up to `evictEnabledPriorityThreshold` |
| MemoryAllocatableEvict | what pods request of mid and batch memory, with what is offered | the same, up to another priority |

    used percent = used * 100 // capacity; below the threshold nothing
    release = capacity * (used percent - lower) // 100       lower: memoryEvictLowerPercent, or threshold - 2
    release = requests - lower % of what is offered           where pods up to `allocatableEvictPriorityThreshold` request
                                                              more than `memoryAllocatableEvictThresholdPercent` of it;
                                                              all where 0 is offered

If the amounts are unknown or withdrawn (no metric) that feature does nothing: upstream takes that for 0 and evicts everything.
Source: memory eviction, koordlet rule and the newer features by priority and allocatable.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from cotenant.api.objects.pod_resources import pod_requests
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant.model.names import BATCH_MEMORY, MID_MEMORY
from cotenant_node_executor.strategies.memory.victims import (
    MemoryEvictionCandidate,
    MemoryVictim,
    Task,
    Traits,
    traits,
    victims,
)
from cotenant_node_executor.strategies.pod_eviction import HIGHEST_BY_OFFER
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import THRESHOLD, SectionShape, is_asked, lower_name, section
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Evict, Input, NodePolicy, Strategy, StrategyDecision

NAME = "memory-evict"
BE_MEMORY_EVICT = "BEMemoryEvict"
MEMORY_EVICT = "MemoryEvict"
MEMORY_ALLOCATABLE_EVICT = "MemoryAllocatableEvict"
USED = "used"
"""The target of the features by usage: the node's memory in bytes."""
COOL_DOWN_SECONDS = 4.0
LOWER_BY = 2
"""Percent below the threshold that are released by default."""
_OFFERED = (MID_MEMORY, BATCH_MEMORY)


class MemoryEvictConfig(Struct, frozen=True, kw_only=True, rename=lower_name):
    """The thresholds, in percent; None: unset."""

    enable: bool | None = None
    memory_evict_threshold_percent: int | None = 70
    memory_evict_lower_percent: int | None = None
    evict_enabled_priority_threshold: int | None = None
    memory_allocatable_evict_threshold_percent: int | None = None
    memory_allocatable_evict_lower_percent: int | None = None
    allocatable_evict_priority_threshold: int | None = None


class MemoryFigures(Struct, frozen=True):
    """The figures of the last decision, in bytes and percent."""

    capacity_bytes: int
    used_bytes: int
    used_percent: int
    threshold_percent: int
    release_bytes: int


def band(threshold: int | None, lower: int | None) -> tuple[int, int] | None:
    """Return threshold and lower percent; None where they are unset or not in order."""
    if threshold is None or threshold < 0:
        return None
    low = threshold - LOWER_BY if lower is None else lower
    return (threshold, low) if low < threshold else None


def used_percent(capacity_bytes: int, used_bytes: int) -> int:
    """Return the used share, in whole percent."""
    return used_bytes * 100 // capacity_bytes


def to_release(config: MemoryEvictConfig, capacity_bytes: int, used_bytes: int) -> int:
    """Return how much memory usage must be released, in bytes; 0 for none."""
    limits = band(config.memory_evict_threshold_percent, config.memory_evict_lower_percent)
    if limits is None or capacity_bytes <= 0:
        return 0
    percent = used_percent(capacity_bytes, used_bytes)
    return capacity_bytes * (percent - limits[1]) // 100 if percent >= limits[0] else 0


def is_configured(config: MemoryEvictConfig, features: frozenset[str]) -> bool:
    """Whether any of these features has its thresholds."""
    if not config.enable:
        return False
    by_usage = config.memory_evict_threshold_percent is not None and (
        BE_MEMORY_EVICT in features or (MEMORY_EVICT in features and config.evict_enabled_priority_threshold is not None)
    )
    return by_usage or (
        MEMORY_ALLOCATABLE_EVICT in features and config.memory_allocatable_evict_threshold_percent is not None
    )


def usage_tasks(config: MemoryEvictConfig, capacity_bytes: int, used_bytes: int, features: frozenset[str]) -> list[Task]:
    """Return what the features by usage need."""
    release = to_release(config, capacity_bytes, used_bytes)
    if release <= 0:
        return []
    why = (
        f"node memory {used_percent(capacity_bytes, used_bytes)}% used ({used_bytes} of {capacity_bytes} bytes), threshold "
        f"{config.memory_evict_threshold_percent}%: {release} bytes to release"
    )
    tasks = [Task(BE_MEMORY_EVICT, USED, release, why, False)] if BE_MEMORY_EVICT in features else []
    highest = config.evict_enabled_priority_threshold
    if MEMORY_EVICT in features and highest is not None:
        tasks.append(Task(MEMORY_EVICT, USED, release, why, True, highest))
    return tasks


def allocatable_tasks(config: MemoryEvictConfig, requested: Mapping[str, int], offered: Mapping[str, int]) -> list[Task]:
    """Return what the feature by allocatable needs, by resource. `requested`: by the pods up to the priority."""
    threshold, lower = config.memory_allocatable_evict_threshold_percent, config.memory_allocatable_evict_lower_percent
    highest = config.allocatable_evict_priority_threshold
    if threshold is None or lower is None or lower >= threshold or highest is None or highest > HIGHEST_BY_OFFER:
        return []
    tasks: list[Task] = []
    for resource in _OFFERED:
        asked, offer = requested.get(resource, 0), offered.get(resource)
        if not asked or offer is None or asked * 100 <= threshold * offer:
            continue
        release = asked - offer * lower // 100 if offer > 0 else asked
        why = f"{resource} requested {asked} of {offer} offered, threshold {threshold}%: {release} to release"
        tasks.append(Task(MEMORY_ALLOCATABLE_EVICT, resource, release, why, True, highest))
    return tasks


def candidates(situation: Situation) -> list[MemoryEvictionCandidate]:
    """Return the existing pods, with their memory and their mid and batch requests. A pod without a sample counts 0 used;
    features by priority take only pods with one."""
    snapshot = situation.snapshot
    found: list[MemoryEvictionCandidate] = []
    for _, pod in sorted(situation.pods.items()):
        sample = snapshot.pods.get(pod.uid) if snapshot is not None else None
        used = sample.usage.memory_bytes if sample is not None else None
        amounts = _requests(pod)
        if used is not None:
            amounts[USED] = used
        found.append(MemoryEvictionCandidate(pod.uid, pod.name, traits(pod.manifest), amounts))
    return found


def _requests(pod: PodView) -> dict[str, int]:
    batch = sum([c.batch.request_memory_bytes or 0 for c in pod.shape.containers if c.batch is not None])
    mid = pod_requests(pod.manifest).get(MID_MEMORY, 0)
    return {name: amount for name, amount in ((BATCH_MEMORY, batch), (MID_MEMORY, mid)) if amount}


def chosen(tasks: list[Task], pods: list[MemoryEvictionCandidate], leaving: frozenset[str]) -> list[MemoryVictim]:
    """Return the victims; features by priority never take a pod without a sample."""
    by_usage = [task for task in tasks if not task.by_priority]
    others = [task for task in tasks if task.by_priority]
    found = victims(by_usage, pods, leaving)
    measured = [pod for pod in pods if USED in pod.amounts or pod.uid in leaving]
    return found + victims(others, measured, leaving | {each.candidate.uid for each in found})


@by_identity
def _config(slo: NodeSLORendered) -> MemoryEvictConfig:
    return section(slo, THRESHOLD, MemoryEvictConfig)


def decide_with(situation: Situation, features: frozenset[str]) -> StrategyDecision:
    """Evict the pods that these features choose, and repeat orders in progress."""
    slo, snapshot = situation.slo, situation.snapshot
    if slo is None or snapshot is None:
        return StrategyDecision()
    config, capacity, used = _config(slo), situation.node.memory_bytes, snapshot.node.memory_bytes
    if not config.enable or capacity <= 0:
        return StrategyDecision()
    tasks = usage_tasks(config, capacity, used, features)
    by_offer = MEMORY_ALLOCATABLE_EVICT in features and config.memory_allocatable_evict_threshold_percent is not None
    if not tasks and not by_offer:
        return StrategyDecision()
    pods = candidates(situation)
    if by_offer:
        tasks += allocatable_tasks(config, _requested(pods, config), situation.offered)
    found = chosen(tasks, pods, situation.evicting)
    figures = MemoryFigures(
        capacity,
        used,
        used_percent(capacity, used),
        config.memory_evict_threshold_percent or 0,
        max([task.release for task in tasks if task.target == USED], default=0),
    )
    orders = tuple([_order(each) for each in found])
    return StrategyDecision(orders=orders, memory=figures)


def _requested(pods: list[MemoryEvictionCandidate], config: MemoryEvictConfig) -> dict[str, int]:
    highest = config.allocatable_evict_priority_threshold
    if highest is None:
        return {}
    counted = [pod for pod in pods if pod.traits.priority_value <= highest]
    return {resource: sum([pod.amount(resource) for pod in counted]) for resource in _OFFERED}


def _order(victim: MemoryVictim) -> Evict:
    own = victim.candidate
    return Evict(own.uid, _why(victim), own.traits.grace_seconds, by_offer=victim.task.target != USED)


def _why(victim: MemoryVictim) -> str:
    task, own = victim.task, victim.candidate
    return f"trigger by koordlet feature {task.feature}: {task.why}; it {_amount(own.traits, own.amount(task.target), task)}"


def _amount(own: Traits, amount: int, task: Task) -> str:
    verb = "uses" if task.target == USED else "requests"
    return f"{verb} {amount}, priority {own.priority if own.priority is not None else 'unset'}"


def figures_of(memory: Struct | None) -> dict[str, int]:
    """Return the figures of an event."""
    if not isinstance(memory, MemoryFigures):
        return {}
    return {
        "capacity.memory-bytes": memory.capacity_bytes,
        "node.memory-bytes": memory.used_bytes,
        "node.memory-percent": memory.used_percent,
        "threshold.percent": memory.threshold_percent,
        "release.memory-bytes": memory.release_bytes,
    }


def strategy(features: frozenset[str]) -> Strategy:
    """Return the strategy with these features."""

    def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
        return decide_with(situation, features)

    def inputs(policy: NodePolicy) -> frozenset[Input]:
        asked = is_asked(policy.slo, lambda slo: is_configured(_config(slo), features))
        return frozenset((Input.USAGE, Input.PODS, Input.RESOURCES) if asked else ())

    return Strategy(
        name=NAME,
        topic="memory-evict",
        sets=(),
        decide=decide,
        inputs=inputs,
        cause=Cause.USAGE,
        figures=figures_of,
        cool_down_seconds=COOL_DOWN_SECONDS,
        section=THRESHOLD,
        reads=(SectionShape((THRESHOLD,), MemoryEvictConfig),),
    )
