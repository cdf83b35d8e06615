"""Eviction for CPU: who goes, when, how many, and why."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.model.subjects import slo_subject
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.strategies.cpu.evict.config import evict_config
from cotenant_node_executor.strategies.cpu.evict.satisfaction import BestEffort, SatisfactionConfig, release_milli
from cotenant_node_executor.strategies.cpu.evict.strategy import STRATEGY, decide
from cotenant_node_executor.strategies.cpu.evict.thresholds import allocatable_release_milli, usage_release_milli
from cotenant_node_executor.strategies.cpu.evict.victims import (
    CpuEvictionCandidate,
    by_priority,
    by_satisfaction,
    evictable,
    taken,
)
from cotenant_node_executor.strategies.strategy import Evict, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, Bench, batch, capabilities, evicted, situation, slo, snapshot

SECOND_NS = 1_000_000_000
SATISFACTION = {"cpuEvictBESatisfactionLowerPercent": 30, "cpuEvictBESatisfactionUpperPercent": 40}


def evict_slo(**section: Any) -> NodeSLORendered:
    document = {"resourceUsedThresholdWithBE": {"enable": True, **section}}
    return slo(spec=encoded(document))


def reading(second: int, used: dict[str, int], node_milli: int = 8000) -> UsageSnapshot:
    found = replace(snapshot(node_milli, used), monotonic_ns=second * SECOND_NS)
    return replace(found, pods={uid: replace(each, tier=BESTEFFORT) for uid, each in found.pods.items()})


def after(
    seconds: int,
    node_slo: NodeSLORendered,
    pods: list[Pod],
    used: dict[str, int],
    *,
    quota: int = 200_000,
    node_milli: int = 8000,
    resources: NodeResources | None = None,
    memory: msgspec.Struct | None = None,
    since: int = 0,
    evicting: frozenset[str] = frozenset(),
) -> StrategyDecision:
    """The last decision of so many samples."""
    decision = StrategyDecision(memory=memory)
    for second in range(since, since + seconds):
        there = situation(
            pods,
            node_slo=node_slo,
            reading=reading(second, used, node_milli),
            current={(BESTEFFORT, Knob.CPU_QUOTA): str(quota)},
        )
        decision = decide(replace(there, resources=resources, evicting=evicting), decision.memory)
    return decision


def three() -> list[Pod]:
    return [batch("a", 4000, priority=5500), batch("b", 4000, priority=5100), batch("c", 4000, priority=5500)]


USED = {"uid-a": 600, "uid-b": 700, "uid-c": 700}


def test_starved_batch_pods_are_evicted_lowest_priority_first_until_the_rest_is_satisfied() -> None:
    found = after(30, evict_slo(**SATISFACTION), three(), USED)
    # 12,000m requested, 2,000m to be had: 12,000 x (0.4 - 2/12) = 2,800m must go, which is one pod.
    assert evicted(found) == ["uid-b"]
    (order,) = found.orders
    assert isinstance(order, Evict)
    assert order.why == (
        "BECPUEvict: best-effort uses 2000m of 2000m for 12000m requested, satisfaction at or below 30%: release 2800m"
    )
    assert STRATEGY.figures(found.memory)["BECPUEvict.release.cpu-milli"] == 2800


def test_nobody_is_evicted_within_the_cool_down_after_the_start_or_after_an_eviction() -> None:
    bench = Bench().load()
    bench.store(slo_subject(NODE), evict_slo(**SATISFACTION))
    for entry in three():
        bench.place(entry)
        group = f"besteffort/pod{entry.metadata.uid}"
        bench.groups.update((group, f"{group}/main"))
    bench.current = {(BESTEFFORT, Knob.CPU_QUOTA): "200000"}
    begun: list[tuple[int, str]] = []
    for second in range(60):
        bench.reading = reading(second, USED)
        evictions = bench.look(1 if second else 0).core.plan(bench.now).evictions
        begun += [(second, order.uid) for _, strategy, order in evictions if strategy == STRATEGY.name]
        if second == 25:
            for name in ("d", "e"):
                bench.place(batch(name, 8000))
                bench.groups.update((f"besteffort/poduid-{name}", f"besteffort/poduid-{name}/main"))
    # 28,000m requested, 2,000m to be had: 9,200m must go, and 4,000m are leaving.
    assert begun == [(20, "uid-b"), (40, "uid-c"), (40, "uid-a")]


def test_a_pod_that_is_being_ended_counts_as_released() -> None:
    there = evict_slo(**SATISFACTION)
    assert evicted(after(21, there, three(), USED)) == ["uid-b"]
    assert evicted(after(21, there, three(), USED, evicting=frozenset({"uid-b"}))) == []


def test_satisfied_or_idle_batch_pods_stay() -> None:
    assert evicted(after(30, evict_slo(**SATISFACTION), three(), USED, quota=500_000)) == []
    assert evicted(after(30, evict_slo(**SATISFACTION), three(), dict.fromkeys(USED, 100))) == []


def test_by_allocatable_the_nodes_offer_counts_while_it_is_fresh() -> None:
    by_offer = evict_slo(cpuEvictPolicy="evictByAllocatable", cpuEvictBEUsageThresholdPercent=50, **SATISFACTION)
    offer = NodeResources(node=NODE, batch_cpu_milli=3000)
    assert evicted(after(30, by_offer, three(), USED, quota=-1, resources=offer)) == ["uid-b"]
    assert evicted(after(30, by_offer, three(), USED, quota=-1, resources=replace(offer, withdrawn=True))) == []
    assert evicted(after(30, by_offer, three(), USED, quota=-1)) == []


def willing(name: str, priority: int, milli: int = 1000, *, labels: dict[str, str] | None = None, **more: Any) -> Pod:
    found = batch(name, milli, priority=priority, **more)
    own = {"koordinator.sh/qosClass": "BE", "koordinator.sh/eviction-enabled": "true", **(labels or {})}
    return replace(found, metadata=replace(found.metadata, labels=own))


def test_above_what_the_node_offers_pods_that_allow_it_go_by_priority() -> None:
    pods = [willing("a", 5900), willing("b", 5100), batch("no", 1000, priority=5000), willing("high", 9000)]
    section = {
        "cpuAllocatableEvictThresholdPercent": 100,
        "cpuAllocatableEvictLowerPercent": 90,
        "allocatableEvictPriorityThreshold": 5999,
    }
    used = {f"uid-{name}": 10 for name in ("a", "b", "no", "high")}
    offer = NodeResources(node=NODE, batch_cpu_milli=2000)
    # 3,000m are requested up to that priority, 1,800m may stay.
    found = after(30, evict_slo(**section), pods, used, resources=offer)
    assert evicted(found) == ["uid-b", "uid-a"]
    assert all(order.by_offer for order in found.orders if isinstance(order, Evict))
    assert evicted(after(30, evict_slo(**section), pods, used, resources=replace(offer, batch_cpu_milli=3000))) == []
    assert evicted(after(30, evict_slo(**section), pods, used)) == []


def test_above_a_usage_of_the_node_the_biggest_of_equal_priority_goes_first() -> None:
    pods = [willing("a", 5000), willing("b", 5000), willing("c", 5500)]
    section = {"cpuEvictThresholdPercent": 80, "cpuEvictLowerPercent": 70, "evictEnabledPriorityThreshold": 5999}
    used = {"uid-a": 300, "uid-b": 900, "uid-c": 3000}
    assert evicted(after(30, evict_slo(**section), pods, used, node_milli=6800)) == ["uid-b", "uid-a"]
    assert evicted(after(30, evict_slo(**section), pods, used, node_milli=6300)) == []


def test_features_share_what_is_released() -> None:
    pods = [willing("a", 5000, 4000), willing("b", 5100, 4000), willing("c", 5200, 4000)]
    both = evict_slo(
        cpuEvictThresholdPercent=80, cpuEvictLowerPercent=75, evictEnabledPriorityThreshold=5999, **SATISFACTION
    )
    used = {"uid-a": 900, "uid-b": 600, "uid-c": 500}
    assert evicted(after(30, both, pods, used, node_milli=6880)) == ["uid-a"]


def test_a_section_that_is_off_or_states_no_feature_switches_nothing_on() -> None:
    for section in ({}, {"enable": False, **SATISFACTION}, {"cpuEvictThresholdPercent": 80}, {"enable": None, **SATISFACTION}):
        config = evict_slo(**section)
        assert evict_config(config) is None
        assert STRATEGY.inputs(NodePolicy(capabilities(), config)) == frozenset()


def test_a_pod_says_itself_which_features_may_evict_it() -> None:
    def candidate(policies: str | None, **labels: str) -> CpuEvictionCandidate:
        return CpuEvictionCandidate(
            "u", 5000, 0, 0, labels, {} if policies is None else {"koordinator.sh/eviction-policy": policies}
        )

    yes = {"koordinator.sh/eviction-enabled": "true"}
    assert evictable(candidate(None, **yes), "CPUEvict", 5999)
    assert evictable(candidate('["CPUEvict"]', **yes), "CPUEvict", 5999)
    assert not evictable(candidate('["MemoryEvict"]', **yes), "CPUEvict", 5999)
    assert not evictable(candidate("CPUEvict", **yes), "CPUEvict", 5999)
    assert not evictable(candidate(None, **yes), "CPUEvict", 4999)
    assert not evictable(candidate(None), "CPUEvict", 5999)


def test_the_order_is_annotation_priority_label_and_then_usage() -> None:
    pods = [
        CpuEvictionCandidate("late", 1, 0, 9, {}, {"koordinator.sh/eviction-priority": "5"}),
        CpuEvictionCandidate("label", 7, 0, 9, {"koordinator.sh/priority": "3"}),
        CpuEvictionCandidate("small", 7, 0, 1),
        CpuEvictionCandidate("big", 7, 0, 5),
        CpuEvictionCandidate("low", 2, 0, 0),
        CpuEvictionCandidate("bad", 7, 0, 2, {}, {"koordinator.sh/eviction-priority": "x"}),
    ]
    assert [each.uid for each in by_priority(pods, then_usage=True)] == ["low", "label", "big", "bad", "small", "late"]


def test_upstreams_examples_of_usage() -> None:
    assert usage_release_milli(100_000, 81_000, 80, None) == 3000
    assert usage_release_milli(100_000, 81_000, 80, 80) == 1000
    assert usage_release_milli(100_000, 79_999, 80, None) == 0
    assert allocatable_release_milli(5000, 0, 100, 90) == 5000


CANDIDATES = st.lists(
    st.builds(
        CpuEvictionCandidate,
        st.text("abcdef", min_size=1, max_size=4),
        st.none() | st.integers(0, 9999),
        st.integers(0, 10_000),
        st.integers(0, 10_000),
    ),
    max_size=12,
    unique_by=lambda pod: pod.uid,
)


@given(CANDIDATES, st.integers(0, 50_000), st.integers(0, 5_000))
def test_no_more_pods_go_than_are_needed_and_enough_if_there_are_enough(
    pods: list[CpuEvictionCandidate], release: int, leaving: int
) -> None:
    order = by_satisfaction(pods)
    victims = taken(order, release, lambda pod: pod.request_milli, leaving)
    assert victims == order[: len(victims)]
    sums = leaving + sum(pod.request_milli for pod in victims)
    assert sums >= release or len(victims) == len(order)
    assert not victims or sums - victims[-1].request_milli < release


@given(st.integers(1, 60), st.integers(1, 99), st.floats(0, 64_000), st.floats(1, 500_000), st.floats(1, 64_000))
def test_what_remains_is_satisfied_up_to_the_upper_bound_and_no_further(
    lower: int, upper: int, used: float, request: float, limit: float
) -> None:
    config = SatisfactionConfig(upper, lower)
    figures = BestEffort(used, request, limit, 10)
    release = release_milli(config, 1.0, None, figures, figures)
    assert 0 <= release <= request * upper / 100
    if release:
        assert limit / request <= lower / 100
    assert release_milli(config, 1.0, None, figures, None) == 0


@pytest.mark.parametrize(
    ("capacity", "used", "threshold", "lower", "release"),
    [
        (100_000, 79_999, 80, 70, 0),
        (100_000, 80_000, 80, 70, 10_000),
        (100_000, 80_999.9, 80, 70, 10_000),
        (100_000, 80_000, 80, 80, 0),
        (100_000, 90_000, 80, 80, 10_000),
        (100_000, 90_000, 80, 81, 0),
        (100_000, 80_000, 80, None, 2_000),
        (1, 1, 0, None, 1),
        (1, 0, 0, 0, 0),
        (0, 50, 0, 0, 0),
        (1_000, 500, -1, -1, 0),
        (2_999, 2_999, 98, 67, 989),
    ],
)
def test_usage_to_release(capacity: int, used: float, threshold: int, lower: int | None, release: int) -> None:
    """capacity x (usage% - lower) // 100 from the threshold on; lower is threshold - 2 where it is not set."""
    assert usage_release_milli(capacity, used, threshold, lower) == release


