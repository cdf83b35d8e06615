"""The structure of a promise: its checks, by the time of their call, and their inputs.

An event check is called with the view of the log and the event just stored, a commit check with a whole commit, a moment check
from time to time. When the faults are over a convergence check is called repeatedly, and may report something for a bounded
time; a final check is called at the end of the run. Each yields violations; no violation means that the promise holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from random import Random

import msgspec

from cotenant.engine.replay import Verifier
from cotenant.events.envelope import Event
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.oom_kills import OomKills
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.checks.suppression import SuppressionWatch
from cotenant_verification.harness.harness import Harness

Wrong = Iterator[tuple[str, str]]
"""Subject and violation."""


class Moment(msgspec.Struct, frozen=True):
    """The input of a moment check."""

    harness: Harness
    view: LogView
    now: datetime
    chance: Random
    counts: Counter[str]
    suppressions: SuppressionWatch
    oom_kills: OomKills
    verifier: Verifier


EventCheck = Callable[[LogView, Event], Wrong]
CommitCheck = Callable[[LogView, CommitSeen], Wrong]
MomentCheck = Callable[[Moment], Wrong]


class Invariant(msgspec.Struct, frozen=True, kw_only=True):
    """A promise with its checks. `number` is its row in docs/simulation.md."""

    number: int
    name: str
    on_event: tuple[EventCheck, ...] = ()
    on_commit: tuple[CommitCheck, ...] = ()
    at_moments: tuple[MomentCheck, ...] = ()
    at_rest: tuple[MomentCheck, ...] = ()
    when_idle: tuple[MomentCheck, ...] = ()
