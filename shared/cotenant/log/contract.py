"""The log as services see it: what can be written, what comes back, and what can go wrong. Storage-neutral.

Two implementations hold these semantics: `nats` (JetStream) and `memory` (in one process, for the simulator and tests).
One test-suite runs against both.

Over 300 lines: half of it documents the methods' guarantees.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from cotenant.events.envelope import Event, Payload, PayloadView
from cotenant.model.values import Value

LOG = "LOG"
HISTORY = "HISTORY"
USAGE = "USAGE"
EXECUTION = "EXECUTION"

TOMBSTONE_TTL_SECONDS = 300
"""How long a subject holds its tombstone. A reader that was disconnected for half of it loads again, so it need not be long.
Every load reads them all: 25 short-lived pods a second leave 75 a second, 22,500 in this time. HISTORY keeps them."""

REPLACED_AFTER = timedelta(seconds=5)
"""Age from which a message may be removed by another one than a tombstone. HISTORY copies messages within milliseconds, and
within a second or two when thousands arrive at once."""

MARKER_TTL_SECONDS = 86_400
"""How long LOG keeps a start marker. A load needs it until it ends; every starting process writes to a subject of
its own. HISTORY keeps it: it holds the text of the configuration."""

MAX_BATCH = 8_000
"""Messages in one atomic batch, the commit record included: the server's `limits { batch { max_msgs } }`."""

WORTH_A_BATCH = 12
"""Below this number, messages that need not be atomic cost less one by one than as a batch: the server stages every
batch in files of its own, which takes five syncs more than a message. (`python -m tests.bench bus`: eight messages that are
sent at once cost 1.5 ms of the server's CPU, sixteen 2.8 ms, a batch of eight or sixteen 2.3 ms.)"""

KEEP_PER_SUBJECT = 64
"""Versions of one subject that LOG keeps."""

MAX_BEHIND = 5_000
"""A reader further behind starts over: catching up with several filters is too expensive for the server."""


DEDUPLICATION_SECONDS = 120
"""Deduplication window of message ids."""


def ending(subject: str, data: Payload, causes: tuple[str, ...] = (), *, time: datetime | None = None) -> Event:
    """Return the tombstone of a subject: its last message, which expires after TOMBSTONE_TTL_SECONDS."""
    return Event(subject=subject, data=data, causes=causes, time=time, tombstone=True, ttl_seconds=TOMBSTONE_TTL_SECONDS)


def replaces(earlier: datetime | None, now: datetime) -> bool:
    """Return whether a message may remove those before it, the last of them stored at `earlier`: HISTORY has copied that one.

    For the last message but one of an entity. Its tombstone then removes a single message: a server that removes
    several at once recounts the pending messages of each consumer, over all subjects (nats-server 2.15).
    """
    return earlier is not None and now - earlier >= REPLACED_AFTER


class Write(Value, frozen=True, kw_only=True):
    """One message to store. `expected`: the last sequence that its subject must have (0: none), or None for no expectation.
    `expected_subject`: the subject of the expectation, where it is another one.

    `message_id`: if its expectation holds and the stream still has a message of that id, on any subject, it counts as a
    duplicate of that one; in a batch of several it is refused.
    """

    event: Event
    expected: int | None = None
    message_id: str = ""
    expected_subject: str = ""


class Stored(Value, frozen=True):
    """The batch is on the log, contiguous: `first` .. `last`. `duplicate`: it was stored before under the same id."""

    first: int
    last: int
    duplicate: bool = False


class Refused(msgspec.Struct, frozen=True):
    """Nothing of the batch is on the log: an expectation failed, or the server gave another reason."""

    reason: str
    wrong_sequence: bool = True
    no_space: bool = False
    """LOG is at its size limit, or the server's disk is full: the same batch may be stored once there is room."""
    too_large: bool = False
    """A message is larger than the log accepts."""


class NoAnswer(msgspec.Struct, frozen=True):
    """The outcome of the batch is unknown."""

    reason: str


