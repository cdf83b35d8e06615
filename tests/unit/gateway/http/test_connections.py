"""What clients may take of a gateway's HTTP server: over real sockets, with small bounds, and a handler of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from cotenant.engine.commit import Identity
from cotenant.log.memory import MemoryLog
from cotenant_gateway.http.app import answer_errors
from cotenant_gateway.http.bodies import read_body
from cotenant_gateway.http.clients.connections import LOOK_SECONDS, Connections, connection_of
from cotenant_gateway.http.clients.large_answers import sent_in_pieces
from cotenant_gateway.http.clients.limits import MIB, ByteBudget, GatewayLimits, StreamKind
from cotenant_gateway.http.clients.streams import OpenStream, OpenStreams
from cotenant_gateway.http.serving import made_runner
from cotenant_gateway.shell.following import ReadModel

WAIT_SECONDS = 60
GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = 8 * MIB
"""More than the kernel holds for a client that does not read."""


class Server:
    """A server with the gateway's connections: `/` answers, `/large` with much, `/stream` goes on until the client is gone,
    POST reads a body."""

    def __init__(self, limits: GatewayLimits) -> None:
        self.limits = limits
        self.streams = OpenStreams(limits)
        self.ended: list[OpenStream] = []
        self.connections: Connections
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def _dispatch(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            return web.Response(body=b"%d" % len(await read_body(request)))
        if request.path == "/large":
            return await sent_in_pieces(request, web.Response(body=b"x" * LARGE))
        if request.path == "/stream":
            with self.streams.open(request, StreamKind.WATCH) as stream:
                response = web.StreamResponse()
                await response.prepare(request)
                while not stream.gone:
                    await stream.wake.wait()
                self.ended.append(stream)
            return response
        return web.Response(body=b"here")

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = connection_of(request)
        connection.begin()
        try:
            return await answer_errors(request, self._dispatch)
        finally:
            connection.end()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Server]:
        runner, self.connections = await made_runner(self._handle, self.limits)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        looking = asyncio.ensure_future(self.connections.keep_looking())
        try:
            yield self
        finally:
            for writer in self._writers:
                writer.close()
            await until(lambda: not self.connections.open)
            looking.cancel()
            await runner.cleanup()

    async def connect(self, **options: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **options)
        # A writer that nobody holds is closed.
        self._writers.append(writer)
        return reader, writer


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - bounded
            await asyncio.sleep(LOOK_SECONDS / 20)


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer with a length."""
    async with asyncio.timeout(WAIT_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        (length,) = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")]
        return int(head[9:12]), await reader.readexactly(length)


async def ask(server: Server, request: bytes) -> tuple[int, bytes]:
    reader, writer = await server.connect()
    writer.write(request)
    try:
        return await answer_of(reader)
    finally:
        writer.close()


async def closed(reader: asyncio.StreamReader) -> bytes:
    """What is left to read until the server closes."""
    async with asyncio.timeout(WAIT_SECONDS):
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
    return b""


def is_status(body: bytes, code: int) -> bool:
    status = json.loads(body)
    return (status["kind"], status["code"]) == ("Status", code) and bool(status["message"])


async def test_beyond_the_bound_the_connection_idle_for_longest_is_closed() -> None:
    async with Server(GatewayLimits(connections=4, connections_of_address=4)).running() as server:
        readers = []
        for _ in range(10):
            reader, writer = await server.connect()
            writer.write(GET % b"/")
            assert (await answer_of(reader))[0] == 200
            readers.append(reader)
        for reader in readers[:6]:
            assert await closed(reader) == b""
        assert len(server.connections.open) == 4
        assert not readers[-1].at_eof()


async def test_where_no_connection_is_idle_a_new_one_gets_429() -> None:
    async with Server(GatewayLimits(connections=3, connections_of_address=3)).running() as server:
        writers = []
        for _ in range(3):
            _, writer = await server.connect()
            writer.write(GET % b"/stream")
            writers.append(writer)
        await until(lambda: server.streams.count(StreamKind.WATCH) == 3)
        reader, _ = await server.connect()
        code, body = await answer_of(reader)
        assert code == 429
        assert is_status(body, 429)
        writers[0].close()
        await until(lambda: len(server.connections.open) == 2)
        assert (await ask(server, GET % b"/"))[0] == 200


async def test_one_address_does_not_take_the_connections_of_the_others() -> None:
    async with Server(GatewayLimits(connections=6, connections_of_address=3)).running() as server:
        for _ in range(3):
            _, writer = await server.connect()
            writer.write(GET % b"/stream")
        await until(lambda: server.streams.count(StreamKind.WATCH) == 3)
        reader, _ = await server.connect()
        assert (await answer_of(reader))[0] == 429
        reader, writer = await server.connect(local_addr=("127.0.0.2", 0))
        writer.write(GET % b"/")
        assert (await answer_of(reader))[0] == 200


async def test_a_head_a_body_and_an_idle_connection_have_their_time() -> None:
    async with Server(GatewayLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2)).running() as server:
        head, head_writer = await server.connect()
        head_writer.write(b"GET / HTTP/1.1\r\nX-Slow: ")
        body, body_writer = await server.connect()
        body_writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nslow")
        idle, _ = await server.connect()
        assert is_status((await answer_of(head))[1], 408)
        assert await closed(head) == b""
        assert is_status((await answer_of(body))[1], 408)
        assert await closed(idle) == b""


async def test_a_stream_ends_when_its_client_goes_however_it_goes() -> None:
    async with Server(GatewayLimits()).running() as server:
        for reset in (False, True):
            _, writer = await server.connect()
            writer.write(GET % b"/stream")
            await until(lambda: server.streams.count(StreamKind.WATCH) == 1)
            if reset:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.close()
            await until(lambda: server.streams.count(StreamKind.WATCH) == 0)
        assert len(server.ended) == 2
        await until(lambda: not server.connections.open)


