"""Dead letters as a list of objects: messages that a reader could not decode, or that a core could not fold or decide on.

In: `deadletter.>` on EXECUTION, and the last message of each subject on LOG. Out: the newest MAX_LETTERS, oldest first. The
state of each says whether it still matters:

    Held        it is the last message of its subject: the service ignores it until there is a newer one
    Superseded  its subject has a newer message
    Expired     its subject has no message any more
    Dropped     a message of another stream than LOG: no state depends on it
"""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from cotenant.api.times import rfc3339
from cotenant.events.deadletters import DeadLetter
from cotenant.events.envelope import Event
from cotenant.log.contract import EXECUTION, LOG
from cotenant.log.nats.log import NatsLog

FILTER = "deadletter.>"
MAX_LETTERS = 500
MESSAGE_CHARACTERS = 1024
"""Of the message, in the list; the dead letter itself holds up to 64 KiB."""
SILENT_SECONDS = 1.5
PULL = 500
HEADS_AT_ONCE = 32


class LetterState(StrEnum):
    """See the module."""

    HELD = "Held"
    SUPERSEDED = "Superseded"
    EXPIRED = "Expired"
    DROPPED = "Dropped"


class LetterMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Name, and when the letter was written."""

    name: str
    creation_timestamp: str


class Letter(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One dead letter as an object."""

    api_version: str = "cotenant.io/v1"
    kind: str = "DeadLetter"
    metadata: LetterMeta
    stream: str
    subject: str
    sequence: int
    service: str
    reason: str
    state: LetterState
    message: str
    truncated: bool


class LetterList(msgspec.Struct, frozen=True, rename="camel"):
    """Dead letters, oldest first. `total`: how many are kept; only the newest are listed."""

    items: list[Letter]
    total: int
    api_version: str = "cotenant.io/v1"
    kind: str = "DeadLetterList"


async def kept_by_stream(log: NatsLog) -> dict[str, int]:
    """Return how many dead letters of each stream are kept."""
    reply = await log.client.request(
        f"$JS.API.STREAM.INFO.{EXECUTION}", msgspec.json.encode({"subjects_filter": FILTER}), timeout=5
    )
    state = msgspec.json.decode(reply.data, type=_StreamInfo).state
    found: dict[str, int] = {}
    for subject, count in sorted((state.subjects or {}).items()):
        stream = subject.split(".")[1]
        found[stream] = found.get(stream, 0) + count
    return found


async def list_dead_letters(log: NatsLog) -> LetterList:
    """Return the newest dead letters."""
    total = sum((await kept_by_stream(log)).values())
    events = await _read(log, total)
    letters = [(event, event.data) for event in events if isinstance(event.data, DeadLetter)]
    subjects = sorted({letter.subject for _, letter in letters if letter.stream == LOG})
    heads: dict[str, int] = {}
    for first in range(0, len(subjects), HEADS_AT_ONCE):
        some = subjects[first : first + HEADS_AT_ONCE]
        for subject, head in zip(some, await asyncio.gather(*map(log.head, some)), strict=True):
            heads[subject] = head.sequence if head is not None else 0
    return LetterList([letter_of(event, letter, heads) for event, letter in letters], total)


async def _read(log: NatsLog, total: int) -> list[Event]:
    """Return the newest dead letters, at most this many; fewer if they expire meanwhile."""
    events: list[Event] = []
    if not total:
        return events
    reader = await log.follow(EXECUTION, (FILTER,), after=0)
    reader.loaded()
    reader.max_behind = 0
    count = 0
    try:
        while count < total and (pulled := await reader.pull(PULL, SILENT_SECONDS)):
            count += len(pulled)
            events = [*events, *pulled][-MAX_LETTERS:]
    finally:
        await reader.close()
    return events


def letter_of(event: Event, letter: DeadLetter, heads: dict[str, int]) -> Letter:
    """Return a dead letter as an object. `heads`: by subject, the sequence of its last message on LOG, 0 for none."""
    state = LetterState.DROPPED
    if letter.stream == LOG:
        head = heads.get(letter.subject, 0)
        state = LetterState.SUPERSEDED if head > letter.sequence else LetterState.HELD if head else LetterState.EXPIRED
    return Letter(
        metadata=LetterMeta(
            name=f"{letter.stream}-{letter.sequence}-{event.sequence}".lower(),
            creation_timestamp=rfc3339(event.time) if event.time is not None else "",
        ),
        stream=letter.stream,
        subject=letter.subject,
        sequence=letter.sequence,
        service=letter.service,
        reason=letter.reason,
        state=state,
        message=letter.message[:MESSAGE_CHARACTERS],
        truncated=letter.truncated or len(letter.message) > MESSAGE_CHARACTERS,
    )


class _State(msgspec.Struct):
    subjects: dict[str, int] | None = None


class _StreamInfo(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)