@pytest.mark.parametrize(
    ("requested", "offered", "release"),
    [(5000, 0, 5000), (5000, -1, 5000), (1100, 1000, 0), (1101, 1000, 201), (1, 1, 0), (2, 1, 1)],
)
def test_requests_to_release(requested: int, offered: int, release: int) -> None:
    """From above 110 % of what is offered down to 90 %."""
    assert allocatable_release_milli(requested, offered, 110, 90) == release
    assert allocatable_release_milli(1000, 1000, 50, 150) == 0


def test_satisfaction_counts_with_bounds_that_make_sense() -> None:
    for lower, upper in ((1, 40), (60, 60), (30, 99)):
        assert SatisfactionConfig(upper, lower).valid
    for low, up in ((None, 40), (30, None), (0, 40), (61, 70), (30, 29), (30, 100), (-1, -1)):
        assert not SatisfactionConfig(up, low).valid


def released(
    used: float, request: float, limit: float, *, allocatable: int | None = None, count: int = 10, **config: Any
) -> int:
    """What both the average and the last sample ask for, between satisfactions of 30 and 40 %."""
    figures = BestEffort(used, request, limit, count)
    return release_milli(SatisfactionConfig(40, 30, **config), 1.0, allocatable, figures, figures)


def test_satisfaction_is_the_limit_by_the_request() -> None:
    assert released(3000, 10_000, 3000) == 1000
    assert released(3001, 10_000, 3001) == 0
    assert released(0, 10, 3) == 1
    assert released(0, 0, 3000) == released(3000, -1, 3000) == 0
    assert released(2700, 10_000, 3000) == 1000
    assert released(2699, 10_000, 3000) == 0
    assert released(1500, 10_000, 3000, usage_threshold_percent=50) == 1000
    assert released(1499, 10_000, 3000, usage_threshold_percent=50) == 0


