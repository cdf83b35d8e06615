"""What must hold whatever fails: one small function a promise, and the table of all.

An event check is called with the sight and the event just stored, a commit check with a whole commit, a moment check now
and then. When the faults are over a rest check is called at every look, and may find something for a bounded time; a quiet
check at the end. Each yields what is wrong; nothing is fine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from cotenant.events.envelope import Event
from cotenant_verification.checks.log_view import CommitSeen, Sight

if TYPE_CHECKING:
    from cotenant_verification.checks.checking import Moment

Wrong = Iterator[tuple[str, str]]
"""Subject and what is wrong with it."""

EventCheck = Callable[[Sight, Event], Wrong]
CommitCheck = Callable[[Sight, CommitSeen], Wrong]
MomentCheck = Callable[["Moment"], Wrong]


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """A promise with its checks. `number` is its place in docs/simulation.md."""

    number: int
    name: str
    on_event: tuple[EventCheck, ...] = ()
    on_commit: tuple[CommitCheck, ...] = ()
    at_moments: tuple[MomentCheck, ...] = ()
    at_rest: tuple[MomentCheck, ...] = ()
    when_quiet: tuple[MomentCheck, ...] = ()