async def test_streams_are_bounded_in_all_and_by_address() -> None:
    limits = GatewayLimits(streams={StreamKind.WATCH: (3, 2)})
    async with Server(limits).running() as server:
        for _ in range(2):
            _, writer = await server.connect()
            writer.write(GET % b"/stream")
        await until(lambda: server.streams.count(StreamKind.WATCH) == 2)
        code, body = await ask(server, GET % b"/stream")
        assert code == 429
        assert json.loads(body)["details"]["retryAfterSeconds"] == 1
        _, writer = await server.connect(local_addr=("127.0.0.2", 0))
        writer.write(GET % b"/stream")
        await until(lambda: server.streams.count(StreamKind.WATCH) == 3)
        reader, writer = await server.connect(local_addr=("127.0.0.3", 0))
        writer.write(GET % b"/stream")
        assert (await answer_of(reader))[0] == 429


async def test_a_client_that_does_not_read_is_cut_off_and_its_bytes_are_given_back() -> None:
    async with Server(GatewayLimits(stalled_seconds=0.5)).running() as server:
        reader, writer = await server.connect(limit=1024)
        writer.write(GET % b"/large")
        await until(lambda: server.connections.answers.held == LARGE)
        await until(lambda: server.connections.cut_off == 1)
        await until(lambda: server.connections.answers.held == 0)
        assert len(await closed(reader)) < LARGE


async def test_who_takes_nothing_makes_room_for_the_others_answers() -> None:
    async with Server(GatewayLimits(answer_bytes=LARGE + MIB)).running() as server:
        _, writer = await server.connect(limit=1024)
        writer.write(GET % b"/large")
        await until(lambda: server.connections.answers.held == LARGE)
        refused = 0
        async with asyncio.timeout(WAIT_SECONDS):
            # At first the slow one may still be reading; 429 says when to come again.
            while (answer := await ask(server, GET % b"/large"))[0] == 429:
                assert is_status(answer[1], 429)
                refused += 1
                await asyncio.sleep(LOOK_SECONDS / 20)
        assert refused
        assert len(answer[1]) == LARGE
        await until(lambda: server.connections.answers.held == 0)


async def test_bodies_under_way_are_bounded_in_bytes() -> None:
    async with Server(GatewayLimits(request_bytes=MIB)).running() as server:
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        first, writer = await server.connect()
        writer.write(post % 700_000)
        _, announcing = await server.connect()
        announcing.write(post % 1_000_000)
        writer.write(b"x" * 600_000)
        await until(lambda: server.connections.requests.held == 600_000)
        code, body = await ask(server, post % 700_000 + b"x" * 700_000)
        assert code == 429
        assert is_status(body, 429)
        # Who only announces a body takes nothing from the others, and small ones find room.
        assert await ask(server, post % 3 + b"abc") == (200, b"3")
        writer.write(b"x" * 100_000)
        assert await answer_of(first) == (200, b"700000")
        await until(lambda: server.connections.requests.held == 0)
        assert (await ask(server, post % 700_000 + b"x" * 700_000))[0] == 200


async def test_a_vanished_machine_is_noticed_by_the_kernel() -> None:
    async with Server(GatewayLimits()).running() as server:
        await server.connect()
        await until(lambda: len(server.connections.open) == 1)
        (connection,) = server.connections.open
        assert connection.socket is not None
        sock = connection.socket.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, interval, probes = (
            sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + interval * probes <= 30
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000


HEADS = {
    "10,000 headers": (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", {400, 431}),
    "header of 1 MB": (b"GET / HTTP/1.1\r\nX: " + b"y" * MIB + b"\r\n\r\n", {400, 431}),
    "line of 1 MB": (b"GET /" + b"y" * MIB + b" HTTP/1.1\r\n\r\n", {400, 431}),
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", {400}),
    "length -1": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", {400}),
    "length 1e18": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % 10**18, {413}),
    "length NaN": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: NaN\r\n\r\n", {400}),
    "chunks that are none": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\nhello\r\n", {400}),
    "gzip that is none": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
        {400, 415},
    ),
    "two lengths": (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", {400}),
}


async def test_heads_beyond_all_measure_get_a_status() -> None:
    async with Server(GatewayLimits()).running() as server:
        for name, (sent, expected) in HEADS.items():
            code, body = await ask(server, sent)
            assert code in expected, name
            assert is_status(body, code), name
        await until(lambda: not server.connections.open)
        assert (await ask(server, GET % b"/"))[0] == 200


def test_what_is_larger_than_the_budget_is_held_alone() -> None:
    budget = ByteBudget(10)
    assert budget.fits(11)
    budget.take(11)
    assert not budget.fits(1)
    budget.give(11)
    budget.take(1)
    assert not budget.fits(11)


async def test_who_gives_up_waiting_for_a_version_is_forgotten() -> None:
    """A client may make up any version, and nothing may ever reach it."""
    identity = Identity(service="gateway", cell="cell", replica="g", version="1", core="1")
    model = ReadModel(MemoryLog(), identity, lambda: datetime.now(UTC))
    waits = [asyncio.ensure_future(model.folded(10**18 + i)) for i in range(3)]
    reached = asyncio.ensure_future(model.folded(5))
    await asyncio.sleep(0)
    assert model.waiting == 4
    for wait in waits:
        wait.cancel()
    await asyncio.wait(waits)
    assert model.waiting == 1
    model.wake(5)
    assert await reached
    assert model.waiting == 0
