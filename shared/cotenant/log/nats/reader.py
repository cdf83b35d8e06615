"""Following a stream: a snapshot (`snapshot`), and behind it a pull consumer without acknowledgements.

Every delivery carries the consumer's own sequence, which must be contiguous. A gap, a lost heartbeat or a reconnect (a killed
server loses the consumer) makes the reader create a new consumer behind the last delivered message; too far behind, it raises
Behind, and its owner starts over with a fresh core. Pulls use `expires` and `idle_heartbeat`, never `no_wait`, and pending
counts are not trusted: both mislead after purges.

Bounds: one pull of PULL_BATCH messages under way, and so no more undelivered in the client (while it loads: the snapshot's
gets); reopening is tried for ever with at most RECONNECT_SECONDS between tries.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential_jitter

from cotenant.events.envelope import WHOLE, Event, EventError, MessageDecoders, UnknownEventTypeError, View, decode_event
from cotenant.log.contract import HISTORY, LOG, MAX_BEHIND, TOMBSTONE_TTL_SECONDS, Behind
from cotenant.log.nats.decoding import Spoiled, event_of
from cotenant.log.nats.jetstream import API_ERRORS, BusError, JetStream
from cotenant.log.nats.snapshot import Snapshot
from cotenant.log.nats.wire import BusClient, inline_status, parse_headers
from cotenant.model.subjects import selecting

logger = logging.getLogger(__name__)

PULL_BATCH = 1000
PULL_EXPIRES_SECONDS = 5.0
# A lost last message is noticed at the next heartbeat. Ten a second and reader would be most of what a stack at rest costs.
HEARTBEAT_SECONDS = 0.5
SILENCE_SECONDS = 3.0
RECONNECT_SECONDS = 2.0
INACTIVE_SECONDS = 60
MANY_FILTERS = 2
"""From so many filters on, a reader takes the whole stream and selects by itself. A consumer with several filters costs the
server a walk over all subjects of the stream each time a rollup removes several messages (19 % of its time at 25 pods/s and
15,000 subjects, and growing with them), and many times what the messages left out cost when it is behind."""
MAX_BEHIND_UNFILTERED = 200_000
"""`MAX_BEHIND` for such readers, whom catching up costs no more than reading along."""
AWAY_SECONDS = TOMBSTONE_TTL_SECONDS / 2
"""A reader of LOG that heard nothing for longer starts over: tombstones of what it knows may have run out meanwhile."""


def boot_seconds() -> float:
    """Time that also passes while the process is stopped or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class NatsReader:
    """Follows one stream. Use `pull` from one task only."""

    def __init__(
        self, client: BusClient, spoiled: Spoiled, stream: str, filters: tuple[str, ...], after: int | None, name: str
    ) -> None:
        self._client = client
        self._api = JetStream(client)
        self._spoiled = spoiled
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
        self._server_ahead: float | None = None
        """Server's time less `boot_seconds`, at least."""
        self._in_touch = 0.0
        """`boot_seconds` when something was heard, 0 before the first time."""
        self._snapshot: Snapshot | None = Snapshot(client, stream, filters) if after is None else None
        self._after = after or 0
        """The consumer begins behind it."""
        self._loading = after is None
        self.position = after or 0
        self.max_behind = MAX_BEHIND
        self._selects: re.Pattern[bytes] | None = None
        if len(filters) >= MANY_FILTERS:
            self._selects = selecting(filters)
            self.max_behind = MAX_BEHIND_UNFILTERED
        self.reopened = 0

    async def open(self) -> None:
        """Begin the snapshot; without one, create the consumer behind the last delivered message."""
        if self._snapshot is None:
            await self._open_consumer()
        else:
            await self._snapshot.begin()
            self._after = self._snapshot.through
            self._in_touch = boot_seconds()

    async def _open_consumer(self) -> None:
        await self._forget()
        self._consumer = self._name or f"c-{os.urandom(8).hex()}"
        if self._after:
            await self._check_end(self._after)
        config: dict[str, Any] = {
            "name": self._consumer,
            "ack_policy": "none",
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self._after + 1,
            "inactive_threshold": INACTIVE_SECONDS * 1_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
            "max_waiting": 8,
        }
        if self._name:
            # A consumer of this name that an earlier process left stands elsewhere: its position is not ours.
            await self._api.delete_consumer(self._stream, self._name)
        await self._api.create_consumer(self._stream, config, (">",) if self._selects is not None else self._filters)
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe(self._inbox)
        self._client.deliver_raw(self._subscription, self._on_message)
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
        end = (await self._api.state(self._stream)).last_seq
        if end >= resume:
            return
        if self._stream == LOG:
            raise Behind(f"LOG ends at {end}, before {resume}, which was delivered")
        self.position = self._after = end

    async def _forget(self) -> None:
        subscription, self._subscription = self._subscription, None
        self._queue.clear()
        if subscription is not None:
            self._client.forget(subscription)
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
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}", msgspec.json.encode(body), reply=self._inbox
        )
        self._asked = True
        self._wanted = PULL_BATCH

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """See `cotenant.log.contract.Reader`."""
        if self._snapshot is not None:
            events = await self._load(limit)
            if events:
                return events
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            events = []
            self._check_touch()
            try:
                await self._take(events, limit)
            except (_Gap, *API_ERRORS) as error:
                logger.info("%s: %s: %s; resuming behind %d", self._stream, type(error).__name__, error, self.position)
                self.reopened += 1
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
                    self.reopened += 1
                    await self._reopen()

    async def _load(self, limit: int) -> list[Event]:
        """Return some events of the snapshot, none at its end: from then on there is a consumer behind it."""
        events: list[Event] = []
        while not events and self._snapshot is not None:
            messages = await self._snapshot.take(limit)
            self._in_touch = boot_seconds()
            for name, sequence, block, data in messages:
                await self._decode_into(events, name.decode(), sequence, block, data)
                self.position = max(self.position, sequence)
            if not messages:
                self._snapshot = None
                self.position = max(self.position, self._after)
                await self._reopen()
        return events

    async def _decode_into(self, events: list[Event], subject: str, sequence: int, block: bytes, data: bytes) -> None:
        """Add the event of a message to `events`; what is no event goes to the dead letters."""
        event = self._decode(subject, sequence, block, data)
        if isinstance(event, Event):
            events.append(event)
        elif event is not None:
            await self._spoiled.put_aside(self._stream, subject, sequence, str(event), data)

    async def _take(self, events: list[Event], limit: int) -> None:
        """Move what has arrived into `events`; what is in there stays good when this raises."""
        queue = self._queue
        if queue:
            self._heard = asyncio.get_running_loop().time()
            self._in_touch = boot_seconds()
        stored_ns = b""
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
            _, number, delivery, stored_ns, pending = reply.rsplit(b".", 4)
            sequence, consumer_sequence = int(number), int(delivery)
            if consumer_sequence != self._consumer_sequence + 1:
                raise _Gap(f"delivery {consumer_sequence} after {self._consumer_sequence}")
            self._consumer_sequence = consumer_sequence
            self._wanted -= 1
            if self._wanted == 0:
                self._asked = False
            if consumer_sequence % PULL_BATCH == 0 and not self._loading and int(pending) > self.max_behind > 0:
                await self._check_distance(sequence)
            self.position = self._after = sequence
            if self._known is not None and self._known(sequence):
                continue
            if self._selects is not None and self._selects.fullmatch(subject) is None:
                continue
            await self._decode_into(events, subject.decode(), sequence, headers, data)
        if stored_ns:
            ahead = int(stored_ns) / 1e9 - self._in_touch
            self._server_ahead = ahead if self._server_ahead is None else max(ahead, self._server_ahead)

    def server_time(self) -> float | None:
        """See `cotenant.log.contract.Clocked`."""
        return None if self._server_ahead is None else self._server_ahead + boot_seconds()

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
            return event_of(self._stream, subject, sequence, data, parse_headers(block), self._decoders)
        except UnknownEventTypeError as error:
            self._spoiled.unknown_types += 1
            logger.debug("%s:%d skipped: %s", self._stream, sequence, error)
            return None
        except EventError as error:
            return error

    async def _check_distance(self, sequence: int) -> None:
        """Raise Behind if the reader is far behind. The pending count alone misleads after purges: the stream's end decides."""
        if self.max_behind and (await self._api.state(self._stream)).last_seq - sequence > self.max_behind:
            raise Behind(f"more than {self.max_behind} messages behind on {self._stream}")

    def skip(self, known: Callable[[int], bool]) -> None:
        """See `cotenant.log.contract.Skipping`."""
        self._known = known

    def view(self, views: Sequence[type[View]]) -> None:
        """See `cotenant.log.contract.Viewing`."""
        self._decoders = MessageDecoders(views)

    def loaded(self) -> None:
        """The owner has seen what ends its load: from here on too far behind raises Behind. (A load that is slower than what is
        written meanwhile catches up; started over it would be as far behind again.)"""
        self._loading = False

    async def _reopen(self) -> None:
        """Create a new consumer; retries for ever, as there is nothing to do without one."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((*API_ERRORS, BusError)),
            wait=wait_exponential_jitter(multiplier=0.05, max=RECONNECT_SECONDS),
        ):
            with attempt:
                await self._open_consumer()

    async def close(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        if self._snapshot is not None:
            await self._snapshot.close()
        consumer, self._consumer = self._consumer, ""
        await self._forget()
        if consumer and self._client.is_connected:
            try:
                await self._api.delete_consumer(self._stream, consumer)
            except API_ERRORS:
                logger.debug("consumer %s is left to its inactivity threshold", consumer)


class _Gap(Exception):  # noqa: N818 - a signal between methods of this file
    """What was delivered does not follow on what was there."""
