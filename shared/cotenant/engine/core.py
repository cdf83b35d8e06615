"""The contract of a pure core.

A core holds a state that is a fold over events and nothing else. It does no I/O and reads no clock; the shell around it
(NATS, the simulator, replay, a unit test) feeds it events and asks it to decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from cotenant.events.envelope import Event
from cotenant.log.contract import MAX_BATCH

MAX_EVENTS_PER_DECISION = 999
"""A batch of 1,000 messages with the commit record costs the server little more a message than a larger one."""

MAX_EVENTS_TOGETHER = MAX_BATCH - 1
"""Maximum events of a decision that must be stored atomically (a gang)."""


class Core(Protocol):
    """Fold facts, then decide once from the state.

    `apply` commutes across subjects and is idempotent by (subject, sequence): losing or repeating deliveries must not change
    where it ends. The state is a function of the last message of each subject.
    `decide` has no observable effect but the events that it returns. It may fill caches, drop what has expired by `now` and
    assume its own decisions while it works, as long as that cannot be observed: called twice in a row it returns equal
    events, and a core on which it was never called folds the same events to the same decisions. What a later decision depends
    on is a field of an event. It iterates in stated orders, returns at most MAX_EVENTS_PER_DECISION events and is called again
    for the rest; only what has no meaning in parts may take up to MAX_EVENTS_TOGETHER. Simulated runs check this on copies.
    """

    def apply(self, event: Event) -> None:
        """Fold one fact into the state."""

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return what follows from the state, given the time."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to another service: a NATS request to its micro endpoint.

    `key` identifies it: at most one request per key is in progress; it is repeated (bounded, with back-off) as long as the core
    still returns it. The answer is a fact that comes back on the log.
    """

    key: str
    subject: str
    body: bytes


@runtime_checkable
class Requesting(Protocol):
    """A core that also sends requests to other services."""

    def requests(self, now: datetime) -> Sequence[Request]:
        """Return the requests that are outstanding in this state, in a stated order."""


@runtime_checkable
class Warns(Protocol):
    """A core some of whose events are to be said in the log of its process."""

    def warnings(self, events: Sequence[Event]) -> Sequence[str]:
        """Return the lines for events that were stored; their number has a bound."""


@runtime_checkable
class Assuming(Protocol):
    """A core that can decide on a batch of its own that is still being stored. At most one batch is assumed.

    Sequences of assumed events are not known: an event that is caused by the n-th of them (from 1) names `LOG:-<n>`, which
    becomes its sequence when the later event is stored.
    """

    def assume(self, events: Sequence[Event]) -> None:
        """Fold own events as if they were stored."""

    def confirm(self, first: int) -> None:
        """What was assumed is stored, at `first` and behind it. The state is as after `apply`."""

    def withdraw(self) -> None:
        """What was assumed is not stored: undo it. Everything else folded since stays."""
