"""What is on its way to one participant: its inbox, what comes late, what its consumer missed.

In: events that are stored, the state of its link, the streams to load from. Out: what it sees when it is woken, and when
something more will be there. LOG comes in order whatever the delay; USAGE may overtake itself where the link says so.

Bound: MAX_INBOX messages under way when the participant is woken, or late, else SimulationError.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from cotenant.events.envelope import Event
from cotenant.log import LOG
from cotenant.memory_log import MemoryStream
from cotenant.simulation.links import NEVER, Link

if TYPE_CHECKING:
    from cotenant.simulation.world import World

MAX_INBOX = 1_000_000
MAX_REDELIVERED = 1_000


class SimulationError(RuntimeError):
    """The simulation cannot go on; the text says why."""


class Participant(Protocol):
    """Anything that lives in the simulation: a service, a node, a workload, a fault."""

    name: str
    filters: tuple[str, ...]
    """LOG subjects."""
    usage_filters: tuple[str, ...]

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold the inbox, act, and say when to be woken at the latest (None: at the next delivery)."""


class Seat:
    """A participant's place in the world; `number` says in which order they came."""

    def __init__(self, participant: Participant, number: int) -> None:
        self.participant = participant
        self.number = number
        self.link = Link()
        self.planned: datetime | None = None
        """When it is woken next."""
        self.away = False
        """It has no consumer: nothing is kept for it."""
        self._inbox: list[Event] = []
        self._late: list[tuple[datetime, int, Event]] = []
        self._order = 0
        self._log_through = NEVER
        """LOG is delivered in order: no message is seen before one that came earlier."""
        self._gap_until: datetime | None = None
        """Until then nothing of LOG is delivered; then its consumer resumes behind `_gap_after`."""
        self._gap_after = 0

    def __len__(self) -> int:
        """How many messages are under way."""
        return len(self._inbox) + len(self._late)

    @property
    def interrupted(self) -> bool:
        """Whether its consumer has a gap that it has not read yet."""
        return self._gap_until is not None

    # -- its consumer ----------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The consumer is gone, and all that was under way with it."""
        self.away = True
        self._forget()

    def load(self, log: MemoryStream, usage: MemoryStream) -> None:
        """A new consumer: the last message of each of its subjects, then what follows."""
        self.away = False
        self._forget()
        self._log_through = NEVER
        for stream, filters in ((log, self.participant.filters), (usage, self.participant.usage_filters)):
            if filters:
                self._read(stream, stream.snapshot(filters))

    def _forget(self) -> None:
        self._inbox.clear()
        self._late.clear()
        self._gap_until = None

    def redeliver(self, log: MemoryStream, count: int) -> bool:
        """Deliver `count` messages of LOG once more: not the newest, so that they are overtaken. False where nobody reads."""
        if self.away or self._gap_until is not None:
            return False
        found = log.after(max(log.last_sequence - MAX_REDELIVERED, 0), self.participant.filters, MAX_REDELIVERED)
        self._read(log, found[-2 * count : -count])
        return True

    def interrupt(self, log: MemoryStream, until: datetime) -> bool:
        """Lose what is delivered of LOG until a moment. Then the reader finds the gap, and resumes behind the last message
        that it was given: it reads what the stream still holds, so it can miss history, never the last state. False where
        nobody reads."""
        if self.away or self._gap_until is not None:
            return False
        under_way = [event.sequence for event in self._inbox if event.stream == LOG]
        under_way += [event.sequence for _, _, event in self._late if event.stream == LOG]
        self._gap_after = min(under_way, default=log.last_sequence + 1) - 1
        self._inbox = [event for event in self._inbox if event.stream != LOG]
        self._late = [entry for entry in self._late if entry[2].stream != LOG]
        heapq.heapify(self._late)
        self._gap_until = until
        return True

    def _resume(self, log: MemoryStream) -> None:
        log.expire()
        self._read(log, log.after(self._gap_after, self.participant.filters, MAX_INBOX))
        self._gap_until = None

    def _read(self, stream: MemoryStream, sequences: Iterable[int]) -> None:
        found = (stream.event(sequence) for sequence in sequences)
        self._inbox.extend(event for event in found if event is not None)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, event: Event, now: datetime, soon: datetime) -> datetime | None:
        """Take a message that was stored now and can be seen `soon`; returns when it is seen, None where it is lost."""
        if self.away or (self._gap_until is not None and event.stream == LOG):
            return None
        if not self.link.troubled:
            self._inbox.append(event)
            return soon
        if len(self) > MAX_INBOX:
            raise self._crowded()
        when = soon + self.link.lateness(event, now)
        if event.stream == LOG:
            when = self._log_through = max(when, self._log_through)
        self._order += 1
        heapq.heappush(self._late, (when, self._order, event))
        return max(when, self.link.severed_until)

    def _crowded(self) -> SimulationError:
        return SimulationError(f"{self.participant.name} has more than {MAX_INBOX} undelivered messages")

    def take(self, now: datetime, log: MemoryStream) -> tuple[Sequence[Event], datetime | None]:
        """What the participant sees now, and when there will be more of what is under way."""
        if not self._late and self._gap_until is None and not self.link.troubled:
            inbox, self._inbox = self._inbox, []
            if len(inbox) > MAX_INBOX:
                raise self._crowded()
            return inbox, None
        again = []
        if self._gap_until is not None:
            if now < self._gap_until:
                again.append(self._gap_until)
            else:
                self._resume(log)
        if self.link.troubled and self.link.severed(now):
            again.append(self.link.severed_until)
            return (), min(again)
        inbox, self._inbox = self._inbox, []
        while self._late and self._late[0][0] <= now:
            inbox.append(heapq.heappop(self._late)[2])
        if self._late:
            again.append(self._late[0][0])
        return inbox, min(again) if again else None
