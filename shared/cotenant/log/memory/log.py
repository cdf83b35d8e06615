"""The four streams in memory behind the asyncio interface of `cotenant.log.contract`: tests run against it as against a server.

Bounds: LOG keeps KEEP_PER_SUBJECT versions a subject, USAGE 4, the others MAX_MESSAGES in all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import Event, EventError
from cotenant.log.contract import EXECUTION, HISTORY, KEEP_PER_SUBJECT, LOG, USAGE, Head, NoAnswer, Refused, Stored, Write
from cotenant.log.memory.reader import MemoryReader
from cotenant.log.memory.stream import MemoryStream, RawMessage


class MemoryLog:
    """The four streams behind `Log`. Faults for tests: `lose_answers` stores but does not answer that often."""

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        clock = clock or (lambda: datetime.now(UTC))
        self.streams = {
            LOG: MemoryStream(LOG, clock, keep_per_subject=KEEP_PER_SUBJECT),
            HISTORY: MemoryStream(HISTORY, clock),
            USAGE: MemoryStream(USAGE, clock, keep_per_subject=4),
            EXECUTION: MemoryStream(EXECUTION, clock),
        }
        self.lose_answers = 0
        self.lose_batches = 0
        self.unknown_types = 0
        self.dead_letters = 0
        self._clock = clock
        self._news = asyncio.Condition()

    @property
    def log(self) -> MemoryStream:
        """The stream LOG."""
        return self.streams[LOG]

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """See `cotenant.log.contract.Log`."""
        if self.lose_batches > 0:
            self.lose_batches -= 1
            return NoAnswer("the batch was lost on its way")
        outcome = self.log.append(writes)
        if isinstance(outcome, Stored):
            await self._notify()
            if self.lose_answers > 0:
                self.lose_answers -= 1
                return NoAnswer("the answer was lost on its way")
        return outcome

    async def append_raw(self, stream: str, subject: str, data: bytes) -> int:
        """Store bytes that need not be an event."""
        sequence = self.streams[stream].append_raw(subject, data)
        await self._notify()
        return sequence

    async def publish(self, event: Event) -> int | None:
        """See `cotenant.log.contract.Log`."""
        outcome = self.streams[event.stream].append([Write(event=event, message_id=event.id)])
        await self._notify()
        return outcome.first if isinstance(outcome, Stored) else None

    async def head(self, subject: str) -> Head | None:
        """See `cotenant.log.contract.Log`."""
        self.log.expire()
        return self._head_at(self.log.last_of(subject))

    async def next_head(self, subject: str, after: int) -> Head | None:
        """See `cotenant.log.contract.Log`."""
        self.log.expire()
        return self._head_at(self.log.next_of(subject, after))

    def _head_at(self, sequence: int) -> Head | None:
        message = self.log.message(sequence)
        if message is None:
            return None
        return Head(sequence, "") if isinstance(message, RawMessage) else Head.of(message)

    async def get(self, stream: str, sequence: int) -> Event | None:
        """See `cotenant.log.contract.Log`."""
        try:
            return self.streams[stream].event(sequence)
        except EventError:
            return None

    async def purge(self, stream: str, filter_subject: str, *, keep: int = 0) -> int:
        """Remove messages as an operator can."""
        return self.streams[stream].purge(filter_subject, keep=keep)

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None) -> MemoryReader:
        """See `cotenant.log.contract.Log`."""
        return MemoryReader(self, self.streams[stream], filters, after)

    async def follow_republished(self, selected: str, *, after: int | None = None) -> MemoryReader:
        """See `cotenant.log.contract.Log`."""
        return await self.follow(LOG, [selected], after=after)

    def dead_letter(self, stream: MemoryStream, sequence: int, reason: str) -> None:
        """Store an undecodable message on EXECUTION, with the reason."""
        self.dead_letters += 1
        message = stream.message(sequence)
        assert isinstance(message, RawMessage)
        letter = make_dead_letter(stream.name, message.subject, sequence, reason, message.data, self._clock(), "memory")
        self.streams[EXECUTION].append([Write(event=letter, message_id=letter.id)])

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def wait_for_news(self, stream: MemoryStream, after: int, seconds: float) -> bool:
        """Wait until the stream has grown beyond `after`; False when the time is over."""
        async with self._news:
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait_for(lambda: stream.last_sequence > after)
            except TimeoutError:
                return False
        return True
