"""Memory eviction: whom it takes, in which order, how many, and how often."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant.model.subjects import resources_subject, slo_subject
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.sampling.snapshot import PodSample, UsageSnapshot
from cotenant_node_executor.strategies.gates import NODE_GATES, parse_gates
from cotenant_node_executor.strategies.memory.evict import (
    BE_MEMORY_EVICT,
    COOL_DOWN_SECONDS,
    MEMORY_ALLOCATABLE_EVICT,
    MEMORY_EVICT,
    USED,
    MemoryEvictConfig,
    allocatable_tasks,
    decide_with,
    strategy,
    to_release,
)
from cotenant_node_executor.strategies.memory.victims import MemoryEvictionCandidate, Task, Traits, traits, victims
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.strategies.strategy import Evict, Input, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.interface import WriteReport
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import (
    GIB,
    NODE,
    Bench,
    batch,
    capabilities,
    evicted,
    pod,
    service,
    situation,
    snapshot,
    usage,
)

ALL = frozenset((BE_MEMORY_EVICT, MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT))
BE = frozenset((BE_MEMORY_EVICT,))
percents = st.integers(0, 100)
NODE_BYTES = 16 * GIB
"""What the builders' node has."""


def slo(**threshold: Any) -> NodeSLORendered:
    section = {"enable": True, **threshold}
    spec = encoded({"resourceUsedThresholdWithBE": section})
    return NodeSLORendered(node=NODE, enable=False, spec=spec)


def reading(used: int, pods: dict[str, int]) -> UsageSnapshot:
    """A sample with memory in bytes: of the node, and of pods by uid."""
    found = snapshot(1000, dict.fromkeys(pods, 100))
    measured = {
        uid: PodSample(uid, "besteffort", replace(usage(uid, 100), memory_bytes=amount)) for uid, amount in pods.items()
    }
    return replace(found, pods=measured, node=replace(found.node, memory_bytes=used))


@given(percents, st.one_of(st.none(), percents), st.integers(1, 1 << 45), st.integers(0, 1 << 45))
def test_what_is_released_brings_usage_to_the_lower_line_and_nothing_is_below_the_threshold(
    threshold: int, lower: int | None, capacity: int, used: int
) -> None:
    config = MemoryEvictConfig(memory_evict_threshold_percent=threshold, memory_evict_lower_percent=lower)
    release = to_release(config, capacity, used)
    low = threshold - 2 if lower is None else lower
    assert release >= 0
    if release:
        assert used * 100 >= threshold * capacity
        assert abs((used - release) * 100 - low * capacity) <= capacity + 100
    else:
        # Shares of less than 100 bytes are rounded down to nothing.
        assert used * 100 < (threshold + 1) * capacity or low >= threshold or capacity < 100


numbers = st.integers(0, 20)
members = st.builds(
    Traits,
    best_effort=st.booleans(),
    enabled=st.booleans(),
    priority=st.one_of(st.none(), st.integers(0, 3)),
    rank=st.tuples(numbers, numbers, numbers),
    policies=st.one_of(st.none(), st.frozensets(st.sampled_from(sorted(ALL)))),
    grace_seconds=st.just(30),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Task], list[MemoryEvictionCandidate], frozenset[str]]:
    pods = [
        MemoryEvictionCandidate(f"u{index}", f"p{index}", draw(members), {USED: draw(numbers), "x": draw(numbers)})
        for index in range(draw(st.integers(0, 6)))
    ]
    tasks = [
        Task(draw(st.sampled_from(sorted(ALL))), draw(st.sampled_from([USED, "x"])), draw(st.integers(1, 40)), "", by, 2)
        for by in draw(st.lists(st.booleans(), max_size=3))
    ]
    leaving = draw(st.frozensets(st.sampled_from([each.uid for each in pods]))) if pods else frozenset()
    return tasks, pods, leaving


@given(situations())
def test_no_pod_is_taken_twice_or_without_need_or_by_a_feature_that_may_not(
    given_: tuple[list[Task], list[MemoryEvictionCandidate], frozenset[str]],
) -> None:
    tasks, pods, leaving = given_
    found = victims(tasks, pods, leaving)
    uids = [each.candidate.uid for each in found]
    assert len(set(uids)) == len(uids)
    assert not leaving & set(uids)
    before = [each for each in pods if each.uid in leaving]
    for each in found:
        assert each.task.concerns(each.candidate)
        assert sum(other.amount(each.task.target) for other in before) < each.task.release
        before.append(each.candidate)


@given(situations())
def test_the_order_of_the_pods_given_does_not_matter(
    given_: tuple[list[Task], list[MemoryEvictionCandidate], frozenset[str]],
) -> None:
    tasks, pods, leaving = given_
    assert victims(tasks, pods, leaving) == victims(tasks, pods[::-1], leaving)


