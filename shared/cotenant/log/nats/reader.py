"""Following a stream: a snapshot (`snapshot`), and behind it a pull consumer (`consumer`).

A gap, a lost heartbeat or a reconnect (a killed server loses the consumer, a lost connection its deliveries) makes the reader
create a new consumer behind the last delivered message; too far behind, it raises Behind, and its owner starts over with a
fresh core.

Bounds: what the consumer holds, while loading what the snapshot's gets hold; reopening is tried forever with at most
RECONNECT_SECONDS between tries. Over 300 lines: a load and what follows it share one position.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence

from nats.aio.subscription import Subscription
from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential_jitter

from cotenant.events.envelope import Event, MessageDecoders, PayloadView
from cotenant.log.contract import LOG, MAX_BEHIND, TOMBSTONE_TTL_SECONDS, USAGE, Behind
from cotenant.log.nats.consumer import Gap, PullConsumer
from cotenant.log.nats.decoding import DeadLetters, MessageDecoder, text_of
from cotenant.log.nats.jetstream import API_ERRORS, BusError, JetStream, NoStreamError, stored_time
from cotenant.log.nats.snapshot import StreamSnapshot
from cotenant.log.nats.wire import BusClient
from cotenant.log.waits import set_within
from cotenant.model.subjects import selecting

logger = logging.getLogger(__name__)

SILENCE_SECONDS = 3.0
RECONNECT_SECONDS = 2.0
MANY_FILTERS = 2
"""From so many filters on, a reader takes the whole stream and selects by itself. A consumer with several filters costs the
server a walk over all subjects of the stream each time a rollup removes several messages (19 % of its time at 25 pods/s and
15,000 subjects, and growing with them), and many times what the messages left out cost when it is behind."""
MAX_BEHIND_UNFILTERED = 200_000
"""`MAX_BEHIND` for such readers, for which catching up costs no more than keeping up."""
AWAY_SECONDS = TOMBSTONE_TTL_SECONDS / 2
"""A reader of LOG that received nothing for longer, or is given messages that are older, starts over: tombstones of its
subjects may have expired meanwhile."""
LEAST_LATE_SECONDS = 5.0
"""Where tombstones stay for less (tests and benchmarks only), half of their time, at least this: a busy machine is as late."""


def boot_seconds() -> float:
    """Time that also passes while the process is stopped or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _nothing() -> None:
    """A callback that does nothing."""


