"""The back-off of a workload after a move, which grows with every consecutive move.

In: the workload's last granted move (fields of its Migration event), the time. Out: the number of the next consecutive move,
and when it is allowed.

    pause(n) = min(base * 2^(n-1), maximum)          n = consecutive moves
    n increases if the next move comes within pause(n) after the pause has passed; else it restarts at 1

A bare pod is a workload of its own, identified by its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TypeAlias

from cotenant.events.migrations import FormerMove, Migration

_MAX_EXPONENT = 30

Move: TypeAlias = Migration | FormerMove
"""A job, or the move that an earlier job of its name has made."""


def workload_key(workload: str, namespace: str, pod: str) -> str:
    """Return the key of the back-off."""
    return workload or f"{namespace}/{pod}"


def pause(moves: int, base: timedelta, maximum: timedelta) -> timedelta:
    """Return the pause after the n-th consecutive move."""
    if moves <= 0:
        return timedelta(0)
    # In integers: a timedelta cannot hold a large base doubled 30 times.
    doubled = (base // timedelta.resolution) << min(moves - 1, _MAX_EXPONENT)
    return min(doubled, maximum // timedelta.resolution) * timedelta.resolution


def latest_moves(moves: Iterable[Move]) -> dict[str, Move]:
    """Return the last granted move of each workload."""
    latest: dict[str, Move] = {}
    for move in moves:
        if move.evicted_at is None or move.workload_moves == 0:
            continue
        key = workload_key(move.workload, move.namespace, move.pod)
        known = latest.get(key)
        if known is None or known.evicted_at is None or (known.evicted_at, known.job) < (move.evicted_at, move.job):
            latest[key] = move
    return latest


def next_consecutive(last: Move | None, base: timedelta, maximum: timedelta, now: datetime) -> int:
    """Return the consecutive number of a move that is granted now."""
    if last is None or last.workload_retry_at is None:
        return 1
    return last.workload_moves + 1 if now < last.workload_retry_at + pause(last.workload_moves, base, maximum) else 1


def needed_until(move: Move, base: timedelta, maximum: timedelta) -> datetime | None:
    """Return until when the back-off needs the move."""
    if move.workload_retry_at is None:
        return None
    return move.workload_retry_at + pause(move.workload_moves, base, maximum)
