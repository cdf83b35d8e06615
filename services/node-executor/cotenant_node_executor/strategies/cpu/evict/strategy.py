"""Eviction for CPU: of batch pods that get too little, and of pods that allow it while usage or requests are too high.

In: the situation; the memory holds the samples of the window. Out: orders.

| feature | asks for | victims | releases |
|---|---|---|---|
| BECPUEvict | satisfaction of batch pods (`satisfaction`) | batch pods | batch-cpu requests |
| CPUAllocatableEvict | requests above a percentage of the offered batch-cpu, or mid-cpu | by priority | requests |
| CPUEvict | usage of the node above a percentage | by priority | usage |

The features count each other's evictions: a pod that one of them evicts counts for the next, and an evicted pod counts
until it is gone. The evictor keeps the cool-down, COOL_DOWN_SECONDS after the start and after an eviction. Nothing follows
from the node's batch and mid resources while they are unknown or withdrawn; upstream takes that for 0 and evicts everything.
Source: CPU eviction, koordlet rules (v1.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from msgspec import Struct

from cotenant.domain.qos import QoSClass, priority_value_default
from cotenant.model.names import BATCH_CPU, MID_CPU
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.usage import best_effort_real_limit_milli, best_effort_request_milli
from cotenant_node_executor.strategies.cpu.evict.config import (
    ByAllocatable,
    ByUsage,
    CpuEvictConfig,
    CpuEvictSection,
    evict_config,
)
from cotenant_node_executor.strategies.cpu.evict.satisfaction import BestEffort, SatisfactionConfig, release_milli
from cotenant_node_executor.strategies.cpu.evict.thresholds import allocatable_release_milli, usage_release_milli
from cotenant_node_executor.strategies.cpu.evict.victims import (
    CpuEvictionCandidate,
    by_priority,
    by_satisfaction,
    evictable,
    taken,
)
from cotenant_node_executor.strategies.pod_eviction import grace_seconds
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.readings import best_effort_cpu_milli, pod_cpu_milli
from cotenant_node_executor.strategies.sections import THRESHOLD, SectionShape
from cotenant_node_executor.strategies.situation import Situation, in_best_effort_tree
from cotenant_node_executor.strategies.strategy import Cause, Evict, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.convert import PERIOD_US
from cotenant_node_executor.targets.cpulist import smallest_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, UNLIMITED_TEXT, Knob

NAME = "cpu-evict"
SECOND_NS = 1_000_000_000
INTERVAL_SECONDS = 1.0
"""The collection interval that windows are compared with."""
COOL_DOWN_SECONDS = 20.0
MOST_SAMPLES = 600
"""A window of more samples is shortened."""
_CPUS = Knob.CPUSET_CPUS
SATISFACTION, ALLOCATABLE, USAGE = "BECPUEvict", "CPUAllocatableEvict", "CPUEvict"


class Sample(Struct, frozen=True):
    """One sample, in milli-CPU."""

    at_ns: int
    node_milli: int
    best_effort: BestEffort


class EvictMemory(Struct, frozen=True):
    """The last decision."""

    samples: tuple[Sample, ...] = ()
    figures: Mapping[str, int] = {}


class CpuEvictionTask(Struct, frozen=True):
    """One feature's task: candidates in order, and how much of their amounts must be released."""

    feature: str
    candidates: Sequence[CpuEvictionCandidate]
    release_milli: int
    amount: Callable[[CpuEvictionCandidate], int]
    why: str


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The evictions that the last sample requires, beside the pods that are being ended."""
    snapshot, slo = situation.snapshot, situation.slo
    config = evict_config(slo) if slo is not None else None
    if config is None:
        return StrategyDecision()
    if snapshot is None or snapshot.node.cpu_milli is None:
        return StrategyDecision(memory=memory)
    before = memory if isinstance(memory, EvictMemory) else EvictMemory()
    samples = _with_sample(situation, before.samples, config, snapshot, snapshot.node.cpu_milli)
    tasks = _tasks(situation, config, samples, snapshot)
    chosen = _chosen(tasks, situation.evicting)
    figures = _figures_of(samples[-1].best_effort, tasks) if chosen else before.figures
    grace = {pod.uid: grace_seconds(pod.manifest) for pod in situation.pods.values() if pod.uid in chosen} if chosen else {}
    orders = tuple([Evict(uid, why, grace[uid], by_offer=feature == ALLOCATABLE) for uid, (feature, why) in chosen.items()])
    return StrategyDecision(orders=orders, memory=EvictMemory(samples, figures))


def _with_sample(
    situation: Situation, samples: tuple[Sample, ...], config: CpuEvictConfig, snapshot: UsageSnapshot, node_milli: int
) -> tuple[Sample, ...]:
    """The samples of the window with this one, which counts once however often it is read."""
    now_ns = snapshot.monotonic_ns
    if samples and samples[-1].at_ns == now_ns:
        return samples
    since_ns = now_ns - int(config.window.window_of(INTERVAL_SECONDS) * SECOND_NS)
    recent = [each for each in samples if since_ns < each.at_ns < now_ns]
    pods = situation.pods.values()
    best_effort = BestEffort(
        used_milli=best_effort_cpu_milli(snapshot),
        request_milli=best_effort_request_milli((pod.qos.value, (_batch_milli(pod),)) for pod in pods),
        real_limit_milli=_real_limit_milli(situation),
    )
    return (*recent[1 - MOST_SAMPLES :], Sample(now_ns, node_milli, best_effort))


def _real_limit_milli(situation: Situation) -> int:
    """The limit of best-effort work, by the files as they are: the smallest CPU set of the best-effort group and the containers
    that are watched, which are those that have fewer CPUs than the group."""
    quota = situation.current.get((BESTEFFORT, Knob.CPU_QUOTA), UNLIMITED_TEXT)
    sets = [text for (group, knob), text in situation.current.items() if knob is _CPUS and text and in_best_effort_tree(group)]
    cpus = len(smallest_cpu_list(sets[0], sets[1:])) if sets else len(situation.node.processors)
    return best_effort_real_limit_milli(cpus, int(quota), PERIOD_US)


def _average(samples: Sequence[Sample]) -> BestEffort:
    found, count = [each.best_effort for each in samples], len(samples)
    return BestEffort(
        used_milli=sum(each.used_milli for each in found) / count,
        request_milli=sum(each.request_milli for each in found) / count,
        real_limit_milli=sum(each.real_limit_milli for each in found) / count,
        count=count,
    )


def _tasks(
    situation: Situation, config: CpuEvictConfig, samples: Sequence[Sample], snapshot: UsageSnapshot
) -> list[CpuEvictionTask]:
    """Each feature's task, in a stated order."""
    pods = [situation.pods[group] for group in sorted(situation.pods)]
    found: list[CpuEvictionTask] = []
    if config.satisfaction is not None:
        found.append(_by_satisfaction(situation, config.satisfaction, samples, snapshot, pods))
    if config.allocatable is not None:
        found += _by_allocatable(situation, config.allocatable, snapshot, pods)
    if config.usage is not None:
        found.append(_by_usage(situation, config.usage, samples, snapshot, pods))
    return [task for task in found if task.release_milli > 0]


