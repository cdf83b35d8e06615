"""The streams in one process: sequences, expectations, last per subject, atomic batches, message ids, rollup, TTL, purge.

`MemoryStream` is plain and synchronous, so the simulator can drive it under a virtual clock. `MemoryLog` puts the four
streams behind the asyncio interface of `cotenant.log.contract`, so tests run against it as against a real server.

Bounds: LOG keeps KEEP_PER_SUBJECT versions a subject, USAGE 4, the others MAX_MESSAGES in all; ids are kept for their window.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush

import msgspec

from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import Event, EventError, UnknownEventTypeError, decode_event
from cotenant.log.contract import (
    DEDUPLICATION_SECONDS,
    EXECUTION,
    HISTORY,
    KEEP_PER_SUBJECT,
    LOG,
    MAX_BATCH,
    MAX_BEHIND,
    USAGE,
    Behind,
    Head,
    NoAnswer,
    Refused,
    Stored,
    Write,
)
from cotenant.model.subjects import matches, selecting

SUBJECTS_A_GET = 10
"""A server gives 1,000: few, so that small simulations, too, load in another order than that of the sequences."""
MAX_MESSAGES = 1_000_000
_selecting = lru_cache(maxsize=256)(selecting)
"""The expressions of the filters that readers have."""


class RawMessage(msgspec.Struct, frozen=True):
    """A stored message that need not be an event."""

    subject: str
    data: bytes


class MemoryStream:
    """One stream under a given clock. Sequences start at 1 and never return."""

    def __init__(self, name: str, clock: Callable[[], datetime], *, keep_per_subject: int = 0) -> None:
        self.name = name
        self._clock = clock
        self._keep = keep_per_subject
        self._messages: dict[int, Event | RawMessage] = {}
        self._oldest = 1
        """No message that is held came earlier."""
        self._by_subject: dict[str, list[int]] = {}
        self._expiring: list[tuple[datetime, int]] = []
        self._ids: dict[str, int] = {}
        """Message ids, and as what they were stored."""
        self._ids_since: deque[tuple[datetime, list[str]]] = deque()
        """When they were, in that order, those of a batch together."""
        self.window = timedelta(seconds=DEDUPLICATION_SECONDS)
        self.last_sequence = 0
        self.longest_ttl: timedelta | None = None
        """For tests: no message stays longer, whatever its TTL says."""

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, writes: Sequence[Write]) -> Stored | Refused:
        """Store all or nothing. Expectations are checked against the state before the batch, as the server does."""
        if not 0 < len(writes) <= MAX_BATCH:
            raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(writes)}")
        if self._expiring:
            self.expire()
        ids = []
        for write in writes:
            if write.expected is not None:
                last = self.last_of(write.event.subject)
                if last != write.expected:
                    return Refused(f"wrong last sequence: {last} on {write.event.subject}, expected {write.expected}")
            if write.message_id:
                ids.append(write.message_id)
        if ids:
            now = self._clock()
            self._forget_ids(now)
            if len(writes) == 1:
                stored = self._ids.get(ids[0])
                if stored is not None:
                    return Stored(stored, stored, duplicate=True)
            elif len(set(ids)) < len(ids) or not self._ids.keys().isdisjoint(ids):
                return Refused("atomic publish batch contains duplicate message id", wrong_sequence=False)
        first = self.last_sequence + 1
        for sequence, write in enumerate(writes, first):
            event = write.event
            if event.tombstone:
                for old in tuple(self._by_subject.get(event.subject, ())):
                    self._remove(old)
            if event.ttl_seconds:
                ttl = timedelta(seconds=event.ttl_seconds)
                expires = self._clock() + (ttl if self.longest_ttl is None else min(ttl, self.longest_ttl))
                heappush(self._expiring, (expires, sequence))
            self._put(msgspec.structs.replace(event, stream=self.name, sequence=sequence))
            if write.message_id:
                self._ids[write.message_id] = sequence
        if ids:
            self._ids_since.append((now, ids))
        return Stored(first, self.last_sequence)

    def _forget_ids(self, now: datetime) -> None:
        """Forget ids whose window is over."""
        since = self._ids_since
        over = now - self.window
        while since and since[0][0] <= over:
            for message_id in since.popleft()[1]:
                del self._ids[message_id]

    def append_raw(self, subject: str, data: bytes) -> int:
        """Store bytes as they are, as any client of a real server can."""
        self.expire()
        self._put(RawMessage(subject, data))
        return self.last_sequence

    def _put(self, message: Event | RawMessage) -> None:
        sequence = self.last_sequence = self.last_sequence + 1
        messages = self._messages
        messages[sequence] = message
        kept = self._by_subject.get(message.subject)
        if kept is None:
            self._by_subject[message.subject] = [sequence]
        else:
            kept.append(sequence)
            if self._keep and len(kept) > self._keep:
                del messages[kept.pop(0)]
        if len(messages) > MAX_MESSAGES:
            self._remove(self._first())

    def _remove(self, sequence: int) -> None:
        message = self._messages.pop(sequence, None)
        if message is None:
            return
        kept = self._by_subject[message.subject]
        kept.remove(sequence)
        if not kept:
            del self._by_subject[message.subject]

    def _first(self) -> int:
        """Return the first sequence that is held; the one behind the last where there is none."""
        while self._oldest <= self.last_sequence and self._oldest not in self._messages:
            self._oldest += 1
        return self._oldest

    def expire(self) -> None:
        """Drop what has outlived its TTL."""
        if not self._expiring:
            return
        now = self._clock()
        while self._expiring and self._expiring[0][0] <= now:
            self._remove(heappop(self._expiring)[1])

    def purge(self, filter_subject: str, *, keep: int = 0) -> int:
        """Remove all messages of the subjects that match, but the last `keep` of each; returns how many."""
        removed = 0
        for subject in [subject for subject in self._by_subject if matches(filter_subject, subject)]:
            sequences = list(self._by_subject[subject])
            for sequence in sequences[: len(sequences) - keep]:
                self._remove(sequence)
                removed += 1
        return removed

    def last_of(self, subject: str) -> int:
        """Return the last sequence of a subject, 0 where there is none."""
        kept = self._by_subject.get(subject)
        return kept[-1] if kept else 0

    def count_of(self, subject: str) -> int:
        """Return how many versions of a subject are held."""
        return len(self._by_subject.get(subject, ()))

    def subjects(self) -> Iterator[str]:
        """Yield the subjects that hold something."""
        return iter(tuple(self._by_subject))

    def message(self, sequence: int) -> Event | RawMessage | None:
        """Return one stored message."""
        return self._messages.get(sequence)

    def event(self, sequence: int) -> Event | None:
        """Return the stored event; raw bytes are decoded. Raises EventError where that cannot be done."""
        message = self._messages.get(sequence)
        if not isinstance(message, RawMessage):
            return message
        return decode_event(message.data, subject=message.subject, stream=self.name, sequence=sequence)

    def snapshot(self, filters: Sequence[str]) -> list[int]:
        """Return the last sequence of each subject that a filter selects, in the order in which a server gives them: so many
        subjects at once by their names, each group by its sequences."""
        self.expire()
        selects = _selecting(tuple(filters)).fullmatch
        selected = sorted(subject for subject in self._by_subject if selects(subject.encode()))
        return [
            sequence
            for first in range(0, len(selected), SUBJECTS_A_GET)
            for sequence in sorted(self._by_subject[subject][-1] for subject in selected[first : first + SUBJECTS_A_GET])
        ]

    def after(self, sequence: int, filters: Sequence[str], limit: int) -> list[int]:
        """Return up to `limit` sequences after the given one that a filter selects, in order."""
        found: list[int] = []
        selects = _selecting(tuple(filters)).fullmatch
        for candidate in range(max(sequence + 1, self._first()), self.last_sequence + 1):
            message = self._messages.get(candidate)
            if message is not None and selects(message.subject.encode()):
                found.append(candidate)
                if len(found) == limit:
                    break
        return found


class MemoryReader:
    """Follows one stream of a MemoryLog."""

    def __init__(self, log: MemoryLog, stream: MemoryStream, filters: Sequence[str], after: int | None) -> None:
        self._log = log
        self._stream = stream
        self._filters = tuple(filters)
        self._backlog: deque[int] = deque(stream.snapshot(self._filters) if after is None else ())
        self._after = stream.last_sequence if after is None else after
        self._loading = after is None
        self.position = 0 if after is None else after

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """See `cotenant.log.contract.Reader`."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            sequences = self._take(limit)
            if sequences:
                return self._decode(sequences)
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0 or not await self._log.wait_for_news(self._stream, self._after, remaining):
                return ()

    def _take(self, limit: int) -> list[int]:
        taken: list[int] = []
        while self._backlog and len(taken) < limit:
            taken.append(self._backlog.popleft())
        if len(taken) < limit and not self._backlog:
            if not self._loading and self._stream.last_sequence - self._after > MAX_BEHIND:
                waiting = self._stream.after(self._after, self._filters, MAX_BEHIND + 1)
                if len(waiting) > MAX_BEHIND:
                    raise Behind(f"more than {MAX_BEHIND} messages behind on {self._stream.name}")
            room = limit - len(taken)
            following = self._stream.after(self._after, self._filters, room)
            taken.extend(following)
            self._after = following[-1] if len(following) == room else self._stream.last_sequence
        return taken

    def _decode(self, sequences: Sequence[int]) -> list[Event]:
        events = []
        for sequence in sequences:
            try:
                event = self._stream.event(sequence)
            except UnknownEventTypeError:
                self._log.unknown_types += 1
                continue
            except EventError as error:
                self._log.dead_letter(self._stream, sequence, str(error))
                continue
            if event is not None:
                events.append(event)
        self.position = max(self.position, sequences[-1])
        return events

    def loaded(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        self._loading = False

    async def close(self) -> None:
        """Nothing is held elsewhere."""


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
            await self._tell()
            if self.lose_answers > 0:
                self.lose_answers -= 1
                return NoAnswer("the answer was lost on its way")
        return outcome

    async def append_raw(self, stream: str, subject: str, data: bytes) -> int:
        """Store bytes that need not be an event."""
        sequence = self.streams[stream].append_raw(subject, data)
        await self._tell()
        return sequence

    async def publish(self, event: Event) -> int | None:
        """See `cotenant.log.contract.Log`."""
        outcome = self.streams[event.stream].append([Write(event=event, message_id=event.id)])
        await self._tell()
        return outcome.first if isinstance(outcome, Stored) else None

    async def head(self, subject: str) -> Head | None:
        """See `cotenant.log.contract.Log`."""
        self.log.expire()
        sequence = self.log.last_of(subject)
        message = self.log.message(sequence)
        if message is None:
            return None
        return Head(sequence, "") if isinstance(message, RawMessage) else Head(sequence, message.id, message.tombstone)

    async def get(self, stream: str, sequence: int) -> Event | None:
        """See `cotenant.log.contract.Log`."""
        try:
            return self.streams[stream].event(sequence)
        except EventError:
            return None

    async def purge(self, stream: str, filter_subject: str, *, keep: int = 0) -> int:
        """Remove messages as an operator can."""
        return self.streams[stream].purge(filter_subject, keep=keep)

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None, name: str = "") -> MemoryReader:
        """See `cotenant.log.contract.Log`."""
        del name
        return MemoryReader(self, self.streams[stream], filters, after)

    def dead_letter(self, stream: MemoryStream, sequence: int, reason: str) -> None:
        """Keep what could not be decoded on EXECUTION, with the reason."""
        self.dead_letters += 1
        message = stream.message(sequence)
        assert isinstance(message, RawMessage)
        letter = make_dead_letter(stream.name, message.subject, sequence, reason, message.data, self._clock(), "memory")
        self.streams[EXECUTION].append([Write(event=letter, message_id=letter.id)])

    async def _tell(self) -> None:
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
