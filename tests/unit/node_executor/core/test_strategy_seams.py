"""A strategy of a test's own uses every seam: values on all kinds of targets, memory, an eviction, a reset."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.node.execution import Execution
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant.model.subjects import run_subject
from cotenant_node_executor.core.composer import CompositionError
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.runtime.interface import Collect, Stop
from cotenant_node_executor.simulated.machine import SimulatedMachine
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Evict, Input, NodePolicy, Reset, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import (
    Attribute,
    Knob,
    Place,
    Sysctl,
    SysctlAttribute,
    Thread,
    ThreadAttribute,
)
from cotenant_node_executor.targets.interface import WriteReport
from tests.unit.node_executor.builders_node_executor import NODE, START, Bench, batch, capabilities, facts

NAME = "patience"
LIMIT = 3
"""Cycles until the pod is evicted and the burst is reset."""
SYSCTL = Sysctl("kernel/sched_test")
THREAD = Thread(4711)


class Cycles(Struct, frozen=True):
    """How many cycles the strategy has seen."""

    count: int = 0


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Count cycles; at the limit evict the pods and put the burst back."""
    count = (memory.count if isinstance(memory, Cycles) else 0) + 1
    desired: dict[Place, tuple[Desired, ...]] = {
        SYSCTL: (Desired(SysctlAttribute.VALUE, str(count), NAME, "counted"),),
        THREAD: (Desired(ThreadAttribute.POLICY, "batch", NAME, "background"),),
    }
    if count < LIMIT:
        desired["besteffort"] = (Desired(Knob.CPU_BURST, "1000", NAME, "a burst"),)
        return StrategyDecision(desired, memory=Cycles(count))
    evictions = tuple(Evict(pod.uid, "waited too long", 7) for _, pod in sorted(situation.pods.items()))
    return StrategyDecision(desired, (*evictions, Reset("besteffort", Knob.CPU_BURST, "burst over")), Cycles(count))


def inputs(_policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.CYCLE,))


def strategy(
    decides: Callable[[Situation, Struct | None], StrategyDecision] = decide,
    sets: tuple[Attribute, ...] = (Knob.CPU_BURST, SysctlAttribute.VALUE, ThreadAttribute.POLICY),
) -> Strategy:
    return Strategy(name=NAME, topic="patience", sets=sets, decide=decides, inputs=inputs, figures=figures)


def figures(memory: Struct | None) -> dict[str, int]:
    return {"cycles": memory.count} if isinstance(memory, Cycles) else {}


def running_bench() -> Bench:
    """A bench with a placed pod that is seen running, two cycles in: the third is the limit."""
    bench = Bench(strategies=(*STRATEGIES, strategy())).load()
    entry = batch("job")
    bench.place(entry)
    bench.groups.update(("besteffort/poduid-job", "besteffort/poduid-job/main"))
    bench.saw(entry, pid=100, started_at=bench.now)
    bench.look()
    for _ in range(LIMIT - 1):
        bench.core.plan(bench.now)
    bench.report()
    return bench


def test_memory_carries_over_the_cycles_and_its_values_reach_every_kind_of_target() -> None:
    bench = Bench(strategies=(*STRATEGIES, strategy())).load().look()
    first = bench.core.plan(bench.now).targets
    assert first.texts["besteffort"][Knob.CPU_BURST] == "1000"
    assert first.others[THREAD] == {ThreadAttribute.POLICY: "batch"}
    assert first.others[SYSCTL] == {SysctlAttribute.VALUE: "1"}
    assert bench.core.plan(bench.now).targets.others[SYSCTL] == {SysctlAttribute.VALUE: "2"}


def test_a_node_with_a_strategy_of_every_cycle_is_never_idle() -> None:
    idle, busy = Bench().load().look(), Bench(strategies=(*STRATEGIES, strategy())).load().look()
    for bench in (idle, busy):
        bench.core.plan(bench.now)
        bench.report()
    assert (idle.core.has_work, busy.core.has_work) == (False, True)


def test_a_copied_core_continues_from_the_original_memory() -> None:
    bench = Bench(strategies=(*STRATEGIES, strategy())).load().look()
    bench.core.plan(bench.now)
    other = copy.deepcopy(bench.core)
    for _ in range(2):
        bench.core.plan(bench.now)
    assert other.plan(bench.now).targets.others[SYSCTL] == {SysctlAttribute.VALUE: "2"}


def test_a_reset_restores_the_initial_value() -> None:
    bench = running_bench()
    assert bench.core.plan(bench.now).targets.texts["besteffort"][Knob.CPU_BURST] == "0"


