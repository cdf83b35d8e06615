"""The process that deletes pods over HTTP, with other writes meanwhile: raw requests over keep-alive connections.

In: a file with the orders. Out, to a file: for each pod when its deletion was requested and how long the answer took;
for each other write when it was due and how long it took from then on (a write that has to wait is late). The other
writes begin `alone_seconds` before the deletions and end with them.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import msgspec
import uvloop

from cotenant_console.api.credentials import Server
from cotenant_verification.bench.workload import NAMESPACE, pod_name

OTHER_WRITERS = 16
"""Connections of the other writes; more are not in progress."""
_LENGTH = b"content-length: "


class Deletions(msgspec.Struct, frozen=True):
    """What to delete: pods 0 to `pods` - 1. `grace`: None for the pods' own."""

    gateway: Server
    pods: int
    clients: int
    grace: int | None
    other_rate: float
    alone_seconds: float
    out: str


class Deleted(msgspec.Struct):
    """The measurements. Clocks in nanoseconds of the machine's monotonic clock, times in milliseconds."""

    asked: list[int] = []
    answered_ms: list[float] = []
    began: int = 0
    ended: int = 0
    others: list[tuple[int, float]] = []
    failed: list[str] = []


class BenchConnection(asyncio.Protocol):
    """One connection: one request at a time."""

    def __init__(self, host: str, token: str) -> None:
        self._head = f"HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nUser-Agent: bench/1\r\n"
        self._buffer = b""
        self._answer: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the gateway closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, gap, body = self._buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        where = head.lower().index(_LENGTH) + len(_LENGTH)
        if len(body) >= int(head[where:].split(b"\r", 1)[0]) and self._answer is not None:
            self._answer.set_result(self._buffer)
            self._buffer, self._answer = b"", None

    async def ask(self, method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> tuple[int, bytes]:
        """Send a request; returns status and the whole answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        head = f"{method} {path} {self._head}Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)
        answer = await self._answer
        return int(answer[9:12]), answer


async def connect(gateway: Server) -> BenchConnection:
    """Open a connection to a gateway."""
    at = urlsplit(gateway.url)
    assert at.hostname is not None
    assert at.port is not None
    context = gateway.credentials.context()
    made = partial(BenchConnection, at.netloc, gateway.credentials.token)
    _, connection = await asyncio.get_running_loop().create_connection(made, at.hostname, at.port, ssl=context)
    return connection


class _Run:
    def __init__(self, orders: Deletions) -> None:
        self._orders = orders
        self.seen = Deleted(asked=[0] * orders.pods, answered_ms=[0.0] * orders.pods)
        self._numbers = iter(range(orders.pods))

    async def delete(self) -> None:
        """One client: deletes one pod after the other."""
        connection = await connect(self._orders.gateway)
        grace = self._orders.grace
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        for i in self._numbers:
            self.seen.asked[i] = started = time.monotonic_ns()
            status, answer = await connection.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod_name(i)}{query}")
            self.seen.answered_ms[i] = (time.monotonic_ns() - started) / 1e6
            if status not in (200, 202):
                self.seen.failed.append(f"{pod_name(i)}: {answer[:300].decode(errors='replace')}")

    async def write_others(self) -> None:
        """Change config maps at a rate, however long the answers take."""
        free: asyncio.Queue[tuple[int, BenchConnection]] = asyncio.Queue()
        path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
        for i in range(OTHER_WRITERS):
            connection = await connect(self._orders.gateway)
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"other-{i}"}, "data": {"n": "0"}}
            await connection.ask("POST", path, msgspec.json.encode(body))
            free.put_nowait((i, connection))
        started, number = time.monotonic(), 0

        async def write(i: int, connection: BenchConnection, due: float) -> None:
            body = b'{"data":{"n":"%d"}}' % number
            status, answer = await connection.ask("PATCH", f"{path}/other-{i}", body, "application/merge-patch+json")
            self.seen.others.append((int(due * 1e9), (time.monotonic() - due) * 1e3))
            if status != 200:
                self.seen.failed.append(f"other-{i}: {answer[:300].decode(errors='replace')}")
            free.put_nowait((i, connection))

        async with asyncio.TaskGroup() as group:
            while not self.seen.ended:
                due = started + number / self._orders.other_rate
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                number += 1
                group.create_task(write(*await free.get(), due))

    async def run(self) -> Deleted:
        """All of it."""
        others = asyncio.ensure_future(self.write_others())
        await asyncio.sleep(self._orders.alone_seconds)
        self.seen.began = time.monotonic_ns()
        await asyncio.gather(*(self.delete() for _ in range(self._orders.clients)))
        self.seen.ended = time.monotonic_ns()
        await others
        return self.seen


def main() -> None:
    """Run; the first argument is the file with the orders."""
    orders = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Deletions)
    Path(orders.out).write_bytes(msgspec.json.encode(uvloop.run(_Run(orders).run())))


if __name__ == "__main__":
    main()
