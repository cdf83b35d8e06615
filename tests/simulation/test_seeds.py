"""A fixed set of seeds keeps every promise, and one seed is one history. `make soak SEEDS=1000` runs more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant_verification.chaos.report import failure_lines
from cotenant_verification.chaos.run import Result, run, schedule_of
from cotenant_verification.workload.schedule import read_schedule, write_schedule

SPAN = 120.0
NODES = 3
SEEDS = (2, 4, 7, 12, 20, 31, 33)


@pytest.fixture(scope="module")
def results() -> dict[int, Result]:
    """Each seed is run once for all tests of this module."""
    return {}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_is_kept(seed: int, results: dict[int, Result]) -> None:
    result = results[seed] = run(schedule_of(seed, SPAN, NODES))
    assert result.violation is None, "\n".join(failure_lines(result.violation, result.view, f"seed {seed}"))
    assert result.events > 500
    assert result.checks["decisions recomputed"] > 50


def test_the_seeds_showed_faults_and_exercised_the_checks(
    results: dict[int, Result], record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    events = sum(result.events for result in results.values())
    faults = sum(sum(result.faults.values()) for result in results.values())
    record_property("events", events)
    record_property("faults", faults)
    with capsys.disabled():
        print(f"\nsimulation: {len(results)} seeds, {events} events, {faults} faults", end="")
    assert faults >= len(results)
    for promise in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18):
        assert sum(result.checks.get(str(promise), 0) for result in results.values()) > 0, promise


def test_one_seed_gives_one_history_and_a_written_schedule_gives_it_again(
    results: dict[int, Result], tmp_path: Path
) -> None:
    seed = SEEDS[0]
    first = results.get(seed) or run(schedule_of(seed, SPAN, NODES))
    path = tmp_path / "run.schedule"
    write_schedule(path, schedule_of(seed, SPAN, NODES))
    again = run(read_schedule(path))
    assert (again.digest, again.events, again.faults) == (first.digest, first.events, first.faults)