class Head(msgspec.Struct, frozen=True):
    """The last message of a subject, undecoded: sequence, event id, whether it is a tombstone, whether it replaces others."""

    sequence: int
    event_id: str
    tombstone: bool = False
    replaces: bool = False

    @classmethod
    def of(cls, event: Event) -> Head:
        """Return the head of a stored event."""
        return cls(event.sequence, event.id, event.tombstone, event.replaces)


class LogUnavailableError(TimeoutError):
    """The log did not answer a query, or has no leader at the moment; the state of the log is unknown."""


class Behind(Exception):  # noqa: N818 - not an error: the reader asks its owner to start over
    """The reader is too far behind to catch up message by message: start a fresh core and a new load."""


@runtime_checkable
class Draining(Protocol):
    """A log with many writers that stores one batch after the other."""

    async def drained(self, subject: str) -> None:
        """Return when everything that reached LOG before this call is stored or refused (or at once if the server does not
        answer); `subject` is one that the caller may write to."""


@runtime_checkable
class Pausing(Protocol):
    """A log that may be without a leader for seconds."""

    async def pause(self, number: int) -> None:
        """Wait before repeating an unanswered call, for the `number`th time from 0."""


class Reader(Protocol):
    """A consumer of one stream: first the last message of each subject (or from a sequence), then everything that follows."""

    @property
    def position(self) -> int:
        """Sequence of the last message delivered, 0 before the first."""

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """Return available events, at most `limit`, waiting up to `wait_seconds` for the first.

        Undecodable messages go to the dead letters and are left out. Raises Behind.
        """

    def loaded(self) -> None:
        """Notify the reader that its load is over. Until then a broken consumer raises Behind; afterwards it is resumed."""

    async def close(self) -> None:
        """Release the consumer."""


@runtime_checkable
class GatheringReader(Protocol):
    """A reader that can batch deliveries of messages that follow one another closely."""

    def gather(self, seconds: float, hurried: Sequence[str] = ()) -> None:
        """After the load, take available messages at most once in this many seconds; those after a pause of that length
        are still delivered at once, and so are all while there are writes to a subject that a filter in `hurried` selects."""


@runtime_checkable
class Lagging(Protocol):
    """A reader that can tell whether it may lack messages that were removed before their delivery.

    A tombstone removes the earlier messages of its subject. If some of them are no longer delivered although later
    messages of other subjects are, the state matches no position of the log until the tombstone itself is folded, at the latest
    once every pending message was delivered. A reader of one filter cannot detect a missing message: it relies on the
    server's pending count.
    """

    @property
    def behind(self) -> bool:
        """Whether messages before the last delivered one may be missing."""


@runtime_checkable
class Skipping(Protocol):
    """A reader that can skip, undecoded, its owner's own messages, which were applied when they were stored."""

    def skip(self, known: Callable[[int], bool]) -> None:
        """Leave out messages whose sequence `known` accepts; it is asked once for each, in order."""


@runtime_checkable
class Snapshotting(Protocol):
    """A reader that begins with the last message of each subject.

    A subject that has a newer message by the time it is read is left out of the snapshot: that message follows later. So
    the state is complete at the first sequence stored after the snapshot was read, not at the one where reading began.
    """

    on_snapshot_over: Callable[[], None]
    """Called when `snapshot_over` becomes true, while a pull may still be waiting."""

    @property
    def snapshot_over(self) -> bool:
        """Whether the snapshot is read, and no message that came meanwhile is queued in the reader."""


@runtime_checkable
class Clocked(Protocol):
    """A reader that knows the log's clock, which stamps messages when they are stored."""

    def server_time(self) -> float | None:
        """Return a lower bound of the log's time in seconds since the epoch; None before the first delivery."""


class LogIdentity(msgspec.Struct, frozen=True):
    """The identity of LOG, and its end. Another one, or an empty one, was created at another time; one that was restored
    from a backup may end earlier."""

    created: str
    """When the stream was created, as its server writes it."""
    last: int
    """Sequence of its last message."""


