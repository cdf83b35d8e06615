"""Memory eviction in figures: how much each feature needs, which pods it concerns, and in which order they go."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources
from cotenant.model.names import BATCH_MEMORY, MID_MEMORY
from cotenant_node_executor.strategies.memory.evict import (
    BE_MEMORY_EVICT,
    MEMORY_ALLOCATABLE_EVICT,
    MEMORY_EVICT,
    USED,
    MemoryEvictConfig,
    MemoryFigures,
    allocatable_tasks,
    band,
    decide_with,
    is_configured,
    strategy,
    to_release,
    usage_tasks,
)
from cotenant_node_executor.strategies.memory.victims import (
    MemoryEvictionCandidate,
    Task,
    Traits,
    best_effort_order,
    priority_order,
    traits,
    victims,
)
from cotenant_node_executor.strategies.strategy import Evict
from tests.unit.node_executor.builders_node_executor import GIB, NODE, batch, evicted, pod, situation
from tests.unit.node_executor.strategies.test_memory_evict import NODE_BYTES, reading, slo, willing

WILLING = {"koordinator.sh/eviction-enabled": "true"}
ALL = frozenset((BE_MEMORY_EVICT, MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT))


@pytest.mark.parametrize(
    ("threshold", "lower", "found"),
    [(None, 1, None), (-1, -2, None), (0, None, (0, -2)), (70, None, (70, 68)), (70, 70, None), (70, 69, (70, 69))],
)
def test_the_lower_line_is_below_the_threshold(threshold: int | None, lower: int | None, found: tuple[int, int] | None) -> None:
    assert band(threshold, lower) == found


@pytest.mark.parametrize(
    ("capacity", "used", "release"), [(1000, 699, 0), (1000, 700, 200), (1000, 709, 200), (1000, 710, 210), (1, 1, 0)]
)
def test_from_70_percent_on_what_is_above_50_is_released(capacity: int, used: int, release: int) -> None:
    config = MemoryEvictConfig(memory_evict_threshold_percent=70, memory_evict_lower_percent=50)
    assert to_release(config, capacity, used) == release
    tasks = usage_tasks(config, capacity, used, ALL)
    assert [(task.feature, task.target, task.release) for task in tasks] == (
        [(BE_MEMORY_EVICT, USED, release)] if release else []
    )


def test_of_a_node_without_a_known_size_nothing_is_released() -> None:
    assert to_release(MemoryEvictConfig(memory_evict_threshold_percent=0), 0, 0) == 0
    assert to_release(MemoryEvictConfig(memory_evict_threshold_percent=0), 1, 1) == 1


def test_both_features_by_usage_need_the_same_and_one_without_its_priority_nothing() -> None:
    config = MemoryEvictConfig(evict_enabled_priority_threshold=0)
    tasks = usage_tasks(config, 1000, 900, ALL)
    assert [(task.feature, task.release, task.by_priority, task.highest_priority) for task in tasks] == [
        (BE_MEMORY_EVICT, 220, False, 0),
        (MEMORY_EVICT, 220, True, 0),
    ]
    assert [task.feature for task in usage_tasks(config, 1000, 900, frozenset((MEMORY_EVICT,)))] == [MEMORY_EVICT]
    assert usage_tasks(MemoryEvictConfig(), 1000, 900, frozenset((MEMORY_EVICT,))) == []
    assert [task.release for task in usage_tasks(MemoryEvictConfig(), 50, 50, ALL)] == [16]
    at_100 = MemoryEvictConfig(memory_evict_threshold_percent=100)
    assert [task.release for task in usage_tasks(at_100, 50, 50, ALL)] == [1]


def by_offer(**fields: Any) -> MemoryEvictConfig:
    stated = {
        "memory_allocatable_evict_threshold_percent": 90,
        "memory_allocatable_evict_lower_percent": 80,
        "allocatable_evict_priority_threshold": 7999,
    }
    return MemoryEvictConfig(**{**stated, **fields})


def test_what_is_requested_above_90_percent_of_an_offer_is_released_down_to_80() -> None:
    asked, offered = {BATCH_MEMORY: 901, MID_MEMORY: 900}, {BATCH_MEMORY: 1000, MID_MEMORY: 1000}
    assert [(task.target, task.release, task.highest_priority) for task in allocatable_tasks(by_offer(), asked, offered)] == [
        (BATCH_MEMORY, 101, 7999)
    ]
    none = allocatable_tasks(by_offer(), {BATCH_MEMORY: 5, MID_MEMORY: 0}, {BATCH_MEMORY: 0, MID_MEMORY: 0})
    assert [(task.target, task.release) for task in none] == [(BATCH_MEMORY, 5)]
    one = allocatable_tasks(by_offer(), {MID_MEMORY: 1}, {MID_MEMORY: 1})
    assert [(task.target, task.release) for task in one] == [(MID_MEMORY, 1)]


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_allocatable_evict_threshold_percent": None},
        {"memory_allocatable_evict_lower_percent": None},
        {"memory_allocatable_evict_lower_percent": 90},
        {"allocatable_evict_priority_threshold": None},
        {"allocatable_evict_priority_threshold": 8000},
    ],
)
def test_the_feature_by_offer_needs_all_its_fields_in_order(fields: dict[str, Any]) -> None:
    assert allocatable_tasks(by_offer(**fields), {BATCH_MEMORY: 999}, {BATCH_MEMORY: 1000}) == []


def test_a_feature_is_on_with_its_gate_its_fields_and_the_section() -> None:
    plain, willing_ones = MemoryEvictConfig(enable=True), MemoryEvictConfig(enable=True, evict_enabled_priority_threshold=1)
    offers, neither = by_offer(enable=True, memory_evict_threshold_percent=None), MemoryEvictConfig(enable=True)
    neither = replace(neither, memory_evict_threshold_percent=None, evict_enabled_priority_threshold=1)
    on: list[tuple[MemoryEvictConfig, frozenset[str]]] = [
        (plain, frozenset((BE_MEMORY_EVICT,))),
        (willing_ones, frozenset((MEMORY_EVICT,))),
        (offers, frozenset((MEMORY_ALLOCATABLE_EVICT,))),
    ]
    off = [
        *((replace(config, enable=enable), gates) for config, gates in on for enable in (False, None)),
        *((config, ALL - gates) for config, gates in on if config is offers),
        (plain, frozenset((MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT))),
        (willing_ones, frozenset((MEMORY_ALLOCATABLE_EVICT,))),
        (neither, ALL),
    ]
    assert [is_configured(config, gates) for config, gates in on] == [True] * len(on)
    assert [is_configured(config, gates) for config, gates in off] == [False] * len(off)


def member(uid: str, priority: int | None = None, used: int = 0, **fields: Any) -> MemoryEvictionCandidate:
    own = Traits(best_effort=True, enabled=True, priority=priority, rank=(0, priority or 0, 0), policies=None, grace_seconds=30)
    return MemoryEvictionCandidate(uid, uid, replace(own, **fields), {USED: used})


def test_best_effort_pods_go_by_priority_then_usage_and_those_without_any_by_name_the_last_first() -> None:
    pods = [member("a", 5), member("b", 5), member("c", 5, 1), member("d", 5, 2), member("e", 4), member("f", 6, 9)]
    assert [each.uid for each in best_effort_order(pods, USED)] == ["e", "d", "c", "b", "a", "f"]
    without = [member("x", None, 1), member("y", 5, 2)]
    assert [each.uid for each in best_effort_order(without, USED)] == ["y", "x"]


def test_pods_by_priority_go_by_rank_then_the_larger_amount_then_name() -> None:
    pods = [member("b", 1, 3), member("a", 1, 3), member("c", 1, 4), member("d", 1, 9, rank=(1, 0, 0)), member("e", 0)]
    assert [each.uid for each in priority_order(pods, USED)] == ["e", "c", "a", "b", "d"]


def test_whom_a_feature_concerns() -> None:
    usage_task = Task(BE_MEMORY_EVICT, USED, 1, "", False)
    priority_task = Task(MEMORY_EVICT, USED, 1, "", True, 5)
    assert usage_task.concerns(member("a", 9, enabled=False))
    assert not usage_task.concerns(member("a", 1, best_effort=False))
    assert not usage_task.concerns(member("a", 1, policies=frozenset((MEMORY_EVICT,))))
    assert priority_task.concerns(member("a", 5, best_effort=False, policies=frozenset((MEMORY_EVICT,))))
    for other in (member("a", 6), member("a"), member("a", 1, enabled=False), member("a", 1, policies=frozenset())):
        assert not priority_task.concerns(other)


def test_pods_go_until_exactly_what_is_needed_is_released_and_features_share_it() -> None:
    pods = [member("a", 1, 3), member("b", 2, 4), member("c", 3, 5), member("d", 4, 6)]
    first, second = Task("first", USED, 7, "", False), Task("second", USED, 12, "", True, 9)
    found = victims([first, second], pods)
    assert [(each.candidate.uid, each.task.feature) for each in found] == [("a", "first"), ("b", "first"), ("c", "second")]
    assert [each.candidate.uid for each in victims([first], pods, frozenset(("d",)))] == ["a"]
    assert victims([first], pods, frozenset(("a", "b"))) == []


@pytest.mark.parametrize(("stated", "grace"), [(None, 30), (0, 0), (29, 29), (31, 30), (600, 30)])
def test_an_evicted_pod_has_at_most_half_a_minute(stated: int | None, grace: int) -> None:
    assert traits(pod("p", "BE", terminationGracePeriodSeconds=stated)).grace_seconds == grace


def test_an_order_and_its_figures_say_why() -> None:
    used = NODE_BYTES * 72 // 100 + 1
    there = situation([batch("b", priority=5000)], node_slo=slo(), reading=reading(used, {"uid-b": GIB}))
    decision = decide_with(there, ALL)
    release = NODE_BYTES * 4 // 100
    assert decision.memory == MemoryFigures(NODE_BYTES, used, 72, 70, release)
    (order,) = decision.orders
    assert isinstance(order, Evict)
    assert order.why == (
        f"trigger by koordlet feature BEMemoryEvict: node memory 72% used ({used} of {NODE_BYTES} bytes), "
        f"threshold 70%: {release} bytes to release; it uses {GIB}, priority 5000"
    )
    assert strategy(ALL).figures(decision.memory) == {
        "capacity.memory-bytes": NODE_BYTES,
        "node.memory-bytes": used,
        "node.memory-percent": 72,
        "threshold.percent": 70,
        "release.memory-bytes": release,
    }
    assert strategy(ALL).figures(None) == {}


def test_by_offer_requests_of_pods_up_to_the_priority_count_and_of_them_only_measured_ones_go() -> None:
    def asking(name: str, priority: int) -> Any:
        amounts = {MID_MEMORY: "4Gi"}
        entry = willing(name, priority=priority)
        spec = replace(entry.spec, containers=pod(name, requests=amounts, limits=amounts).spec.containers)
        return replace(entry, spec=spec)

    def offer(gib: int) -> NodeResources:
        return NodeResources(node=NODE, mid_memory_bytes=gib * GIB)

    section = {
        "memoryAllocatableEvictThresholdPercent": 100,
        "memoryAllocatableEvictLowerPercent": 90,
        "allocatableEvictPriorityThreshold": 7500,
    }
    pods = [asking("a", 7500), asking("b", 7400), asking("c", 7501), asking("unmeasured", 7000)]
    sample = reading(GIB, dict.fromkeys(("uid-a", "uid-b", "uid-c"), GIB))
    there = replace(situation(pods, node_slo=slo(**section), reading=sample), resources=offer(10))
    # 12 GiB are requested up to that priority, 9 GiB may stay.
    assert evicted(decide_with(there, ALL)) == ["uid-b"]
    assert evicted(decide_with(replace(there, resources=offer(12)), ALL)) == []
    assert evicted(decide_with(replace(there, resources=offer(8)), ALL)) == ["uid-b", "uid-a"]


def test_without_its_gate_no_pod_goes_by_offer_and_with_it_nothing_of_what_is_used_is_asked_for() -> None:
    section = {
        "memoryAllocatableEvictThresholdPercent": 100,
        "memoryAllocatableEvictLowerPercent": 90,
        "allocatableEvictPriorityThreshold": 5999,
    }
    entry = batch("b", priority=5000)
    ready = replace(entry, metadata=replace(entry.metadata, labels={**entry.metadata.labels, **WILLING}))
    there = situation([ready], node_slo=slo(**section), reading=reading(GIB, {"uid-b": GIB}))
    there = replace(there, resources=NodeResources(node=NODE, batch_memory_bytes=GIB // 2))
    gated = decide_with(there, ALL)
    assert evicted(gated) == ["uid-b"]
    assert gated.memory == MemoryFigures(NODE_BYTES, GIB, 6, 70, 0)
    assert decide_with(there, frozenset((BE_MEMORY_EVICT, MEMORY_EVICT))).memory is None
