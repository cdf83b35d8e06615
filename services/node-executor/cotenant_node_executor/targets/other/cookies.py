"""Core-scheduling cookies of processes: the kernel runs threads on one physical core at a time only if their cookies are equal.

In: process ids, and the kernel's calls. Out: which of them carry which cookie afterwards. A process that a call fails for is
left out, as it may have ended. Source: core scheduling hook, koordlet rule.

    read    the first cookie that is not 0, and the processes with exactly it
    add     a new cookie for the first process, shared to the others
    assign  the cookie of a sibling that carries the target, shared to those without it; siblings that do not are stale
    clear   cookie 0 for those with another
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from typing import Protocol

NO_COOKIE = 0


class CookieCalls(Protocol):
    """The kernel's interface; processes are thread groups. Each method raises OSError."""

    def cookie_of(self, pid: int, /) -> int:
        """The cookie, 0 for none."""
        ...

    def new_process_cookie(self, pid: int, /) -> None:
        """Give a process a cookie that no other has."""
        ...

    def share_process_cookie(self, source: int, pid: int, /) -> None:
        """Give a process the cookie of another, or none where `source` is 0."""
        ...


def read_cookie(calls: CookieCalls, pids: Iterable[int]) -> tuple[int, tuple[int, ...]]:
    """The processes' cookie and its owner; 0 and none without a cookie."""
    found: dict[int, list[int]] = {}
    for pid in pids:
        cookie = _cookie(calls, pid)
        if cookie:
            found.setdefault(cookie, []).append(pid)
    for cookie, carrying in found.items():
        return cookie, tuple(carrying)
    return NO_COOKIE, ()


def add_cookie(calls: CookieCalls, pids: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """A new cookie, and the processes that carry it, sorted. Raises OSError if the first one gets none."""
    if not pids:
        return NO_COOKIE, ()
    calls.new_process_cookie(pids[0])
    cookie = calls.cookie_of(pids[0])
    if not cookie:
        raise OSError(errno.EIO, f"the new cookie of process {pids[0]} is 0")
    return cookie, tuple(sorted({pids[0], *_shared(calls, pids[0], pids[1:])}))


def assign_cookie(
    calls: CookieCalls, pids: Sequence[int], siblings: Sequence[int], target: int
) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
    """Three answers: the processes that carry the target afterwards, sorted; the siblings that do not carry it; whether no
    sibling does although one is needed."""
    known = {pid: cookie for pid in pids if (cookie := _cookie(calls, pid)) is not None}
    carrying = [pid for pid, cookie in known.items() if cookie == target]
    lacking = [pid for pid, cookie in known.items() if cookie != target]
    if not lacking:
        return tuple(sorted(carrying)), (), False
    stale: list[int] = []
    for sibling in siblings:
        if _cookie(calls, sibling) == target:
            return tuple(sorted((*carrying, *_shared(calls, sibling, lacking)))), tuple(stale), False
        stale.append(sibling)
    return (), tuple(stale), True


def clear_cookie(calls: CookieCalls, pids: Iterable[int]) -> tuple[int, ...]:
    """The processes without a cookie afterwards, sorted."""
    known = {pid: cookie for pid in pids if (cookie := _cookie(calls, pid)) is not None}
    bare = [pid for pid, cookie in known.items() if not cookie]
    return tuple(sorted((*bare, *_shared(calls, 0, [pid for pid, cookie in known.items() if cookie]))))


def _cookie(calls: CookieCalls, pid: int) -> int | None:
    try:
        return calls.cookie_of(pid)
    except OSError:
        return None


def _shared(calls: CookieCalls, source: int, pids: Iterable[int]) -> list[int]:
    """The processes that got the source's cookie."""
    shared: list[int] = []
    for pid in pids:
        try:
            calls.share_process_cookie(source, pid)
        except OSError:
            continue
        shared.append(pid)
    return shared
