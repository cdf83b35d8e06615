"""What a person reads of chaos runs: the live line, the verdict, a failure with its events, the table of many seeds.

In: progress and results. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta

from cotenant.events.envelope import Event, encode_payload
from cotenant.simulation import START
from cotenant.subjects import tokens
from cotenant_console.chaos.run import Progress, Result
from cotenant_console.chaos.schedule import Entry, Schedule
from cotenant_console.chaos.sight import Sight, Violation

LAST_EVENTS = 20
TEXT = 150


def span(seconds: float) -> str:
    """Virtual time: `1:05:30`."""
    return str(timedelta(seconds=round(seconds)))


def live_line(progress: Progress) -> str:
    """One line that is written over again."""
    rate = progress.events / progress.wall_seconds if progress.wall_seconds else 0
    faults = " ".join(f"{kind} {count}" for kind, count in progress.faults.most_common(4))
    return (
        f"{span(progress.virtual_seconds)} of {span(progress.total_seconds)}  {progress.events} events  {rate:.0f}/s  "
        f"{progress.checks.total()} checks  faults {progress.faults.total()}: {faults}"
    )


def verdict_lines(result: Result) -> list[str]:
    """What came of one run."""
    rate = result.events / result.wall_seconds if result.wall_seconds else 0
    checks = sum(count for name, count in result.checks.items() if name.isdigit())
    lines = [
        f"seed {result.seed}: {span(result.virtual_seconds)} of virtual time in {result.wall_seconds:.1f} s, "
        f"{result.events} events ({rate:.0f}/s), {result.steps} steps",
        "faults: " + (", ".join(f"{count} {kind}" for kind, count in result.faults.items()) or "none"),
        f"checks: {checks}, by promise " + ", ".join(_checks(result)),
        f"digest {result.digest}",
    ]
    return [*lines, "every promise was kept" if result.ok else "BROKEN"]


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


def failure_lines(violation: Violation, sight: Sight | None, command: str) -> list[str]:
    """Which promise, which object, the last events that touched it with their causes, and how to see it again."""
    lines = [
        f"promise {violation.invariant} is broken: {violation.name}",
        f"  about   {violation.subject}",
        f"  at      {span((violation.at - START).total_seconds())} (LOG:{violation.sequence})",
        f"  what    {violation.text}",
    ]
    if sight is not None:
        lines.append(f"the last {LAST_EVENTS} events that touched it:")
        for event in touching(sight, violation.subject)[-LAST_EVENTS:]:
            lines += event_lines(event)
    return [*lines, f"again:  {command}"]


def touching(sight: Sight, subject: str) -> list[Event]:
    """Events of the subject, and of everything that bears the same name (a pod's placements, runs, waiting)."""
    parts = tokens(subject)
    named = parts[-2:] if parts[0] in ("objects", "waiting", "evictions") or "placement" in parts or "run" in parts else ()
    positions: set[int] = set()
    for other, at in sight.touched.items():
        if other == subject or (named and tokens(other)[-2:] == named):
            positions.update(at)
    return [sight.log[position] for position in sorted(positions)]


def event_lines(event: Event) -> list[str]:
    """One event: when, what, its figures, its causes."""
    at = (event.time - START).total_seconds() if event.time is not None else 0.0
    word = "ended " if event.tombstone else ""
    text = encode_payload(event.data).decode(errors="replace")
    return [
        f"  {event.ref:<10} {at:>9.3f} s  {event.subject}  {word}by {event.source}",
        f"             {text[:TEXT]}{'...' if len(text) > TEXT else ''}",
        f"             causes {' '.join(event.causes) or '-'}",
    ]


def schedule_lines(schedule: Schedule) -> list[str]:
    """A schedule for a person."""
    header = schedule.header
    lines = [f"seed {header.seed}, {header.nodes} nodes, {span(header.span_ms / 1000)}, {header.replicas} replicas"]
    return [*lines, *(entry_line(entry) for entry in schedule.entries)]


def entry_line(entry: Entry) -> str:
    """One entry."""
    args = " ".join(f"{name}={value}" for name, value in entry.args.items())
    return f"  {entry.at_ms / 1000:>9.3f} s  {'fault' if entry.fault else 'users'}  {entry.kind} {entry.target} {args}".rstrip()
