"""A failing schedule is shrunk to what it needs, and what is left still fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant_verification.chaos.run import run, schedule_of
from cotenant_verification.chaos.shrink import shrink, until
from cotenant_verification.workload.schedule import Header, Schedule, ScheduleEntry, ScheduleError, in_order, read_schedule
from tests.simulation.mutants.defects import MUTANTS

HEADER = Header(seed=1, span_ms=60_000, nodes=1, hop_ms=20)


def schedule(*names: str) -> Schedule:
    return Schedule(HEADER, tuple(ScheduleEntry(at_ms=at, kind="create-pod", target=name) for at, name in enumerate(names)))


def test_shrinking_leaves_exactly_the_entries_that_are_needed_together() -> None:
    tried = []

    def fails(candidate: Schedule) -> bool:
        tried.append(candidate)
        return {"b", "h"} <= {entry.target for entry in candidate.entries}

    smallest = shrink(schedule(*"abcdefghijklmnop"), fails)
    assert [entry.target for entry in smallest.entries] == ["b", "h"]
    assert len(tried) < 60


def test_a_real_failure_shrinks_to_a_handful_of_steps_and_breaks_the_same_promise() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "the_batch_formula_forgets_services")
    with mutant.at_work():
        whole = schedule_of(1, 120, 2)
        found = run(whole)
        assert found.violation is not None
        number = found.violation.invariant

        def fails(candidate: Schedule) -> bool:
            violation = run(candidate).violation
            return violation is not None and violation.invariant == number

        smallest = shrink(until(whole, round(found.virtual_seconds * 1000)), fails)
        assert fails(smallest)
    assert len(smallest.entries) <= 4
    assert {"node", "config"} <= {entry.kind for entry in smallest.entries}


def test_a_file_that_is_no_schedule_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.schedule"
    path.write_text('{"seed":1,"span_ms":1000,"nodes":1,"hop_ms":5}\n{"kind":"crash"}\n')
    with pytest.raises(ScheduleError, match="line 2"):
        read_schedule(path)
    path.write_text('{"seed":1,"span_ms":1000,"nodes":1,"hop_ms":0}\n')
    with pytest.raises(ScheduleError, match=r"line 1: Expected `int` >= 1 - at `\$.hop_ms`"):
        read_schedule(path)


def test_entries_are_carried_out_in_the_order_of_their_moments() -> None:
    late, early = ScheduleEntry(at_ms=2, kind="stall"), ScheduleEntry(at_ms=1, kind="reset")
    assert in_order([late, early]) == (early, late)