class NatsReader:
    """Follows one stream. Use `pull` from one task only."""

    def __init__(
        self, client: BusClient, dead_letters: DeadLetters, stream: str, filters: tuple[str, ...], after: int | None
    ) -> None:
        self._client = client
        self._api = JetStream(client)
        self._stream = stream
        self._decoder = MessageDecoder(stream, dead_letters)
        self._known: Callable[[int], bool] | None = None
        self._heard = 0.0
        self._reconnects = 0
        """Of the client, when the consumer was created."""
        self._server_ahead: float | None = None
        """Server's time less `boot_seconds`, at least."""
        self._in_touch = 0.0
        """`boot_seconds` of the last delivery or heartbeat, 0 before the first."""
        self._snapshot: StreamSnapshot | None = StreamSnapshot(client, stream, filters) if after is None else None
        self._after = after or 0
        """The consumer begins behind it."""
        self._delivers_from = 0
        """Sequence below which this consumer's deliveries are known already."""
        self._created = ""
        """When LOG was created: after a reconnect it may be another one."""
        self._after_ns = b""
        """When the server stored that message, in nanoseconds since the epoch; empty before the first delivery."""
        self._loading = after is None
        self.position = after or 0
        self.on_snapshot_over: Callable[[], None] = _nothing
        # USAGE holds a few messages of a node: a reader that is late misses older ones, and a new load would bring no others.
        self.max_behind = 0 if stream == USAGE else MAX_BEHIND
        self._selects: re.Pattern[bytes] | None = None
        if len(filters) >= MANY_FILTERS:
            self._selects = selecting(filters)
            self.max_behind = MAX_BEHIND_UNFILTERED
        wanted = (">",) if self._selects is not None else filters
        self._consumer = PullConsumer(client, self._api, stream, wanted)
        self._gather_seconds = 0.0
        """Once the load is over."""
        self._hurried: Sequence[str] = ()
        self._hints: list[Subscription] = []
        """Subscriptions to those subjects, which see messages before they are stored."""
        self.late_seconds = AWAY_SECONDS
        """A message that was stored longer ago is too late."""
        self.reopened = 0
        self.behind = False
        """See `cotenant.log.contract.Lagging`."""

    @property
    def stream(self) -> str:
        """The stream that it follows."""
        return self._stream

    @property
    def scanned(self) -> int:
        """Sequence up to which every message that it selects was delivered, as the last delivery or heartbeat says; 0 while
        it loads."""
        return max(self.position, self._consumer.passed) if self._snapshot is None else 0

    @property
    def snapshot_over(self) -> bool:
        """See `cotenant.log.contract.Snapshotting`."""
        return self._snapshot is None

    def hold_at_most(self, pull_bytes: int) -> None:
        """Request this many bytes at a time from the next pull on; at least those of the largest message."""
        self._consumer.pull_bytes = pull_bytes

    async def open(self) -> None:
        """Begin the snapshot; without one, create the consumer behind the last delivered message."""
        self._client.on_reconnect.add(self._consumer.arrived.set)
        if self._snapshot is None:
            await self._open_consumer()
        else:
            await self._snapshot.begin()
            self._after = self._snapshot.through
            self._in_touch = boot_seconds()

    async def _open_consumer(self) -> None:
        self._reconnects = self._client.stats["reconnects"]
        await self._consumer.forget()
        try:
            since = await self._check_end() if self._after else ""
            # The consumer lives on one of the replicas; where that one is behind, it begins at that one's end instead.
            self._delivers_from = 0 if since else self._after + 1
            await self._consumer.open(self._after + 1, since)
        except NoStreamError as error:
            raise Behind(str(error)) from error
        self._heard = asyncio.get_running_loop().time()
        self._in_touch = self._in_touch or boot_seconds()
        for subject in self._hurried[len(self._hints) :]:
            # nats-py subscribes again by itself after a reconnect.
            self._hints.append(await self._client.subscribe_raw(subject, self._on_hint))

    def _on_hint(self, *_: bytes) -> None:
        self._consumer.hurry()

    def _check_touch(self) -> None:
        away = boot_seconds() - self._in_touch
        if self._stream == LOG and self._in_touch and away > AWAY_SECONDS:
            raise Behind(f"nothing was heard of {LOG} for {away:.0f} s")

    def _check_connection(self) -> None:
        """Raise Gap if the connection was lost since the consumer was created."""
        if self._client.stats["reconnects"] != self._reconnects:
            raise Gap("the connection was lost")

    async def _check_end(self) -> str:
        """Return the time to resume at where the last delivered message cannot be found by its sequence, "" where it can.

        A killed server may have lost the end of an asynchronous stream, and may have given its sequences to other messages
        since. LOG is on disk before a write is acknowledged; where its end is missing, the folded state is invalid.
        """
        info = await self._api.info_beyond(self._stream, self._after)
        end = info.state.last_seq
        if self._stream == LOG:
            if end < self._after:
                raise Behind(f"LOG ends at {end}, before {self._after}, which was delivered")
            if self._created not in ("", info.created):
                raise Behind(f"LOG is another one, created at {info.created}")
            self._created = info.created
            return ""
        if end < self._after:
            self.position = end
        if not self._after_ns:
            self._after = min(self._after, end)
            return ""
        stored_ns = int(self._after_ns)
        last = await self._api.get(self._stream, self._after)
        return "" if last is not None and last.time == stored_time(stored_ns) else stored_time(stored_ns + 1)

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
                self._check_connection()
                await self._take(events, limit)
            except (Gap, BusError, *API_ERRORS) as error:
                logger.info("%s: %s: %s; resuming behind %d", self._stream, type(error).__name__, error, self.position)
                self.reopened += 1
                await self._reopen()
                if not events:
                    continue
            remaining = deadline - loop.time()
            if events or remaining <= 0:
                return events
            self._consumer.arrived.clear()
            if self._consumer.queue:
                continue
            await set_within(self._consumer.arrived, min(remaining, SILENCE_SECONDS))
            if not self._consumer.queue and loop.time() - self._heard > SILENCE_SECONDS:
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
                await self._decoder.into(events, text_of(name), sequence, block, data)
                self.position = max(self.position, sequence)
            if not messages:
                self._snapshot = None
                self.position = max(self.position, self._after)
                await self._reopen()
                self.on_snapshot_over()
        return events

    async def _take(self, events: list[Event], limit: int) -> None:
        """Move arrived messages into `events`, which stays valid if this raises."""
        consumer = self._consumer
        queue = consumer.queue
        if queue:
            self._heard = asyncio.get_running_loop().time()
            self._in_touch = boot_seconds()
        stored_ns, oldest_ns, sees_gaps = b"", b"", self._selects is not None
        while len(events) < limit:
            if not queue:
                await consumer.ask()
                break
            subject, reply, headers, data = queue.popleft()
            if not reply.startswith(b"$JS.ACK."):
                consumer.read_status(headers)
                continue
            # $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>, more words with a domain.
            _, number, delivery, stored_ns, pending = reply.rsplit(b".", 4)
            sequence = int(number)
            if consumer.count(int(delivery)) and not self._loading and int(pending) > self.max_behind > 0:
                await self._check_distance(sequence)
            if sequence < self._delivers_from:
                continue
            if not sees_gaps:
                self.behind = pending != b"0"
            elif sequence != self._after + 1:
                # The message that removed the missing ones comes later, even if the server has not counted it yet.
                self.behind = True
            elif pending == b"0":
                self.behind = False
            self.position = self._after = sequence
            self._after_ns = stored_ns
            oldest_ns = oldest_ns or stored_ns
            if self._known is not None and self._known(sequence):
                continue
            if self._selects is not None and self._selects.fullmatch(subject) is None:
                continue
            await self._decoder.into(events, text_of(subject), sequence, headers, data)
        if oldest_ns:
            self._check_age(int(oldest_ns) / 1e9)
        # Old messages do not show the server's clock.
        if stored_ns and (self._server_ahead is not None or not self.behind):
            ahead = int(stored_ns) / 1e9 - self._in_touch
            self._server_ahead = ahead if self._server_ahead is None else max(ahead, self._server_ahead)

    def _check_age(self, stored: float) -> None:
        """Raise Behind if a message was stored too long ago, by the server's clock as it was known before. A slow load catches
        up, as `loaded` says; who may be behind (`max_behind` 0) reads the past."""
        now = self.server_time()
        if now is None or now - stored <= self.late_seconds:
            return
        if self._stream == LOG and self.max_behind and not self._loading:
            raise Behind(f"{LOG} is read {now - stored:.0f} s late")

    def server_time(self) -> float | None:
        """See `cotenant.log.contract.Clocked`."""
        return None if self._server_ahead is None else self._server_ahead + boot_seconds()

    async def _check_distance(self, sequence: int) -> None:
        """Raise Behind if the reader is far behind. The pending count alone misleads after purges: the stream's end decides."""
        if self.max_behind and (await self._api.state(self._stream)).last_seq - sequence > self.max_behind:
            raise Behind(f"more than {self.max_behind} messages behind on {self._stream}")

    def skip(self, known: Callable[[int], bool]) -> None:
        """See `cotenant.log.contract.Skipping`."""
        self._known = known

    def view(self, views: Sequence[type[PayloadView]]) -> None:
        """See `cotenant.log.contract.Viewing`."""
        self._decoder.decoders = MessageDecoders(views)

    def loaded(self) -> None:
        """The owner has seen the end of its load: from here on too far behind raises Behind. (A load that is slower than
        the writers catches up; started over it would be as far behind again.)"""
        self._loading = False
        self._consumer.gather_seconds = self._gather_seconds

    def gather(self, seconds: float, hurried: Sequence[str] = ()) -> None:
        """See `cotenant.log.contract.GatheringReader`."""
        self._gather_seconds = seconds
        self._hurried = tuple(hurried)

    async def _reopen(self) -> None:
        """Create a new consumer; retries forever, as there is nothing to do without one."""
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type((*API_ERRORS, BusError)),
            wait=wait_exponential_jitter(multiplier=0.05, max=RECONNECT_SECONDS),
        ):
            with attempt:
                await self._open_consumer()

    async def close(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        self._client.on_reconnect.discard(self._consumer.arrived.set)
        if self._snapshot is not None:
            await self._snapshot.close()
        for subscription in self._hints:
            await self._client.unsubscribe_raw(subscription)
        self._hints.clear()
        await self._consumer.close()
