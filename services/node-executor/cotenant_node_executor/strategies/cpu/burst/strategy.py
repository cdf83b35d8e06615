"""CPU burst of pods that are not LSR, LSE or BE: the kernel's burst by configuration, and quotas by steps.

In: the situation; the memory holds each container's quota and bucket, and the share pool's usage over the last seconds. Out:
bursts of containers and pods, and quotas of those above their limit, with the pod's quota above by the same amount.

A quota moves once a sample. It starts at the limit, also after a restart; a container with CPUs of its own has none, and one
at its limit is left to other strategies, so that no other strategy's quota is overwritten. With CPU normalisation the limit is
the normalised one. Source: CPU burst, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from zlib import crc32

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.sampling.snapshot import GroupUsage, UsageSnapshot
from cotenant_node_executor.strategies.cpu.burst.config import (
    ANNOTATION_CPU_BURST,
    SECTION,
    BurstConfig,
    BurstStrategy,
    burst_strategy,
    pod_config,
    policy_problems,
)
from cotenant_node_executor.strategies.cpu.burst.kernel_burst import MAX_BURST_US, pod_bursts_us
from cotenant_node_executor.strategies.cpu.burst.quota_burst import next_pod_quota_us, next_quota_us, operation
from cotenant_node_executor.strategies.cpu.burst.share_pool import PoolState, pool_state, pool_total_milli, pool_used_milli
from cotenant_node_executor.strategies.cpu.burst.token_bucket import Bucket, admit, usage_percent
from cotenant_node_executor.strategies.cpu.normalization import OFF, adopted_ratio, normalized_quota_us, shares_cpus
from cotenant_node_executor.strategies.pod_view import PodShape, PodView
from cotenant_node_executor.strategies.readings import container_usages, pod_cpu_milli
from cotenant_node_executor.strategies.sections import SectionShape
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.convert import MIN_QUOTA_US
from cotenant_node_executor.targets.interface import Knob

NAME = "cpu-burst"
WINDOW_NS = 5_000_000_000
"""The share pool's load is an average over this time: five reconcile intervals of a second."""
MOST_SAMPLES = 20
_NOT_BURSTABLE = frozenset((QoSClass.LSR, QoSClass.LSE, QoSClass.BE))


class Burst(Struct, frozen=True):
    """One container: its quota, its limit as a quota (µs), and the limiter's bucket."""

    quota_us: int
    base_us: int
    bucket: Bucket | None = None


class BurstMemory(Struct, frozen=True):
    """The last decision. `pool`: the share pool's usage by sample (ns, milli-CPU); `containers`: by group."""

    at_ns: int = 0
    pool: tuple[tuple[int, float], ...] = ()
    containers: Mapping[str, Burst] = {}
    state: PoolState = PoolState.UNKNOWN
    pool_used_milli: int = 0
    pool_total_milli: int = 0