def running(*pods: Pod, used: int, each: dict[str, int], **more: Any) -> StrategyDecision:
    """A decision of all features beside these pods; `more` are fields of the threshold section."""
    return decide_with(situation(pods, node_slo=slo(**more), reading=reading(used, each)), ALL)


def test_best_effort_pods_go_in_the_order_of_priority_then_usage_and_services_stay() -> None:
    low, lower = batch("low", priority=5000), batch("lower", priority=4000)
    more = batch("more", priority=5000)
    decision = running(
        service("web"), low, lower, more,
        used=NODE_BYTES * 90 // 100,
        each={"uid-web": 12 * GIB, "uid-low": GIB, "uid-lower": GIB, "uid-more": 2 * GIB},
    )
    assert evicted(decision) == ["uid-lower", "uid-more", "uid-low"]


def test_eviction_stops_when_enough_is_released() -> None:
    pods = [batch(f"b{index}", priority=5000 + index) for index in range(5)]
    decision = running(*pods, used=NODE_BYTES * 72 // 100 + 1, each={f"uid-b{index}": GIB // 2 for index in range(5)})
    assert evicted(decision) == ["uid-b0", "uid-b1"], "4 % of 16 GiB are 655 MiB"


def test_pods_that_are_being_ended_count_as_released() -> None:
    pods = [batch(f"b{index}", priority=5000 + index) for index in range(3)]
    there = situation(
        pods, node_slo=slo(), reading=reading(NODE_BYTES * 72 // 100, {f"uid-b{index}": GIB for index in range(3)})
    )
    assert evicted(decide_with(there, BE)) == ["uid-b0"]
    assert evicted(decide_with(replace(there, evicting=frozenset(("uid-b2",))), BE)) == []


def test_below_the_threshold_disabled_or_without_a_sample_nothing_is_evicted() -> None:
    unset: dict[str, Any] = {"memoryEvictThresholdPercent": None}
    for used, more in ((NODE_BYTES * 69 // 100, {}), (NODE_BYTES, {"enable": False}), (NODE_BYTES, unset)):
        assert evicted(running(batch("b"), used=used, each={"uid-b": GIB}, **more)) == []
    assert decide_with(situation([batch("b")], node_slo=slo()), ALL).orders == ()


def willing(name: str, **more: Any) -> Pod:
    """A pod that may be evicted by priority."""
    entry = pod(name, "LS", requests={"cpu": "1"}, **more)
    labels = {**entry.metadata.labels, "koordinator.sh/eviction-enabled": "true"}
    return replace(entry, metadata=replace(entry.metadata, labels=labels))


def test_by_priority_only_willing_pods_up_to_the_threshold_go_and_never_one_without_a_sample() -> None:
    decision = running(
        willing("low", priority=100),
        willing("high", priority=9000),
        willing("unmeasured", priority=1),
        pod("unasked", "LS", priority=1),
        used=NODE_BYTES,
        each={"uid-low": GIB, "uid-high": GIB, "uid-unasked": GIB},
        evictEnabledPriorityThreshold=5000,
    )
    assert evicted(decision) == ["uid-low"]
    (order,) = decision.orders
    assert isinstance(order, Evict)
    assert order.why.startswith("trigger by koordlet feature MemoryEvict: node memory 100% used")


@pytest.mark.parametrize(("policy", "taken"), [('["MemoryEvict"]', True), ('["CPUEvict"]', False), ("nonsense", False)])
def test_a_pods_annotation_restricts_the_features_that_may_evict_it(policy: str, taken: bool) -> None:
    entry = willing("p", priority=1, annotations={"koordinator.sh/eviction-policy": policy})
    decision = running(entry, used=NODE_BYTES, each={"uid-p": GIB}, evictEnabledPriorityThreshold=5000)
    assert bool(evicted(decision)) is taken


def test_eviction_priority_comes_before_priority_and_that_before_the_label() -> None:
    def rank(priority: int, eviction: str | None = None, label: str | None = None) -> tuple[int, int, int]:
        annotations = {"koordinator.sh/eviction-priority": eviction} if eviction is not None else None
        entry = pod("p", "BE", priority=priority, annotations=annotations)
        labels = {"koordinator.sh/priority": label} if label is not None else {}
        return traits(replace(entry, metadata=replace(entry.metadata, labels=labels))).rank

    assert rank(100, "-1") < rank(1) < rank(100, label="5") < rank(100)


@given(st.integers(1, 100), st.integers(0, 100), st.integers(0, 1000), st.integers(0, 1000))
def test_by_allocatable_the_lower_share_of_what_is_offered_stays(threshold: int, lower: int, asked: int, offer: int) -> None:
    config = MemoryEvictConfig(
        memory_allocatable_evict_threshold_percent=threshold,
        memory_allocatable_evict_lower_percent=lower,
        allocatable_evict_priority_threshold=5999,
    )
    name = "kubernetes.io/batch-memory"
    tasks = allocatable_tasks(config, {name: asked}, {name: offer})
    if lower >= threshold or not asked or asked * 100 <= threshold * offer:
        assert tasks == []
    else:
        assert [task.release for task in tasks] == [asked - offer * lower // 100]


def test_a_node_whose_offer_is_unknown_is_not_judged_by_it() -> None:
    config = MemoryEvictConfig(
        memory_allocatable_evict_threshold_percent=90,
        memory_allocatable_evict_lower_percent=80,
        allocatable_evict_priority_threshold=5999,
    )
    assert allocatable_tasks(config, {"kubernetes.io/batch-memory": GIB}, {}) == []


def test_a_node_on_which_no_feature_is_configured_has_nothing_to_do_with_a_sample() -> None:
    policy = NodePolicy(capabilities(), slo())
    assert strategy(frozenset((MEMORY_EVICT, MEMORY_ALLOCATABLE_EVICT))).inputs(policy) == frozenset()
    assert Input.USAGE in strategy(ALL).inputs(policy)
    asked = NodePolicy(capabilities(), slo(evictEnabledPriorityThreshold=1))
    assert Input.USAGE in strategy(frozenset((MEMORY_EVICT,))).inputs(asked)


def test_gates_are_named_and_checked() -> None:
    assert BE_MEMORY_EVICT in parse_gates("BEMemoryEvict=true, MemoryEvict=false")
    assert MEMORY_EVICT not in parse_gates("MemoryEvict=False")
    assert parse_gates("") == {"MemoryEvict", "MemoryAllocatableEvict"}
    assert NODE_GATES.keys() == {"MemoryEvict", "MemoryAllocatableEvict", "BEMemoryEvict", "TCNetworkQoS", "TerwayQoS"}
    for wrong in ("Nothing=true", "BEMemoryEvict", "BEMemoryEvict=yes"):
        with pytest.raises(ValueError, match="feature gate"):
            parse_gates(wrong)


def full_bench(count: int) -> Bench:
    """A bench with running batch pods on a node whose memory is full."""
    bench = Bench(strategies=strategies_of(ALL)).load()
    bench.store(slo_subject(NODE), slo(memoryEvictLowerPercent=0))
    for index in range(count):
        entry = batch(f"b{index}")
        bench.place(entry)
        bench.groups.update((f"besteffort/poduid-b{index}", f"besteffort/poduid-b{index}/main"))
        bench.saw(entry, pid=100 + index, started_at=bench.now)
    bench.reading = reading(NODE_BYTES, {f"uid-b{index}": GIB // 4 for index in range(count)})
    return bench


def test_the_evictor_keeps_the_rate_and_says_once_that_evictions_wait() -> None:
    bench = full_bench(40)
    executions, summaries, begun = Executions(NODE), [], []
    for _ in range(70):
        bench.look(1)
        plan = bench.core.plan(bench.now)
        begun.append(len(plan.evictions))
        events = executions.of_cycle(bench.core, plan, WriteReport(), (), bench.now)
        summaries += [event.data.summary for event in events if isinstance(event.data, Execution)]
    assert (begun[0], sum(begun[:59]), sum(begun)) == (30, 30, 40)
    assert [each for each in summaries if " wait: " in each] == [
        "evictions by memory-evict wait: at most 30 evictions a minute"
    ]
    assert sum("evicted by memory-evict: trigger by koordlet feature BEMemoryEvict" in each for each in summaries) == 40


def test_a_second_eviction_waits_for_the_cool_down() -> None:
    bench = full_bench(1).look()
    assert len(bench.core.plan(bench.now).evictions) == 1
    entry = batch("late")
    bench.place(entry)
    bench.groups.update(("besteffort/poduid-late", "besteffort/poduid-late/main"))
    bench.saw(entry, pid=7, started_at=bench.now)
    bench.reading = reading(NODE_BYTES, {"uid-b0": GIB // 4, "uid-late": GIB // 4})
    begun: list[timedelta] = []
    start = bench.now
    while not begun and bench.now - start < timedelta(minutes=1):
        bench.look(0.5)
        if bench.core.plan(bench.now).evictions:
            begun.append(bench.now - start)
    assert begun == [timedelta(seconds=COOL_DOWN_SECONDS)]


def test_what_the_node_offers_reaches_the_strategy_and_a_withdrawn_offer_evicts_nobody() -> None:
    bench = full_bench(2)
    bench.store(
        slo_subject(NODE),
        slo(
            memoryEvictThresholdPercent=None,
            memoryAllocatableEvictThresholdPercent=100,
            memoryAllocatableEvictLowerPercent=90,
            allocatableEvictPriorityThreshold=5999,
        ),
    )
    bench.look()
    assert bench.core.plan(bench.now).evictions == ()
    bench.store(resources_subject(NODE), NodeResources(node=NODE, withdrawn=True))
    bench.look(1)
    assert bench.core.plan(bench.now).evictions == ()