def _by_satisfaction(
    situation: Situation,
    config: SatisfactionConfig,
    samples: Sequence[Sample],
    snapshot: UsageSnapshot,
    pods: Sequence[PodView],
) -> CpuEvictionTask:
    current = samples[-1].best_effort
    release = release_milli(config, INTERVAL_SECONDS, situation.offered.get(BATCH_CPU), _average(samples), current)
    candidates = [_candidate(pod, _batch_milli(pod), snapshot) for pod in pods if pod.qos is QoSClass.BE]
    why = (
        f"best-effort uses {int(current.used_milli)}m of {int(current.real_limit_milli)}m for {int(current.request_milli)}m "
        f"requested, satisfaction at or below {config.lower_percent}%: release {release}m"
    )
    return CpuEvictionTask(SATISFACTION, by_satisfaction(candidates), release, _request, why)


def _by_allocatable(
    situation: Situation, config: ByAllocatable, snapshot: UsageSnapshot, pods: Sequence[PodView]
) -> list[CpuEvictionTask]:
    found: list[CpuEvictionTask] = []
    for name, resource, of_pod in (("batch-cpu", BATCH_CPU, _batch_milli), ("mid-cpu", MID_CPU, _mid_milli)):
        offered = situation.offered.get(resource)
        if offered is None:
            continue
        asking = [(pod, amount) for pod in pods if (amount := of_pod(pod)) > 0]
        requested = sum([own for pod, own in asking if priority_value_default(pod.manifest) <= config.up_to_priority])
        release = allocatable_release_milli(requested, offered, config.threshold_percent, config.lower_percent)
        measured = [_candidate(pod, own, snapshot) for pod, own in asking if pod.uid in snapshot.pods]
        candidates = [pod for pod in measured if evictable(pod, ALLOCATABLE, config.up_to_priority)]
        why = f"{requested}m of {name} requested, {offered}m offered, above {config.threshold_percent}%: release {release}m"
        found.append(CpuEvictionTask(ALLOCATABLE, by_priority(candidates, then_usage=False), release, _request, why))
    return found


