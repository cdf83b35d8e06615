"""The log on NATS JetStream.

In: a server's address. Out: `NatsLog`, which implements `cotenant.log.contract`: writing (`publishing`), reading
(`reader`), single messages (`lookups`), and dead letters (on EXECUTION).

While a replicated stream has no leader, the servers refuse writes at once: they are sent again until it has one.

Bounds: ANSWER_SECONDS for an answer; NO_LEADER_SECONDS for a leader; SILENT_SECONDS for a read.
Over 300 lines: one class on one connection, whose methods are a few lines each.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from nats.errors import NoRespondersError
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential_jitter,
)

from cotenant.events.commits import LogDeclared
from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import Event, encode_event
from cotenant.log.contract import (
    LOG,
    MAX_BATCH,
    LogIdentity,
    LogSpace,
    NoAnswer,
    Refused,
    Stored,
    Write,
)
from cotenant.log.nats.access import NOBODY, Access
from cotenant.log.nats.confined import identity, leaders_end_beyond
from cotenant.log.nats.connecting import connected
from cotenant.log.nats.consumer import PULL_BATCH
from cotenant.log.nats.declaring import StreamSettings, check_streams, declare, wanted_of
from cotenant.log.nats.jetstream import ANSWER_SECONDS, API_ERRORS, BOUND, EXTENDED, BusError, is_no_space
from cotenant.log.nats.lookups import Lookups, id_of
from cotenant.log.nats.publishing import Ack, Message, drained, header_lines, send
from cotenant.log.nats.reader import LEAST_LATE_SECONDS, NatsReader
from cotenant.log.nats.republished import RepublishedReader
from cotenant.log.nats.streams import MAX_MESSAGE_BYTES, StreamSizes
from cotenant.log.nats.wire import BusClient
from cotenant.log.traces import about
from cotenant.model.subjects import LOG_IDENTITY
from cotenant.model.trace_context import found_in

logger = logging.getLogger(__name__)

CONNECTION_LOOK_SECONDS = 0.05
TRY_PAUSES_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Pauses before each further try of an unanswered write; the last one is repeated."""
NO_LEADER_SECONDS = 15.0
"""Followers begin an election 4 to 9 s after they last heard of their leader (nats-server 2.15)."""
_WRONG_SEQUENCE = {10071, 10164}
LISTEN_SECONDS = 0.5
SILENT_SECONDS = 60.0
"""How long `read_all` waits for the next message or heartbeat."""
REFUSALS = ("sequence", "no_space", "too_large", "no_answer", "other")
"""Why a write is not stored: its expectation failed, LOG or its disk is full, a message is too large, no answer."""


class NatsLog(Lookups):
    """`cotenant.log.contract.Log` on a NATS connection. Make one with `connect`."""

    def __init__(self, client: BusClient, service: str, access: Access = NOBODY) -> None:
        super().__init__(client)
        self.service = service
        self.access = access
        """What the connection was made with."""
        self.unknown_types = 0
        self.dead_letters = 0
        self.refused = dict.fromkeys(REFUSALS, 0)
        """Writes that were not stored, or whose outcome is unknown, by reason."""
        self.longest_ttl_seconds = 0
        """For tests and benchmarks: no tombstone stays longer, whatever its TTL; 0: no limit. Start markers are left
        alone: a process whose marker expires before it is delivered never ends its load."""
        self.on_dead_letter: Callable[[], None] = lambda: None

    async def declare(
        self, wanted: Mapping[str, StreamSettings] | None = None, *, replicas: int = 0, sizes: StreamSizes | None = None
    ) -> list[str]:
        """Declare the streams as an administrator does; returns the changes, a line each. See
        `cotenant.log.nats.declaring`. `replicas` and `sizes` are short forms of `wanted`."""
        return await declare(self._api, wanted if wanted is not None else wanted_of(replicas, sizes))

    async def store_identity(self) -> None:
        """Store LOG's identity, for nodes, which cannot read the stream's. Raises BusError, API_ERRORS."""
        info = await self._api.info(LOG)
        known = await self._api.last(LOG, LOG_IDENTITY)
        data = LogDeclared(created=info.created)
        event = Event(subject=LOG_IDENTITY, data=data, id=f"streams/{info.created}", source="/cotenant/streams")
        if known is None or id_of(known) != event.id:
            outcome = await self.append([Write(event=event)])
            if not isinstance(outcome, Stored):
                raise BusError(f"the identity of LOG was not stored: {outcome.reason}")

    async def differences(self, wanted: Mapping[str, StreamSettings]) -> list[str]:
        """Return the changes that `declare` would make, without making them."""
        return await declare(self._api, wanted, dry_run=True)

    async def check_streams(self) -> None:
        """See `cotenant.log.contract.Declared`. Raises BusError, API_ERRORS."""
        await self.client.shared("check_streams", partial(check_streams, self.client))

    # -- writing -------------------------------------------------------------------------------------------------

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """See `cotenant.log.contract.Log`."""
        outcome = await self._append(writes)
        if not isinstance(outcome, Stored):
            self.refused[_reason(outcome)] += 1
        return outcome

    async def _append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        if not 0 < len(writes) <= MAX_BATCH:
            raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(writes)}")
        messages: list[Message] = []
        for write in writes:
            event = write.event
            body = encode_event(event)
            if len(body) > MAX_MESSAGE_BYTES:
                text = f"{event.subject} is {len(body)} bytes; at most {MAX_MESSAGE_BYTES}"
                return Refused(text, wrong_sequence=False, too_large=True)
            messages.append((event.subject, header_lines(write, self.longest_ttl_seconds), body))
        try:
            ack = await self._send(messages)
        except API_ERRORS as error:
            return NoAnswer(f"{type(error).__name__}: {error}")
        if ack.error is not None:
            if ack.error.is_passing:
                return NoAnswer(ack.error.description)
            return Refused(
                ack.error.description,
                wrong_sequence=ack.error.err_code in _WRONG_SEQUENCE,
                no_space=is_no_space(ack.error),
            )
        return Stored(ack.seq - len(writes) + 1, ack.seq, ack.duplicate)

    async def _until_connected(self) -> None:
        """Wait for the connection, at most ANSWER_SECONDS. The client's own state is asked: its callbacks can overtake."""
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while not self.client.is_connected:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError("not connected to the server")
            await asyncio.sleep(CONNECTION_LOOK_SECONDS)

    async def _send(self, messages: Sequence[Message]) -> Ack:
        if self.client.is_connected:
            try:
                return await send(self.client, messages)
            except NoRespondersError:
                if len(self.client.servers) <= 1:
                    raise
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(NoRespondersError),
            wait=wait_exponential_jitter(multiplier=0.02, max=0.25),
            # A single server has no elections: without a listener there is no stream.
            stop=stop_after_delay(NO_LEADER_SECONDS) if len(self.client.servers) > 1 else stop_after_attempt(1),
            reraise=True,
        ):
            with attempt:
                if not self.client.is_connected:
                    await self._until_connected()
                return await send(self.client, messages)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def publish(self, event: Event) -> int | None:
        """See `cotenant.log.contract.Log`."""
        try:
            lines = header_lines(Write(event=event, message_id=event.id))
            ack = await self._send([(event.subject, lines, encode_event(event))])
        except API_ERRORS as error:
            self.refused["no_answer"] += 1
            logger.warning("not confirmed on %s: %s: %s", event.subject, type(error).__name__, error, extra=about(event))
            return None
        if ack.error is not None:
            self.refused["no_space" if is_no_space(ack.error) else "other"] += 1
            logger.warning("refused on %s: %s", event.subject, ack.error.description, extra=about(event))
            return None
        return ack.seq

    async def pause(self, number: int) -> None:
        """See `cotenant.log.contract.Pausing`."""
        await asyncio.sleep(TRY_PAUSES_SECONDS[min(number, len(TRY_PAUSES_SECONDS) - 1)])

    async def drained(self, subject: str) -> None:
        """See `cotenant.log.contract.Draining`."""
        try:
            await drained(self.client, subject)
        except API_ERRORS as error:
            logger.debug("%s cannot be flushed: %s: %s", LOG, type(error).__name__, error)

    # -- reading -------------------------------------------------------------------------------------------------

    async def identity(self, subject: str, known_to: int = 0) -> LogIdentity:
        """See `cotenant.log.contract.Identified`."""
        return LogIdentity(await identity(self.client), await leaders_end_beyond(self.client, subject, known_to))

    async def first_sequence(self, stream: str) -> int:
        """Return the sequence of the first message that the stream still holds; the one behind its last where it holds none."""
        return (await self._api.state(stream)).first_seq

    async def space(self) -> LogSpace:
        """See `cotenant.log.contract.Bounded`."""
        info = await self._api.info(LOG)
        return LogSpace(info.state.bytes, info.bound, info.limits.max_msgs_per_subject, info.extended, info.enforced)

    async def keep_versions(self, count: int) -> None:
        """See `cotenant.log.contract.Bounded`."""
        await self._api.change_limits(LOG, max_msgs_per_subject=count)

    async def extend(self, extra_bytes: int) -> None:
        """See `cotenant.log.contract.Bounded`."""
        info = await self._api.info(LOG)
        if info.bound and info.extended != extra_bytes:
            metadata = {**info.config.get("metadata", {}), EXTENDED: str(extra_bytes)}
            await self._api.change(info, max_bytes=info.bound + extra_bytes, metadata=metadata)

    async def enforce(self, enforced: bool) -> None:
        """See `cotenant.log.contract.Bounded`."""
        info = await self._api.info(LOG)
        if info.bound and info.enforced != enforced:
            metadata = {**info.config.get("metadata", {}), BOUND: str(info.bound)}
            await self._api.change(info, max_bytes=info.bound if enforced else -1, metadata=metadata)

    async def last_sequence(self, stream: str) -> int:
        """Return the sequence of the stream's last message."""
        return (await self._api.state(stream)).last_seq

    async def purge(self, stream: str, filter_subject: str, *, keep: int = 0) -> None:
        """Remove messages as an operator can."""
        await self._api.purge(stream, filter_subject, keep)

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None) -> NatsReader:
        """See `cotenant.log.contract.Log`."""
        reader = NatsReader(self.client, self, stream, tuple(filters), after)
        if self.longest_ttl_seconds:
            reader.late_seconds = max(self.longest_ttl_seconds / 2, LEAST_LATE_SECONDS)
        await reader.open()
        return reader

    async def follow_republished(self, selected: str, *, after: int | None = None) -> RepublishedReader:
        """See `cotenant.log.contract.Log`."""
        reader = RepublishedReader(self.client, self, selected, after)
        await reader.open()
        return reader

    async def add_dead_letter(
        self, stream: str, subject: str, sequence: int, reason: str, raw: bytes, writer: str = ""
    ) -> None:
        """Store an unusable message on EXECUTION, with the reason; the reader continues."""
        self.dead_letters += 1
        self.on_dead_letter()
        extra = {"traceparent": found_in(raw)}
        logger.warning("dead letter %s:%d on %s: %s", stream, sequence, subject, reason, extra=extra)
        await self.publish(make_dead_letter(stream, subject, sequence, reason, raw, datetime.now(UTC), self.service, writer))

    async def close(self) -> None:
        """Send what is pending and close the connection."""
        if not self.client.is_closed:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.client.drain()
            except API_ERRORS:
                await self.client.close()


