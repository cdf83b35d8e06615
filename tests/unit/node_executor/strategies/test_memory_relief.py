"""The steps before an eviction: in order, without flutter, bounded, and taken back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.subjects import slo_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.sampling.snapshot import PodSample, PressureSet, UsageSnapshot
from cotenant_node_executor.simulated.machine import SimulatedMachine
from cotenant_node_executor.strategies.memory.relief import (
    Relief,
    ReliefConfig,
    figures_of,
    holds_on,
    next_high,
    pressure_of,
    relief,
    steps,
    strategy,
)
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import NodePolicy, Reclaim, StrategyDecision
from cotenant_node_executor.targets.address import Knob
from cotenant_node_executor.targets.interface import RECLAIM, CgroupVersion, KnobSupport, NodeCapabilities
from cotenant_node_executor.targets.psi import PressureLine, PsiStats
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import (
    GIB,
    NODE,
    START,
    batch,
    capabilities,
    facts,
    situation,
    snapshot,
    usage,
)

NODE_BYTES = 16 * GIB
GATE = frozenset(("BEMemoryEvict",))
MIB = 1024**2


def slo(**threshold: Any) -> NodeSLORendered:
    """Eviction at 70 %: placing stops at 65 %, relief begins at 67 %."""
    spec = {"resourceUsedThresholdWithBE": {"enable": True, **threshold}}
    return NodeSLORendered(node=NODE, spec=encoded(spec))


def reading(percent: float, best_effort: int = 4 * GIB, cache: int = 0, stalled: float = 0.0) -> UsageSnapshot:
    """The node's memory in percent; best-effort's working set and page cache in bytes."""
    found = snapshot(1000, {})
    line = PressureLine(avg10=stalled)
    group = replace(
        usage("besteffort", 100),
        memory_bytes=best_effort,
        memory_with_page_cache_bytes=best_effort + cache,
        pressure=PressureSet(memory=PsiStats(line, line, True)),
    )
    pod = PodSample("uid-b", "besteffort", replace(group, group="besteffort/poduid-b"))
    return replace(
        found,
        tiers={"besteffort": group},
        pods={"uid-b": pod},
        node=replace(found.node, memory_bytes=int(NODE_BYTES * percent / 100) + 1),
    )


def kernel(version: CgroupVersion = CgroupVersion.V2) -> NodeCapabilities:
    found = replace(capabilities(also=(Knob.MEMORY_HIGH,) if version is CgroupVersion.V2 else ()), version=version)
    return replace(found, knobs={**found.knobs, RECLAIM: KnobSupport(True)})


def there(sample: UsageSnapshot | None, version: CgroupVersion = CgroupVersion.V2, **threshold: Any) -> Situation:
    return situation([batch("b")], node_slo=slo(**threshold), reading=sample, kernel=kernel(version))


def high(decision: StrategyDecision) -> int | None:
    values = decision.values.get("besteffort", ())
    return int(values[0].value) if values else None


def stopped(decision: StrategyDecision) -> bool:
    return bool(pressure_of(decision.memory))


def test_the_steps_come_one_after_the_other_and_go_with_a_margin() -> None:
    memory, seen = None, []
    for percent in (60, 65, 66, 67, 69, 66, 65, 64, 63, 62):
        decision = relief(there(reading(percent)), memory)
        memory = decision.memory
        seen.append((percent, stopped(decision), high(decision) != -1))
    assert seen == [
        (60, False, False),
        (65, True, False),
        (66, True, False),
        (67, True, True),
        (69, True, True),
        (66, True, True),
        (65, True, False),
        (64, True, False),
        (63, False, False),
        (62, False, False),
    ]


@given(st.lists(st.integers(0, 100), min_size=1, max_size=30), st.integers(2, 100))
def test_a_step_changes_only_across_its_margin(percents: list[int], begins: int) -> None:
    on = False
    for percent in percents:
        before, on = on, holds_on(percent, begins, on)
        assert on is before or (percent >= begins if on else percent <= begins - 2)


@given(st.integers(0, 1 << 40), st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=20))
def test_the_bound_falls_by_at_most_a_tenth_and_never_below_half_and_does_not_rise(
    began: int, samples: list[tuple[int, int]]
) -> None:
    last = Relief()
    for held, over in [(began, 0), *samples]:
        bound = next_high(held, over, last)
        assert bound % 4096 == 0
        assert bound >= min(began // 2, last.high_bytes if last.relieving else began) - 4096
        if last.relieving:
            assert bound <= last.high_bytes
        last = Relief(relieving=True, high_bytes=bound, began_bytes=began)


def test_the_same_samples_give_the_same_bound_and_no_flutter() -> None:
    first = relief(there(reading(68)), None)
    second = relief(there(reading(68)), first.memory)
    assert (high(first), high(second)) == (high(second), high(first))


def test_under_the_bound_usage_converges_to_below_the_step() -> None:
    memory, held, services = None, 8 * GIB, 4 * GIB
    percents = []
    for _ in range(20):
        percent = (held + services) * 100 / NODE_BYTES
        percents.append(int(percent))
        decision = relief(there(reading(percent, held)), memory)
        memory, bound = decision.memory, high(decision)
        held = min(held, bound) if bound is not None and bound >= 0 else held
    assert percents[0] == 75
    assert percents[-1] <= 65
    assert percents == sorted(percents, reverse=True)


def test_what_is_over_is_reclaimed_from_best_effort_while_it_does_not_stall() -> None:
    (order,) = relief(there(reading(68)), None).orders
    assert order == Reclaim("besteffort", 256 * MIB, order.why)
    assert relief(there(reading(68, stalled=5.0)), None).orders == ()
    assert relief(there(reading(68, stalled=5.0), memoryReclaimPressurePercent=20), None).orders != ()


def test_a_kernel_without_a_bound_empties_the_pod_with_the_most_page_cache() -> None:
    on_v1 = relief(there(reading(68, GIB, 64 * MIB), CgroupVersion.V1), None)
    assert [(each.group, each.memory_bytes) for each in on_v1.orders if isinstance(each, Reclaim)] == [
        ("besteffort/poduid-b", 64 * MIB)
    ]
    assert on_v1.values == {}
    assert relief(there(reading(68, GIB, MIB), CgroupVersion.V1), None).orders == ()


@pytest.mark.parametrize("sample", [None, reading(68)])
def test_disabled_or_without_a_sample_the_bound_is_taken_back_once(sample: UsageSnapshot | None) -> None:
    off = there(sample, enable=sample is None)
    first = relief(off, Relief(relieving=True, high_bytes=GIB))
    assert (high(first), stopped(first), first.orders) == (-1, False, ())
    assert relief(off, first.memory).values == {}


def test_without_the_gate_only_what_an_earlier_executor_left_is_taken_back() -> None:
    ungated = strategy(frozenset())
    assert ungated.decide is not None
    first = ungated.decide(there(reading(90)), None)
    assert (high(first), stopped(first)) == (-1, False)
    assert ungated.decide(there(reading(90)), first.memory).values == {}


def test_the_node_says_itself_that_its_memory_is_short_and_that_it_is_no_more() -> None:
    core = ExecutorCore(facts(), capabilities(), "boot", plain_processes=False, strategies=strategies_of(GATE))
    status = ExecutorStatus(node=NODE, boot="boot", taints=(("a", "", "NoSchedule"),))
    node = ExecutorNode(core, SimulatedMachine(core.facts, 1), status, Periods())
    node.apply(replace(node.start_marker(START), sequence=1))
    said: list[ExecutorStatus] = []
    # The machine's own memory is at 1 %: thresholds above and below that.
    for sequence, stop in ((2, 1), (3, 90)):
        rendered = slo(memoryStopPlacingPercent=stop)
        node.apply(Event(subject=slo_subject(NODE), data=rendered, time=START, sequence=sequence * 10))
        for _ in range(2):
            for event in node.step(START):
                if isinstance(event.data, ExecutorStatus):
                    said.append(event.data)
                    node.apply(replace(event, sequence=sequence * 10 + 1))
    assert [(bool(each.memory_pressure), [key for key, _, _ in each.taints]) for each in said] == [
        (True, ["a", "node.kubernetes.io/memory-pressure"]),
        (False, ["a"]),
    ]
    assert said[0].memory_pressure == "node memory 1% used, no further best-effort pods from 1% on"


def with_cold(sample: UsageSnapshot, cold: dict[str, int] | None, version: CgroupVersion = CgroupVersion.V2) -> Situation:
    """Two batch pods, `b` and `c`, of the same memory and page cache."""
    other = sample.pods["uid-b"]
    other = replace(other, uid="uid-c", usage=replace(other.usage, group="besteffort/poduid-c"))
    sample = replace(sample, pods={**sample.pods, "uid-c": other})
    found = situation([batch("b"), batch("c")], node_slo=slo(), reading=sample, kernel=kernel(version))
    return replace(found, cold=cold)


def asked_of(decision: StrategyDecision) -> list[tuple[str, int]]:
    return [(each.group, each.memory_bytes) for each in decision.orders if isinstance(each, Reclaim)]


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_cold_memory_goes_first_pod_by_pod_and_once_a_reading(version: CgroupVersion) -> None:
    sample, cold = reading(68, GIB, 64 * MIB), {"uid-b": 20 * MIB, "uid-c": 40 * MIB}
    memory, seen = None, []
    for _ in range(3):
        decision = relief(with_cold(sample, cold, version), memory)
        memory = decision.memory
        seen += asked_of(decision)
    assert seen[:2] == [("besteffort/poduid-c", 40 * MIB), ("besteffort/poduid-b", 20 * MIB)]
    without = relief(with_cold(sample, None, version), None)
    assert seen[2:] == asked_of(without)
    later = relief(with_cold(sample, dict(cold), version), memory)
    assert asked_of(later) == seen[:1]


def test_no_more_cold_memory_is_asked_for_than_there_is_page_cache_and_than_is_needed() -> None:
    full = relief(with_cold(reading(68, GIB, 64 * MIB), {"uid-b": 1 << 60}), None)
    assert asked_of(full) == [("besteffort/poduid-b", 64 * MIB)]
    bounded = relief(with_cold(reading(68, GIB, GIB), {"uid-b": GIB}), None)
    assert asked_of(bounded) == [("besteffort/poduid-b", 256 * MIB)]


@pytest.mark.parametrize(
    ("threshold", "lower", "found"),
    [(70, None, (65, 67)), (70, 4, (1, 3)), (3, None, (1, 1)), (70, 70, None), (None, 60, None), (-1, -5, None)],
)
def test_the_steps_lie_below_the_lower_line_of_eviction(
    threshold: int | None, lower: int | None, found: tuple[int, int] | None
) -> None:
    assert steps(ReliefConfig(memory_evict_threshold_percent=threshold, memory_evict_lower_percent=lower)) == found


def test_the_steps_can_be_stated() -> None:
    assert steps(ReliefConfig(memory_stop_placing_percent=0, memory_reclaim_percent=90)) == (0, 90)


@pytest.mark.parametrize(
    ("held", "over", "before", "bound"),
    [
        (1000, 0, Relief(), 1000),
        (1000, 40, Relief(), 960),
        (1000, 500, Relief(), 900),
        (1000, 500, Relief(relieving=True, began_bytes=1900 * 4096, high_bytes=-1), 950),
        (1000, 0, Relief(relieving=True, began_bytes=1000 * 4096, high_bytes=930 * 4096), 930),
        (1000, 0, Relief(relieving=True, began_bytes=1000 * 4096, high_bytes=0), 0),
        (1000, 0, Relief(relieving=False, began_bytes=9000 * 4096, high_bytes=930 * 4096), 1000),
    ],
)
def test_the_bound_in_pages(held: int, over: int, before: Relief, bound: int) -> None:
    """What is held less what is over; at most a tenth less, at least half of what was held at first, never more than before."""
    assert next_high(held * 4096, over * 4096, before) == bound * 4096


def test_the_node_is_over_from_two_percent_below_the_step_on() -> None:
    decision = relief(there(reading(68, GIB // 64)), None)
    used = int(NODE_BYTES * 68 / 100) + 1
    over = used - NODE_BYTES * 65 // 100
    (order,) = decision.orders
    assert order.why == f"node memory 68% used, {over} bytes above 65%"
    assert asked_of(decision) == [("besteffort", GIB // 64)], "no more than best-effort holds"
    assert high(decision) == GIB // 64 * 9 // 10 // 4096 * 4096
    assert decision.memory == Relief(68, 65, 67, True, True, high(decision) or 0, GIB // 64)
    (less,) = asked_of(relief(there(reading(66.1, 4 * GIB)), Relief(relieving=True, began_bytes=GIB)))
    assert less == ("besteffort", int(NODE_BYTES * 66.1 / 100) + 1 - NODE_BYTES * 65 // 100)


def test_what_best_effort_held_at_first_is_remembered_while_the_step_lasts() -> None:
    first = relief(there(reading(68, 4 * GIB, cache=GIB)), None).memory
    assert isinstance(first, Relief)
    assert first.began_bytes == 5 * GIB
    second = relief(there(reading(68, 3 * GIB)), first).memory
    assert isinstance(second, Relief)
    assert second.began_bytes == 5 * GIB


def test_without_best_effort_memory_there_is_no_bound_and_nothing_to_reclaim() -> None:
    for sample in (reading(68, 0), replace(reading(68), tiers={}, pods={})):
        decision = relief(there(sample), None)
        assert (high(decision), decision.orders) == (-1, ())
        assert figures_of(decision.memory)["best-effort-high.memory-bytes"] == -1


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_16_mib_of_page_cache_are_worth_reclaiming_and_a_byte_less_is_not(version: CgroupVersion) -> None:
    for cache, worth in ((16 * MIB, True), (16 * MIB - 1, False)):
        decision = relief(with_cold(reading(68, 0, cache), {"uid-c": GIB}, version), None)
        assert (("besteffort/poduid-c", cache) in asked_of(decision)) is worth


@pytest.mark.parametrize("version", list(CgroupVersion))
def test_only_best_effort_pods_that_have_a_group_are_reclaimed(version: CgroupVersion) -> None:
    sample, cold = reading(68, 0, 64 * MIB), {"uid-b": 32 * MIB, "uid-c": 32 * MIB}
    found = with_cold(sample, cold, version)
    assert found.snapshot is not None
    pods = {uid: replace(each, tier="burstable") for uid, each in found.snapshot.pods.items()}
    others = replace(found, snapshot=replace(found.snapshot, pods=pods))
    vanished = replace(found, groups=frozenset(("besteffort",)))
    for seen in (others, vanished):
        assert {group for group, _ in asked_of(relief(seen, None))} <= {"besteffort"}


def test_the_pressure_at_which_nothing_is_reclaimed_is_reached_not_exceeded() -> None:
    assert relief(there(reading(68, stalled=4.99)), None).orders != ()
    for bound, stalled in ((0, 0.0), (20, 20.0)):
        assert relief(there(reading(68, stalled=stalled), memoryReclaimPressurePercent=bound), None).orders == ()


def test_a_bound_of_any_size_is_taken_back_and_none_is_not() -> None:
    for last, taken in ((None, True), (Relief(high_bytes=0), True), (Relief(), False)):
        decision = relief(there(None), last)
        assert (high(decision) == -1) is taken
        assert decision.memory == Relief()


def test_the_figures_are_those_of_the_decision() -> None:
    assert figures_of(Relief(68, 65, 67, True, True, 4096)) == {
        "node.memory-percent": 68,
        "stop-placing.percent": 65,
        "reclaim.percent": 67,
        "best-effort-high.memory-bytes": 4096,
    }
    assert figures_of(None) == {}
    for gates, enable, asked in ((GATE, True, True), (GATE, False, False), (frozenset[str](), True, False)):
        assert bool(strategy(gates).inputs(NodePolicy(kernel(), slo(enable=enable)))) is asked
