"""A pull consumer without acknowledgements: created, polled, and checked for an unbroken sequence.

In: where to begin; the client's raw deliveries. Out: a queue of deliveries, and a Gap where one is missing: every delivery and
every heartbeat carries the consumer's own sequence, which must be contiguous. Pulls use `expires` and `idle_heartbeat`, never
`no_wait`, and pending counts are not trusted: both mislead after purges.

A reader whose owner does not act on every message at once may gather: while idle it asks for one message, which is
delivered at once; from then on, while messages come, it asks once in `gather_seconds` for all available ones. So messages
that follow one another closely are sent, received and folded together. It asks again at once after a full pull; for
HURRIED_SECONDS after `hurry` a pull stays open, so that each message is delivered at once.

Bound: one pull of PULL_BATCH messages and PULL_BYTES in flight, and so no more undelivered in the client.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from typing import Any

import msgspec

from cotenant.log.nats.frames import inline_status, parse_headers
from cotenant.log.nats.jetstream import API_ERRORS, ConsumerExistsError, JetStream
from cotenant.log.nats.wire import BusClient

logger = logging.getLogger(__name__)

PULL_BATCH = 1000
PULL_BYTES = 32 << 20
"""Messages are at most 1 MiB: a thousand of them would exceed a service's memory."""
PULL_EXPIRES_SECONDS = 5.0
# A lost last message is noticed at the next heartbeat. Ten a second and reader would be most of an idle stack's cost.
HEARTBEAT_SECONDS = 0.5
GATHERED_EXPIRES_SECONDS = 0.02
"""How long a gathering pull stays open, at least: messages stored meanwhile come with it."""
HURRIED_SECONDS = 0.5
"""Published messages are stored in less, on busy disks too; later ones come with the next gathered pull."""
INACTIVE_SECONDS = 60
_FULL = b"Message Size Exceeds MaxBytes"
_COMPLETE = b"Batch Completed"


class Gap(Exception):  # noqa: N818 - a signal to the reader, not a fault
    """A delivery does not follow on the previous one."""