def _reason(outcome: Refused | NoAnswer) -> str:
    if isinstance(outcome, NoAnswer):
        return "no_answer"
    if outcome.no_space:
        return "no_space"
    if outcome.too_large:
        return "too_large"
    return "sequence" if outcome.wrong_sequence else "other"


async def connect(url: str, service: str, access: Access = NOBODY) -> NatsLog:
    """Connect, trying forever (the server may start later than the service), and reconnect forever. `url` names one server,
    or several with commas between. Raises AccessError for credentials that cannot be used."""
    return NatsLog(await connected(url, service, access), service, access)


async def read_all(log: NatsLog, stream: str, filters: Sequence[str], *, after: int = 0) -> list[Event]:
    """Return all decodable events behind a sequence up to the stream's end now, in order. Raises BusError if the server stops
    answering.

    Meant for replay, not for services: it holds them all.
    """
    until = await log.last_sequence(stream)
    if until <= after:
        return []
    reader = await log.follow(stream, filters, after=after)
    try:
        return [event async for events in read_up_to(reader, until) for event in events]
    finally:
        await reader.close()


async def read_up_to(reader: NatsReader, until: int) -> AsyncIterator[Sequence[Event]]:
    """Yield what a reader receives until nothing up to a sequence is missing. Raises BusError if nothing new is heard for
    SILENT_SECONDS: a pull without events says nothing about the end, as a server on a crowded machine may take seconds."""
    reader.loaded()
    reader.max_behind = 0
    heard_at, through = time.monotonic(), reader.scanned
    while through < until:
        yield await reader.pull(PULL_BATCH, LISTEN_SECONDS)
        now = time.monotonic()
        if reader.scanned > through:
            heard_at, through = now, reader.scanned
        elif now - heard_at > SILENT_SECONDS:
            raise BusError(f"{reader.stream}: nothing was heard for {now - heard_at:.0f} s; read up to {through} of {until}")
