"""Eviction for CPU: what of the past counts, what the node offers, and whom each feature may take."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.strategies.cpu.evict.config import ByAllocatable, evict_config
from cotenant_node_executor.strategies.cpu.evict.strategy import STRATEGY, EvictMemory, decide
from cotenant_node_executor.strategies.cpu.evict.victims import CpuEvictionCandidate, evictable
from cotenant_node_executor.strategies.strategy import Evict, StrategyDecision
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import NODE, batch, evicted, pod, situation
from tests.unit.node_executor.strategies.test_cpu_evict import (
    SATISFACTION,
    SECOND_NS,
    after,
    evict_slo,
    reading,
    three,
    willing,
)

BY_USAGE = {"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 70, "evictEnabledPriorityThreshold": 5999}
BY_OFFER = {
    "cpuAllocatableEvictThresholdPercent": 100,
    "cpuAllocatableEvictLowerPercent": 90,
    "allocatableEvictPriorityThreshold": 5999,
}


def sampled(node_slo: NodeSLORendered, pods: list[Any], *samples: tuple[int, int, int]) -> StrategyDecision:
    """The decision on the last of samples a second apart: what the node and pod `a` use, and the quota of best-effort."""
    decision = StrategyDecision()
    for second, (node_milli, used, quota) in enumerate(samples):
        there = situation(
            pods,
            node_slo=node_slo,
            reading=reading(second, {"uid-a": used}, node_milli),
            current={(BESTEFFORT, Knob.CPU_QUOTA): str(quota * 100)},
        )
        decision = decide(there, decision.memory)
    return decision


def release(decision: StrategyDecision, feature: str) -> int:
    return STRATEGY.figures(decision.memory)[f"{feature}.release.cpu-milli"]


def test_usage_of_the_node_is_the_mean_of_the_window_and_older_samples_are_forgotten() -> None:
    node_slo = evict_slo(cpuEvictTimeWindowSeconds=3, **BY_USAGE)
    found = sampled(node_slo, [willing("a", 5000)], *((milli, 100, -1) for milli in (0, 0, 6000, 7000, 8000)))
    assert isinstance(found.memory, EvictMemory)
    assert [each.at_ns // SECOND_NS for each in found.memory.samples] == [2, 3, 4]
    assert release(found, "CPUEvict") == 8000 * (87 - 70) // 100
    (order,) = found.orders
    assert str(order).count("the node uses 7000m of 8000m, 80% or more: release 1360m") == 1


def test_satisfaction_is_of_the_windows_means_and_of_the_last_sample() -> None:
    node_slo = evict_slo(cpuEvictTimeWindowSeconds=3, **SATISFACTION)
    # Limits of 3,000, 2,000 and 1,000m are 2,000m on average: 12,000 x (0.4 - 2/12), the last one alone asks for 3,800m.
    found = sampled(node_slo, three(), (8000, 1400, 3000), (8000, 2000, 2000), (8000, 2000, 1000))
    assert release(found, "BECPUEvict") == 2800
    # 1,790m on average are not nine tenths of 2,000m.
    idle = sampled(node_slo, three(), (8000, 1370, 3000), (8000, 2000, 2000), (8000, 2000, 1000))
    assert idle.orders == ()
    assert STRATEGY.figures(found.memory) == {
        "best-effort.limit.cpu-milli": 1000,
        "best-effort.request.cpu-milli": 12_000,
        "best-effort.used.cpu-milli": 2000,
        "BECPUEvict.release.cpu-milli": 2800,
    }


def test_an_offer_of_nothing_evicts_who_is_willing_and_a_withdrawn_one_nobody() -> None:
    """Colocation was switched off, or the node's usage is unknown: running pods stay."""
    nothing = NodeResources(node=NODE)
    pods = [willing("a", 5000), willing("b", 5100)]
    mid = pod("m", requests={"kubernetes.io/mid-cpu": "700"}, limits={"kubernetes.io/mid-cpu": "700"}, priority=5000)
    mid = replace(mid, metadata=replace(mid.metadata, labels=pods[0].metadata.labels))
    used = {"uid-a": 10, "uid-b": 10, "uid-m": 10}
    found = after(1, evict_slo(**BY_OFFER), [*pods, mid], used, resources=nothing)
    assert evicted(found) == ["uid-a", "uid-b", "uid-m"]
    assert release(found, "CPUAllocatableEvict") == 2700, "of both resources"
    by_offer = evict_slo(cpuEvictPolicy="evictByAllocatable", **SATISFACTION, **BY_OFFER)
    assert evicted(after(30, by_offer, [*pods, mid], used, resources=replace(nothing, withdrawn=True))) == []


def test_an_evicted_pod_has_its_own_grace_period_and_at_most_half_a_minute() -> None:
    pods = [willing("a", 5000, terminationGracePeriodSeconds=1), willing("b", 5100, terminationGracePeriodSeconds=600)]
    found = after(1, evict_slo(**BY_OFFER), pods, {"uid-a": 10, "uid-b": 10}, resources=NodeResources(node=NODE))
    assert [(each.uid, each.grace_seconds) for each in found.orders if isinstance(each, Evict)] == [("uid-a", 1), ("uid-b", 30)]


def test_by_offer_requests_up_to_the_priority_count_and_measured_pods_go() -> None:
    pods = [willing("a", 5999), willing("b", 6000), willing("unmeasured", 5000)]
    offer = NodeResources(node=NODE, batch_cpu_milli=1999)
    found = after(1, evict_slo(**BY_OFFER), pods, {"uid-a": 10, "uid-b": 10}, resources=offer)
    assert (evicted(found), release(found, "CPUAllocatableEvict")) == (["uid-a"], 200)


@pytest.mark.parametrize(
    ("lower", "up_to", "on"), [(99, 5999, True), (100, 5999, False), (90, 7999, True), (90, 8000, False), (101, 5999, False)]
)
def test_the_feature_by_offer_needs_percentages_in_order_and_leaves_high_priorities_alone(
    lower: int, up_to: int, on: bool
) -> None:
    stated = {**BY_OFFER, "cpuAllocatableEvictLowerPercent": lower, "allocatableEvictPriorityThreshold": up_to}
    found = evict_config(evict_slo(**stated))
    assert (found is not None) is on
    assert found is None or found.allocatable == ByAllocatable(100, lower, up_to)


def test_a_pod_is_evictable_up_to_and_with_the_priority_and_one_without_is_not() -> None:
    yes = {"koordinator.sh/eviction-enabled": "true"}
    for priority, up_to, may in ((5000, 5000, True), (5001, 5000, False), (0, 0, True), (0, -1, False), (None, 5000, False)):
        assert evictable(CpuEvictionCandidate("u", priority, 0, 0, yes), "CPUEvict", up_to) is may


def test_a_pod_without_a_sample_counts_as_idle() -> None:
    pods = [batch("a", 6000, priority=5000), batch("b", 6000, priority=5000), batch("z", 1, priority=9999)]
    found = after(1, evict_slo(**SATISFACTION), pods, {"uid-a": 0, "uid-z": 2000})
    assert evicted(found) == ["uid-a"]


def test_a_sample_counts_once_however_often_it_is_looked_at() -> None:
    node_slo = evict_slo(cpuEvictTimeWindowSeconds=3, **BY_USAGE)
    there = situation([willing("a", 5000)], node_slo=node_slo, reading=reading(1, {"uid-a": 1}, 1000))
    first = decide(there, None)
    assert decide(there, first.memory).memory == first.memory
    without = replace(there, snapshot=None)
    assert decide(without, first.memory) == StrategyDecision(memory=first.memory)
