"""A piece of the openb trace as workload: its machines with their GPUs, its pods in their order, the seed's faults on top."""

from __future__ import annotations

from cotenant.events.placements import Placement
from cotenant.model.names import GPU_CORE
from cotenant_verification.chaos.report import failure_lines
from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.simulate.openb import OpenbTrace, TraceNode, TracePod

SPAN = 60.0


def trace() -> OpenbTrace:
    nodes = tuple(TraceNode(f"machine-{index}", 32_000, 131_072, 2 * (index % 2), "T4") for index in range(8))
    pods = tuple(
        TracePod(
            name=f"pod-{index:03d}",
            cpu_milli=2_000,
            memory_mib=2_048,
            gpus=index % 2,
            gpu_milli=460 if index % 2 else 0,
            models=("T4",) if index % 4 == 1 else (),
            qos=("LS", "BE", "Burstable")[index % 3],
            created=3_600 * index,
            deleted=3_600 * index + 36_000,
        )
        for index in range(100)
    )
    return OpenbTrace(nodes, pods)


def test_pods_come_in_the_traces_order_within_the_span() -> None:
    schedule = schedule_of(3, SPAN, 4, trace())
    created = [entry for entry in schedule.entries if entry.kind == "create-pod"]
    names = [entry.target for entry in created]
    assert len(names) == 40
    assert names == sorted(names)
    assert len({entry.at_ms for entry in created}) == 40
    assert max(entry.at_ms for entry in created) < SPAN * 1000
    gone = [entry for entry in schedule.entries if entry.kind == "delete-pod"]
    assert {entry.target for entry in gone} < set(names)
    assert schedule.faults


def test_a_piece_of_the_trace_keeps_every_promise_under_faults() -> None:
    result = run(schedule_of(3, SPAN, 4, trace()))
    assert result.violation is None, "\n".join(failure_lines(result.violation, result.view, "seed 3"))
    assert result.view is not None
    placed = [event.data for event in result.view.log if isinstance(event.data, Placement) and not event.tombstone]
    # 460 thousandths of a GPU are 46 hundredths.
    assert {placement.requests.get(GPU_CORE, 0) for placement in placed} == {0, 46}
