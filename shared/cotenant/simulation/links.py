"""A participant's link to the log, and its faults.

In: what is delivered to a participant, and what it wants to store. Out: when it sees it, and what answer it gets. A link in
order delays nothing and loses nothing; faults are fields that are set from a schedule and end by themselves.

The outcomes are those of a real server: a batch that was stored and whose answer was lost, one that never arrived, one
that the server refused for a reason of its own. What the writer then does is `cotenant.log.storing.find_out`, the shell's own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from random import Random

from cotenant.events.envelope import Event
from cotenant.log.contract import Head, NoAnswer, Reader, Refused, Stored, Write
from cotenant.log.memory import MemoryStream
from cotenant.model.times import EPOCH


class NetworkLink:
    """The faults of one participant's connection. Times are log time."""

    def __init__(self) -> None:
        self.severed_until = EPOCH
        """Partition: nothing is delivered, and no write arrives."""
        self.delay = timedelta(0)
        self.delayed_until = EPOCH
        """Deliveries come `delay` late until then, in order."""
        self.answers_lost = 0
        """How many of the next writes are stored and not answered."""
        self.writes_lost = 0
        """How many of the next writes never arrive."""
        self.refusals = 0
        """How many of the next writes the server refuses for lack of room."""
        self.repeats = 0
        """How many of the next messages on USAGE and EXECUTION are not answered: they are sent again under the same id,"""
        self.repeated_after = timedelta(0)
        """this much later, or with the first message after that."""
        self._unanswered: deque[tuple[datetime, Event]] = deque()
        self.loss_permille = 0
        self.lossy_until = EPOCH
        """Until then this many of a thousand messages on USAGE and EXECUTION are lost."""
        self.shuffle = timedelta(0)
        self.shuffled_until = EPOCH
        """Until then messages of USAGE come up to `shuffle` late, each on its own: they overtake one another."""
        self.random = Random(0)
        self.troubled = False
        """Whether any fault was ever set: a link without faults costs nothing."""

    def severed(self, now: datetime) -> bool:
        """Whether the participant is partitioned."""
        return now < self.severed_until

    def lateness(self, event: Event, now: datetime) -> timedelta:
        """How much later than usual a delivery comes."""
        late = self.delay if now < self.delayed_until else timedelta(0)
        if event.stream != "LOG" and now < self.shuffled_until:
            late += self.random.random() * self.shuffle
        return late

    def loses(self, now: datetime) -> bool:
        """Whether a message on USAGE or EXECUTION is lost now."""
        return now < self.severed_until or (now < self.lossy_until and self.random.randrange(1000) < self.loss_permille)

    def sent_again(self, event: Event, now: datetime) -> list[Event]:
        """Return what is sent at a moment besides an event: messages that were not answered, perhaps including this one."""
        if self.repeats > 0:
            self.repeats -= 1
            self._unanswered.append((now + self.repeated_after, event))
        again = []
        while self._unanswered and self._unanswered[0][0] <= now:
            again.append(self._unanswered.popleft()[1])
        return again

    def outcome(self, now: datetime, stalled: bool) -> tuple[bool, Refused | NoAnswer | None]:
        """Return whether a write arrives, and the answer that comes instead of the log's own (None: the log's own)."""
        if stalled or self.severed(now):
            return False, NoAnswer("no answer: the log has no leader" if stalled else "no answer: cut off")
        if self.writes_lost > 0:
            self.writes_lost -= 1
            return False, NoAnswer("no answer: the write was lost on its way")
        if self.refusals > 0:
            self.refusals -= 1
            return False, Refused("insufficient resources", wrong_sequence=False)
        if self.answers_lost > 0:
            self.answers_lost -= 1
            return True, NoAnswer("no answer: it was lost on its way")
        return True, None


class LinkedLog:
    """`cotenant.log.contract.Log` for writers, without waiting: what `find_out` needs, so that the shell's own code runs."""

    def __init__(self, stream: MemoryStream, append: Callable[[Sequence[Write]], Stored | Refused | NoAnswer]) -> None:
        self._stream = stream
        self._append = append

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """One try over the participant's link."""
        return self._append(writes)

    async def head(self, subject: str) -> Head | None:
        """Read the last message of a subject from the leader."""
        return head_of(self._stream, subject)

    async def next_head(self, subject: str, after: int) -> Head | None:
        """Read the first message of a subject behind a sequence."""
        self._stream.expire()
        sequence = self._stream.next_of(subject, after)
        event = self._stream.event(sequence) if sequence else None
        return Head.of(event) if event is not None else None

    async def publish(self, event: Event) -> int | None:
        """Writers of USAGE and EXECUTION use the world's own `publish`."""
        raise NotImplementedError(event.subject)

    async def get(self, stream: str, sequence: int) -> Event | None:
        """Return one stored event of LOG."""
        del stream
        return self._stream.event(sequence)

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None) -> Reader:
        """Participants are delivered to by the world."""
        raise NotImplementedError(stream, filters, after)

    async def follow_republished(self, selected: str, *, after: int | None = None) -> Reader:
        """Participants are delivered to by the world."""
        raise NotImplementedError(selected, after)


def head_of(stream: MemoryStream, subject: str) -> Head | None:
    """The last message of a subject."""
    stream.expire()
    sequence = stream.last_of(subject)
    event = stream.event(sequence) if sequence else None
    return Head.of(event) if event is not None else None
