"""Open streams: watches, followed events, followed logs, and walks through the log, counted and bounded by kind and address.

A stream ends when its client is gone: `OpenStream.gone` becomes true at once, and what the stream waits for is woken.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator

from aiohttp import web

from cotenant_gateway.http.clients.connections import Connection, connection_of
from cotenant_gateway.http.clients.limits import SMALL_BYTES, GatewayLimits, StreamKind
from cotenant_gateway.statuses import bad_request, too_many


class OpenStream:
    """One stream on its connection."""

    def __init__(self, connection: Connection, wake: asyncio.Event) -> None:
        self._connection = connection
        self.wake = wake
        """Set when the client is gone; the stream may let others set it too."""

    @property
    def gone(self) -> bool:
        """Whether the client is gone."""
        return self._connection.gone

    async def send(self, response: web.StreamResponse, chunk: bytes) -> bool:
        """Send a chunk and wait until the client reads it; False if too many bytes wait for clients already.

        Raises ConnectionError where the client is gone.
        """
        if len(chunk) <= SMALL_BYTES:
            await response.write(chunk)
            return True
        # The transport holds a copy.
        held = 2 * len(chunk)
        if not self._connection.owner.reserve_answer(self._connection, held):
            return False
        await response.write(chunk)
        self.taken(held)
        return True

    def hold(self, size: int) -> bool:
        """Reserve bytes that the client has yet to read; False if there are too many."""
        return size <= SMALL_BYTES or self._connection.owner.reserve_answer(self._connection, size)

    def taken(self, size: int) -> None:
        """The client has read reserved bytes."""
        if not self.gone:
            self._connection.owner.taken(self._connection, size)


class OpenStreams:
    """All streams of a gateway."""

    def __init__(self, limits: GatewayLimits) -> None:
        self._limits = limits
        self._open: Counter[StreamKind] = Counter()
        self._of_address: Counter[tuple[StreamKind, str]] = Counter()

    def count(self, kind: StreamKind) -> int:
        """How many of a kind are open."""
        return self._open[kind]

    @contextlib.contextmanager
    def open(self, request: web.BaseRequest, kind: StreamKind) -> Iterator[OpenStream]:
        """Count a stream while it is open. Raises ApiError (400, 429)."""
        if request.can_read_body:
            raise bad_request("a request for a stream must not have a body")
        connection = connection_of(request)
        most, most_of_address = self._limits.streams[kind]
        key = (kind, connection.address)
        if self._open[kind] >= most:
            raise too_many(f"{most} streams of the kind {kind} are open already, more are not served; try again later")
        if self._of_address[key] >= most_of_address:
            where = f"{most_of_address} streams of the kind {kind} are open from {connection.address} already"
            raise too_many(f"{where}, more are not served; close some, or try again later")
        stream = OpenStream(connection, asyncio.Event())
        self._open[kind] += 1
        self._of_address[key] += 1
        connection.on_gone = lambda: stream.wake.set()
        try:
            yield stream
        finally:
            connection.on_gone = None
            self._open[kind] -= 1
            self._of_address[key] -= 1
            if not self._of_address[key]:
                del self._of_address[key]
