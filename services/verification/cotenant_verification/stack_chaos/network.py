"""TCP relays that can be cut: one in front of each connection that a partition may affect.

In: where to listen and whom to reach. Out: a relay. Cut, it is a network that loses everything: connections stay open, nothing
arrives on either side, new ones are accepted and lead nowhere; healed, what was sent meanwhile arrives, as TCP would have it.

A relay may also be told how many more bytes of its callers it lets pass; then it is cut, and what they send beyond is lost.

Bound: a cut relay reads nothing, so no more waits than the kernel's buffers hold.
"""

from __future__ import annotations

import asyncio
from typing import cast

from cotenant_console.up.nats_server import LOOPBACK

RETRY_SECONDS = 0.2
HIGH_WATER_BYTES = 1 << 20


class Relay:
    """Listens on one port and reaches another."""

    def __init__(self, port: int, to: int) -> None:
        self.port = port
        self.to = to
        self.is_cut = False
        self.passed = 0
        """Bytes of callers that it let pass."""
        self.spent = asyncio.Event()
        """Set once it has let pass as many as it should."""
        self._last: int | None = None
        self._ends: set[_End] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.get_running_loop().create_server(lambda: _Near(self), LOOPBACK, self.port)

    def cut(self) -> None:
        """Let nothing pass."""
        self.is_cut = True
        for end in self._ends:
            end.hold()

    def let_pass(self, more: int) -> None:
        """Be cut once so many more bytes of callers have passed."""
        self.spent.clear()
        self._last = self.passed + more

    def passing(self, data: bytes) -> bytes:
        """Return what passes of what a caller has sent."""
        if self._last is not None:
            data = data[: max(self._last - self.passed, 0)]
        self.passed += len(data)
        if self._last == self.passed and not self.spent.is_set():
            self.spent.set()
            self.cut()
        return data

    def drop(self) -> None:
        """Close all connections."""
        for end in list(self._ends):
            end.drop()

    def heal(self) -> None:
        """Let everything pass again."""
        self.is_cut = False
        self._last = None
        for end in list(self._ends):
            end.release()

    async def close(self) -> None:
        """End it with all its connections."""
        if self._server is not None:
            self._server.close()
        self.drop()

    def add(self, end: _End) -> None:
        """A connection has opened."""
        self._ends.add(end)

    def remove(self, end: _End) -> None:
        """A connection has closed."""
        self._ends.discard(end)


class _End(asyncio.Protocol):
    """One side of a relayed connection."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None
        self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        self.relay.add(self)
        if self.relay.is_cut:
            self.hold()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.release()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.relay.remove(self)
        if self.other is not None:
            self.other.drop()

    def hold(self) -> None:
        """Read no more."""
        if self.transport is not None and not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def release(self) -> None:
        """Read on."""
        if self.transport is not None and self._paused and not self.relay.is_cut and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def drop(self) -> None:
        """Close it."""
        if self.transport is not None:
            self.transport.close()


class _Near(_End):
    """The side that called. It is read from once the other side is reached."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.hold()
        self._reaching = asyncio.ensure_future(self._reach())

    def release(self) -> None:
        """Continue reading, once there is a peer."""
        if self.other is not None:
            super().release()

    def data_received(self, data: bytes) -> None:
        super().data_received(self.relay.passing(data))

    async def _reach(self) -> None:
        try:
            while self.relay.is_cut:  # noqa: ASYNC110 - one look a while, and only while it is cut
                await asyncio.sleep(RETRY_SECONDS)
            far = _End(self.relay)
            far.other = self
            await asyncio.get_running_loop().create_connection(lambda: far, LOOPBACK, self.relay.to)
            self.other = far
            self.release()
        except OSError:
            self.drop()
