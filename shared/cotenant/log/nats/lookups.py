"""Single messages of the streams: the last one of a subject, one by its sequence, one that a cause names.

In: subjects, sequences, references such as `LOG:123`. Out: the message of LOG, else of HISTORY, else why there is none. A node
requests only what its credentials allow, by the subject of the request (`confined`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

import msgspec

from cotenant.api.times import parse_rfc3339
from cotenant.events.commits import LogDeclared
from cotenant.events.envelope import Event, EventError
from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE, Head, LogUnavailableError
from cotenant.log.nats.access import NODES_API
from cotenant.log.nats.confined import last_message
from cotenant.log.nats.decoding import REPLACES, event_of, is_tombstone, origin_sequence
from cotenant.log.nats.frames import parse_headers
from cotenant.log.nats.jetstream import API_ERRORS, BusError, JetStream, StoredMessage
from cotenant.log.nats.wire import BusClient
from cotenant.model.subjects import LOG_IDENTITY, execution_subject


class _IdOnly(msgspec.Struct):
    id: str = ""


_ID = msgspec.json.Decoder(_IdOnly)
MOST_IDENTITIES = 64
"""A restore, or another LOG, adds one or two; in what lies behind more of them nothing is found."""


def id_of(message: StoredMessage) -> str:
    """Return the id of the event that a message holds; empty where it is none."""
    try:
        return _ID.decode(message.data).id
    except msgspec.DecodeError:
        return ""


class Mark(msgspec.Struct, frozen=True):
    """An identity of LOG as HISTORY holds it: where, its sequence on LOG, and when that LOG was created."""

    at: int
    sequence: int
    created: str


def newest_run(marks: Sequence[Mark]) -> int:
    """Return the index of the mark with which HISTORY last began to copy LOG from its start; 0 where it did so once."""
    for i in range(len(marks) - 1, 0, -1):
        if marks[i].sequence <= marks[i - 1].sequence:
            return i
    return 0


def is_of(event: Event, created: str) -> bool:
    """Return whether an event may be of the LOG that was created then: those of an earlier LOG are older."""
    since = parse_rfc3339(created)
    return since is None or event.time is None or event.time >= since


class Lost(msgspec.Struct, frozen=True):
    """A message that is not kept any more, or cannot be decoded, and why."""

    reason: str


UNDECODABLE = Lost("it is kept, but this version cannot decode it")


class Lookups:
    """Lookups on one connection."""

    def __init__(self, client: BusClient) -> None:
        self.client = client
        self._api = JetStream(client)

    async def head(self, subject: str) -> Head | None:
        """See `cotenant.log.contract.Log`."""
        what = f"the last message of {subject}"
        if self.client.api == NODES_API:
            # A node may not ask the leader. A replica that is behind returns an older message: what is written with its
            # sequence is refused, and looked up again.
            return await self._head(what, self._last_on_a_replica(subject))
        return await self._head(what, self._api.last(LOG, subject))

    async def _last_on_a_replica(self, subject: str) -> StoredMessage | None:
        message = await last_message(self.client, subject)
        if message is None:
            return None
        _, sequence, block, data = message
        return StoredMessage(sequence, subject, parse_headers(block), data)

    async def next_head(self, subject: str, after: int) -> Head | None:
        """See `cotenant.log.contract.Log`."""
        return await self._head(f"the message of {subject} behind {after}", self._api.next(LOG, subject, after))

    async def _head(self, what: str, asking: Awaitable[StoredMessage | None]) -> Head | None:
        message = await self._answer(what, asking)
        if message is None:
            return None
        headers = message.headers
        return Head(message.sequence, id_of(message), is_tombstone(headers), replaces=REPLACES in headers)

    async def get(self, stream: str, sequence: int) -> Event | None:
        """See `cotenant.log.contract.Log`."""
        message = await self._answer(f"{stream}:{sequence}", self._api.get(stream, sequence))
        return self._decoded(stream, message)

    async def _answer(self, what: str, asking: Awaitable[StoredMessage | None]) -> StoredMessage | None:
        try:
            return await asking
        except (BusError, *API_ERRORS) as error:
            raise LogUnavailableError(f"{what}: {type(error).__name__}: {error}") from error

    def _decoded(self, stream: str, message: StoredMessage | None) -> Event | None:
        if message is None:
            return None
        try:
            return event_of(stream, message.subject, message.sequence, message.data, message.headers)
        except EventError:
            return None

    async def last_known(self, subject: str) -> Event | None:
        """Return the last message of a subject of LOG; from HISTORY where LOG holds none any more, so that it is a tombstone or
        was fleeting. None where there is none, or it cannot be decoded. Raises LogUnavailableError."""
        for stream in (LOG, HISTORY):
            message = await self._answer(f"the last message of {subject}", self._api.last(stream, subject))
            if message is not None:
                return self._decoded(stream, message)
        return None

    async def last_execution(self, node: str, topic: str) -> Event | None:
        """Return a node's last action of a topic, as long as EXECUTION keeps it. Raises LogUnavailableError."""
        subject = execution_subject(node, topic)
        message = await self._answer(f"the last message of {subject}", self._api.last(EXECUTION, subject))
        return self._decoded(EXECUTION, message)

    async def find(self, ref: str) -> Event | Lost:
        """Return the event that a cause names (`LOG:123`), from HISTORY where LOG lost it; else why there is none."""
        stream, _, number = ref.partition(":")
        if not (number.isascii() and number.isdigit()) or stream not in (LOG, USAGE, EXECUTION):
            return Lost(f"{ref} is no reference to a message")
        message = await self._answer(ref, self._api.get(stream, int(number)))
        if message is not None:
            return self._decoded(stream, message) or UNDECODABLE
        return await self._find_in_history(int(number)) if stream == LOG else Lost(f"no longer kept in {stream}")

    async def _find_in_history(self, wanted: int) -> Event | Lost:
        """Search each part of HISTORY in which its own sequences grow with those of LOG, which its messages carry, by halves,
        the newest part first. Some 20 reads a part, and a few for what is older than all of it. The messages read on the way
        need not be events that this version knows."""
        state = await self._api.state(HISTORY)
        low, high = max(state.first_seq, 1), state.last_seq
        oldest = await self._history_from(low)
        if oldest is None:
            return Lost("no longer kept in LOG, and HISTORY holds nothing")
        begins = origin_sequence(oldest.headers, oldest.sequence)
        marks = await self._identities(low)
        newest = newest_run(marks)
        once = newest == 0 and (not marks or marks[0].sequence >= begins)
        if once and wanted < begins:
            return Lost(f"older than what HISTORY keeps, which begins at {LOG}:{begins}")
        for part in range(len(marks), -1, -1):
            first = marks[part - 1].at if part else low
            message = await self._halve(wanted, first, high)
            if message is not None:
                found = self._decoded(HISTORY, message)
                if not marks or part > newest or (found is not None and is_of(found, marks[newest].created)):
                    return found or UNDECODABLE
            high = first - 1
        return Lost("no longer kept in LOG, and missing in HISTORY")

    async def _history_from(self, sequence: int) -> StoredMessage | None:
        """Return the first message of HISTORY at a sequence of its own, or behind it."""
        return await self._answer(f"{HISTORY}:{sequence}", self._api.next(HISTORY, ">", sequence - 1))

    async def _halve(self, wanted: int, low: int, high: int) -> StoredMessage | None:
        while low <= high:
            middle = (low + high) // 2
            message = await self._history_from(middle)
            if message is None or message.sequence > high:  # what was there is removed
                high = middle - 1
                continue
            sequence = origin_sequence(message.headers, message.sequence)
            if sequence == wanted:
                return message
            low, high = (message.sequence + 1, high) if sequence < wanted else (low, middle - 1)
        return None

    async def _identities(self, first: int) -> list[Mark]:
        """LOG's identities in HISTORY: after a restore HISTORY copies LOG again from its beginning, where its identity is."""
        found: list[Mark] = []
        after = first - 1
        while len(found) < MOST_IDENTITIES:
            message = await self._answer("the identity of LOG", self._api.next(HISTORY, LOG_IDENTITY, after))
            event = self._decoded(HISTORY, message)
            if message is None or event is None or not isinstance(event.data, LogDeclared):
                break
            after = message.sequence
            found.append(Mark(after, event.sequence, event.data.created))
        return found