class PullConsumer:
    """The consumer of one reader. `open` replaces it by a new one."""

    def __init__(
        self,
        client: BusClient,
        api: JetStream,
        stream: str,
        filters: tuple[str, ...],
        *,
        name: str = "",
        heartbeat: float | None = None,
    ) -> None:
        """`name`: of the consumer on the server, which takes the place of an older one; by default a random one."""
        self._client = client
        self._api = api
        self._stream = stream
        self._filters = filters
        self._consumer = ""
        self._name = name
        self._heartbeat = heartbeat
        self.passed = 0
        """Sequence of the stream that the server had scanned, as last reported."""
        self._inbox = ""
        self._subscription: Any = None
        self.queue: deque[tuple[bytes, bytes, bytes, bytes]] = deque()
        """Subject, reply, headers and data of the deliveries."""
        self.arrived = asyncio.Event()
        self.pull_bytes = PULL_BYTES
        self._delivered = 0
        self._asked = False
        self._wanted = 0
        self.gather_seconds = 0.0
        """0: every message is delivered at once."""
        self._gathering = False
        """Messages came recently."""
        self._brought = False
        """The pull in flight has delivered something."""
        self._next_pull = 0.0
        """Earliest time (of the loop) of the next pull."""
        self._hurried_until = 0.0
        """Time of the loop up to which nothing is gathered."""

    async def open(self, start: int, since: str = "") -> None:
        """Create a consumer that begins at a sequence of the stream, or at the first message that is not older than `since`."""
        await self.forget()
        one_time = f"c-{os.urandom(8).hex()}"
        self._consumer = self._name or one_time
        config: dict[str, Any] = {
            "name": self._consumer,
            # By it the server tells an older consumer of the same name, which has delivered something, from this one.
            "description": one_time,
            "ack_policy": "none",
            **(
                {"deliver_policy": "by_start_time", "opt_start_time": since}
                if since
                else {"deliver_policy": "by_start_sequence", "opt_start_seq": start}
            ),
            "inactive_threshold": INACTIVE_SECONDS * 1_000_000_000,
            "mem_storage": True,
            "num_replicas": 1,
            "max_waiting": 8,
        }
        try:
            await self._api.create_consumer(self._stream, config, self._filters)
        except ConsumerExistsError:
            await self._api.delete_consumer(self._stream, self._consumer)
            await self._api.create_consumer(self._stream, config, self._filters)
        self._inbox = self._client.new_inbox()
        self._subscription = await self._client.subscribe_raw(self._inbox, self._on_message)
        self._delivered = self.passed = 0
        self._asked = self._gathering = False

    async def forget(self) -> None:
        """End the subscription and drop what has arrived; the server removes an unused consumer by itself."""
        subscription, self._subscription = self._subscription, None
        self.queue.clear()
        if subscription is not None:
            await self._client.unsubscribe_raw(subscription)

    async def close(self) -> None:
        """End the subscription, and the consumer where the server can be reached."""
        consumer, self._consumer = self._consumer, ""
        await self.forget()
        if consumer and self._client.is_connected:
            try:
                await self._api.delete_consumer(self._stream, consumer)
            except API_ERRORS:
                logger.debug("consumer %s is left to its inactivity threshold", consumer)

    def _on_message(self, subject: bytes, reply: bytes, headers: bytes, data: bytes) -> None:
        self.queue.append((subject, reply, headers, data))
        self.arrived.set()

    async def ask(self) -> None:
        """Send a pull request, unless one is in flight. While the next one has to wait, `arrived` is set when it is due."""
        if self._asked or self._waits():
            return
        body: dict[str, int] = {"batch": PULL_BATCH, "max_bytes": self.pull_bytes}
        if self._gathering:
            # Hurried, one open pull takes the place of many short ones, between which messages would wait for the next.
            hurried = self._hurried_until - asyncio.get_running_loop().time()
            body["expires"] = int(max(GATHERED_EXPIRES_SECONDS, hurried) * 1e9)
        else:
            heartbeat = self._heartbeat or HEARTBEAT_SECONDS
            body |= {"expires": int(PULL_EXPIRES_SECONDS * 1e9), "idle_heartbeat": int(heartbeat * 1e9)}
            if self.gather_seconds:
                body["batch"] = 1
        subject = f"{self._client.api}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await self._client.publish(subject, msgspec.json.encode(body), reply=self._inbox)
        self._asked = True
        self._brought = False
        self._wanted = body["batch"]

    def hurry(self) -> None:
        """Pull now, and keep pulls open for HURRIED_SECONDS."""
        self._hurried_until = asyncio.get_running_loop().time() + HURRIED_SECONDS
        self.arrived.set()

    def _waits(self) -> bool:
        """Tell whether the next pull has to wait."""
        if not self._gathering:
            return False
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._next_pull or now < self._hurried_until:
            return False
        loop.call_at(self._next_pull, self.arrived.set)
        return True

    def _is_over(self, *, full: bool) -> None:
        """The pull in flight has ended: keep gathering if it delivered anything, after a pause unless there may be more
        already."""
        self._asked = False
        if self.gather_seconds:
            self._gathering = self._brought
            self._next_pull = asyncio.get_running_loop().time() + (0.0 if full else self.gather_seconds)

    def count(self, delivery: int) -> bool:
        """Count a delivery by the consumer's own sequence; True once in PULL_BATCH deliveries. Raises Gap."""
        if delivery != self._delivered + 1:
            raise Gap(f"delivery {delivery} after {self._delivered}")
        self._delivered = delivery
        self._brought = True
        self._wanted -= 1
        if self._wanted == 0:
            self._is_over(full=self._gathering)
        return delivery % PULL_BATCH == 0

    def read_status(self, block: bytes) -> None:
        """Read a message without a delivery: a heartbeat, or the end of a pull request. Raises Gap."""
        status = inline_status(block)
        if status == "100":
            headers = parse_headers(block)
            last, passed = headers.get("Nats-Last-Consumer", ""), headers.get("Nats-Last-Stream", "")
            if last.isdigit() and int(last) > self._delivered:
                raise Gap(f"heartbeat at {last}, delivered {self._delivered}")
            self.passed = int(passed) if passed.isdigit() else self.passed
        elif status == "408" or (status == "409" and _FULL in block):
            self._is_over(full=status == "409")
        elif status == "409" and _COMPLETE in block:
            # `count` has seen the last message of the pull, and the next one may be in progress.
            pass
        else:
            raise Gap(f"status {block[:80].decode(errors='replace')}")
