"""The log on NATS JetStream.

Writing: an atomic batch is published at once and only its last message asks for the answer. Reading: a pull consumer without
acknowledgements; every delivery carries the consumer's own sequence, which must be contiguous. A gap, a lost heartbeat or a
reconnect (a killed server loses the consumer) makes the reader create a new consumer behind the last delivered message; too
far behind, it raises Behind, and its owner starts over with a fresh core.

Pulls use `expires` and `idle_heartbeat`, never `no_wait`, and pending counts are not trusted: both mislead after purges.

Bounds: one pull of PULL_BATCH messages under way, and so no more undelivered in the client; ANSWER_SECONDS for an answer;
reconnection for ever with at most RECONNECT_SECONDS between tries.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import Any, TypeVar

import msgspec
import nats
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential_jitter

from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import (
    WHOLE,
    Event,
    EventError,
    MessageDecoders,
    UnknownEventTypeError,
    View,
    decode_event,
    encode_event,
)
from cotenant.log import (
    EXECUTION,
    HISTORY,
    LOG,
    MAX_BATCH,
    MAX_BEHIND,
    TOMBSTONE_TTL_SECONDS,
    USAGE,
    Behind,
    Head,
    NoAnswer,
    Refused,
    Stored,
    Write,
)
from cotenant.streams import MAX_MESSAGE_BYTES, stream_configs
from cotenant.subjects import selecting
from cotenant.wire import BusClient, frame, inline_status, parse_headers

logger = logging.getLogger(__name__)

PULL_BATCH = 1000
PULL_EXPIRES_SECONDS = 5.0
# A lost last message is noticed at the next heartbeat. Ten a second and reader would be most of what a stack at rest costs.
HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS = 3.0
ANSWER_SECONDS = 5.0
BATCH_ID_BYTES = 9
RECONNECT_SECONDS = 2.0
CONNECTION_LOOK_SECONDS = 0.05
INACTIVE_SECONDS = 60
MANY_FILTERS = 10
"""From so many filters on, a reader takes the whole stream and selects by itself: a consumer with many filters that is behind
costs the server many times what the messages left out cost."""
MAX_BEHIND_UNFILTERED = 200_000
"""`MAX_BEHIND` for such readers, whom catching up costs no more than reading along."""
AWAY_SECONDS = TOMBSTONE_TTL_SECONDS / 2
"""A reader of LOG that heard nothing for longer starts over: tombstones of what it knows may have run out meanwhile."""
_WRONG_SEQUENCE = {10071, 10164}
_API_ERRORS = (nats.errors.Error, TimeoutError, OSError)

Headers = dict[str, str]
T = TypeVar("T")


def boot_seconds() -> float:
    """Time that also passes while the process is stopped or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class BusError(RuntimeError):
    """The server refused what a bus needs; the text says what and why."""


class _ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Ack(msgspec.Struct):
    seq: int = 0
    error: _ApiError | None = None


class _ApiAnswer(msgspec.Struct):
    error: _ApiError | None = None


class _StoredMessage(msgspec.Struct):
    seq: int
    subject: str = ""
    data: str = ""
    hdrs: str = ""


class _GetAnswer(msgspec.Struct):
    message: _StoredMessage | None = None
    error: _ApiError | None = None


class _IdOnly(msgspec.Struct):
    id: str = ""


class _State(msgspec.Struct):
    first_seq: int = 0
    last_seq: int = 0


class _StreamInfo(msgspec.Struct):
    state: _State = msgspec.field(default_factory=_State)
    error: _ApiError | None = None


_ACK = msgspec.json.Decoder(_Ack)
_ID = msgspec.json.Decoder(_IdOnly)


def _header_lines(event: Event, expected: int | None = None) -> bytes:
    """Return the lines that say what a message is, and what it expects of its subject."""
    lines = b"" if expected is None else b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % expected
    if event.tombstone:
        lines += b"Nats-Rollup: sub\r\n"
    if event.ttl_seconds:
        lines += b"Nats-TTL: %ds\r\n" % event.ttl_seconds
    return lines


