"""One participant's subscription: its inbox, delayed messages, the gap of its consumer.

In: events that are stored, the state of its link, the streams to load from. Out: what it receives when it is woken, and when
more will be due. LOG comes in order whatever the delay; USAGE may overtake itself where the link says so.

Bound: MAX_INBOX messages in flight when the participant is woken, or late, else SimulationError.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG
from cotenant.log.memory import MemoryStream
from cotenant.model.times import EPOCH
from cotenant.simulation.links import NetworkLink

MAX_INBOX = 1_000_000
MAX_REDELIVERED = 1_000


class SimulationError(RuntimeError):
    """The simulation cannot go on; the text says why."""


class Subscriber(Protocol):
    """A reader of the log: its name and its filters."""

    name: str
    filters: tuple[str, ...]
    """LOG subjects."""
    usage_filters: tuple[str, ...]


SubscriberT = TypeVar("SubscriberT", bound=Subscriber)


class Subscription(Generic[SubscriberT]):
    """One participant's subscription; `number` is its position in the order of arrival."""

    def __init__(self, participant: SubscriberT, number: int) -> None:
        self.participant = participant
        self.number = number
        self.link = NetworkLink()
        self.planned: datetime | None = None
        """When it is woken next."""
        self.undisturbed = True
        """Stored messages are put into its inbox and received with the next step: its link never had a fault, and its consumer
        has no gap."""
        self.inbox: list[Event] = []
        self._away = False
        """It has no consumer: nothing is kept for it."""
        self._late: list[tuple[datetime, int, Event]] = []
        self._order = 0
        self._log_through = EPOCH
        """LOG is delivered in order: no message is seen before one that came earlier."""
        self._gap_until: datetime | None = None
        """Until then nothing of LOG is delivered; then its consumer resumes behind `_gap_after`."""
        self._gap_after = 0

    def __len__(self) -> int:
        """How many messages are in flight."""
        return len(self.inbox) + len(self._late)

    @property
    def interrupted(self) -> bool:
        """Whether its consumer has a gap that it has not read yet."""
        return self._gap_until is not None

    # -- its consumer ----------------------------------------------------------------------------------------------

    def trouble(self) -> NetworkLink:
        """Give it its link, which may have faults from now on."""
        self.link.troubled = True
        self._look()
        return self.link

    def leave(self) -> None:
        """The consumer is gone, with everything in flight to it."""
        self._away = True
        self._forget()

    def load(self, log: MemoryStream, usage: MemoryStream) -> None:
        """A new consumer: the last message of each of its subjects on LOG and all that USAGE holds, then what follows."""
        self._away = False
        self._forget()
        self._log_through = EPOCH
        if filters := self.participant.filters:
            self._read(log, log.snapshot(filters))
        if filters := self.participant.usage_filters:
            self._read(usage, usage.after(0, filters, usage.last_sequence))

    def _forget(self) -> None:
        self.inbox.clear()
        self._late.clear()
        self._gap_until = None
        self._look()

    def _look(self) -> None:
        """Recompute `undisturbed`."""
        self.undisturbed = not self.link.troubled and not self._away and self._gap_until is None

    def redeliver(self, log: MemoryStream, count: int) -> bool:
        """Deliver `count` messages of LOG once more: not the newest, so that they are overtaken. False without a reader."""
        if self._away or self._gap_until is not None:
            return False
        found = log.after(max(log.last_sequence - MAX_REDELIVERED, 0), self.participant.filters, MAX_REDELIVERED)
        self._read(log, found[-2 * count : -count])
        return True

    def interrupt(self, log: MemoryStream, until: datetime) -> bool:
        """Lose what is delivered of LOG until a moment. Then the reader finds the gap, and resumes behind the last message
        that it was given: it reads what the stream still holds, so it can miss history, never the last state. False where
        nobody reads."""
        if self._away or self._gap_until is not None:
            return False
        under_way = [event.sequence for event in self.inbox if event.stream == LOG]
        under_way += [event.sequence for _, _, event in self._late if event.stream == LOG]
        self._gap_after = min(under_way, default=log.last_sequence + 1) - 1
        self.inbox = [event for event in self.inbox if event.stream != LOG]
        self._late = [entry for entry in self._late if entry[2].stream != LOG]
        heapq.heapify(self._late)
        self._gap_until = until
        self._look()
        return True

    def _resume(self, log: MemoryStream) -> None:
        log.expire()
        self._read(log, log.after(self._gap_after, self.participant.filters, MAX_INBOX))
        self._gap_until = None
        self._look()

    def _read(self, stream: MemoryStream, sequences: Iterable[int]) -> None:
        found = (stream.event(sequence) for sequence in sequences)
        self.inbox.extend(event for event in found if event is not None)

    # -- deliveries ------------------------------------------------------------------------------------------------

    def deliver(self, event: Event, now: datetime, soon: datetime) -> datetime | None:
        """Take a message that was stored now and could be seen `soon`, whatever disturbs; returns when it is seen, None where
        it is lost."""
        if self._away or (self._gap_until is not None and event.stream == LOG):
            return None
        if not self.link.troubled:
            self.inbox.append(event)
            return soon
        if len(self) > MAX_INBOX:
            raise self.crowded()
        when = soon + self.link.lateness(event, now)
        if event.stream == LOG:
            when = self._log_through = max(when, self._log_through)
        self._order += 1
        heapq.heappush(self._late, (when, self._order, event))
        return max(when, self.link.severed_until)

    def crowded(self) -> SimulationError:
        return SimulationError(f"{self.participant.name} has more than {MAX_INBOX} undelivered messages")

    def take(self, now: datetime, log: MemoryStream) -> tuple[list[Event], datetime | None]:
        """Return what a disturbed participant sees now, and when more of what is in progress is due. One that is undisturbed
        sees its whole inbox."""
        again = []
        if self._gap_until is not None:
            if now < self._gap_until:
                again.append(self._gap_until)
            else:
                self._resume(log)
        if self.link.troubled and self.link.severed(now):
            again.append(self.link.severed_until)
            return [], min(again)
        inbox, self.inbox = self.inbox, []
        while self._late and self._late[0][0] <= now:
            inbox.append(heapq.heappop(self._late)[2])
        if self._late:
            again.append(self._late[0][0])
        return inbox, min(again) if again else None
