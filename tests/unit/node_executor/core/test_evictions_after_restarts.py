"""Evictions when the executor is killed: what was begun is finished, and counts for cool-down and rate, whoever began it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import EvictionBegun, RunPhase, RunStatus
from cotenant.model.subjects import run_subject, slo_subject
from cotenant_node_executor.core.evictions import RATE_WINDOW
from cotenant_node_executor.runtime.interface import AskEviction, Stop
from cotenant_node_executor.strategies.cpu.evict.strategy import COOL_DOWN_SECONDS as CPU_SECONDS
from cotenant_node_executor.strategies.memory.evict import BE_MEMORY_EVICT
from cotenant_node_executor.strategies.memory.evict import COOL_DOWN_SECONDS as MEMORY_SECONDS
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import GIB, NODE, START, Bench, batch, facts
from tests.unit.node_executor.strategies.test_cpu_evict import SATISFACTION, evict_slo
from tests.unit.node_executor.strategies.test_cpu_evict import reading as cpu_reading
from tests.unit.node_executor.strategies.test_memory_evict import NODE_BYTES
from tests.unit.node_executor.strategies.test_memory_evict import reading as memory_reading
from tests.unit.node_executor.strategies.test_memory_evict import slo as memory_slo

Begun = tuple[datetime, str]
PERIOD = timedelta(seconds=1)


def memory_bench() -> Bench:
    """A node whose memory stays full whoever leaves."""
    bench = Bench(strategies=strategies_of(frozenset((BE_MEMORY_EVICT,)))).load()
    bench.store(slo_subject(NODE), memory_slo(memoryEvictLowerPercent=69))
    return bench


def cpu_bench() -> Bench:
    """A node on which batch pods starve."""
    bench = Bench().load()
    bench.store(slo_subject(NODE), evict_slo(**SATISFACTION))
    bench.current = {(BESTEFFORT, Knob.CPU_QUOTA): "200000"}
    return bench


def arrive(bench: Bench, name: str) -> None:
    entry = batch(name, 4000)
    bench.place(entry)
    bench.groups.update((f"besteffort/poduid-{name}", f"besteffort/poduid-{name}/main"))
    bench.saw(entry, pid=7, started_at=bench.now)


def sample(bench: Bench, second: int, of_memory: bool) -> None:
    here = [uid for uid, states in bench.states.items() if not states["main"].exited]
    if of_memory:
        bench.reading = memory_reading(NODE_BYTES, dict.fromkeys(here, GIB // 4))
    else:
        bench.reading = cpu_reading(second, {uid: 2000 // max(len(here), 1) for uid in here})


def cycle(bench: Bench, second: int, strategy: str) -> list[Begun]:
    """One second of the node; pods that were told to end do. What the strategy began in it."""
    sample(bench, second, strategy == "memory-evict")
    plan = bench.look(PERIOD.total_seconds()).core.plan(bench.now)
    for order in plan.orders:
        if isinstance(order, Stop):
            state = bench.states[order.uid]
            state["main"] = msgspec.structs.replace(state["main"], exit_code=143, finished_at=bench.now)
    bench.report()
    return [(bench.now, order.uid) for _, name, order in plan.evictions if name == strategy]


@pytest.mark.parametrize(
    ("strategy", "made", "cool_down"), [("memory-evict", memory_bench, MEMORY_SECONDS), ("cpu-evict", cpu_bench, CPU_SECONDS)]
)
@settings(max_examples=12, deadline=None)
@given(st.sets(st.integers(0, 70), max_size=8), st.integers(0, 2))
def test_whenever_the_executor_is_killed_cool_down_and_rate_hold_and_nobody_is_evicted_twice(
    strategy: str, made: Callable[[], Bench], cool_down: float, killed: set[int], arrivals: int
) -> None:
    bench = made()
    for number in range(8):
        arrive(bench, f"first-{number}")
    begun: list[Begun] = []
    for second in range(71):
        for number in range(arrivals):
            arrive(bench, f"p{second}-{number}")
        begun += cycle(bench, second, strategy)
        if second in killed:
            bench.restarted()
    times = sorted({at for at, _ in begun})
    assert all(later - earlier >= timedelta(seconds=cool_down) for earlier, later in pairwise(times))
    for at in times:
        assert sum(at - RATE_WINDOW < other <= at for other, _ in begun) <= 30
    assert len({uid for _, uid in begun}) == len(begun)
    if strategy == "memory-evict":
        assert begun, "the node is full from the first second on"


def test_what_was_begun_is_finished_by_the_next_executor_though_nobody_orders_it_any_more() -> None:
    bench = memory_bench()
    arrive(bench, "job")
    assert len(cycle(bench, 0, "memory-evict")) == 1
    bench.store(slo_subject(NODE), NodeSLORendered(node=NODE))
    orders = bench.restarted().look(1).core.plan(bench.now).orders
    assert orders == (Stop("uid-job", 30),)
    bench.saw(batch("job"), pid=7, started_at=START, finished_at=bench.now, exit_code=143)
    bench.look(1).core.plan(bench.now)
    told = bench.last[run_subject(NODE, "default", "job")]
    (event,) = bench.core.decide(bench.now)
    report = event.data
    assert f"LOG:{told.sequence}" in event.causes, "which names the sample that the former executor saw"
    assert isinstance(report, RunStatus)
    assert (report.phase, report.reason) == (RunPhase.FAILED, "Evicted")
    assert report.message.startswith("trigger by koordlet feature BEMemoryEvict: node memory 100% used")


def test_on_a_node_of_kubelets_the_next_executor_asks_for_what_was_begun() -> None:
    node = msgspec.structs.replace(facts(), kubelet_pods=True)
    bench = Bench(strategies=strategies_of(frozenset((BE_MEMORY_EVICT,))), of=node, plain_processes=False).load()
    bench.store(slo_subject(NODE), memory_slo(memoryEvictLowerPercent=69))
    arrive(bench, "job")
    assert len(cycle(bench, 0, "memory-evict")) == 1
    (order,) = bench.restarted().look(1).core.plan(bench.now).orders
    assert isinstance(order, AskEviction)
    assert (order.uid, order.name) == ("uid-job", "job")
    assert order.why.startswith("trigger by koordlet feature BEMemoryEvict")


@pytest.mark.parametrize(("at", "second"), [(START, 3), (START + timedelta(days=30_000), 4)])
def test_an_eviction_counts_when_its_pod_is_gone_and_one_of_the_future_counts_as_now(at: datetime, second: int) -> None:
    bench = memory_bench()
    arrive(bench, "job")
    begun = EvictionBegun(strategy="memory-evict", at=at)
    report = RunStatus(node=NODE, namespace="default", name="gone", uid="uid-gone", phase=RunPhase.STOPPED, eviction=begun)
    bench.store(run_subject(NODE, "default", "gone"), report, tombstone=True)
    bench.restarted()
    found = [each for each in range(10) if cycle(bench, each, "memory-evict")]
    assert found == [second]
