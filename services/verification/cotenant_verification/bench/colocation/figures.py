"""The figures of the colocation benchmark.

In: the requests of each window. Out: percentiles of a window; a case's figures as medians over its pairs, so that one window
that another program disturbed does not decide. `p99_over_ideal` is the p99 beside the neighbours over the p99 of the ideal
queue (`ideal_queue`) of the same arrivals and CPU times.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from cotenant_verification.bench.colocation.ideal_queue import ideal_latencies
from cotenant_verification.bench.colocation.trace import Trace, lines

Records = list[list[tuple[int, int, int]]]
"""By thread: arrival, end, CPU time of each request in microseconds."""


class LatencyWindow(msgspec.Struct, frozen=True):
    """One window of one kind. Milliseconds; `utilisation` is the busy share of all CPUs, 0..1."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    ideal_p99_ms: float
    utilisation: float
    requests: int


class MedianLatencies(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Medians over the pairs. `lost`: windows without figures, because a service ended in them."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    utilisation: float
    requests: int
    lost: int = 0


class CaseFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One case. A part is None where none of its windows has figures."""

    case: str
    class_: str = msgspec.field(name="class")
    alone: MedianLatencies | None
    beside: MedianLatencies | None
    uncontrolled: MedianLatencies | None
    p99_over_alone: float | None
    p99_over_ideal: float | None
    uncontrolled_over_alone: float | None
    utilisation: float | None
    """Beside the neighbours, 0..1."""
    pairs: int
    seconds: float
    services_ended: int
    """How often a service pod ended while it ran beside neighbours, for any reason."""
    neighbours_ended: int
    """How often a neighbour pod was evicted, killed, or ended by itself."""
    executor: dict[str, int]
    """Events of the executor meanwhile, by topic."""
    last_words: tuple[str, ...] = ()
    """The executor's last report of each topic."""
    missed: tuple[str, ...] = ()
    """The goals that were missed."""
    trace: Trace | None = None
    """Of the slowest window beside the neighbours."""


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank of an ordered list that is not empty."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def window(services: Sequence[Records], cpus: int, utilisation: float) -> LatencyWindow | None:
    """The figures of a window; None where no request was served."""
    threads = [requests for records in services for requests in records]
    latencies = sorted((end - arrival) / 1e3 for requests in threads for arrival, end, _ in requests)
    if not latencies:
        return None
    ideal = ideal_latencies([[(arrival / 1e3, cpu / 1e3) for arrival, _, cpu in requests] for requests in threads], cpus)
    return LatencyWindow(
        p50_ms=percentile(latencies, 0.5),
        p99_ms=percentile(latencies, 0.99),
        p999_ms=percentile(latencies, 0.999),
        ideal_p99_ms=percentile(sorted(each for found in ideal for each in found), 0.99),
        utilisation=utilisation,
        requests=len(latencies),
    )


def medians(windows: Sequence[LatencyWindow | None]) -> MedianLatencies | None:
    """The medians of the windows that have figures."""
    found = [each for each in windows if each is not None]
    if not found:
        return None
    return MedianLatencies(
        p50_ms=round(statistics.median(each.p50_ms for each in found), 3),
        p99_ms=round(statistics.median(each.p99_ms for each in found), 3),
        p999_ms=round(statistics.median(each.p999_ms for each in found), 3),
        utilisation=round(statistics.median(each.utilisation for each in found), 4),
        requests=sum(each.requests for each in found),
        lost=len(windows) - len(found),
    )


def ratio(of: Sequence[LatencyWindow | None], to: Sequence[LatencyWindow | None]) -> float | None:
    """The median over the pairs of p99 over p99."""
    pairs = [one.p99_ms / other.p99_ms for one, other in zip(of, to, strict=True) if one and other and other.p99_ms > 0]
    return round(statistics.median(pairs), 3) if pairs else None


def over_ideal(of: Sequence[LatencyWindow | None]) -> float | None:
    """The median over the windows of p99 over the ideal queue's."""
    found = [each.p99_ms / each.ideal_p99_ms for each in of if each is not None and each.ideal_p99_ms > 0]
    return round(statistics.median(found), 3) if found else None


def table(found: Sequence[CaseFigures]) -> list[str]:
    """The cases as lines of a table, then the executor's actions in each."""
    head = ("case", "class", "", "p50 ms", "p99 ms", "p99.9 ms", "x alone", "p99/ideal", "busy %", "requests")
    rows: list[tuple[str, ...]] = [head]
    for case in found:
        parts = (
            ("alone", case.alone, None, None),
            ("beside", case.beside, case.p99_over_alone, case.p99_over_ideal),
            ("uncontrolled", case.uncontrolled, case.uncontrolled_over_alone, None),
        )
        for name, part, alone, ideal in parts:
            figures = ("-",) * 3 if part is None else tuple(f"{ms:.2f}" for ms in (part.p50_ms, part.p99_ms, part.p999_ms))
            ratios = tuple("-" if each is None else f"{each:.2f}" for each in (alone, ideal))
            rest = ("-", "0") if part is None else (f"{100 * part.utilisation:.0f}", str(part.requests))
            rows.append((case.case, case.class_, name, *figures, *ratios, *rest))
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    report = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for case in found:
        did = ", ".join(f"{topic} {count}" for topic, count in sorted(case.executor.items())) or "nothing"
        report.append(
            f"{case.case}: the executor reported {did}; {case.neighbours_ended} neighbours and {case.services_ended} "
            "services ended"
        )
        if not case.missed:
            report.append(f"{case.case}: every goal is reached")
            continue
        report += [f"{case.case}: missed: {each}" for each in case.missed]
        report += [f"    {each}" for each in (lines(case.trace) if case.trace is not None else case.last_words)]
    return report
