"""Connections to the gateway: how many there are, what they hold, and when they are closed.

In: aiohttp's protocol, one object a connection. Out: the same, bounded (`GatewayLimits`):

* beyond the number of connections the one that has been idle for longest is closed, else the new one gets 429;
* connections with an incomplete head or body, and idle ones, are closed after their timeout;
* a client that does not read its answer is disconnected after `stalled_seconds`, or earlier when another one needs the bytes;
* a disconnect is noticed at once: a closed socket ends the request's stream (`on_gone`); a machine that vanished is
  found by TCP keepalive (idle) or TCP_USER_TIMEOUT (unacknowledged bytes) after some 30 s.

One check of all connections every LOOK_SECONDS instead of a timer for every request.

Over 300 lines: one connection, and the set of them, which decides which one is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from cotenant_gateway.access.authentication import Peer
from cotenant_gateway.http.clients.limits import ByteBudget, GatewayLimits
from cotenant_gateway.http.clients.sockets import keep_alive, peer_of, plain_answer
from cotenant_gateway.http.clients.tls import Handshakes
from cotenant_gateway.statuses import ApiError, bad_request, encodable, internal, request_timeout, too_many

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
EVICTED_AFTER_SECONDS = 1.0
"""A client that has read nothing for this long is disconnected if another answer needs its bytes."""


class Connection(RequestHandler):
    """One connection. Times are the loop's."""

    def __init__(self, owner: Connections, **options: Any) -> None:
        super().__init__(owner, **options)
        self._owner: Connections | None = owner
        self.socket: asyncio.Transport | None = None
        """The transport; kept after aiohttp has let go of it, until the socket is closed."""
        self.address = ""
        self.peer = Peer()
        self.gone = False
        self.on_gone: Callable[[], None] | None = None
        """Called once when the client is gone; set by the stream of the request in progress."""
        self.busy = False
        self.idle_since = self._loop.time()
        self.head_since: float | None = None
        self.paused_since: float | None = None
        self.closing_since: float | None = None
        self.answer_bytes = 0
        """Bytes reserved from the owner's budget."""
        self.request_bytes = 0

    @property
    def owner(self) -> Connections:
        """The client that the connection is counted for. Raises ConnectionResetError if it is gone."""
        if self._owner is None:
            raise ConnectionResetError("the client is gone")
        return self._owner

    # -- what aiohttp and the loop call ----------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, or refuse it."""
        self.socket = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        self.peer = peer_of(transport)
        keep_alive(transport.get_extra_info("socket"))
        refusal = self.owner.admit(self)
        if refusal is not None:
            self.socket.write(plain_answer(refusal))
            self.socket.close()
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Remove it, and end the stream that is open on it."""
        self._leave()
        if self._owner is not None:
            self._owner.lost(self)
        super().connection_lost(exc)
        self._owner = None
        # A TLS transport refers to its protocol: a reference from here would keep both until a full collection.
        self.socket = None

    def eof_received(self) -> None:
        """The client has closed its side: answers are no longer read. The loop closes the transport."""
        self._leave()
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Take bytes; note when a head began."""
        if not self.busy and self.head_since is None:
            self.head_since = self._loop.time()
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client has stopped reading."""
        super().pause_writing()
        self.paused_since = self._loop.time()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self.paused_since = None

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a head that is no HTTP with a Status, and close."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if isinstance(exc, LineTooLong):
            error = ApiError(431, "RequestHeaderFieldsTooLarge", encodable(f"a header field is too large: {message}"[:300]))
        elif status < 500:
            error = bad_request(encodable(f"the request is not HTTP: {message}"[:300]))
        else:
            error = internal(message or type(exc).__name__)
        response = web.Response(body=error.body, status=error.code, content_type="application/json")
        response.force_close()
        return response

    # -- what the gateway reports to it -------------------------------------------------------------------------------

    def begin(self) -> None:
        """A request begins."""
        self.busy, self.head_since = True, None
        if self._owner is not None:
            self._owner.idle.pop(self, None)

    def end(self) -> None:
        """The request has ended: its bytes are released."""
        self.busy = False
        self.idle_since = self._loop.time()
        if self.request_bytes or self.answer_bytes:
            self.release()
        if self._owner is not None and not self.gone:
            self._owner.idle[self] = None

    def release(self) -> None:
        """Release its bytes."""
        if self._owner is not None:
            self._owner.release(self)

    def cut_off(self) -> None:
        """Close it without waiting for unsent bytes."""
        if self.socket is not None:
            self.socket.abort()

    def _leave(self) -> None:
        if not self.gone:
            self.gone = True
            if self.on_gone is not None:
                self.on_gone()


class Connections(web.Server):
    """All connections of a gateway."""

    def __init__(self, handler: Callable[..., Any], limits: GatewayLimits, **options: Any) -> None:
        super().__init__(handler, **options)
        self.limits = limits
        self.open: set[Connection] = set()
        self.idle: dict[Connection, None] = {}
        """Those without a request, the one that has been idle for longest first."""
        self._of_address: Counter[str] = Counter()
        self.requests = ByteBudget(limits.request_bytes)
        self.answers = ByteBudget(limits.answer_bytes)
        self.handshakes = Handshakes()
        self.refused = 0
        self.cut_off = 0
        """Closed because they were slow: to send, or to read an answer."""

    def __call__(self) -> RequestHandler:
        """Return the protocol of a new connection."""
        return Connection(self, loop=self._loop, **self._kwargs)

    def admit(self, connection: Connection) -> ApiError | None:
        """Count a new connection, closing an idle one where there are too many. Returns the refusal where none is idle."""
        address, limits = connection.address, self.limits
        if self._of_address[address] >= limits.connections_of_address:
            idle = next((idle for idle in self.idle if idle.address == address), None)
            most = f"{limits.connections_of_address} connections from {address}"
        elif len(self.open) >= limits.connections:
            idle, most = next(iter(self.idle), None), f"{limits.connections} connections"
        else:
            idle, most = None, ""
        if idle is not None:
            self._forget(idle)
            idle.force_close()
        elif most:
            self.refused += 1
            return too_many(f"{most} are open and busy already; try again later")
        self.open.add(connection)
        self.idle[connection] = None
        self._of_address[address] += 1
        return None

    def lost(self, connection: Connection) -> None:
        """A connection is closed."""
        self.release(connection)
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        self.idle.pop(connection, None)
        if connection in self.open:
            self.open.discard(connection)
            self._of_address[connection.address] -= 1
            if not self._of_address[connection.address]:
                del self._of_address[connection.address]

    # -- bytes -----------------------------------------------------------------------------------------------------

    def reserve_request(self, connection: Connection, size: int) -> bool:
        """Reserve the bytes of a request's body until the request ends; False if there are too many."""
        if not self.requests.fits(size):
            return False
        self.requests.take(size)
        connection.request_bytes += size
        return True

    def reserve_answer(self, connection: Connection, size: int) -> bool:
        """Reserve bytes that a client has yet to read; False if there are too many. Then clients that have read nothing for
        longest are disconnected: their memory is free a moment later, when the client retries."""
        if self.answers.fits(size):
            self.answers.take(size)
            connection.answer_bytes += size
            return True
        now = self._loop.time()
        slow = [
            c
            for c in self.open
            if c is not connection and c.answer_bytes and c.paused_since and now - c.paused_since >= EVICTED_AFTER_SECONDS
        ]
        missing = self.answers.held + size - self.answers.limit
        for victim in sorted(slow, key=lambda c: c.paused_since or now):
            if missing <= 0:
                break
            missing -= victim.answer_bytes
            self._cut_off(victim, "its answer's memory is needed for others")
        return False

    def taken(self, connection: Connection, size: int) -> None:
        """The client has read this many of the reserved bytes."""
        size = min(size, connection.answer_bytes)
        connection.answer_bytes -= size
        self.answers.give(size)

    def release(self, connection: Connection) -> None:
        """Release all bytes of a connection."""
        self.requests.give(connection.request_bytes)
        self.answers.give(connection.answer_bytes)
        connection.request_bytes = connection.answer_bytes = 0

    # -- time ------------------------------------------------------------------------------------------------------

    async def keep_looking(self) -> None:
        """Close connections that timed out, forever; cancelled at the end of the process."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look(self._loop.time())

    def look(self, now: float) -> None:
        """Close connections that timed out."""
        limits = self.limits
        for connection in list(self.open):
            transport = connection.socket
            if transport is None:
                continue
            if transport.is_closing():
                connection.closing_since = connection.closing_since or now
            stalled = connection.paused_since or connection.closing_since
            if stalled is not None and now - stalled > limits.stalled_seconds:
                self._cut_off(connection, f"it read nothing of its answer for {limits.stalled_seconds:.0f} s")
            elif connection.busy or transport.is_closing():
                continue
            elif connection.head_since is not None and now - connection.head_since > limits.head_seconds:
                self.cut_off += 1
                late = request_timeout(f"the head of a request did not arrive within {limits.head_seconds:.0f} s")
                transport.write(plain_answer(late))
                connection.force_close()
            elif now - connection.idle_since > limits.idle_seconds:
                connection.force_close()

    def _cut_off(self, connection: Connection, why: str) -> None:
        logger.info("the connection from %s is closed: %s", connection.address, why)
        self.cut_off += 1
        connection.cut_off()


def connection_of(request: web.BaseRequest) -> Connection:
    """Return the connection that a request came on."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection
