"""Reading LOG with a node's permissions: the subject of every request names its target.

In: the one filter of a node, `node.<node>.>`. Out: LOG's identity, its end, and its messages about the node, in order.
STREAM.INFO and direct gets of several messages name their target in the body, which nats-server's permissions do not cover, so
a node's credentials do not allow them. Instead:

- the identity of LOG is the last message of LOG_IDENTITY, which `cotenant admin streams` stores (without credentials it is
  read from the stream);
- its end comes from a message that the leader must refuse: the refusal names the sequence that it should have expected;
- whether there are new messages, from a direct get of the filter: the last message that it selects;
- the messages, from a consumer whose name and filter are part of the subject that creates it. It lives as long as one read.

A consumer delivers in order, from the log of one replica, so it delivers a prefix. It is read until it has passed a
position: by a delivery, or by a heartbeat, which names the last sequence that it scanned. A replica that is behind does
not reach it, and the read is repeated. The consumer begins at a sequence, never at `last_per_subject` (see `snapshot`).

Readers of one connection share answers about LOG as a whole (`BusClient.shared`).

Bounds: one read at a time for a node, READS_AT_ONCE for a connection (others wait before they ask); SILENCE_SECONDS without a
message, READ_SECONDS, `limit` messages and
MAX_GET_BYTES (and one message); TRIES reads for a load.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter

from cotenant.events.commits import LogDeclared
from cotenant.log.contract import LOG, Behind, LogIdentity
from cotenant.log.nats.access import NODES_API
from cotenant.log.nats.consumer import Gap, PullConsumer
from cotenant.log.nats.direct import MAX_GET_BYTES, Message, server_header
from cotenant.log.nats.frames import inline_status
from cotenant.log.nats.jetstream import (
    ANSWER_SECONDS,
    API_ERRORS,
    CATCH_UP_LOOK_SECONDS,
    CATCH_UP_SECONDS,
    BusError,
    JetStream,
    JetStreamError,
)
from cotenant.log.nats.streams import REPUBLISHED_PREFIX
from cotenant.log.nats.wire import BusClient
from cotenant.model.subjects import LOG_IDENTITY

READS_AT_ONCE = 8
"""More would wait at the server, and a slow one would answer none of them in time."""
READ_SECONDS = 10.0
SILENCE_SECONDS = 3.0
HEARTBEAT_SECONDS = 0.05
PAGE_MESSAGES = 1000
TRIES = 20
_ABSURD = b"Nats-Expected-Last-Sequence: 1152921504606846976\r\n"
"""A sequence that no stream reaches."""
_WRONG_LAST_SEQUENCE = 10071
ADVISORIES = f"$JS.EVENT.ADVISORY.STREAM.*.{LOG}"
"""Advisories that LOG was created, changed or removed, or has a new leader."""
_ADVISORY = b'{"type":"io.nats.jetstream.advisory.'


class _Refusal(msgspec.Struct):
    error: JetStreamError | None = None


class _Identity(msgspec.Struct):
    data: LogDeclared


class Page(msgspec.Struct, frozen=True):
    """Some messages in order, and what remains."""

    messages: tuple[Message, ...]
    position: int
    """Everything up to here was scanned."""
    pending: int
    """How many are left, according to the replica."""


async def leaders_end(client: BusClient, subject: str) -> int:
    """Return the sequence of LOG's last message. `subject`: one of LOG that the caller may write to; nothing is stored. Raises
    BusError, API_ERRORS."""
    return await client.shared("leaders_end", partial(_leaders_end, client, subject))


async def _leaders_end(client: BusClient, subject: str) -> int:
    answer = await client.ask(subject, _ABSURD, b"", seconds=ANSWER_SECONDS)
    error = msgspec.json.decode(answer, type=_Refusal).error
    if error is None or error.err_code != _WRONG_LAST_SEQUENCE:
        raise BusError(f"LOG does not report its end: {error.description if error else 'it stored what it should refuse'}")
    return int(error.description.rpartition(" ")[2])


async def leaders_end_beyond(client: BusClient, subject: str, known: int) -> int:
    """Return the same, at least the sequence already read. The new leader of a replicated LOG may report less for a moment:
    it is asked again for CATCH_UP_SECONDS."""
    deadline = asyncio.get_running_loop().time() + CATCH_UP_SECONDS
    end = await leaders_end(client, subject)
    while end < known and len(client.servers) > 1 and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(CATCH_UP_LOOK_SECONDS)
        end = await leaders_end(client, subject)
    return end


async def last_message(client: BusClient, selected: str) -> Message | None:
    """Return the last message of LOG that a subject or a filter selects, from any replica. Raises BusError,
    API_ERRORS."""
    block, data = await client.ask_whole(f"{client.api}.DIRECT.GET.{LOG}.{selected}", b"", b"", seconds=ANSWER_SECONDS)
    status = inline_status(block)
    if status == "404":
        return None
    if status:
        line = block.split(b"\r\n", 1)[0].decode(errors="replace")
        raise BusError(f"the last message of {selected} cannot be read: {line}")
    return server_header(block, b"Nats-Subject"), int(server_header(block, b"Nats-Sequence")), block, data


async def identity(client: BusClient) -> str:
    """Return when LOG was created. A node reads the stored identity; other clients ask the stream. Raises
    BusError, API_ERRORS."""
    return await client.shared("identity", partial(_identity, client))


async def _identity(client: BusClient) -> str:
    if client.api != NODES_API:
        return (await JetStream(client).info(LOG)).created
    message = await last_message(client, LOG_IDENTITY)
    if message is None:
        raise BusError(f"LOG holds no identity ({LOG_IDENTITY}): run `cotenant admin streams`")
    return msgspec.json.decode(message[3], type=_Identity).data.created


def is_advisory(block: bytes, data: bytes) -> bool:
    """Return whether a message on ADVISORIES is one: a client's request may have this subject for its answer."""
    return not block and data.startswith(_ADVISORY)


class NodeReads:
    """Reads of one node's messages on LOG."""

    def __init__(self, client: BusClient, selected: str) -> None:
        """`selected`: `node.<node>.>`."""
        family, self.token, rest = selected.split(".")
        if (family, rest) != ("node", ">"):
            raise ValueError(f"{selected}: expected node.<node>.>")
        self._client = client
        self._selected = selected
        self.own = f"node.{self.token}.executor"
        """A subject that the node may write to."""
        self._republished = (REPUBLISHED_PREFIX + selected.removesuffix(">")).encode()

    def republished(self, subject: bytes, block: bytes) -> tuple[int, int, bytes]:
        """Return the sequence of a message of the node that LOG republished, the one before it on its subject, and that
        subject. Raises ValueError for anything else.

        A client that requests a message chooses the reply subject, which could be that of a republished one. Such a message has
        another subject, or a header names another one.
        """
        stored = subject[len(REPUBLISHED_PREFIX) :]
        sequence, before = int(server_header(block, b"Nats-Sequence")), int(server_header(block, b"Nats-Last-Sequence"))
        if not subject.startswith(self._republished) or server_header(block, b"Nats-Subject") != stored:
            raise ValueError(f"{subject!r} is not a message that LOG republished")
        return sequence, before, stored

    async def last(self) -> int:
        """Return the sequence of the node's last message on some replica, 0 where there is none."""
        async with self._client.few_at_a_time("node reads", READS_AT_ONCE):
            message = await last_message(self._client, self._selected)
        return 0 if message is None else message[1]

    async def page(self, after: int, until: int, limit: int = PAGE_MESSAGES) -> Page:
        """Return the node's messages behind a sequence, at most `limit`, or up to `until` at least. Raises Gap, BusError,
        API_ERRORS."""
        name = f"node-{self.token}"
        reads = self._client.few_at_a_time("node reads", READS_AT_ONCE)
        async with self._client.one_at_a_time(name), reads, asyncio.timeout(READ_SECONDS):
            consumer = PullConsumer(
                self._client, JetStream(self._client), LOG, (self._selected,), name=name, heartbeat=HEARTBEAT_SECONDS
            )
            consumer.pull_bytes = MAX_GET_BYTES
            try:
                await consumer.open(after + 1)
                return await self._read(consumer, after, until, limit)
            finally:
                await consumer.close()

    async def _read(self, consumer: PullConsumer, after: int, until: int, limit: int) -> Page:
        messages: list[Message] = []
        position, pending, size = after, 0, 0
        while position < until and len(messages) < limit and size < MAX_GET_BYTES:
            if not consumer.queue:
                consumer.arrived.clear()
                await consumer.ask()
                async with asyncio.timeout(SILENCE_SECONDS):
                    await consumer.arrived.wait()
                continue
            subject, reply, block, data = consumer.queue.popleft()
            if not reply.startswith(b"$JS.ACK."):
                consumer.read_status(block)
                position = max(position, consumer.passed)
                continue
            _, number, delivery, _, left = reply.rsplit(b".", 4)
            consumer.count(int(delivery))
            position, pending = int(number), int(left)
            size += len(data)
            messages.append((subject, position, block, data))
        return Page(tuple(messages), position, pending)


class NodeSnapshot:
    """One load of a node: the last message of each of its subjects at `through`; `begin` once, then `take` until nothing comes.
    Younger messages are left to the follower."""

    def __init__(self, client: BusClient, reads: NodeReads) -> None:
        self._client = client
        self._reads = reads
        self._chunk: deque[Message] | None = None
        self.through = 0

    async def begin(self) -> LogIdentity:
        """Return LOG's identity and the leader's end, at which `through` is fixed. Raises BusError, API_ERRORS."""
        created = await identity(self._client)
        self.through = await leaders_end(self._client, self._reads.own)
        return LogIdentity(created, self.through)

    async def take(self, limit: int) -> list[Message]:
        """Return the next messages in order, at most `limit`; none at the end. Raises Behind if they cannot be read."""
        if self._chunk is None:
            self._chunk = deque(sorted((await self._load()).values(), key=lambda message: message[1]))
        return [self._chunk.popleft() for _ in range(min(limit, len(self._chunk)))]

    async def _load(self) -> dict[bytes, Message]:
        found: dict[bytes, Message] = {}
        after = 0
        while after < self.through:
            page = await self._page(after)
            found.update({message[0]: message for message in page.messages if message[1] <= self.through})
            after = page.position
        return found

    async def _page(self, after: int) -> Page:
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type((Gap, BusError, *API_ERRORS)),
                wait=wait_exponential_jitter(multiplier=0.02, max=1.0),
                stop=stop_after_attempt(TRIES),
                reraise=True,
            ):
                with attempt:
                    return await self._reads.page(after, self.through)
        except (Gap, BusError, *API_ERRORS) as error:
            raise Behind(f"the load broke off: {type(error).__name__}: {error}") from error
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def close(self) -> None:
        """Nothing is in progress between two calls of `take`."""
