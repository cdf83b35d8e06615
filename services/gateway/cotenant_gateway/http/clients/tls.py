"""TLS on the loop's plain connections, by asyncio's own protocol.

uvloop's TLS keeps some 12 KiB of each connection forever (uvloop issue 565, seen with 0.23): a client that comes once a second
would take a gibibyte a day. asyncio's protocol frees all of it, with a buffer of BUFFER_BYTES instead of 256 KiB.

Bounds: HANDSHAKES in progress at a time, HANDSHAKE_SECONDS and SHUTDOWN_SECONDS each; connections beyond them are closed at
once.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable

from aiohttp import web

BUFFER_BYTES = 16 * 1024
"""The largest TLS record."""
HANDSHAKES = 1024
HANDSHAKE_SECONDS = 10
SHUTDOWN_SECONDS = 5


class Handshakes:
    """How many are in progress."""

    def __init__(self) -> None:
        self.count = 0
        self.refused = 0


class TlsConnection(SSLProtocol):
    """One connection: TLS on the wire, bytes for the protocol above it."""

    max_size = BUFFER_BYTES

    def __init__(self, above: asyncio.Protocol, context: ssl.SSLContext, handshakes: Handshakes) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            above,
            context,
            None,  # type: ignore[arg-type] # nobody waits for the handshake, which the protocol allows and its stub does not
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )
        self._handshakes = handshakes
        self._counted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless too many are in progress."""
        if self._handshakes.count >= HANDSHAKES:
            self._handshakes.refused += 1
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        self._counted = True
        self._handshakes.count += 1
        super().connection_made(transport)

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        self._counted_off()
        super()._on_handshake_complete(handshake_exc)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free OpenSSL's memory."""
        self._counted_off()
        super().connection_lost(exc)
        self._sslobj = None

    def _counted_off(self) -> None:
        if self._counted:
            self._counted = False
            self._handshakes.count -= 1


class TlsSite(web.TCPSite):
    """A listening address whose connections speak TLS."""

    def __init__(
        self,
        runner: web.ServerRunner,
        address: str,
        port: int,
        *,
        backlog: int,
        context: ssl.SSLContext,
        handshakes: Handshakes,
    ) -> None:
        super().__init__(runner, address, port, backlog=backlog)
        self._context = context
        self._handshakes = handshakes

    async def start(self) -> None:
        """Listen."""
        await web.BaseSite.start(self)
        above: Callable[[], asyncio.Protocol] | None = self._runner.server
        assert above is not None
        made = above
        self._server = await asyncio.get_running_loop().create_server(
            lambda: TlsConnection(made(), self._context, self._handshakes), self._host, self._port, backlog=self._backlog
        )