_NEW = BurstMemory()


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Bursts, and one step of every quota when the sample is a new one."""
    before = memory if isinstance(memory, BurstMemory) else _NEW
    node = burst_strategy(situation.slo) if situation.slo is not None else None
    problems = policy_problems(situation.slo)
    bursting = [(pod, config) for pod, config in _configured(situation, node) if _has_effect(config)]
    if not bursting:
        return StrategyDecision(problems=problems)
    threshold = node.share_pool_threshold_percent if node is not None else 50
    now = _with_pool(situation, before, threshold)
    steps = situation.snapshot if now.at_ns != before.at_ns else None
    ratio = adopted_ratio(OFF, situation.resources)
    desired: dict[Place, tuple[Desired, ...]] = {}
    containers: dict[str, Burst] = {}
    for pod, config in bursting:
        bursts = _quotas(pod, config, now, before.containers, steps, ratio)
        containers |= bursts
        for group, values in _desired(pod, config, bursts, now.state).items():
            desired[group] = values
    return StrategyDecision(desired, memory=_replaced(now, containers), problems=problems)


def _configured(situation: Situation, node: BurstConfig | None) -> list[tuple[PodView, BurstConfig]]:
    """The pods that may burst with their configurations, by group."""
    on = node is not None and _has_effect(node)
    found: list[tuple[PodView, BurstConfig]] = []
    if node is None:
        return found
    asked = [group for group, pod in situation.pods.items() if on or ANNOTATION_CPU_BURST in pod.annotations]
    for group in sorted(asked):
        pod = situation.pods[group]
        if pod.qos in _NOT_BURSTABLE or pod.shape.holds_cpus:
            continue
        config = pod_config(node, pod.annotations)
        if config is not None:
            found.append((pod, config))
    return found


def _has_effect(config: BurstConfig) -> bool:
    return config.bursts_in_kernel or config.bursts_by_quota


def _with_pool(situation: Situation, before: BurstMemory, threshold_percent: int) -> BurstMemory:
    """The memory with the share pool of this sample."""
    snapshot = situation.snapshot
    if snapshot is None or snapshot.node.cpu_milli is None:
        return before
    now_ns, pods = snapshot.monotonic_ns, situation.pods.values()
    pool = before.pool
    if now_ns != before.at_ns:
        samples = {pod.uid: float(milli) for pod in pods if (milli := pod_cpu_milli(snapshot, pod.uid)) is not None}
        used = pool_used_milli(float(snapshot.node.cpu_milli), [(pod.uid, pod.qos) for pod in pods], samples)
        recent = [each for each in pool if now_ns - WINDOW_NS < each[0] < now_ns]
        pool = (*recent[1 - MOST_SAMPLES :], (now_ns, used))
    average = sum(used for _, used in pool) / len(pool)
    total = pool_total_milli(len(situation.node.processors), [(pod.qos, pod.shape.requested_milli) for pod in pods])
    state = pool_state(threshold_percent, total, average)
    return BurstMemory(now_ns, pool, before.containers, state, int(average), total)


def _quotas(
    pod: PodView,
    config: BurstConfig,
    now: BurstMemory,
    before: Mapping[str, Burst],
    snapshot: UsageSnapshot | None,
    ratio: float,
) -> dict[str, Burst]:
    """The burst of each of a pod's limited containers; without a snapshot no quota moves."""
    found: dict[str, Burst] = {}
    if not config.bursts_by_quota:
        return found
    usages: tuple[GroupUsage | None, ...] = container_usages(snapshot, pod) if snapshot is not None else ()
    for index, (group, container) in enumerate(zip(pod.groups[1:], pod.shape.containers, strict=True)):
        limit = container.limit_cpu_milli or 0
        if limit <= 0:
            continue
        base = _base_us(pod.shape, limit, ratio)
        last = before.get(group)
        current = last.quota_us if last is not None else base
        bucket = last.bucket if last is not None else None
        usage = usages[index] if usages else None
        if usage is None:
            found[group] = Burst(max(current, base), base, bucket)
            continue
        percent = usage_percent(usage.cpu_milli, limit)
        admitted, bucket = admit(config, bucket, percent, now.at_ns, crc32(group.encode()) % 500 / 1000)
        chosen = operation(config, now.state, usage.throttled_ratio, admitted)
        found[group] = Burst(next_quota_us(config, chosen, base, current), base, bucket)
    return found


def _base_us(shape: PodShape, limit_milli: int, ratio: float) -> int:
    """The quota of a container's limit."""
    base = max(limit_milli * 100, MIN_QUOTA_US)
    normal = normalized_quota_us(base, ratio) if shares_cpus(shape.qos, shape.holds_cpus) else None
    return max(base if normal is None else normal, MIN_QUOTA_US)


def _desired(
    pod: PodView, config: BurstConfig, bursts: Mapping[str, Burst], state: PoolState
) -> dict[str, tuple[Desired, ...]]:
    """The values of a pod and its containers."""
    limits = [container.limit_cpu_milli for container in pod.shape.containers]
    of_pod, of_containers = pod_bursts_us(config, limits)
    found: dict[str, tuple[Desired, ...]] = {}
    if config.bursts_in_kernel:
        why = f"{config.cpu_burst_percent}% of the limit"
        for group, burst_us in zip(pod.groups, (of_pod, *of_containers), strict=True):
            found[group] = (Desired(Knob.CPU_BURST, str(min(burst_us, MAX_BURST_US)), NAME, why),)
    above = {group: burst for group, burst in bursts.items() if burst.quota_us > burst.base_us}
    if not above:
        return found
    why = f"throttled containers may use more than their limit, the share pool is {state}"
    for group, burst in above.items():
        found[group] = (*found.get(group, ()), Desired(Knob.CPU_QUOTA, str(burst.quota_us), NAME, why))
    if all(limits):
        base = sum(burst.base_us for burst in bursts.values())
        whole = next_pod_quota_us(base, [burst.quota_us - burst.base_us for burst in above.values()])
        found[pod.group] = (*found.get(pod.group, ()), Desired(Knob.CPU_QUOTA, str(whole), NAME, why))
    return found


def _replaced(now: BurstMemory, containers: Mapping[str, Burst]) -> BurstMemory:
    return BurstMemory(now.at_ns, now.pool, containers, now.state, now.pool_used_milli, now.pool_total_milli)


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    if policy.slo is None or burst_strategy(policy.slo) is None:
        return frozenset()
    return frozenset((Input.PODS, Input.USAGE))


def _figures(memory: Struct | None) -> dict[str, int]:
    if not isinstance(memory, BurstMemory):
        return {}
    return {"share-pool.cpu-milli": memory.pool_total_milli, "share-pool.used.cpu-milli": memory.pool_used_milli}


STRATEGY = Strategy(
    name=NAME,
    topic="cpu-burst",
    sets=(Knob.CPU_BURST, Knob.CPU_QUOTA),
    decide=decide,
    inputs=_inputs,
    cause=Cause.USAGE,
    figures=_figures,
    section=SECTION,
    reads=(SectionShape((SECTION,), BurstStrategy),),
)
