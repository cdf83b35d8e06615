"""What a case promises, what is missed, and the trace that says why."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from cotenant_verification.bench.colocation.cases import CASES
from cotenant_verification.bench.colocation.figures import CaseFigures, table
from cotenant_verification.bench.colocation.goals import Goal, goal_of, missed
from cotenant_verification.bench.colocation.trace import CounterReading, Programs, Trace, lines, programs, trace

SECOND = 1_000_000_000


def test_every_case_has_a_goal_in_both_classes() -> None:
    for case in CASES:
        for protection in ("fair", "realtime"):
            assert goal_of(case, protection) != Goal()
    assert goal_of("step", "realtime") == Goal(over_ideal=1.05, busy=0.99)


@pytest.mark.parametrize(
    ("alone", "ideal", "busy", "said"),
    [
        (1.05, 1.10, 0.95, []),
        (1.06, 1.10, 0.95, ["p99 is 1.06 x that alone, the goal is at most 1.05"]),
        (1.0, 1.2, 0.5, ["p99 is 1.20 x the ideal queue's", "50 % of all CPUs were used, the goal is at least 95 %"]),
        (None, None, None, ["p99 is unknown", "p99 is unknown", "unknown of all CPUs"]),
    ],
)
def test_each_missed_goal_is_one_line(alone: float | None, ideal: float | None, busy: float | None, said: list[str]) -> None:
    found = missed(goal_of("cpu", "fair"), alone, ideal, busy)
    assert len(found) == len(said)
    assert all(text.startswith(part) for text, part in zip(found, said, strict=True))


def reading(at: float, services: int, neighbours: int, idle: int, ran: int, waited: int, stalled: int) -> CounterReading:
    busy = 2 * int(at * SECOND) - idle
    cpus = (busy, 0, 0, idle, 0, 0, 0, 0)
    return CounterReading(
        at, {"burstable": services, "besteffort": neighbours}, cpus, ran, waited, int(at) * 7, {"cpu": stalled}
    )


def seen() -> Trace:
    before = reading(0.0, 0, 0, 0, 0, 0, 0)
    after = reading(10.0, SECOND, 12 * SECOND, 2 * SECOND, SECOND, SECOND // 2, 3 * SECOND)
    others = Programs(0.0, {(1, "old"): SECOND}), Programs(10.0, {(1, "old"): 5 * SECOND, (2, "x"): SECOND})
    return trace(before, after, others, [f"+{each} s suppress: {each}" for each in range(9)])


def test_a_trace_says_who_ran_how_long_services_waited_and_what_the_executor_did() -> None:
    found = seen()
    assert (found.services, found.neighbours, found.idle, found.foreign) == (0.05, 0.6, 0.1, 0.25)
    assert (found.run_delay, found.preempted, found.stalls) == (0.5, 7.0, {"cpu": 0.3})
    assert [name for name, _ in found.foreign_programs] == ["old", "x"]
    assert found.executor[-1] == "+8 s suppress: 8"


def test_a_missed_goal_is_told_with_its_trace_in_one_screen_and_a_reached_one_without() -> None:
    case = CaseFigures(
        case="cpu", class_="fair", alone=None, beside=None, uncontrolled=None, p99_over_alone=1.4, p99_over_ideal=1.0,
        uncontrolled_over_alone=None, utilisation=1.0, pairs=1, seconds=1.0, services_ended=0, neighbours_ended=0, executor={},
        missed=("p99 is 1.40 x that alone, the goal is at most 1.05",), trace=seen(),
    )  # fmt: skip
    told = table([case])
    assert "cpu: missed: p99 is 1.40 x that alone, the goal is at most 1.05" in told
    assert any("services 5.0 %, neighbours 60.0 %, others 25.0 %" in line for line in told)
    assert len(told) < 24
    reached = table([msgspec.structs.replace(case, missed=())])
    assert reached[-1] == "cpu: every goal is reached"
    assert all(len(line) < 400 for line in lines(seen()))


def test_programs_are_the_machines_own() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = programs("no-such-group").used
        child.communicate()
    assert {pid for pid, _ in found} >= {os.getpid(), child.pid}