def test_an_evicted_pod_is_stopped_with_its_grace_period_and_reported_as_failed() -> None:
    bench = running_bench()
    (begun,) = bench.core.plan(bench.now).evictions
    assert begun == (("default", "job"), NAME, Evict("uid-job", "waited too long", 7))
    plan = bench.core.plan(bench.now)
    assert plan.evictions == ()
    assert plan.orders == (Stop("uid-job", 7),)
    bench.saw(batch("job"), exit_code=143, started_at=START, finished_at=bench.now)
    bench.look()
    assert bench.core.plan(bench.now).orders == (Collect("uid-job"),)
    (event,) = bench.report()
    assert isinstance(event.data, RunStatus)
    assert (event.data.phase, event.data.reason, event.data.message) == (RunPhase.FAILED, "Evicted", "waited too long")


def test_an_eviction_is_forgotten_with_the_placement() -> None:
    bench = running_bench()
    bench.core.plan(bench.now)
    bench.place(batch("job"))
    assert bench.core.plan(bench.now).orders == (Stop("uid-job", 7),)
    bench.place(batch("job"), PlacementPhase.GONE)
    bench.place(batch("job"))
    assert [name for _, name, _ in bench.core.plan(bench.now).evictions] == [NAME]


@pytest.mark.parametrize("phase", [PlacementPhase.BOUND, PlacementPhase.TERMINATING])
def test_a_pod_that_has_ended_or_is_ending_is_not_evicted(phase: PlacementPhase) -> None:
    bench = running_bench()
    bench.place(batch("job"), phase)
    if phase is PlacementPhase.BOUND:
        ended = RunStatus(
            node=NODE, namespace="default", name="job", uid="uid-job", phase=RunPhase.FAILED, reason="Evicted"
        )
        bench.store(run_subject(NODE, "default", "job"), ended)
    assert bench.core.plan(bench.now).evictions == ()


def test_an_eviction_is_published_once_with_the_figures_of_its_decision() -> None:
    bench = running_bench()
    executions = Executions(NODE)
    published = [
        event
        for _ in range(2)
        for event in executions.of_cycle(bench.core, bench.core.plan(bench.now), WriteReport(), (), bench.now)
    ]
    (event,) = published
    assert isinstance(event.data, Execution)
    assert (event.data.topic, event.data.pod) == ("patience", "job")
    assert event.data.summary == "default/job: evicted by patience: waited too long"
    assert event.data.figures == {"cycles": LIMIT}
    assert event.causes == (bench.core.placed["default", "job"].ref,)


def test_an_undeclared_attribute_stops_the_cycle() -> None:
    bench = Bench(strategies=(*STRATEGIES, strategy(sets=(Knob.CPU_BURST,)))).load().look()
    with pytest.raises(CompositionError, match="no stated precedence"):
        bench.core.plan(bench.now)


def test_an_attribute_of_another_kind_of_place_stops_the_cycle() -> None:
    def mistaken(_situation: Situation, _memory: Struct | None) -> StrategyDecision:
        return StrategyDecision({THREAD: (Desired(Knob.CPU_BURST, "1", NAME),)})

    bench = Bench(strategies=(*STRATEGIES, strategy(mistaken))).load().look()
    with pytest.raises(CompositionError, match="thread/4711 has no attribute"):
        bench.core.plan(bench.now)


def test_an_attribute_without_an_initial_value_cannot_be_reset() -> None:
    def mistaken(_situation: Situation, _memory: Struct | None) -> StrategyDecision:
        return StrategyDecision(orders=(Reset(SYSCTL, SysctlAttribute.VALUE, "back"),))

    bench = Bench(strategies=(*STRATEGIES, strategy(mistaken))).load().look()
    bench.core.plan(bench.now)
    (finding,) = bench.core.findings
    assert "which has no initial value" in finding.reason


def test_a_simulated_machine_takes_the_same_values_and_publishes_their_change() -> None:
    core = ExecutorCore(
        facts(), capabilities(), "boot", plain_processes=False, strategies=(*STRATEGIES, strategy())
    )
    node = ExecutorNode(core, SimulatedMachine(core.facts, 1), ExecutorStatus(node=NODE, boot="boot"), Periods())
    marker = node.start_marker(START)
    node.apply(replace(marker, sequence=1))
    events = node.step(START) + node.step(START + timedelta(seconds=1))
    summaries = [event.data.summary for event in events if isinstance(event.data, Execution) and event.data.topic == "patience"]
    assert summaries[0].startswith("besteffort cpu.cfs_burst_us: 0 -> 1000 and 2 more")
    assert summaries[1].startswith("sysctl/kernel/sched_test value: 1 -> 2")
