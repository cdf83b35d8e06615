"""The output of chaos runs: the live line, the verdict, the table of many seeds.

The events of a failure come from `checks.related_events`.

In: progress and results. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from cotenant.simulation import START
from cotenant_verification.chaos.run import SLICE, Progress, Result
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.related_events import event_lines, related_events
from cotenant_verification.checks.violations import Violation
from cotenant_verification.workload.schedule import Schedule, ScheduleEntry

LAST_EVENTS = 20


def span(seconds: float) -> str:
    """Virtual time: `1:05:30`."""
    return str(timedelta(seconds=round(seconds)))


def live_line(progress: Progress, width: int) -> str:
    """One line that is overwritten, no longer than the terminal is wide."""
    rate = progress.events / progress.wall_seconds if progress.wall_seconds else 0
    faults = " ".join(f"{kind} {count}" for kind, count in progress.faults.most_common())
    line = (
        f"{span(progress.virtual_seconds)} of {span(progress.total_seconds)}  {progress.events} events  {rate:.0f}/s  "
        f"{progress.checks.total()} checks  faults {progress.faults.total()}: {faults}"
    )
    return line if len(line) < width else f"{line[: width - 4]}..."


def verdict_lines(result: Result) -> list[str]:
    """The verdict of one run."""
    rate = result.events / result.wall_seconds if result.wall_seconds else 0
    checks = sum(count for name, count in result.checks.items() if name.isdigit())
    lines = [
        f"seed {result.seed}: {span(result.virtual_seconds)} of virtual time in {result.wall_seconds:.1f} s, "
        f"{result.events} events ({rate:.0f}/s), {result.steps} steps",
        "faults: " + (", ".join(f"{count} {kind}" for kind, count in result.faults.items()) or "none"),
        "users: " + (", ".join(f"{count} {kind}" for kind, count in result.asked.items()) or "none"),
        f"checks: {checks}, by promise " + ", ".join(_checks(result)),
        f"digest {result.digest}",
        *_latency(result),
        *_memory(result),
        *_recomputed(result),
        *_idle(result),
    ]
    return [*lines, "every promise was kept" if result.ok else "BROKEN"]


def _latency(result: Result) -> list[str]:
    worst, periods = result.checks.get("worst p99 permille", 0), result.checks.get("8 periods", 0)
    if not periods:
        return []
    return [f"highest modelled p99 of a service: {worst / 1000:.2f} times its p99 alone, over {periods} control periods"]


def _memory(result: Result) -> list[str]:
    counts = [f"{count} {name.removeprefix('ended ')}" for name, count in result.checks.items() if name.startswith("ended ")]
    return ["OOM kills: " + ", ".join(counts)] if counts else []


def _recomputed(result: Result) -> list[str]:
    count = result.checks.get("decisions recomputed", 0)
    return [f"commits recomputed from the log with the same events: {count}"] if count else []


def _idle(result: Result) -> list[str]:
    checks = result.checks.items()
    counts = [f"{count} {name.removeprefix('waiting ')}" for name, count in checks if name.startswith("waiting ")]
    lines = ["pods waiting at the end: " + ", ".join(counts)] if counts else []
    if not result.ok:
        return lines
    # Checks are SLICE apart: the one after the last with a finding found all work done.
    seconds = result.checks.get("seconds to idle", 0)
    return [*lines, f"idle within {seconds + round(SLICE.total_seconds())} s of the last fault"]


def _checks(result: Result) -> Iterable[str]:
    numbers = sorted(int(name) for name in result.checks if name.isdigit())
    return (f"{number}: {result.checks[str(number)]}" for number in numbers)


def result_line(result: Result) -> str:
    """One line for one of many seeds."""
    text = "ok" if result.violation is None else f"BROKEN {result.violation.invariant} {result.violation.name}"
    return (
        f"seed {result.seed:>6}  {span(result.virtual_seconds):>8}  {result.events:>8} events  "
        f"{sum(result.faults.values()):>4} faults  {result.wall_seconds:>6.1f} s  {result.digest[:16]}  {text}"
    )


def table_lines(results: Sequence[Result]) -> list[str]:
    """The sum over many seeds."""
    kinds: dict[str, int] = {}
    for result in results:
        for kind, count in result.faults.items():
            kinds[kind] = kinds.get(kind, 0) + count
    broken = [result.seed for result in results if not result.ok]
    checks = sum(count for result in results for name, count in result.checks.items() if name.isdigit())
    events, passed = sum(result.events for result in results), sum(result.virtual_seconds for result in results)
    lines = [
        f"{len(results)} seeds, {events} events, {sum(kinds.values())} faults, {checks} checks, {span(passed)} of virtual time"
    ]
    lines += [f"{count:>8}  {kind}" for kind, count in sorted(kinds.items())]
    lines.append("broken: " + ", ".join(str(seed) for seed in broken) if broken else "every promise was kept")
    return lines


def failure_lines(violation: Violation, view: LogView | None, command: str) -> list[str]:
    """Which promise, which object, the last events about it with their causes, and how to reproduce it."""
    lines = [
        f"promise {violation.invariant} is broken: {violation.name}",
        f"  about   {violation.subject}",
        f"  at      {span((violation.at - START).total_seconds())} (LOG:{violation.sequence})",
        f"  what    {violation.text}",
        *(f"  {line}" for line in violation.trace.splitlines()),
    ]
    if view is not None:
        events = related_events(view, violation.subject)[-LAST_EVENTS:]
        lines.append(f"the last {len(events)} events about it:" if events else "no event is about it")
        for event in events:
            lines += event_lines(event)
    return [*lines, f"again:  {command}"]


def schedule_lines(schedule: Schedule) -> list[str]:
    """A schedule for people."""
    header = schedule.header
    lines = [f"seed {header.seed}, {header.nodes} nodes, {span(header.span_ms / 1000)}, {header.replicas} replicas"]
    return [*lines, *(entry_line(entry) for entry in schedule.entries)]


def entry_line(entry: ScheduleEntry) -> str:
    """One entry."""
    args = " ".join(f"{name}={value}" for name, value in entry.args.items())
    return f"  {entry.at_ms / 1000:>9.3f} s  {'fault' if entry.fault else 'users'}  {entry.kind} {entry.target} {args}".rstrip()
