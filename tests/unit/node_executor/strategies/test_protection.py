"""Protection on mainline kernels: which pods, where their threads go, and the real-time class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.cpu.protection import realtime, spread
from cotenant_node_executor.strategies.cpu.protection.classes import protected
from cotenant_node_executor.strategies.cpu.protection.placing import IDLE_SAMPLES, Put, placed, spread_order
from cotenant_node_executor.strategies.situation import Processor, Situation
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.targets.address import Attribute, Knob, Place, RealtimeAttribute, RealtimeThreads, Thread
from cotenant_node_executor.targets.address import ThreadAttribute as On
from cotenant_node_executor.targets.interface import SLICES, THREADS, KnobSupport, NodeCapabilities
from cotenant_node_executor.targets.other.realtime import RealtimeState
from tests.unit.node_executor.builders_node_executor import batch, capabilities, group, service, situation, slo, snapshot

IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}
SECOND = 1_000_000_000


def kernel(*also: Knob, slices: bool = True) -> NodeCapabilities:
    """A mainline kernel whose threads can be moved."""
    names = (THREADS, SLICES) if slices else (THREADS,)
    base = capabilities(also=also)
    return replace(base, knobs={**base.knobs, **dict.fromkeys(names, KnobSupport(True))})


def seen(
    pods: Sequence[Pod] = (),
    threads: Mapping[str, Mapping[int, int]] | None = None,
    *,
    at: int = 1,
    system_milli: int = 0,
    node_slo: NodeSLORendered | None = None,
    of: NodeCapabilities | None = None,
    state: RealtimeState | None = None,
    cpus: int = 4,
) -> Situation:
    """A situation; threads by name of the pod."""
    reading = replace(snapshot(system_milli, cpus=cpus), monotonic_ns=at * SECOND)
    made = situation(
        pods, node_slo=node_slo or slo(**IDENTITIES), reading=reading, kernel=of or kernel(), cpus=cpus
    )
    groups = {view.name: view.group for view in made.pods.values()}
    found = {groups[name]: tuple(ThreadUsage(*each) for each in own.items()) for name, own in (threads or {}).items()}
    return replace(made, threads=found, realtime=state or RealtimeState())


def values(decision: StrategyDecision) -> dict[tuple[Place, Attribute], str]:
    return {(place, each.attribute): each.value for place, own in decision.values.items() for each in own}


def spec(cpu_class: str) -> NodeSLORendered:
    text = f'{{"resourceQOSStrategy":{{"lsClass":{{"cpuQOS":{{"cpuClass":"{cpu_class}"}}}}}}}}'
    return slo(**IDENTITIES, spec=msgspec.Raw(text.encode()))


def asking(name: str, cpu_class: str) -> Pod:
    return service(name, annotations={"cotenant.io/cpu-class": cpu_class})


# -- which pods ------------------------------------------------------------------------------------------------------------


def names(pods: Sequence[object]) -> list[str]:
    return [str(getattr(pod, "name", "")) for pod in pods]


def test_latency_sensitive_pods_are_in_the_fair_class_unless_something_else_is_asked_for() -> None:
    pods = [service("web"), asking("fast", "realtime"), asking("plain", "none"), batch("job")]
    found = protected(seen(pods))
    assert found is not None
    assert (names(found.fair), names(found.realtime), found.problems) == (["web"], ["fast"], ())


def test_the_node_slo_chooses_for_a_class_and_a_pods_annotation_wins() -> None:
    found = protected(seen([service("web"), asking("plain", "fair")], node_slo=spec("realtime")))
    assert found is not None
    assert (names(found.fair), names(found.realtime)) == (["plain"], ["web"])


@pytest.mark.parametrize("value", [5, [], {}, True])
def test_the_pods_of_an_unreadable_section_are_in_the_safe_class(value: object) -> None:
    text = msgspec.json.encode({"resourceQOSStrategy": {"lsClass": {"cpuQOS": {"cpuClass": value}}}})
    found = protected(seen([service("web")], node_slo=slo(**IDENTITIES, spec=msgspec.Raw(text))))
    assert found is not None
    assert (names(found.fair), names(found.realtime)) == (["web"], [])


@pytest.mark.parametrize(("pod", "node_slo"), [(asking("web", "rt"), None), (service("web"), spec("rt"))])
def test_an_unknown_class_is_the_safe_one_and_is_said(pod: Pod, node_slo: NodeSLORendered | None) -> None:
    found = protected(seen([pod], node_slo=node_slo))
    assert found is not None
    assert names(found.fair) == ["web"]
    assert "unknown cpu class 'rt', expected one of none, fair, realtime" in found.problems[0]


@pytest.mark.parametrize(
    ("node_slo", "of"),
    [(slo(), kernel()), (slo(**IDENTITIES), capabilities()), (slo(**IDENTITIES), kernel(Knob.CPU_BVT))],
)
def test_nothing_is_protected_where_identities_are_off_or_threads_cannot_be_moved_or_the_kernel_has_identities(
    node_slo: NodeSLORendered, of: NodeCapabilities
) -> None:
    for strategy in (spread, realtime):
        decision = strategy.decide(seen([asking("web", "realtime")], {"web": {7: 500}}, node_slo=node_slo, of=of), None)
        assert decision.values == {}


# -- where threads go ------------------------------------------------------------------------------------------------------


def test_busy_threads_get_cpus_of_their_own_and_idle_ones_none() -> None:
    assert placed({1: 300, 2: 200, 3: 19}, {}, (0, 1, 2)) == {1: Put(0), 2: Put(1)}


def test_a_thread_stays_where_it_is() -> None:
    assert placed({1: 300, 2: 400}, {1: Put(2)}, (0, 1, 2)) == {1: Put(2), 2: Put(0)}


def test_a_thread_keeps_its_cpu_until_it_has_been_idle_for_a_while() -> None:
    where = {1: Put(0)}
    for _ in range(IDLE_SAMPLES - 1):
        where = placed({1: 4}, where, (0, 1))
        assert where[1].cpu == 0
    assert placed({1: 4}, where, (0, 1)) == {}
    assert placed({1: 5}, where, (0, 1)) == {1: Put(0, 0)}


def test_more_busy_threads_than_cpus_are_left_to_the_kernel() -> None:
    assert placed({1: 300, 2: 300, 3: 300}, {1: Put(0), 2: Put(1)}, (0, 1)) == {}


@given(
    samples=st.lists(st.dictionaries(st.integers(1, 6), st.integers(0, 1000)), max_size=30),
    cpus=st.integers(1, 4),
)
def test_no_two_threads_ever_share_a_cpu(samples: list[dict[int, int]], cpus: int) -> None:
    where: dict[int, Put] = {}
    for usage in samples:
        before, where = where, placed(usage, where, tuple(range(cpus)))
        assert len({put.cpu for put in where.values()}) == len(where) <= cpus
        assert set(where) <= set(usage)
        assert all(before[tid].cpu == put.cpu for tid, put in where.items() if tid in before), "nobody moves"


def test_physical_cores_come_before_their_siblings() -> None:
    processors = [Processor(cpu=cpu, core=cpu // 2, socket=0, node=0) for cpu in range(6)]
    assert spread_order(processors, frozenset(range(6))) == (0, 2, 4, 1, 3, 5)
    assert spread_order(processors, frozenset((1, 2, 3))) == (1, 2, 3)


# -- the fair class --------------------------------------------------------------------------------------------------------


def test_busy_threads_are_spread_all_have_long_slices_and_best_effort_is_idle_as_a_whole() -> None:
    found = values(spread.decide(seen([service("web"), batch("job")], {"web": {7: 300, 8: 200, 9: 1}}), None))
    assert found == {
        ("besteffort", Knob.CPU_IDLE): "1",
        (Thread(7), On.AFFINITY): "0",
        (Thread(7), On.SLICE): "100000000",
        (Thread(8), On.AFFINITY): "2",
        (Thread(8), On.SLICE): "100000000",
        (Thread(9), On.SLICE): "100000000",
    }


def test_a_kernel_without_slices_spreads_all_the_same() -> None:
    found = values(spread.decide(seen([service("web")], {"web": {7: 300}}, of=kernel(slices=False)), None))
    assert found == {("besteffort", Knob.CPU_IDLE): "1", (Thread(7), On.AFFINITY): "0"}


def test_threads_that_are_let_go_get_back_what_they_had_and_are_then_forgotten() -> None:
    first = spread.decide(seen([service("web")], {"web": {7: 300}}), None)
    second = spread.decide(seen([asking("web", "none")], {"web": {7: 300}}, at=2), first.memory)
    assert values(second) == {(Thread(7), On.AFFINITY): "0-3", (Thread(7), On.SLICE): "0"}
    assert spread.decide(seen([asking("web", "none")], {"web": {7: 300}}, at=3), second.memory).values == {}


def test_nothing_is_spread_while_the_system_needs_cpus_nor_soon_after() -> None:
    busy = {"web": {7: 300}}
    memory = spread.decide(seen([service("web")], busy, system_milli=1100), None).memory
    assert isinstance(memory, spread.ThreadSpread)
    assert memory.put == {}
    for at in range(2, 1 + spread.SYSTEM_REST_SAMPLES):
        memory = spread.decide(seen([service("web")], busy, at=at), memory).memory
        assert isinstance(memory, spread.ThreadSpread)
        assert memory.put == {}, at
    memory = spread.decide(seen([service("web")], busy, at=99), memory).memory
    assert isinstance(memory, spread.ThreadSpread)
    assert memory.put == {7: Put(0)}


def test_a_system_that_needs_cpus_does_not_shorten_the_rest_after_too_many_busy_threads() -> None:
    memory = spread.decide(seen([service("web")], {"web": dict.fromkeys(range(7, 12), 300)}), None).memory
    for at in range(2, 2 + spread.REST_SAMPLES):
        assert isinstance(memory, spread.ThreadSpread)
        assert memory.put == {}, at
        memory = spread.decide(seen([service("web")], {"web": {7: 300}}, at=at, system_milli=1100 * (at == 2)), memory).memory
    assert isinstance(memory, spread.ThreadSpread)
    assert memory.put == {7: Put(0)}


def test_one_sample_counts_once() -> None:
    busy = {"web": {7: 300}}
    memory = spread.decide(seen([service("web")], busy, system_milli=1100), None).memory
    again = spread.decide(seen([service("web")], busy, system_milli=1100), memory).memory
    assert again == memory


def test_a_thread_that_ended_is_not_touched_any_more() -> None:
    memory = spread.decide(seen([service("web")], {"web": {7: 300, 8: 300}}), None).memory
    decision = spread.decide(seen([service("web")], {"web": {8: 300}}, at=2), memory)
    later = spread.decide(seen([service("web")], {"web": {8: 300}}, at=3), decision.memory)
    assert all(place != Thread(7) for place in later.values)
    assert values(later)[Thread(8), On.AFFINITY] == "2"


# -- the real-time class ---------------------------------------------------------------------------------------------------

BUDGETED = (Knob.CPU_RT_RUNTIME, Knob.CPU_RT_PERIOD)


def test_a_pod_gets_the_class_and_budgets_from_the_subtree_down() -> None:
    found = values(realtime.decide(seen([asking("a", "realtime")], of=kernel(*BUDGETED)), None))
    assert found == {
        ("", Knob.CPU_RT_RUNTIME): "900000",
        ("burstable", Knob.CPU_RT_RUNTIME): "850000",
        (group("a"), Knob.CPU_RT_PERIOD): "10000000",
        (group("a"), Knob.CPU_RT_RUNTIME): "8500000",
        (f"{group('a')}/main", Knob.CPU_RT_PERIOD): "10000000",
        (f"{group('a')}/main", Knob.CPU_RT_RUNTIME): "8500000",
        (RealtimeThreads(group("a")), RealtimeAttribute.CLASS): "realtime",
    }


def test_a_kernel_without_budgets_needs_none() -> None:
    found = values(realtime.decide(seen([asking("a", "realtime")]), None))
    assert found == {(RealtimeThreads(group("a")), RealtimeAttribute.CLASS): "realtime"}


def budgets(decision: StrategyDecision, name: str) -> str | None:
    return values(decision).get((group(name), Knob.CPU_RT_RUNTIME))


def test_a_pod_that_joins_waits_until_the_others_budgets_are_smaller() -> None:
    of, a, b = kernel(*BUDGETED), asking("a", "realtime"), asking("b", "realtime")
    first = realtime.decide(seen([a], of=of), None)
    second = realtime.decide(seen([a, b], of=of), first.memory)
    assert (budgets(second, "a"), budgets(second, "b")) == ("4250000", None)
    third = realtime.decide(seen([a, b], of=of), second.memory)
    assert (budgets(third, "a"), budgets(third, "b")) == ("4250000", "4250000")
    assert values(third)["burstable", Knob.CPU_RT_RUNTIME] == "850000"


@given(steps=st.lists(st.sets(st.sampled_from("abcdefghij")), max_size=12))
def test_budgets_never_come_to_more_than_the_directory_above_has(steps: list[set[str]]) -> None:
    """Of two decisions in a row the larger budget of each pod counts: the kernel sees both while it is written."""
    memory, before = None, dict[str, int]()
    for at, present in enumerate(steps):
        pods = [asking(name, "realtime") for name in sorted(present)]
        decision = realtime.decide(seen(pods, of=kernel(*BUDGETED), at=at + 1), memory)
        memory = decision.memory
        now = {name: int(text) for name in sorted(present) if (text := budgets(decision, name)) is not None}
        assert sum(now.values()) <= 8_500_000
        grown = {name: runtime for name, runtime in now.items() if runtime > before.get(name, 0)}
        kept = {name: runtime for name, runtime in before.items() if name not in grown}
        assert sum(grown.values()) + sum(kept.values()) <= 8_500_000
        before = now


def test_what_the_guard_took_away_is_fair_for_a_minute_with_its_reason() -> None:
    of, pod = kernel(*BUDGETED), asking("a", "realtime")
    memory = realtime.decide(seen([pod], of=of), None).memory
    taken = realtime.decide(seen([pod], of=of, at=2, state=RealtimeState({group("a"): "used too much"})), memory)
    assert values(taken) == {(RealtimeThreads(group("a")), RealtimeAttribute.CLASS): "fair"}
    assert taken.values[RealtimeThreads(group("a"))][0].why == "used too much"
    waits = realtime.decide(seen([pod], of=of, at=61), taken.memory)
    assert waits.values == {}
    again = realtime.decide(seen([pod], of=of, at=63), waits.memory)
    assert values(again)[RealtimeThreads(group("a")), RealtimeAttribute.CLASS] == "realtime"


def test_a_guard_that_refuses_is_a_problem_and_nothing_is_asked_for_meanwhile() -> None:
    of, pod = kernel(*BUDGETED), asking("a", "realtime")
    memory = realtime.decide(seen([pod], of=of), None).memory
    refused = realtime.decide(seen([pod], of=of, at=2, state=RealtimeState(refused="no budget")), memory)
    assert refused.problems == ("the real-time class: no budget",)
    assert values(refused) == {(RealtimeThreads(group("a")), RealtimeAttribute.CLASS): "fair"}
    state = RealtimeState(refused="no budget")
    waits = realtime.decide(seen([pod], of=of, at=61, state=state), refused.memory)
    assert (waits.values, waits.problems) == ({}, refused.problems)
    again = values(realtime.decide(seen([pod], of=of, at=63, state=state), waits.memory))
    assert again[RealtimeThreads(group("a")), RealtimeAttribute.CLASS] == "realtime"


def test_the_first_decision_after_a_start_takes_budgets_back_that_nobody_asks_for() -> None:
    of = kernel(*BUDGETED)
    first = realtime.decide(seen([service("web")], of=of), None)
    assert set(values(first).values()) == {"0"}
    assert {place for place, _ in values(first)} == {"", "burstable", group("web"), f"{group('web')}/main"}
    assert realtime.decide(seen([service("web")], of=of), first.memory).values == {}


def test_a_ninth_pod_is_not_real_time_and_that_is_said() -> None:
    pods = [asking(name, "realtime") for name in "abcdefghi"]
    decision = realtime.decide(seen(pods, of=kernel(*BUDGETED)), None)
    assert len([place for place in decision.values if isinstance(place, RealtimeThreads)]) == 8
    assert decision.problems == ("pod default/i: the real-time class is for 8 pods",)
