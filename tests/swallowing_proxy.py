"""A proxy in front of a server that answers for a while and then does not: connections stay open, answers get lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

CHUNK = 1 << 16


class SwallowingProxy:
    """Everything comes through, until `swallow_from` says otherwise."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self._awaited: list[bytes] = []
        self.swallowed = asyncio.Event()
        """Set once an answer was swallowed."""
        self._silent = False
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"nats://127.0.0.1:{self.port}"

    def swallow_from(self, *requests: bytes) -> None:
        """Let nothing through that the server says, once clients have sent these texts, one after the other."""
        self._awaited = [*requests]

    def answer_again(self) -> None:
        """Let everything through again. Clients have to connect again, as a part of what they were told is missing."""
        self._awaited, self._silent = [], False
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server until one of them goes."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        self._writers |= {writer, to_server}
        ways = [asyncio.ensure_future(way) for way in (self._requests(reader, to_server), self._answers(from_server, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for each in (writer, to_server):
            self._writers.discard(each)
            each.transport.abort()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        unread = b""
        while data := await reader.read(CHUNK):
            unread = (unread + data)[-2 * CHUNK :] if self._awaited else b""
            while self._awaited and self._awaited[0] in unread:
                unread = unread.partition(self._awaited.pop(0))[2]
                self._silent = not self._awaited
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK):
            if self._silent:
                self.swallowed.set()
                continue
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def swallowing_proxy(server_port: int) -> AsyncIterator[SwallowingProxy]:
    """A proxy on a free port."""
    proxy = SwallowingProxy(server_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.answer_again()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(5):
                await server.wait_closed()
