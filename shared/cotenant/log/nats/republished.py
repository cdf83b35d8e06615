"""Following one filter of LOG without a consumer: republished messages, completed by direct gets.

In: a filter below a source of LOG's `republish` (`streams`). Out: a snapshot (`snapshot`), then every message in order of
sequence, as a consumer gives it. LOG's server sends each stored message once more on `republished.<subject>`, to whoever is
subscribed at that moment, with its sequence and the one before it on its subject. That costs the server nothing while nothing
happens; a consumer costs it timers, heartbeats and 0.2 MiB, and 3,000 of them a third of a core.

Messages without a subscriber are lost: while the connection was down, before a server knew of the subscription, or
if the leader was killed between storing and sending. So the reader reads the log itself, the messages after `_known`, up to
which it has everything: after each reconnect, when the stream has a new leader, if a message's predecessor was not seen,
SETTLE_SECONDS after one of these or the start, and then every LOOK_SECONDS. In between, after twice as long each time, it
gets the last message only, and reads on if that one did not arrive. On a single server that is enough at LOOK_SECONDS, too: it
republishes in order, so nothing is missing. What the reader finds it delivers; a message older than a delivered one cannot be
delivered in order any more: it raises Behind, and its owner starts over.

A replica that is behind answers with a prefix of the stream: `_known` goes no further than the last message of an answer.

Bounds: MAX_WAITING messages and MAX_WAITING_BYTES wait (beyond that they are dropped, and the reader looks), LOOK_MESSAGES and
MAX_GET_BYTES in an answer, GAP_TRIES looks for a message that must be there.

Over 300 lines: messages that arrive, that were missed and that are looked up share one position and one order.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence

from nats.aio.subscription import Subscription
from nats.errors import NoRespondersError

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, MAX_BEHIND, Behind
from cotenant.log.nats.confined import ADVISORIES, NodeReads, NodeSnapshot, Page, identity, is_advisory, leaders_end_beyond
from cotenant.log.nats.consumer import Gap
from cotenant.log.nats.decoding import DeadLetters, MessageDecoder, text_of
from cotenant.log.nats.direct import Message
from cotenant.log.nats.jetstream import API_ERRORS, BusError, NoStreamError
from cotenant.log.nats.reader import AWAY_SECONDS, boot_seconds
from cotenant.log.nats.streams import REPUBLISHED_PREFIX
from cotenant.log.nats.wire import BusClient
from cotenant.log.waits import set_within
from cotenant.model.subjects import decode_token, executor_writer

logger = logging.getLogger(__name__)

SETTLE_SECONDS = 2.0
LOOK_SECONDS = 60.0
"""Between two reads without events, plus or minus a quarter: many nodes start together and should not read together."""
RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 10.0
"""Until an unanswered read is retried: longer with each in a row, as thousands of readers may flood a slow server."""
PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0
GAP_TRIES = 10
LOOK_MESSAGES = 1000
MAX_WAITING = 5_000
MAX_WAITING_BYTES = 16 << 20
MAX_DELIVERED = 10_000


class RepublishedReader:
    """Follows one filter of LOG. Use `pull` from one task only."""

    def __init__(self, client: BusClient, dead_letters: DeadLetters, selected: str, after: int | None) -> None:
        self._client = client
        self._selected = selected
        self._reads = NodeReads(client, selected)
        self._decoder = MessageDecoder(LOG, dead_letters, executor_writer(decode_token(self._reads.token)))
        self._snapshot = NodeSnapshot(client, self._reads) if after is None else None
        self._tell_of_snapshot = False
        """The snapshot is read, and its owner was not notified yet."""
        self._loading = after is None
        self._known = after or 0
        """All selected messages up to here are delivered or in `_found`."""
        self._delivered: set[int] = set()
        """Messages delivered beyond it."""
        self._found: deque[Message] = deque()
        """Messages found by a read of LOG and not delivered yet."""
        self._waiting: deque[tuple[int, int, bytes, bytes, bytes]] = deque()
        """Republished: sequence, the one before on its subject, subject, header block, data."""
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._subscriptions: list[Subscription] = []
        self._gap = after is not None
        """Waiting messages may not directly follow the delivered ones."""
        self._other = True
        """LOG may be another one."""
        self._created = ""
        self._look_at = 0.0
        self._interval = SETTLE_SECONDS
        self._gap_looks = 0
        """Consecutive reads that did not find the predecessor of a republished message."""
        self._unanswered = 0
        """Consecutive reads without an answer."""
        self._reconnects = 0
        self._in_touch = 0.0
        """`boot_seconds` when the log was last looked at."""
        self._skipped: Callable[[int], bool] | None = None
        self.position = after or 0
        self.on_snapshot_over: Callable[[], None] = lambda: None
        self.gaps = 0
        """How often messages were missed, or may have been."""

    async def open(self) -> None:
        """Subscribe, then begin the snapshot: what is stored behind it is republished to this reader. Raises API_ERRORS."""
        self._reconnects = self._client.stats["reconnects"]
        self._subscriptions.append(await self._client.subscribe_raw(REPUBLISHED_PREFIX + self._selected, self._on_message))
        self._subscriptions.append(await self._client.subscribe_raw(ADVISORIES, self._on_advisory))
        self._client.on_reconnect.add(self._arrived.set)
        if self._snapshot is None:
            await self._check_log()
        else:
            await self._snapshot.begin()
            self._created, self._other = self._snapshot.created, False
        self._in_touch = boot_seconds()
        if not self._gap:
            self._look_later()

    @property
    def snapshot_over(self) -> bool:
        """See `cotenant.log.contract.Snapshotting`."""
        return self._snapshot is None and not self._waiting and not self._found

    # -- what arrives --------------------------------------------------------------------------------------------------

    def _on_message(self, subject: bytes, _: bytes, block: bytes, data: bytes) -> None:
        try:
            sequence, before, stored = self._reads.republished(subject, block)
        except ValueError:
            logger.warning("%s: not a message that LOG republished", subject.decode(errors="replace"))
            return
        if len(self._waiting) >= MAX_WAITING or self._waiting_bytes >= MAX_WAITING_BYTES:
            self._waiting.clear()
            self._waiting_bytes = 0
            self._suspend("too many messages wait")
        self._waiting.append((sequence, before, stored, block, data))
        self._waiting_bytes += len(data)
        self._arrived.set()

    def _on_advisory(self, subject: bytes, _: bytes, block: bytes, data: bytes) -> None:
        if not is_advisory(block, data):
            logger.warning("%s: not an advisory of the server", subject.decode(errors="replace"))
            return
        self._other = True
        self._interval, self._look_at = SETTLE_SECONDS, 0.0
        self._arrived.set()

    def _suspend(self, why: str) -> None:
        """Suspend deliveries until the log was read."""
        logger.info("%s: %s; looking behind %d", self._selected, why, self._known)
        self.gaps += 1
        self._gap = True
        self._interval, self._look_at = SETTLE_SECONDS, 0.0

    # -- delivering ----------------------------------------------------------------------------------------------------

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """See `cotenant.log.contract.Reader`."""
        if self._snapshot is not None and (events := await self._load(limit)):
            return events
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            events = []
            self._arrived.clear()
            await self._look_if_due()
            await self._take(events, limit)
            if self._tell_of_snapshot and self.snapshot_over:
                self._tell_of_snapshot = False
                self.on_snapshot_over()
            now = loop.time()
            if events or now >= deadline:
                return events
            await set_within(self._arrived, max(0.0, min(deadline, self._look_at) - now))
            if self._skipped is not None:
                # The server republishes a message just before it acknowledges it: its writer takes the acknowledgement first.
                await asyncio.sleep(0)

    async def _load(self, limit: int) -> list[Event]:
        """Return some events of the snapshot, none at its end."""
        events: list[Event] = []
        while not events and self._snapshot is not None:
            messages = await self._snapshot.take(limit)
            self._in_touch = boot_seconds()
            for subject, sequence, block, data in messages:
                await self._decoder.into(events, text_of(subject), sequence, block, data)
                self.position = max(self.position, sequence)
            if not messages:
                self._known = self.position = max(self.position, self._snapshot.through)
                self._snapshot = None
                self._tell_of_snapshot = True
        return events

    async def _take(self, events: list[Event], limit: int) -> None:
        """Move what was found, and what waits while it is known to follow, into `events`."""
        while len(events) < limit:
            if self._found:
                subject, sequence, block, data = self._found.popleft()
            elif self._gap or not self._waiting:
                return
            else:
                sequence, before, subject, block, data = self._waiting[0]
                new = sequence > self._known and sequence not in self._delivered
                if new and self._missed(sequence, before):
                    return
                self._waiting.popleft()
                self._waiting_bytes -= len(data)
                if not new:
                    continue
                self._gap_looks = 0
                self._delivered.add(sequence)
                if self._skipped is not None and self._skipped(sequence):
                    self.position = max(self.position, sequence)
                    continue
            self.position = max(self.position, sequence)
            await self._decoder.into(events, text_of(subject), sequence, block, data)

    def _missed(self, sequence: int, before: int) -> bool:
        """Return whether a predecessor of a republished message was not delivered; then the log must be read. Raises Behind
        if reading does not help."""
        if sequence > self.position and (before <= self._known or before in self._delivered):
            if len(self._delivered) < MAX_DELIVERED:
                return False
            self._gap, self._look_at = True, 0.0
            return True
        if self._gap_looks >= GAP_TRIES:
            raise Behind(f"{LOG}:{before}, before {sequence}, was not republished and cannot be read")
        self._suspend(f"{sequence} follows on {before} of its subject, which was not seen")
        if self._gap_looks:
            self._look_after(min(PAUSE_SECONDS * 2**self._gap_looks, MAX_PAUSE_SECONDS))
        self._gap_looks += 1
        return True

    # -- looking at the log --------------------------------------------------------------------------------------------

    def _look_after(self, seconds: float) -> None:
        self._look_at = asyncio.get_running_loop().time() + seconds

    def _look_later(self) -> None:
        self._look_after(self._interval * random.uniform(0.75, 1.25))
        self._interval = min(self._interval * 2, LOOK_SECONDS)

    async def _look_if_due(self) -> None:
        """Read the log when due. Without an answer it is tried again. Raises Behind."""
        if self._client.stats["reconnects"] != self._reconnects:
            self._reconnects = self._client.stats["reconnects"]
            self._other = True
            self._suspend("the connection was lost")
        if self._found or asyncio.get_running_loop().time() < self._look_at:
            return
        if not self._client.is_connected:
            self._look_after(PAUSE_SECONDS)
            return
        try:
            if self._other:
                await self._check_log()
            await self._look()
        except (Gap, BusError, *API_ERRORS) as error:
            logger.info("%s: cannot be looked at: %s: %s", self._selected, type(error).__name__, error)
            self._look_after(min(RETRY_SECONDS * 2 ** min(self._unanswered, 10), MAX_RETRY_SECONDS) * random.uniform(0.5, 1.0))
            self._unanswered += 1
        else:
            self._unanswered = 0

    async def _check_log(self) -> None:
        """Raise Behind if LOG is not the one that was read so far, or lost its end."""
        try:
            created = await identity(self._client)
        except NoStreamError as error:
            raise Behind(str(error)) from error
        if self._created not in ("", created):
            raise Behind(f"LOG is another one, created at {created}")
        end = await leaders_end_beyond(self._client, self._reads.own, self.position)
        if end < self.position:
            raise Behind(f"LOG ends at {end}, before {self.position}, which was delivered")
        self._created, self._other = created, False

    async def _look(self) -> None:
        """Get a page of the messages after `_known` where some may be missed, and schedule the next look: at once if there are
        more. Raises Behind, BusError, API_ERRORS."""
        try:
            last = await self._reads.last()
            page = None
            if self._has_arrived(last) and self._client.on_single_server:
                self._known = self.position
                self._delivered.clear()
            elif last > self._known and not (self._has_arrived(last) and self._interval < LOOK_SECONDS):
                page = await self._reads.page(self._known, last, LOOK_MESSAGES)
        except NoRespondersError:
            self._other = True
            raise
        self._check_touch()
        if page is not None:
            self._find(page)
        if len(self._delivered) >= MAX_DELIVERED:
            raise Behind(f"{MAX_DELIVERED} messages were delivered that {LOG} does not have")
        self._gap = page is not None and page.position < last
        if not self._gap:
            self._look_later()

    def _check_touch(self) -> None:
        """Raise Behind if tombstones may have expired unread: once LOG answers, as its owner works on until it does."""
        away, self._in_touch = boot_seconds() - self._in_touch, boot_seconds()
        if away > AWAY_SECONDS:
            raise Behind(f"nothing was heard of {LOG} for {away:.0f} s")

    def _has_arrived(self, last: int) -> bool:
        """Return whether the last message was delivered or is about to be, and nothing happened lately that may have lost one:
        the first look after a load or a gap reads the log all the same."""
        settled = not self._gap and self._interval > 2 * SETTLE_SECONDS
        return settled and (last in self._delivered or any(last == waiting[0] for waiting in self._waiting))

    def _find(self, page: Page) -> None:
        """Take the messages that a read has found. Raises Behind."""
        if not self._loading and page.pending > MAX_BEHIND:
            raise Behind(f"more than {MAX_BEHIND} messages behind on {LOG}")
        for message in page.messages:
            sequence = message[1]
            if sequence in self._delivered:
                continue
            if sequence < self.position:
                raise Behind(f"{LOG}:{sequence} was not republished, and what is newer was delivered")
            self._found.append(message)
        if page.messages:
            self._known = page.messages[-1][1]
            self._delivered = {sequence for sequence in self._delivered if sequence > self._known}

    def skip(self, known: Callable[[int], bool]) -> None:
        """See `cotenant.log.contract.Skipping`; of republished messages only."""
        self._skipped = known

    def loaded(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        self._loading = False

    async def close(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        if self._snapshot is not None:
            await self._snapshot.close()
        self._client.on_reconnect.discard(self._arrived.set)
        while self._subscriptions:
            await self._client.unsubscribe_raw(self._subscriptions.pop())