def _ttl_seconds(headers: Headers) -> int:
    text = headers.get("Nats-TTL", "").removesuffix("s")
    return int(text) if text.isdigit() else 0


def _origin_sequence(headers: Headers, own: int) -> int:
    """Return the LOG sequence of a message that HISTORY took over: second word of the source header."""
    words = headers.get("Nats-Stream-Source", "").split(" ")
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else own


def _decode(
    stream: str, subject: str, sequence: int, data: bytes, headers: Headers, decoders: MessageDecoders = WHOLE
) -> Event:
    """Return the event of a message. What HISTORY holds is told as what it is: a message of LOG, with its sequence there."""
    return decode_event(
        data,
        subject=subject,
        stream=LOG if stream == HISTORY else stream,
        sequence=_origin_sequence(headers, sequence) if stream == HISTORY else sequence,
        tombstone=headers.get("Nats-Rollup") == "sub",
        ttl_seconds=_ttl_seconds(headers),
        decoders=decoders,
    )


class NatsLog:
    """`cotenant.log.Log` on a NATS connection. Make one with `connect`."""

    def __init__(self, client: BusClient, service: str) -> None:
        self.client = client
        self.service = service
        self.unknown_types = 0
        self.dead_letters = 0
        self.on_dead_letter: Callable[[], None] = lambda: None

    # -- declaring -----------------------------------------------------------------------------------------------

    async def declare(self, *, replicas: int = 1, history_bytes: int = 1 << 30) -> None:
        """Create the four streams, or bring their limits up to date. Safe to call from every service at once."""
        for config in stream_configs(replicas=replicas, history_bytes=history_bytes):
            name = config["name"]
            answer = await self._api(f"STREAM.CREATE.{name}", config, _ApiAnswer)
            if answer.error is not None and answer.error.err_code == 10058:
                answer = await self._api(f"STREAM.UPDATE.{name}", config, _ApiAnswer)
            if answer.error is not None:
                raise BusError(f"stream {name} cannot be declared: {answer.error.description}")

    async def _api(self, subject: str, body: dict[str, Any], kind: type[T]) -> T:
        reply = await self.client.request(f"$JS.API.{subject}", msgspec.json.encode(body), timeout=ANSWER_SECONDS)
        return msgspec.json.decode(reply.data, type=kind)

    # -- writing -------------------------------------------------------------------------------------------------

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        """See `cotenant.log.Log`."""
        if not 0 < len(writes) <= MAX_BATCH:
            raise ValueError(f"a batch holds 1 to {MAX_BATCH} messages, not {len(writes)}")
        messages: list[tuple[str, bytes, bytes]] = []
        for write in writes:
            event = write.event
            body = encode_event(event)
            if len(body) > MAX_MESSAGE_BYTES:
                return Refused(f"{event.subject} is {len(body)} bytes; at most {MAX_MESSAGE_BYTES}", wrong_sequence=False)
            messages.append((event.subject, _header_lines(event, write.expected), body))
        try:
            ack = await self._send(messages)
        except _API_ERRORS as error:
            return NoAnswer(f"{type(error).__name__}: {error}")
        if ack.error is not None:
            return Refused(ack.error.description, wrong_sequence=ack.error.err_code in _WRONG_SEQUENCE)
        return Stored(ack.seq - len(writes) + 1, ack.seq)

    async def _until_connected(self) -> None:
        """Wait for the connection, at most ANSWER_SECONDS. The client's own state is asked: its callbacks can overtake."""
        deadline = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while not self.client.is_connected:
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError("not connected to the server")
            await asyncio.sleep(CONNECTION_LOOK_SECONDS)

    async def _send(self, messages: Sequence[tuple[str, bytes, bytes]]) -> _Ack:
        if not self.client.is_connected:
            await self._until_connected()
        frames: list[bytes] = []
        subject, lines, body = messages[-1]
        if len(messages) > 1:
            batch = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: " % token_urlsafe(BATCH_ID_BYTES).encode()
            for index, (earlier, more, data) in enumerate(messages[:-1], start=1):
                frames.append(frame(earlier, b"", b"%b%d\r\n%b" % (batch, index, more), data))
            lines = b"%b%d\r\nNats-Batch-Commit: 1\r\n%b" % (batch, len(messages), lines)
        return _ACK.decode(await self.client.ask(subject, lines, body, seconds=ANSWER_SECONDS, before=frames))

    async def publish(self, event: Event) -> int | None:
        """See `cotenant.log.Log`."""
        try:
            ack = _ACK.decode(
                await self.client.ask(event.subject, _header_lines(event), encode_event(event), seconds=ANSWER_SECONDS)
            )
        except _API_ERRORS as error:
            logger.warning("not confirmed on %s: %s: %s", event.subject, type(error).__name__, error)
            return None
        if ack.error is not None:
            logger.warning("refused on %s: %s", event.subject, ack.error.description)
            return None
        return ack.seq

    async def drained(self, subject: str) -> None:
        """See `cotenant.log.Draining`: a message that the stream must refuse is answered when its turn comes."""
        try:
            await self.client.ask(subject, b"Nats-Expected-Stream: none\r\n", b"", seconds=ANSWER_SECONDS)
        except _API_ERRORS as error:
            logger.debug("%s cannot be told to be drained: %s: %s", LOG, type(error).__name__, error)

    # -- reading -------------------------------------------------------------------------------------------------

    async def head(self, subject: str) -> Head | None:
        """See `cotenant.log.Log`."""
        answer = await self._api(f"STREAM.MSG.GET.{LOG}", {"last_by_subj": subject}, _GetAnswer)
        message = answer.message
        if message is None:
            return None
        headers = parse_headers(base64.b64decode(message.hdrs))
        try:
            event_id = _ID.decode(base64.b64decode(message.data)).id
        except msgspec.DecodeError:
            event_id = ""
        return Head(message.seq, event_id, headers.get("Nats-Rollup") == "sub")

    async def get(self, stream: str, sequence: int) -> Event | None:
        """See `cotenant.log.Log`."""
        try:
            answer = await self._api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}, _GetAnswer)
        except _API_ERRORS:
            return None
        if answer.message is None:
            return None
        headers = parse_headers(base64.b64decode(answer.message.hdrs))
        try:
            return _decode(stream, answer.message.subject, answer.message.seq, base64.b64decode(answer.message.data), headers)
        except EventError:
            return None

    async def find(self, ref: str) -> Event | None:
        """Return the event that a cause names (`LOG:123`), from HISTORY where LOG no longer holds it; None if it is gone."""
        stream, _, number = ref.partition(":")
        if not number.isdigit() or stream not in (LOG, USAGE, EXECUTION):
            return None
        event = await self.get(stream, int(number))
        if event is not None or stream != LOG:
            return event
        return await self._find_in_history(int(number))

    async def _find_in_history(self, wanted: int) -> Event | None:
        """Search by halves: HISTORY's own sequences grow with those of LOG, and are never larger while nothing is lost."""
        state = (await self._api(f"STREAM.INFO.{HISTORY}", {}, _StreamInfo)).state
        low, high = max(state.first_seq, 1), state.last_seq
        while low <= high:
            middle = (low + high) // 2
            event = await self.get(HISTORY, middle)
            if event is None:
                return None
            if event.sequence == wanted:
                return event
            if event.sequence < wanted:
                low = middle + 1
            else:
                high = middle - 1
        return None

    async def last_sequence(self, stream: str) -> int:
        """Return the sequence of the stream's last message."""
        return (await self._api(f"STREAM.INFO.{stream}", {}, _StreamInfo)).state.last_seq

    async def purge(self, stream: str, filter_subject: str, *, keep: int = 0) -> None:
        """Remove messages as an operator can."""
        body: dict[str, Any] = {"filter": filter_subject}
        if keep:
            body["keep"] = keep
        await self._api(f"STREAM.PURGE.{stream}", body, _ApiAnswer)

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None, name: str = "") -> NatsReader:
        """See `cotenant.log.Log`. With `name` the consumer has that name (one replica at a time)."""
        reader = NatsReader(self, stream, tuple(filters), after, name)
        await reader.open()
        return reader

    async def dead_letter(self, stream: str, subject: str, sequence: int, reason: str, raw: bytes) -> None:
        """Keep what could not be used on EXECUTION, with the reason; the reader goes on."""
        self.dead_letters += 1
        self.on_dead_letter()
        logger.warning("dead letter %s:%d on %s: %s", stream, sequence, subject, reason)
        await self.publish(make_dead_letter(stream, subject, sequence, reason, raw, datetime.now(UTC), self.service))

    async def close(self) -> None:
        """Send what is pending and close the connection."""
        if not self.client.is_closed:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.client.drain()
            except _API_ERRORS:
                await self.client.close()


class NatsReader:
    """Follows one stream. Use `pull` from one task only."""

    def __init__(self, log: NatsLog, stream: str, filters: tuple[str, ...], after: int | None, name: str) -> None:
        self._log = log
        self._stream = stream
        self._filters = filters
        self._name = name
        self._consumer = ""
        self._inbox = ""
        self._subscription: Any = None
        self._queue: deque[tuple[bytes, bytes, bytes, bytes]] = deque()
        self._arrived = asyncio.Event()
        self._known: Callable[[int], bool] | None = None
        self._decoders = WHOLE
        self._consumer_sequence = 0
        self._asked = False
        self._wanted = 0
        self._heard = 0.0
        self._in_touch = 0.0
        """`boot_seconds` when something was heard, 0 before the first time."""
        self._resume = after
        self._loading = after is None
        self.position = after or 0
        self.max_behind = MAX_BEHIND
        self._selects: re.Pattern[bytes] | None = None
        if len(filters) >= MANY_FILTERS:
            self._selects = selecting(filters)
            self.max_behind = MAX_BEHIND_UNFILTERED
        self.reopened = 0

    async def open(self) -> None:
        """Create the consumer behind the last delivered message, or at the last message per subject when nothing was."""
        await self._forget()
        client = self._log.client
        self._consumer = self._name or f"c-{os.urandom(8).hex()}"
        config: dict[str, Any] = {
            "name": self._consumer,
            "ack_policy": "none",
            "inactive_threshold": INACTIVE_SECONDS * 1_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
            "max_waiting": 8,
        }
        if self._resume:
            await self._check_end(self._resume)
        if self._resume is None:
            config["deliver_policy"] = "last_per_subject"
        else:
            config["deliver_policy"] = "by_start_sequence"
            config["opt_start_seq"] = self._resume + 1
        suffix = ""
        if self._selects is not None:
            config["filter_subject"] = ">"
            suffix = ".>"
        elif len(self._filters) == 1:
            config["filter_subject"] = self._filters[0]
            suffix = f".{self._filters[0]}"
        else:
            config["filter_subjects"] = list(self._filters)
        body = {"stream_name": self._stream, "config": config}
        if self._name:
            # A named consumer of an earlier life stands elsewhere: its position is not ours.
            await self._log._api(f"CONSUMER.DELETE.{self._stream}.{self._name}", {}, _ApiAnswer)
        answer = await self._log._api(f"CONSUMER.CREATE.{self._stream}.{self._consumer}{suffix}", body, _ApiAnswer)
        if answer.error is not None:
            raise BusError(f"no consumer on {self._stream} for {', '.join(self._filters)}: {answer.error.description}")
        self._inbox = client.new_inbox()
        self._subscription = await client.subscribe(self._inbox)
        client.deliver_raw(self._subscription, self._on_message)
        self._consumer_sequence = 0
        self._asked = False
        self._heard = asyncio.get_running_loop().time()
        self._in_touch = self._in_touch or boot_seconds()

    def _check_touch(self) -> None:
        away = boot_seconds() - self._in_touch
        if self._stream == LOG and self._in_touch and away > AWAY_SECONDS:
            raise Behind(f"nothing was heard of {LOG} for {away:.0f} s")

    async def _check_end(self, resume: int) -> None:
        """A killed server may have lost the end of an asynchronous stream: go on from where it ends now.

        LOG is on disk before anybody is told; should its end be gone all the same, what was folded is not a state.
        """
        end = await self._log.last_sequence(self._stream)
        if end >= resume:
            return
        if self._stream == LOG:
            raise Behind(f"LOG ends at {end}, before {resume}, which was delivered")
        self.position = self._resume = end

    async def _forget(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._queue.clear()
        if subscription is not None:
            self._log.client.forget(subscription)
            try:
                await subscription.unsubscribe()
            except Exception as error:  # noqa: BLE001 - nats-py raises plain errors on a closed connection
                logger.debug("unsubscribe: %s", error)

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        self._queue.append((subject, reply, headers, data))
        self._arrived.set()

    async def _ask(self) -> None:
        body = {
            "batch": PULL_BATCH,
            "expires": int(PULL_EXPIRES_SECONDS * 1e9),
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
        }
        await self._log.client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}", msgspec.json.encode(body), reply=self._inbox
        )
        self._asked = True
        self._wanted = PULL_BATCH

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """See `cotenant.log.Reader`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            events: list[Event] = []
            self._check_touch()
            try:
                await self._take(events, limit)
            except (_Gap, *_API_ERRORS) as error:
                logger.info("%s: %s: %s; resuming behind %d", self._stream, type(error).__name__, error, self.position)
                await self._reopen()
                if not events:
                    continue
            remaining = deadline - loop.time()
            if events or remaining <= 0:
                return events
            self._arrived.clear()
            if self._queue:
                continue
            try:
                async with asyncio.timeout(min(remaining, SILENCE_SECONDS)):
                    await self._arrived.wait()
            except TimeoutError:
                if loop.time() - self._heard > SILENCE_SECONDS:
                    logger.info("%s: no heartbeat for %.1f s; resuming behind %d", self._stream, SILENCE_SECONDS, self.position)
                    await self._reopen()

    async def _take(self, events: list[Event], limit: int) -> None:
        """Move what has arrived into `events`; what is in there stays good when this raises."""
        queue = self._queue
        if queue:
            self._heard = asyncio.get_running_loop().time()
            self._in_touch = boot_seconds()
        while len(events) < limit:
            if not queue:
                if not self._asked:
                    await self._ask()
                break
            subject, reply, headers, data = queue.popleft()
            if not reply.startswith(b"$JS.ACK."):
                self._read_status(headers)
                continue
            # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>, more words with a domain.
            _, number, delivery, _, pending = reply.rsplit(b".", 4)
            sequence, consumer_sequence = int(number), int(delivery)
            if consumer_sequence != self._consumer_sequence + 1:
                raise _Gap(f"delivery {consumer_sequence} after {self._consumer_sequence}")
            self._consumer_sequence = consumer_sequence
            self._wanted -= 1
            if self._wanted == 0:
                self._asked = False
            if consumer_sequence % PULL_BATCH == 0 and not self._loading and int(pending) > self.max_behind > 0:
                await self._check_distance(sequence)
            self.position = self._resume = sequence
            if self._known is not None and self._known(sequence):
                continue
            if self._selects is not None and self._selects.fullmatch(subject) is None:
                continue
            event = self._decode(subject.decode(), sequence, headers, data)
            if isinstance(event, Event):
                events.append(event)
            elif event is not None:
                await self._log.dead_letter(self._stream, subject.decode(), sequence, str(event), data)

    def _read_status(self, block: bytes) -> None:
        status = inline_status(block)
        if status == "100":
            last = parse_headers(block).get("Nats-Last-Consumer", "")
            if last.isdigit() and int(last) > self._consumer_sequence:
                raise _Gap(f"heartbeat at {last}, delivered {self._consumer_sequence}")
        elif status == "408":
            self._asked = False
        else:
            raise _Gap(f"status {block[:80].decode(errors='replace')}")

    def _decode(self, subject: str, sequence: int, block: bytes, data: bytes) -> Event | EventError | None:
        """Return the event of a delivery, what is wrong with it, or None for a type that is unknown here."""
        # Most messages carry headers of their batch only: nothing that says what they are.
        telling = self._stream == HISTORY or b"Nats-Rollup" in block or b"Nats-TTL" in block
        try:
            if not telling:
                return decode_event(data, subject=subject, stream=self._stream, sequence=sequence, decoders=self._decoders)
            return _decode(self._stream, subject, sequence, data, parse_headers(block), self._decoders)
        except UnknownEventTypeError as error:
            self._log.unknown_types += 1
            logger.debug("%s:%d skipped: %s", self._stream, sequence, error)
            return None
        except EventError as error:
            return error

    async def _check_distance(self, sequence: int) -> None:
        """Raise Behind if the reader is far behind. The pending count alone misleads after purges: the stream's end decides."""
        if self.max_behind and await self._log.last_sequence(self._stream) - sequence > self.max_behind:
            raise Behind(f"more than {self.max_behind} messages behind on {self._stream}")

    def skip(self, known: Callable[[int], bool]) -> None:
        """See `cotenant.log.Skipping`."""
        self._known = known

    def view(self, views: Sequence[type[View]]) -> None:
        """See `cotenant.log.Viewing`."""
        self._decoders = MessageDecoders(views)

    def loaded(self) -> None:
        """The owner has seen what ends its load: from here on a broken consumer is resumed instead of started over."""
        self._loading = False

    async def _reopen(self) -> None:
        """Create a new consumer; retries for ever, as there is nothing to do without one."""
        self.reopened += 1
        if self._loading:
            # A load that broke in the middle is not a state: its owner starts over.
            self._resume = None
            raise Behind("the load broke off")
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((*_API_ERRORS, BusError)),
            wait=wait_exponential_jitter(multiplier=0.05, max=RECONNECT_SECONDS),
        ):
            with attempt:
                await self.open()

    async def close(self) -> None:
        """See `cotenant.log.Reader`."""
        consumer, self._consumer = self._consumer, ""
        await self._forget()
        if consumer and self._log.client.is_connected:
            try:
                await self._log._api(f"CONSUMER.DELETE.{self._stream}.{consumer}", {}, _ApiAnswer)
            except _API_ERRORS:
                logger.debug("consumer %s is left to its inactivity threshold", consumer)


class _Gap(Exception):  # noqa: N818 - a signal between methods of this file
    """What was delivered does not follow on what was there."""


async def connect(url: str, service: str) -> NatsLog:
    """Connect, trying for ever (the server may start later than the service), and reconnect for ever."""

    async def note(error: Exception) -> None:
        logger.debug("nats: %s: %s", type(error).__name__, error)

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type((OSError, nats.errors.Error, TimeoutError)),
        wait=wait_exponential_jitter(multiplier=0.05, max=RECONNECT_SECONDS),
    ):
        with attempt:
            client = BusClient()
            await client.connect(
                url,
                name=service,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,
                connect_timeout=2,
                ping_interval=10,
                error_cb=note,
                pending_size=16 << 20,
            )
    return NatsLog(client, service)


async def read_all(log: NatsLog, stream: str, filters: Sequence[str], *, after: int = 0) -> list[Event]:
    """Return all decodable events behind a sequence up to the stream's end now, in order.

    Meant for replay, not for services: it holds them all.
    """
    until = await log.last_sequence(stream)
    found: list[Event] = []
    if until <= after:
        return found
    reader = await log.follow(stream, filters, after=after)
    reader.loaded()
    reader.max_behind = 0
    try:
        while reader.position < until:
            events = await reader.pull(PULL_BATCH, SILENCE_SECONDS)
            if not events:
                break
            found.extend(events)
    finally:
        await reader.close()
    return found


__all__ = ["EXECUTION", "BusError", "NatsLog", "NatsReader", "connect", "read_all"]
