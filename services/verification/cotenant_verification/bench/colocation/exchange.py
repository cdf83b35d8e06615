"""The port of this host from which the services of a colocation benchmark get their orders.

In: the orders of a window. Out: each service's requests. Services connect when they start (`service.py`), and are known by
their names. Bounds: CONNECT_SECONDS until a service is there, the window and ANSWER_SECONDS until it answers, LARGEST_ANSWER.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from cotenant_verification.bench.colocation.cases import Plan
from cotenant_verification.bench.colocation.figures import Records
from cotenant_verification.bench.testbed import BenchError

CONNECT_SECONDS = 60.0
ANSWER_SECONDS = 30.0
LARGEST_ANSWER = 64 << 20
LEAD_SECONDS = 0.5
"""From the order to the first second of its window."""


class _Hello(msgspec.Struct):
    token: str
    name: str


class _Answer(msgspec.Struct):
    threads: Records


class Order(msgspec.Struct, frozen=True):
    """The services' orders of one window."""

    at: float
    seed: str
    plan: Plan
    iterations: int


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Exchange:
    """Use as an asynchronous context."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.port = 0
        self._connected: dict[str, _Connection] = {}
        self._arrived = asyncio.Condition()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Exchange:
        self._server = await asyncio.start_server(self._greet, "127.0.0.1", 0, limit=LARGEST_ANSWER)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connected.values():
            connection.writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            hello = msgspec.json.decode(await reader.readline(), type=_Hello)
        except (msgspec.MsgspecError, ValueError, OSError):
            writer.close()
            return
        if not secrets.compare_digest(hello.token, self.token):
            writer.close()
            return
        async with self._arrived:
            self._connected[hello.name] = _Connection(reader, writer)
            self._arrived.notify_all()

    async def until_connected(self, names: Sequence[str]) -> None:
        """Wait for services; one that ended since its last window has to start again. Raises BenchError."""
        for name in names:
            if self.over(name):
                self.forget(name)
        try:
            async with asyncio.timeout(CONNECT_SECONDS), self._arrived:
                await self._arrived.wait_for(lambda: all(name in self._connected for name in names))
        except TimeoutError:
            missing = ", ".join(name for name in names if name not in self._connected)
            raise BenchError(f"after {CONNECT_SECONDS:.0f} s these services have not started: {missing}") from None

    def over(self, name: str) -> bool:
        """Whether a service that was connected has ended."""
        connection = self._connected.get(name)
        return connection is not None and connection.reader.at_eof()

    def forget(self, name: str) -> None:
        """Close the connection of a service that ended, or is to end."""
        connection = self._connected.pop(name, None)
        if connection is not None:
            connection.writer.close()

    async def carry_out(self, names: Sequence[str], seed: str, plan: Plan, iterations: int) -> dict[str, Records | None]:
        """One window. A service that ended in it has None, and is dropped."""
        at = time.monotonic() + LEAD_SECONDS
        limit = LEAD_SECONDS + sum(seconds for seconds, _ in plan) + ANSWER_SECONDS
        asked = [self._asked(name, Order(at, f"{seed}/{name[-1]}", plan, iterations), limit) for name in names]
        return dict(zip(names, await asyncio.gather(*asked), strict=True))

    async def _asked(self, name: str, order: Order, limit: float) -> Records | None:
        connection = self._connected.get(name)
        if connection is None:
            return None
        with contextlib.suppress(OSError, ValueError, TimeoutError, msgspec.MsgspecError):
            connection.writer.write(msgspec.json.encode(order) + b"\n")
            async with asyncio.timeout(limit):
                line = await connection.reader.readline()
            if line:
                return msgspec.json.decode(line, type=_Answer).threads
        self.forget(name)
        return None
