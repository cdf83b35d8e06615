"""The report of one run.

In: records and violations. Out: lines; the run is good if no promise was broken.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import msgspec

from cotenant_verification.stack_chaos.records import BrokenPromise, Fault, WriteOutcome, WriteRecord

SHOWN = 20
AFTER_SECONDS = 30.0
"""A gap that begins within a fault, or this soon after it, is attributed to it."""


class Outage(msgspec.Struct, frozen=True):
    """A period without acknowledged writes, and the fault that caused it."""

    at: float
    seconds: float
    fault: str


class RunReport(msgspec.Struct, kw_only=True):
    """Records and violations of one run."""

    seed: int
    seconds: float
    faults: list[Fault]
    writes: list[WriteRecord]
    listings: int
    watches: int
    changes: int
    evictions: dict[str, int]
    log_messages: int
    missing: list[int]
    """Messages of LOG that could not be read before they were replaced."""
    commits: int
    gaps: list[Outage]
    crashes: list[str]
    load_average: tuple[float, float, float]
    violations: list[BrokenPromise]
    folder: str = ""

    def lines(self) -> list[str]:
        """Return the report as text, line by line."""
        outcomes = Counter(write.outcome for write in self.writes)
        lines = [
            f"seed {self.seed}, {self.seconds:.0f} s, {len(self.faults)} faults, load average {self.load_average[0]:.1f}",
            f"{len(self.writes)} writes: {outcomes[WriteOutcome.OK]} acknowledged, {outcomes[WriteOutcome.REFUSED]} refused, "
            f"{outcomes[WriteOutcome.UNKNOWN]} unknown; {self.listings} listings; "
            f"{self.watches} watches with {self.changes} changes",
            f"evictions: {', '.join(f'{count} {word}' for word, count in self.evictions.items())}",
            f"LOG has {self.log_messages} messages ({len(self.missing)} were replaced unread); "
            f"{self.commits} commits recomputed",
        ]
        lines += [f"without progress for {gap.seconds:.1f} s from {gap.at:.1f} s on: {gap.fault}" for gap in self.gaps[:5]]
        lines += [f"ended by itself: {crash}" for crash in self.crashes[:SHOWN]]
        for violation in self.violations[:SHOWN]:
            lines.append(f"BROKEN  {violation}")
        if len(self.violations) > SHOWN:
            lines.append(f"and {len(self.violations) - SHOWN} more")
        if self.folder:
            lines.append(f"the stack's folder: {self.folder}")
        lines.append("broken" if self.violations else "every promise holds")
        return lines


def longest_gaps(progress: Sequence[float], faults: Sequence[Fault]) -> list[Outage]:
    """The times without an acknowledged write, the longest first."""
    times = sorted(progress)
    found = []
    for before, after in itertools.pairwise(times):
        near = [fault for fault in faults if fault.at < after and before < fault.at + fault.seconds + AFTER_SECONDS]
        named = max(near, key=lambda fault: fault.at, default=None)
        found.append(Outage(before, after - before, f"{named.kind} {named.target}" if named is not None else "no fault"))
    return sorted(found, key=lambda gap: -gap.seconds)


def gap_of(progress: Sequence[float], fault: Fault) -> float:
    """How long no write was acknowledged after a fault began: the longest gap that begins within AFTER_SECONDS of it, or spans
    its beginning."""
    times = sorted(progress)
    gaps = [
        after - max(before, fault.at)
        for before, after in itertools.pairwise(times)
        if after > fault.at and before < fault.at + AFTER_SECONDS
    ]
    return max(gaps, default=0.0)
