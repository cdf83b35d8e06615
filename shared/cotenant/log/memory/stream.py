"""One stream in memory: sequences, expectations, last per subject, atomic batches, message ids, rollup, TTL, purge.

In: writes, and the time of a given clock. Out: a server's answers. Plain and synchronous, so that the simulator can
drive it under a virtual clock.

Bounds: the last `keep_per_subject` versions a subject where that is not 0, MAX_MESSAGES in all; message ids are kept for their
window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from heapq import heappop, heappush

import msgspec

from cotenant.events.envelope import Event, decode_event
from cotenant.log.contract import DEDUPLICATION_SECONDS, MAX_BATCH, Refused, Stored, Write
from cotenant.model.subjects import matches, selecting

SUBJECTS_A_GET = 10
"""A server returns 1,000: fewer here, so that small simulations, too, load in another order than that of the sequences."""
MAX_MESSAGES = 1_000_000
_replace = msgspec.structs.replace
_selecting = lru_cache(maxsize=256)(selecting)
"""The expressions of the filters that readers have."""


class RawMessage(msgspec.Struct, frozen=True):
    """A stored message that need not be an event."""

    subject: str
    data: bytes


class MemoryStream:
    """One stream under a given clock. Sequences start at 1 and are never reused."""

    def __init__(self, name: str, clock: Callable[[], datetime], *, keep_per_subject: int = 0) -> None:
        self.name = name
        self._clock = clock
        self._keep = keep_per_subject
        self._messages: dict[int, Event | RawMessage] = {}
        self._oldest = 1
        """Lower bound of the arrival times of held messages."""
        self._by_subject: dict[str, list[int]] = {}
        self._expiring: list[tuple[datetime, int]] = []
        self._ids: dict[str, int] = {}
        """Message ids, and the sequences that they were stored as."""
        self._ids_since: deque[tuple[datetime, list[str]]] = deque()
        """When they were, in that order, those of a batch together."""
        self.window = timedelta(seconds=DEDUPLICATION_SECONDS)
        self.last_sequence = 0
        self.longest_ttl: timedelta | None = None
        """For tests: upper bound of messages' TTL."""

    def __len__(self) -> int:
        return len(self._messages)

    def append(self, writes: Sequence[Write]) -> Stored | Refused:
        """Store all or nothing. Expectations are checked against the state before the batch, as the server does."""
        if not 0 < len(writes) <= MAX_BATCH:
            raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(writes)}")
        if self._expiring and self._expiring[0][0] <= self._clock():
            self.expire()
        ids = []
        for write in writes:
            expected = write.expected
            if expected is not None:
                subject = write.expected_subject or write.event.subject
                kept = self._by_subject.get(subject)
                last = kept[-1] if kept else 0
                if last != expected:
                    return Refused(f"wrong last sequence: {last} on {subject}, expected {expected}")
            if write.message_id:
                ids.append(write.message_id)
        if ids:
            now = self._clock()
            if self._ids_since and self._ids_since[0][0] <= now - self.window:
                self._forget_ids(now)
            if len(writes) == 1:
                stored = self._ids.get(ids[0])
                if stored is not None:
                    return Stored(stored, stored, duplicate=True)
            elif len(set(ids)) < len(ids) or not self._ids.keys().isdisjoint(ids):
                return Refused("atomic publish batch contains duplicate message id", wrong_sequence=False)
        first, name, put = self.last_sequence + 1, self.name, self._put
        for sequence, write in enumerate(writes, first):
            event = write.event
            if event.tombstone or event.replaces:
                for old in tuple(self._by_subject.get(event.subject, ())):
                    self._remove(old)
            if event.ttl_seconds:
                ttl = timedelta(seconds=event.ttl_seconds)
                expires = self._clock() + (ttl if self.longest_ttl is None else min(ttl, self.longest_ttl))
                heappush(self._expiring, (expires, sequence))
            put(_replace(event, stream=name, sequence=sequence), sequence)
        if ids:
            self._ids_since.append((now, ids))
            for sequence, write in enumerate(writes, first):
                if write.message_id:
                    self._ids[write.message_id] = sequence
        return Stored(first, self.last_sequence)

    def _forget_ids(self, now: datetime) -> None:
        """Drop ids whose window is over."""
        since = self._ids_since
        over = now - self.window
        while since and since[0][0] <= over:
            for message_id in since.popleft()[1]:
                del self._ids[message_id]

    def append_raw(self, subject: str, data: bytes) -> int:
        """Store bytes as they are, as any client of a real server can."""
        self.expire()
        self._put(RawMessage(subject, data), self.last_sequence + 1)
        return self.last_sequence

    def _put(self, message: Event | RawMessage, sequence: int) -> None:
        """Store a message with the sequence that follows the last one."""
        self.last_sequence = sequence
        messages, subject = self._messages, message.subject
        messages[sequence] = message
        kept = self._by_subject.get(subject)
        if kept is None:
            self._by_subject[subject] = [sequence]
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
        """Return the first sequence that is held; the one after the last if there is none."""
        while self._oldest <= self.last_sequence and self._oldest not in self._messages:
            self._oldest += 1
        return self._oldest

    def expire(self) -> None:
        """Drop expired messages."""
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

    def next_of(self, subject: str, after: int) -> int:
        """Return the first sequence of a subject behind the given one, 0 where there is none."""
        return next((sequence for sequence in self._by_subject.get(subject, ()) if sequence > after), 0)

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

    def events(self, stored: Stored) -> list[Event | None]:
        """Return the message that `append` has stored; None if a later message of the same batch has removed it already."""
        found = map(self._messages.get, range(stored.first, stored.last + 1))
        return [message if isinstance(message, Event) else None for message in found]

    def snapshot(self, filters: Sequence[str]) -> list[int]:
        """Return the last sequence of each subject that a filter selects, in a server's order: groups of
        subjects by name, each group by sequence."""
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
