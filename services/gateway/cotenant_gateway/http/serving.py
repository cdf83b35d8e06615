"""Where the gateway listens: HTTPS on an address, plain HTTP on a unix socket whose peer the kernel identifies.

In: a handler, limits, `Listening`. Out: a runner and its addresses. Certificates are loaded again when their files change: new
connections get the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
import stat
from pathlib import Path

import msgspec
from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.web_protocol import RequestHandler

from cotenant_gateway.access.tokens.files import FileMarks
from cotenant_gateway.http.app import Handler
from cotenant_gateway.http.bodies import MAX_BODY_BYTES
from cotenant_gateway.http.clients.connections import Connections
from cotenant_gateway.http.clients.limits import GatewayLimits
from cotenant_gateway.http.clients.tls import TlsSite

logger = logging.getLogger(__name__)

SHUTDOWN_SECONDS = 2.0
AIOHTTP_LATER_SECONDS = 60.0
BACKLOG = 1024
"""Connections that wait to be accepted."""
CERTIFICATE_LOOK_SECONDS = 10.0


class ListenError(Exception):
    """The gateway cannot listen as configured; the text states why, and what to do."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. Port -1: on no address."""

    address: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    """CA of client certificates; None: they are not requested."""
    unix_socket: Path | None = None


class ServingCertificate:
    """The server's certificate, current with its files."""

    def __init__(self, listening: Listening) -> None:
        """Load it. Raises ListenError."""
        if listening.certificate is None or listening.key is None:
            raise ListenError(
                "plain HTTP is served on a unix socket only: give --tls-cert-file and --tls-private-key-file, "
                "or --http-port -1 and --unix-socket"
            )
        self._chain, self._key = listening.certificate, listening.key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._marks = FileMarks(self._chain, self._key)
        try:
            self.context.load_cert_chain(self._chain, self._key)
            if listening.client_ca is not None:
                self.context.load_verify_locations(listening.client_ca)
                self.context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(str(file) for file in (self._chain, self._key, listening.client_ca) if file)
            raise ListenError(f"the certificate cannot be loaded from {files}: {error}") from error

    async def keep_current(self) -> None:
        """Load it again whenever its files change, forever."""
        while True:
            await asyncio.sleep(CERTIFICATE_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Load it again if its files have changed. One that cannot be loaded leaves the old one in place."""
        if not self._marks.changed():
            return
        try:
            self.context.load_cert_chain(self._chain, self._key)
        except (OSError, ssl.SSLError) as error:
            logger.error("%s: %s; the certificate loaded before stays in use", self._chain, error)
        else:
            logger.info("%s: loaded again", self._chain)


async def made_runner(handler: Handler, limits: GatewayLimits) -> tuple[web.ServerRunner, Connections]:
    """Return a server that listens nowhere yet, and its connections.

    aiohttp's server without its application: routing is one function here, and aiohttp's would cost each creation time.
    """
    loop = asyncio.get_running_loop()

    def new_request(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY_BYTES)

    # Idle connections are closed by `Connections`, before aiohttp does.
    later = limits.idle_seconds + limits.head_seconds + AIOHTTP_LATER_SECONDS
    server = Connections(handler, limits, request_factory=new_request, access_log=None, keepalive_timeout=later)
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    return runner, server


async def serve(
    handler: Handler, listening: Listening, limits: GatewayLimits
) -> tuple[web.ServerRunner, str, Connections, ServingCertificate | None]:
    """Serve a handler; returns its runner, its URL, its connections and its certificate. Port 0 picks a free one. Raises
    ListenError."""
    certificate = ServingCertificate(listening) if listening.port >= 0 else None
    if certificate is None and listening.unix_socket is None:
        raise ListenError("nothing to listen on: give --http-port or --unix-socket")
    runner, server = await made_runner(handler, limits)
    url = ""
    if listening.unix_socket is not None:
        await _listen_on(listening.unix_socket, runner)
        url = f"unix:{listening.unix_socket}"
    if certificate is not None:
        await TlsSite(
            runner,
            listening.address,
            listening.port,
            backlog=BACKLOG,
            context=certificate.context,
            handshakes=server.handshakes,
        ).start()
        port = next(address[1] for address in runner.addresses if isinstance(address, tuple))
        host = f"[{listening.address}]" if ":" in listening.address else listening.address
        url = f"https://{host}:{port}"
    return runner, url, server, certificate


def _make_way(path: Path) -> None:
    """Remove the socket of a previous process."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise ListenError(f"{path} exists and is not a socket")
        path.unlink()


async def _listen_on(path: Path, runner: web.ServerRunner) -> None:
    """Listen on a unix socket that only its owner can reach."""
    _make_way(path)
    before = os.umask(0o177)
    try:
        await web.UnixSite(runner, path, backlog=BACKLOG).start()
    finally:
        os.umask(before)
