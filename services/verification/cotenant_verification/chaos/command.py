"""`cotenant simulate --chaos`: the options and their effect.

In: options. Out: text on standard output, and the exit code: 1 at the first broken promise, with the command that reproduces
it. Standard error has a live line if it is a terminal.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import click
import msgspec

from cotenant_verification.chaos.report import (
    failure_lines,
    live_line,
    result_line,
    schedule_lines,
    table_lines,
    verdict_lines,
)
from cotenant_verification.chaos.run import Progress, Result, run, schedule_of
from cotenant_verification.chaos.shrink import shrink, until
from cotenant_verification.simulate.openb import TraceError, read_trace
from cotenant_verification.workload.schedule import MOST_SPAN_S, Schedule, ScheduleError, read_schedule, write_schedule

LEAST_SPAN = 10.0
"""Seconds. Services load and machines join in the first four."""
MOST_SEEDS = 1_000_000


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a chaos run."""

    seed: int
    span: str
    span_seconds: float
    nodes: int = 0
    openb: str = ""
    """The folder with the trace that the workload is taken from."""
    seeds: str = ""
    jobs: int = 1
    schedule: str = ""
    shrink: bool = False
    write: str = ""


def simulate_chaos(options: ChaosOptions) -> int:
    """Run it; return the exit code."""
    if not options.schedule and options.span_seconds < LEAST_SPAN:
        raise click.BadParameter(f"{options.span}: a run with faults takes {LEAST_SPAN:.0f}s at least", param_hint="--for")
    if options.span_seconds > MOST_SPAN_S:
        raise click.BadParameter(
            f"{options.span}: a run with faults takes {MOST_SPAN_S // 86_400} days at most", param_hint="--for"
        )
    try:
        if options.seeds:
            return _many(options)
        schedule = (
            read_schedule(Path(options.schedule))
            if options.schedule
            else _schedule(options, options.seed)
        )
    except (ScheduleError, TraceError) as error:
        raise click.ClickException(str(error)) from error
    if options.write:
        write_schedule(Path(options.write), schedule)
    try:
        result = run(schedule, _live)
    except ScheduleError as error:
        raise click.ClickException(f"{options.schedule}: {error}") from error
    _clear()
    click.echo("\n".join(verdict_lines(result)))
    if result.violation is None:
        return 0
    command = _command(options, options.seed)
    if options.schedule:
        command = f"cotenant simulate --chaos --schedule {options.schedule}"
    click.echo("\n".join(failure_lines(result.violation, result.view, command)))
    if options.shrink:
        _shrink(options, schedule, result)
    return 1


def _schedule(options: ChaosOptions, seed: int) -> Schedule:
    trace = read_trace(Path(options.openb)) if options.openb else None
    return schedule_of(seed, options.span_seconds, options.nodes, trace)


def _command(options: ChaosOptions, seed: int) -> str:
    nodes = f" --nodes {options.nodes}" if options.nodes else ""
    trace = f" --openb {options.openb}" if options.openb else ""
    return f"cotenant simulate --chaos --seed {seed} --for {options.span}{nodes}{trace}"


def _shrink(options: ChaosOptions, schedule: Schedule, result: Result) -> None:
    violation = result.violation
    assert violation is not None

    def fails(candidate: Schedule) -> bool:
        found = run(candidate).violation
        return found is not None and (found.invariant, found.name) == (violation.invariant, violation.name)

    def progress(tries: int, left: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[Kshrinking: {tries} runs, {left} entries left")

    shorter = until(schedule, round(result.virtual_seconds * 1000))
    smallest = shrink(shorter if fails(shorter) else schedule, fails, progress)
    _clear()
    path = Path(options.write or f"chaos-{schedule.header.seed}.schedule")
    write_schedule(path, smallest)
    click.echo(f"shrunk from {len(schedule.entries)} to {len(smallest.entries)} entries:")
    click.echo("\n".join(schedule_lines(smallest)))
    click.echo(f"again:  cotenant simulate --chaos --schedule {path}")


def _many(options: ChaosOptions) -> int:
    """Run many seeds; stops at the first broken promise."""
    results: list[Result] = []
    failed: Result | None = None
    for result in _results(options, seeds_of(options.seeds)):
        results.append(result)
        click.echo(result_line(result))
        if not result.ok:
            failed = result
            break
    click.echo("\n".join(table_lines(results)))
    if failed is None or failed.violation is None:
        return 0
    # The events are not carried between processes: a second run of the same seed has the same.
    again = run(_schedule(options, failed.seed))
    click.echo("\n".join(failure_lines(failed.violation, again.view, _command(options, failed.seed))))
    return 1


def _results(options: ChaosOptions, seeds: Sequence[int]) -> Iterator[Result]:
    if options.jobs <= 1:
        yield from (_one(options, seed) for seed in seeds)
        return
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_one, options, seed) for seed in seeds]
        try:
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()


def _one(options: ChaosOptions, seed: int) -> Result:
    result = run(_schedule(options, seed))
    result.view = None
    return result


def seeds_of(text: str) -> list[int]:
    """The seeds of `1..200` or `1,5,9`. Raises click.BadParameter."""
    try:
        first, dots, last = text.partition("..")
        if dots:
            seeds = list(range(int(first), min(int(last), int(first) + MOST_SEEDS) + 1))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{text[:80]!r}: expected FIRST..LAST or numbers with commas", param_hint="--seeds") from error
    if len(seeds) > MOST_SEEDS:
        raise click.BadParameter(f"{text[:80]!r}: more than {MOST_SEEDS} seeds", param_hint="--seeds")
    if not seeds or min(seeds) < 0:
        raise click.BadParameter(f"{text[:80]!r}: there are no seeds in it", param_hint="--seeds")
    return seeds


def _live(progress: Progress) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{live_line(progress, shutil.get_terminal_size().columns)}")
        sys.stderr.flush()


def _clear() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
