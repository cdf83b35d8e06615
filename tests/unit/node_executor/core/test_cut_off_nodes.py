"""A node that LOG feeds no longer protects services and ends pods, and begins nothing. The next one goes on from there."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant.model.subjects import executor_subject, slo_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.runtime.interface import Collect, EndAttempt, Forget, Start, Stop
from cotenant_node_executor.strategies.cpu.evict.strategy import COOL_DOWN_SECONDS
from cotenant_node_executor.strategies.memory.evict import BE_MEMORY_EVICT
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.strategies.strategy import RESTORE
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import GIB, NODE, START, Bench, batch, service, snapshot
from tests.unit.node_executor.strategies.test_memory_evict import NODE_BYTES
from tests.unit.node_executor.strategies.test_memory_evict import reading as memory_reading
from tests.unit.node_executor.strategies.test_memory_evict import slo as memory_slo

GROUPS = ("besteffort/poduid-job", "besteffort/poduid-job/main")


def cut_off(bench: Bench) -> ExecutorCore:
    """LOG feeds the bench's core no longer."""
    bench.core.fed = False
    return bench.core


def taken_over(bench: Bench, former: ExecutorCore | None = None) -> Bench:
    """The next core of the same process loads, and takes over from the bench's core, or another one."""
    former = former or bench.core
    bench.core = former.fresh()
    for event in bench.last.values():
        bench.core.apply(event)
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot=bench.core.boot))
    assert bench.core.loaded
    bench.core.take_over(former)
    return bench


def quota(bench: Bench) -> int:
    """The quota of batch that the core wants."""
    return int(bench.core.plan(bench.now).targets.texts[BESTEFFORT][Knob.CPU_QUOTA])


# -- what a node that is cut off does -----------------------------------------------------------------------------------


def test_it_suppresses() -> None:
    bench = Bench().load()
    bench.slo()
    bench.current = {(BESTEFFORT, Knob.CPU_QUOTA): "520000"}
    bench.reading = snapshot(0)
    idle = quota(bench.look(1))
    cut_off(bench)
    bench.reading = snapshot(4000, {"uid-web": 4000})
    assert quota(bench.look(1)) < idle


@pytest.mark.parametrize("started", [False, True])
def test_it_starts_nothing_not_even_a_container_that_ended(started: bool) -> None:
    bench = Bench().load()
    bench.place(batch("job", restartPolicy="Always"))
    if started:
        bench.groups.update(GROUPS)
        bench.saw(batch("job"), pid=7, started_at=START)
        bench.look().report()
        bench.saw(batch("job"), started_at=START, finished_at=START, exit_code=1)
    (order,) = bench.look(30).core.plan(bench.now).orders
    assert isinstance(order, Start)
    plan = cut_off(bench).plan(bench.now)
    assert (plan.orders, plan.groups) == ((), ())


def test_it_ends_the_pods_that_are_to_end() -> None:
    bench = Bench().load()
    bench.place(batch("job"))
    bench.groups.update(GROUPS)
    bench.saw(batch("job"), pid=7, started_at=START)
    bench.look().report()
    bench.place(batch("job"), PlacementPhase.TERMINATING, grace=5)
    cut_off(bench)
    assert bench.look(1).core.plan(bench.now).orders == (Stop("uid-job", 5),)


def test_it_removes_nothing_that_an_ended_pod_has_left() -> None:
    bench = Bench().load()
    bench.place(batch("job", restartPolicy="Never"))
    bench.groups.update(GROUPS)
    bench.saw(batch("job"), started_at=START, finished_at=START, exit_code=0)
    bench.saw(batch("orphan"), started_at=START, finished_at=START, exit_code=0)
    assert {type(order) for order in bench.look().core.plan(bench.now).orders} == {Collect, Forget}
    cut_off(bench)
    assert bench.look(1).core.plan(bench.now).orders == ()


def test_it_reports_nothing_though_pods_end_meanwhile() -> None:
    bench = Bench().load()
    bench.place(batch("job", restartPolicy="Never"))
    bench.groups.update(GROUPS)
    bench.saw(batch("job"), pid=7, started_at=START)
    bench.look().report()
    cut_off(bench)
    bench.saw(batch("job"), started_at=START, finished_at=START, exit_code=0)
    assert bench.look(1).report() == []
    report = taken_over(bench).look().report()[-1].data
    assert isinstance(report, RunStatus)
    assert report.phase is RunPhase.SUCCEEDED


# -- how the next one goes on --------------------------------------------------------------------------------------------


