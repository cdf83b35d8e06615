"""The real-time class and the latency that services report: who is let go, who returns, who comes first."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.domain.service_latency import LatencyFigures
from cotenant.events.node.resources import CpuIdentity
from cotenant_node_executor.sampling.latency.readings import ServiceReading
from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.cpu.protection import realtime
from cotenant_node_executor.strategies.cpu.protection.need import LATE_SAMPLES
from cotenant_node_executor.strategies.cpu.protection.realtime import COOL_DOWN_NS, RealtimeMemory
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.targets.address import Knob, RealtimeThreads
from cotenant_node_executor.targets.interface import THREADS, KnobSupport
from cotenant_node_executor.targets.other.realtime import MOST_PODS, RealtimeState
from tests.unit.node_executor.builders_node_executor import capabilities, group, service, situation, slo, snapshot

SECOND = 1_000_000_000
COOL_DOWN = COOL_DOWN_NS // SECOND
GOAL_MS = 20.0
FREE, HELD_UP = (200, 0), (200, 300)
"""What the threads of a service ran and waited, in ms of a second."""
IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}


def fast(name: str, *, goal: bool = True) -> Pod:
    own = {"cotenant.io/latency-goal": f"{GOAL_MS:g}ms", "cotenant.io/latency-endpoint": "http://127.0.0.1:8080/"}
    return service(name, annotations={"cotenant.io/cpu-class": "realtime"} | (own if goal else {}))


def seen(
    pods: list[Pod],
    at: int,
    latency: Mapping[str, float] | None = None,
    threads: Mapping[str, tuple[int, int]] | None = None,
    *,
    budgets: bool = False,
    taken: Mapping[str, str] | None = None,
) -> Situation:
    """`latency`: of the oldest request, by pod; pods that are left out do not answer."""
    base = capabilities(also=(Knob.CPU_RT_RUNTIME, Knob.CPU_RT_PERIOD) if budgets else ())
    kernel = replace(base, knobs={**base.knobs, THREADS: KnobSupport(True)})
    made = situation(pods, node_slo=slo(**IDENTITIES), reading=replace(snapshot(0), monotonic_ns=at * SECOND), kernel=kernel)
    return replace(
        made,
        services={group(name): ServiceReading(LatencyFigures(None, figure)) for name, figure in (latency or {}).items()},
        threads={group(name): (ThreadUsage(1, *each),) for name, each in (threads or {}).items()},
        realtime=RealtimeState(dict(taken or {})),
    )


def has_class(decision: StrategyDecision) -> set[str]:
    assert isinstance(decision.memory, RealtimeMemory)
    return {each.removeprefix(group("")) for each in decision.memory.groups}


def why(decision: StrategyDecision, name: str) -> str:
    return decision.values[RealtimeThreads(group(name))][0].why


def after(pods: list[Pod], samples: range, memory: Struct | None, **what: object) -> StrategyDecision:
    for at in samples:
        decision = realtime.decide(seen(pods, at, **what), memory)  # type: ignore[arg-type]
        memory = decision.memory
    return decision


def test_a_service_that_is_late_while_its_real_time_threads_wait_is_let_go_with_its_figure() -> None:
    web = [fast("web")]
    kept = after(web, range(1, 1 + LATE_SAMPLES), None, latency={"web": 45.0}, threads={"web": HELD_UP})
    assert has_class(kept) == {"web"}, "the sample in which it got the class does not count"
    gone = after(web, range(9, 10), kept.memory, latency={"web": 45.0}, threads={"web": HELD_UP})
    assert has_class(gone) == set()
    assert why(gone, "web") == (
        "late for 3 samples in the real-time class: default/web: oldest request 45.0 ms, goal 20 ms, "
        "its threads waited for 150 % of their run time"
    )


def test_a_service_that_is_late_although_its_threads_run_keeps_the_class() -> None:
    decided = after([fast("web")], range(1, 30), None, latency={"web": 1e6}, threads={"web": FREE})
    assert has_class(decided) == {"web"}


def test_a_service_whose_threads_wait_and_that_is_on_time_all_the_same_keeps_the_class() -> None:
    decided = after([fast("web")], range(1, 30), None, latency={"web": GOAL_MS}, threads={"web": HELD_UP})
    assert has_class(decided) == {"web"}


def test_a_service_that_does_not_answer_is_let_go_by_run_delay_and_one_without_a_goal_is_not_judged() -> None:
    pods = [fast("web"), fast("free", goal=False)]
    decided = after(pods, range(1, 2 + LATE_SAMPLES), None, threads={"web": HELD_UP, "free": HELD_UP})
    assert has_class(decided) == {"free"}
    assert why(decided, "web") == (
        "late for 3 samples in the real-time class: default/web: run delay 150 % of run time, goal below 50 %"
    )


def test_a_service_returns_after_the_cool_down_only_when_it_is_late_in_the_fair_class() -> None:
    web, away = [fast("web")], {group("web"): "used too much"}
    memory = after(web, range(1, 2), None, latency={"web": 1.0}).memory
    memory = realtime.decide(seen(web, 2, {"web": 1.0}, taken=away), memory).memory
    on_time = after(web, range(3, 3 + 3 * COOL_DOWN), memory, latency={"web": 1.0})
    assert has_class(on_time) == set()
    again = 3 + 3 * COOL_DOWN
    late = after(web, range(again, again + LATE_SAMPLES - 1), on_time.memory, latency={"web": 45.0})
    assert has_class(late) == set()
    late = after(web, range(again + 9, again + 10), late.memory, latency={"web": 45.0})
    assert has_class(late) == {"web"}


def test_a_service_that_is_late_has_to_wait_for_the_end_of_the_cool_down() -> None:
    web = [fast("web")]
    memory = after(web, range(1, 2), None).memory
    memory = realtime.decide(seen(web, 2, taken={group("web"): "used too much"}), memory).memory
    waits = after(web, range(3, 2 + COOL_DOWN), memory, latency={"web": 45.0})
    assert has_class(waits) == set()
    assert has_class(after(web, range(2 + COOL_DOWN, 3 + COOL_DOWN), waits.memory, latency={"web": 45.0})) == {"web"}


def test_a_sample_counts_once() -> None:
    web = [fast("web")]
    memory = after(web, range(1, 3), None, latency={"web": 45.0}, threads={"web": HELD_UP}).memory
    for _ in range(10):
        decided = realtime.decide(seen(web, 2, {"web": 45.0}, {"web": HELD_UP}), memory)
        memory = decided.memory
        assert has_class(decided) == {"web"}


def test_a_free_place_is_for_the_service_that_is_late() -> None:
    names = "abcdefghij"
    pods = [fast(name) for name in names]
    full = after(pods, range(1, 20), None, latency={"j": 45.0}, budgets=True)
    assert has_class(full) == set(names[:MOST_PODS]), "nobody loses a place to another"
    assert full.problems == tuple(f"pod default/{name}: the real-time class is for 8 pods" for name in "ji")
    gone = after(pods[1:], range(20, 23), full.memory, latency={"j": 45.0}, budgets=True)
    assert has_class(gone) == {*names[1:MOST_PODS], "j"}


@given(
    samples=st.lists(st.tuples(st.floats(0, 1e3), st.sampled_from([FREE, HELD_UP]), st.booleans()), max_size=200),
    budgets=st.booleans(),
)
def test_the_class_of_a_pod_does_not_flutter(samples: list[tuple[float, tuple[int, int], bool]], budgets: bool) -> None:
    """Once it has lost the class a pod is without it for the cool-down, and it has it for LATE_SAMPLES samples at least."""
    pods, memory, changed = [fast("a"), fast("b")], None, {"a": (False, -COOL_DOWN), "b": (False, -COOL_DOWN)}
    for at, (figure, threads, answers) in enumerate(samples, 1):
        latency = {"a": figure, "b": 1e3 - figure} if answers else {}
        decision = realtime.decide(seen(pods, at, latency, {"a": threads, "b": FREE}, budgets=budgets), memory)
        memory = decision.memory
        for name, (had, since) in changed.items():
            has = name in has_class(decision)
            if has != had:
                assert at - since >= (COOL_DOWN if has else LATE_SAMPLES)
                changed[name] = (has, at)