def test_best_effort_with_less_than_a_cpu_is_busy_whatever_it_uses() -> None:
    assert released(0, 9990, 999) == 2997
    assert released(0, 9990, 1000) == 0
    assert released(0, 9990, 0) == released(0, 9990, -1) == 0


def test_by_allocatable_nothing_offered_counts_as_one_and_nothing_known_as_none() -> None:
    by_offer: dict[str, Any] = {"policy": "evictByAllocatable"}
    assert released(0, 1000, 8000, allocatable=0, **by_offer) == 399
    assert released(0, 1000, 8000, allocatable=None, **by_offer) == released(0, 1000, 8000, allocatable=-1, **by_offer) == 0
    assert released(0, 1000, 8000, allocatable=200, **by_offer) == 200
    assert released(0, 1000, 8000, allocatable=200, policy="evictByRealLimit") == 0


def test_a_window_speaks_with_a_third_of_its_samples() -> None:
    assert SatisfactionConfig(window_seconds=60).window_of(1.0) == 60.0
    assert SatisfactionConfig(window_seconds=1).window_of(5.0) == SatisfactionConfig().window_of(5.0) == 5.0
    assert released(3000, 10_000, 3000, count=20, window_seconds=60) == 1000
    assert released(3000, 10_000, 3000, count=19, window_seconds=60) == 0