def full_node() -> Bench:
    """A node whose memory is full, with a batch pod that has been reported as running."""
    bench = Bench(strategies=strategies_of(frozenset((BE_MEMORY_EVICT,)))).load()
    bench.store(slo_subject(NODE), memory_slo(memoryEvictLowerPercent=69))
    bench.place(batch("job", 4000))
    bench.groups.update(GROUPS)
    bench.saw(batch("job"), pid=7, started_at=START)
    bench.look().report()
    bench.reading = memory_reading(NODE_BYTES, {"uid-job": GIB // 4})
    return bench


def test_an_eviction_that_began_meanwhile_is_finished_and_reported_as_one_and_its_pod_is_not_started_again() -> None:
    bench = full_node()
    cut_off(bench)
    evictions = bench.look(1).core.plan(bench.now).evictions
    assert [order.uid for _, _, order in evictions] == ["uid-job"]
    assert bench.report() == []
    assert bench.look(1).core.plan(bench.now).orders == (Stop("uid-job", 30),)
    bench.saw(batch("job"), started_at=START, finished_at=bench.now, exit_code=143)

    plan = taken_over(bench).look(1).core.plan(bench.now)
    assert not any(isinstance(order, Start | EndAttempt) for order in plan.orders)
    assert plan.evictions == ()
    report = bench.report()[-1].data
    assert isinstance(report, RunStatus)
    assert (report.phase, report.reason) == (RunPhase.FAILED, "Evicted")
    assert report.eviction is not None
    assert report.eviction.at < bench.now


def test_evictions_that_began_meanwhile_count_for_the_cool_down() -> None:
    bench = full_node()
    cut_off(bench)
    assert bench.look(1).core.plan(bench.now).evictions
    assert bench.core.evictions.count["memory-evict"] == 1
    bench.place(batch("other", 4000))
    bench.groups.update(("besteffort/poduid-other", "besteffort/poduid-other/main"))
    bench.saw(batch("other"), pid=8, started_at=START)
    bench.reading = memory_reading(NODE_BYTES, {"uid-job": GIB // 4, "uid-other": GIB // 4})
    plan = taken_over(bench).look(1).core.plan(bench.now)
    assert plan.evictions == ()
    assert dict(plan.waiting)["memory-evict"].endswith("s between its evictions")
    assert bench.look(COOL_DOWN_SECONDS).core.plan(bench.now).evictions
    assert bench.core.evictions.count["memory-evict"] == 2


def test_what_strategies_remember_and_want_is_kept() -> None:
    bench = Bench().load()
    bench.slo()
    bench.current = {(BESTEFFORT, Knob.CPU_QUOTA): "520000"}
    bench.reading = snapshot(4000, {"uid-web": 4000})
    before = quota(bench.look(1))
    bench.reading = None
    assert quota(taken_over(bench).look()) == before, "no sample has come since"


def test_a_pod_that_came_or_went_while_it_was_loaded_has_values_or_none() -> None:
    bench = Bench().load()
    bench.slo()
    for name in ("stays", "goes"):
        bench.place(service(name))
        bench.groups.update((f"burstable/poduid-{name}", f"burstable/poduid-{name}/main"))
    assert {f"burstable/poduid-{name}" for name in ("stays", "goes")} <= bench.look().core.plan(bench.now).targets.texts.keys()
    former = cut_off(bench)
    bench.core = former.fresh()
    bench.place(service("goes"), PlacementPhase.GONE)
    bench.place(service("comes"))
    bench.groups.update(("burstable/poduid-comes", "burstable/poduid-comes/main"))
    texts = taken_over(bench, former).look().core.plan(bench.now).targets.texts
    assert {"burstable/poduid-stays", "burstable/poduid-comes"} <= texts.keys()
    assert texts["burstable/poduid-comes"] == texts["burstable/poduid-stays"]
    left = bench.core.desired("burstable/poduid-goes", Knob.CPU_SHARES)
    assert left is not None
    assert left.strategy == RESTORE.name


def test_a_report_that_an_earlier_core_sent_and_that_is_stored_late_does_not_end_the_load_nor_undo_it() -> None:
    bench = Bench().load()
    former = cut_off(bench)
    bench.core = former.fresh()
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot=former.boot))
    assert not bench.core.loaded
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot=bench.core.boot))
    assert bench.core.loaded
    late = msgspec.structs.replace(ExecutorStatus(node=NODE, boot=former.boot), message="late")
    bench.store(executor_subject(NODE), late)
    assert bench.core.loaded
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="another-process"))
    assert not bench.core.loaded, "another executor of this name has taken over"