def _by_usage(
    situation: Situation, config: ByUsage, samples: Sequence[Sample], snapshot: UsageSnapshot, pods: Sequence[PodView]
) -> CpuEvictionTask:
    used = sum(each.node_milli for each in samples) / len(samples)
    capacity = situation.node.capacity_milli
    release = usage_release_milli(capacity, used, config.threshold_percent, config.lower_percent)
    measured = [_candidate(pod, 0, snapshot) for pod in pods if pod_cpu_milli(snapshot, pod.uid) is not None]
    candidates = [pod for pod in measured if evictable(pod, USAGE, config.up_to_priority)]
    why = f"the node uses {int(used)}m of {capacity}m, {config.threshold_percent}% or more: release {release}m"
    return CpuEvictionTask(USAGE, by_priority(candidates, then_usage=True), release, _used, why)


def _chosen(tasks: Sequence[CpuEvictionTask], evicting: Set[str]) -> dict[str, tuple[str, str]]:
    """New victims with feature and reason, in the order in which they were chosen."""
    chosen: dict[str, tuple[str, str]] = {}
    for task in tasks:
        leaves = [pod.uid in evicting or pod.uid in chosen for pod in task.candidates]
        released = sum(task.amount(pod) for pod, gone in zip(task.candidates, leaves, strict=True) if gone)
        staying = [pod for pod, gone in zip(task.candidates, leaves, strict=True) if not gone]
        for pod in taken(staying, task.release_milli, task.amount, released):
            chosen[pod.uid] = task.feature, f"{task.feature}: {task.why}"
    return chosen


def _candidate(pod: PodView, request_milli: int, snapshot: UsageSnapshot) -> CpuEvictionCandidate:
    used = pod_cpu_milli(snapshot, pod.uid) or 0
    return CpuEvictionCandidate(pod.uid, pod.priority, request_milli, used, pod.labels, pod.annotations)


def _request(pod: CpuEvictionCandidate) -> int:
    return pod.request_milli


def _used(pod: CpuEvictionCandidate) -> int:
    return pod.used_milli


def _batch_milli(pod: PodView) -> int:
    """A pod's request of batch-cpu."""
    amounts = (each.batch.request_cpu_milli or 0 for each in pod.shape.containers if each.batch is not None)
    return sum(max(amount, 0) for amount in amounts)


def _mid_milli(pod: PodView) -> int:
    """A pod's request of mid-cpu."""
    return pod.mid_cpu_milli


def _figures_of(best_effort: BestEffort, tasks: Sequence[CpuEvictionTask]) -> dict[str, int]:
    figures = {
        "best-effort.limit.cpu-milli": int(best_effort.real_limit_milli),
        "best-effort.request.cpu-milli": int(best_effort.request_milli),
        "best-effort.used.cpu-milli": int(best_effort.used_milli),
    }
    for task in tasks:  # one feature may have a task for each resource
        name = f"{task.feature}.release.cpu-milli"
        figures[name] = figures.get(name, 0) + task.release_milli
    return figures


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    if policy.slo is None or evict_config(policy.slo) is None:
        return frozenset()
    return frozenset((Input.PODS, Input.CYCLE))


def _figures(memory: Struct | None) -> dict[str, int]:
    return dict(memory.figures) if isinstance(memory, EvictMemory) else {}


STRATEGY = Strategy(
    name=NAME,
    topic="cpu-evict",
    sets=(),
    decide=decide,
    inputs=_inputs,
    cause=Cause.USAGE,
    figures=_figures,
    cool_down_seconds=COOL_DOWN_SECONDS,
    cools_down_first=True,
    section=THRESHOLD,
    reads=(SectionShape((THRESHOLD,), CpuEvictSection),),
)
