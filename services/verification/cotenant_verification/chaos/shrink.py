"""Shrinking: leave entries out of a failing schedule until nothing more can be left out.

In: a schedule and a test of whether a schedule still breaks the same promise. Out: the smallest found. Delta debugging
(Zeller's ddmin): halves, quarters, and so on down to single entries; the span is cut behind the failure first.
Bound: TRIES runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cotenant_verification.workload.schedule import Schedule, ScheduleEntry

TRIES = 400


def shrink(
    schedule: Schedule, fails: Callable[[Schedule], bool], progress: Callable[[int, int], None] = lambda _tries, _left: None
) -> Schedule:
    """Return a minimal schedule that still fails; `progress` gets the tries made and the entries left."""
    entries: Sequence[ScheduleEntry] = schedule.entries
    parts, tries = 2, 0
    while len(entries) > 1 and tries < TRIES:
        size = max(1, -(-len(entries) // parts))
        for begin in range(0, len(entries), size):
            fewer = [*entries[:begin], *entries[begin + size :]]
            tries += 1
            progress(tries, len(entries))
            if fails(schedule.having(fewer)):
                entries, parts = fewer, max(parts - 1, 2)
                break
            if tries >= TRIES:
                break
        else:
            if size == 1:
                break
            parts = min(parts * 2, len(entries))
    return schedule.having(entries)


def until(schedule: Schedule, at_ms: int) -> Schedule:
    """The entries up to a moment: later ones cannot have caused the failure."""
    return schedule.having([entry for entry in schedule.entries if entry.at_ms <= at_ms])