def test_the_smaller_of_what_the_average_and_the_last_sample_ask_for_counts() -> None:
    config, average = SatisfactionConfig(40, 30), BestEffort(2000, 10_000, 2000, 10)
    for current, release in (
        (BestEffort(2400, 10_000, 2500), 1500),
        (BestEffort(2000, 10_000, 1500), 2000),
        (BestEffort(2000, 8000, 2000), 1200),
        (BestEffort(100, 10_000, 2000), 0),
    ):
        assert release_milli(config, 1.0, None, average, current) == release


def test_of_starved_pods_the_lower_priority_goes_and_of_equal_ones_the_higher_usage_per_request() -> None:
    pods = [
        CpuEvictionCandidate("half", 5000, 1000, 500),
        CpuEvictionCandidate("high", 6000, 1000, 9000),
        CpuEvictionCandidate("most", 5000, 100, 60),
        CpuEvictionCandidate("zero", 5000, 0, 5000),
        CpuEvictionCandidate("also half", 5000, 2000, 1000),
    ]
    assert [each.uid for each in by_satisfaction(pods)] == ["most", "half", "also half", "zero", "high"]
    unknown = [CpuEvictionCandidate("idle", 1, 1000, 1), CpuEvictionCandidate("none", None, 1000, 900)]
    assert [each.uid for each in by_satisfaction(unknown)] == ["none", "idle"]
    asking = [CpuEvictionCandidate("nothing", 1, 0), CpuEvictionCandidate("one", 1, 1), CpuEvictionCandidate("two", 1, 2)]
    assert taken(asking, 1, lambda each: each.request_milli) == asking[:2]