@runtime_checkable
class Declared(Protocol):
    """A log whose streams may be gone after its server was set up again."""

    async def check_streams(self) -> None:
        """Raise if streams are missing, or lack a setting that services rely on."""


@runtime_checkable
class Identified(Protocol):
    """A log that can be another one at the same address: its server was set up again, or restored from a backup."""

    async def identity(self, subject: str, known_to: int = 0) -> LogIdentity:
        """Return the identity of LOG. Its caller may write to `subject`, and has read LOG up to `known_to`: a leader that
        reports less is asked again."""


@runtime_checkable
class Identifying(Protocol):
    """A reader that knows which LOG it reads."""

    @property
    def identity(self) -> LogIdentity:
        """LOG as it was when the reader last asked for it."""


@runtime_checkable
class Growing(Protocol):
    """A log that can report its last sequence."""

    async def last_sequence(self, stream: str) -> int:
        """Return the sequence of the stream's last message."""


class LogSpace(msgspec.Struct, frozen=True):
    """The size of LOG in bytes, and its declared limit (0: none); how many versions of a subject it keeps; its present
    extension beyond the limit, so that deletions can be stored; whether the server enforces the limit (`Bounded.enforce`)."""

    used: int
    limit: int
    versions: int = KEEP_PER_SUBJECT
    extended: int = 0
    enforced: bool = True


EXTENSIONS = 4
"""How many times LOG may be extended beyond its limit."""


def extension_bytes(limit: int) -> int:
    """Return by how much LOG is extended at a time."""
    return max(limit // 64, 2 << 20)


@runtime_checkable
class Bounded(Protocol):
    """A log that refuses writes once it is full. The methods raise what a log's calls raise."""

    async def space(self) -> LogSpace:
        """Return how full LOG is."""

    async def keep_versions(self, count: int) -> None:
        """Keep this many versions of a subject, and drop older ones. The last message of a subject stays."""

    async def extend(self, extra_bytes: int) -> None:
        """Extend LOG by this many bytes beyond its declared limit; 0: no extension."""

    async def enforce(self, enforced: bool) -> None:
        """Let the server enforce LOG's limit, or only remember it. To enforce it, nats-server 2.15 sums up the whole batch
        again for each of its messages: in batches of 8,000 it takes 59 us of CPU a message instead of 21, in batches of 1,000
        26 instead of 22. No message is dropped in either case; a server whose storage is full refuses writes too."""


@runtime_checkable
class Viewing(Protocol):
    """A reader that can decode only the parts of a payload that its owner reads, some as raw JSON."""

    def view(self, views: Sequence[type[PayloadView]]) -> None:
        """Decode these instead of their payloads. A message in another form still comes as the payload."""


class Log(Protocol):
    """Reading and writing the streams."""

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """Store all on LOG as one atomic batch, or nothing. One try; at most MAX_BATCH messages, else ValueError."""

    async def publish(self, event: Event) -> int | None:
        """Store one fact on USAGE or EXECUTION (`event.stream`); returns its sequence, None without confirmation.

        Published again within DEDUPLICATION_SECONDS it is not stored again: the event's id, that of one fact, is its message's.
        """

    async def head(self, subject: str) -> Head | None:
        """Return the last message of a LOG subject, read from the leader; None where there is none.

        Raises LogUnavailableError."""

    async def next_head(self, subject: str, after: int) -> Head | None:
        """Return the first message of a LOG subject behind a sequence, read like `head`: the one that a write which expected
        that sequence was stored as, or was refused for."""

    async def get(self, stream: str, sequence: int) -> Event | None:
        """Return one stored event, None if it does not exist (any more). Raises LogUnavailableError."""

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None) -> Reader:
        """Create a consumer: the last message of each subject and then what follows; with `after`, all that comes after it."""

    async def follow_republished(self, selected: str, *, after: int | None = None) -> Reader:
        """Read as `follow` does what one filter below `node.>` selects of LOG, with no consumer on the server: for executors,
        of which there are thousands. A missed message that can no longer be delivered in order raises Behind."""
