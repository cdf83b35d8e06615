"""What `runtime.follower` runs: a fresh state with its start marker, and the loop that keeps it.

In: `Reading`, the deliveries of its readers. An incarnation ends by raising Behind, or when its process stops; the next one
begins with nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

from cotenant.engine.load import Load
from cotenant.events.envelope import Event
from cotenant.log.contract import Reader
from cotenant.runtime.reading import Reading


class Incarnation(Protocol):
    """A fresh state and the loop that keeps it."""

    def marker(self, now: datetime) -> Event:
        """Return the start marker, to be stored behind the snapshot. Its delivery ends the load."""

    @property
    def pause(self) -> timedelta:
        """How long to wait before the next incarnation, after this one broke off."""

    def knows(self, sequence: int) -> bool:
        """Tell whether a message of LOG need not be delivered: an own one that is folded already. Asked in order."""

    async def run(self, reading: Reading) -> None:
        """Fold deliveries and act until stopped. May raise Behind."""


@runtime_checkable
class Prepared(Protocol):
    """An incarnation that looks at the log before its load."""

    async def prepare(self, reader: Reader) -> None:
        """Called before `run`, with the reader of LOG."""


@runtime_checkable
class Roomless(Protocol):
    """An incarnation that can begin on a log without room for its start marker: its readers report when its load is over."""

    def without_marker(self) -> None:
        """Called when there was no room, while `run` is running. The incarnation stores its marker when there is."""


class LoadingIncarnation:
    """The base of most incarnations: a Load; own messages are read like all others."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def marker(self, now: datetime) -> Event:
        """See `Incarnation`."""
        return self.load.marker(now)

    @property
    def pause(self) -> timedelta:
        """See `Incarnation`."""
        return self.load.pause

    def knows(self, sequence: int) -> bool:
        """See `Incarnation`."""
        del sequence
        return False
