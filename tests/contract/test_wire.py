"""The client's way of taking what a server sends: messages of sinks, of other subscriptions and the rest of the protocol, in
pieces of any size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from nats.aio.msg import Msg

from cotenant.log.nats.wire import BusClient

WAIT_SECONDS = 60
SUNK, CALLED = "sunk", "called"
INFO = b'INFO {"server_id":"x","version":"2.15.0","max_payload":1048576,"headers":true}\r\n'


class Server:
    """Speaks as much of the protocol as a client needs to connect, and sends what it is given."""

    def __init__(self) -> None:
        self.numbers: dict[str, bytes] = {}
        """Of subscriptions, by subject."""
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(INFO)
        while line := await reader.readline():
            words = line.split()
            if words[0] == b"PING":
                writer.write(b"PONG\r\n")
            elif words[0] == b"SUB":
                self.numbers[words[1].decode()] = words[-1]

    def message(self, subject: str, number: int) -> bytes:
        """A message with headers or without, with a reply subject or without."""
        data = b"%d " % number + b"\r\nMSG x" * (number % 3)
        reply = b"answers.to.me " if number % 2 else b""
        if number % 5:
            return b"MSG %b %b %b%d\r\n%b\r\n" % (subject.encode(), self.numbers[subject], reply, len(data), data)
        block = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number
        sizes = len(block), len(block) + len(data)
        return b"HMSG %b %b %b%d %d\r\n%b%b\r\n" % (subject.encode(), self.numbers[subject], reply, *sizes, block, data)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.numbers["port"] = b"%d" % listening.sockets[0].getsockname()[1]
    yield made
    if made.writer is not None:
        made.writer.close()
    listening.close()


@pytest.mark.parametrize("seed", range(20))
async def test_each_message_arrives_once_and_in_order_whatever_the_pieces_that_it_comes_in(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    client = BusClient()
    await client.connect(f"nats://127.0.0.1:{int(server.numbers['port'])}", allow_reconnect=False)
    sunk: list[int] = []
    called: list[int] = []
    headers: list[int] = []
    over = asyncio.Event()

    def sink(subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        number = int(data.split()[0])
        sunk.append(number)
        assert (subject, reply) == (SUNK.encode(), b"answers.to.me" if number % 2 else b"")
        if block:
            headers.append(int(block.split()[2]))

    async def call(message: Msg) -> None:
        called.append(int(message.data.split()[0]))
        if called[-1] == last:
            over.set()

    await client.subscribe_raw(SUNK, sink)
    await client.subscribe(CALLED, cb=call)
    async with asyncio.timeout(WAIT_SECONDS):
        await client.flush()
        sent = [(SUNK if chance.random() < 0.8 else CALLED) for _ in range(300)] + [CALLED]
        last = len(sent) - 1
        stream = b"".join(
            (b"PING\r\n" if chance.random() < 0.1 else b"") + server.message(subject, number)
            for number, subject in enumerate(sent)
        )
        assert server.writer is not None
        while stream:
            size = chance.choice((1, 2, 7, 30, 200, 3000))
            server.writer.write(stream[:size])
            stream = stream[size:]
            await server.writer.drain()
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        await over.wait()
    assert sunk == [number for number, subject in enumerate(sent) if subject == SUNK]
    assert called == [number for number, subject in enumerate(sent) if subject == CALLED]
    assert headers == [number for number in sunk if number % 5 == 0]
    await client.close()


async def test_a_message_reaches_its_sink_without_the_reading_task(server: Server) -> None:
    client = BusClient()
    await client.connect(f"nats://127.0.0.1:{int(server.numbers['port'])}", allow_reconnect=False)
    taken_by: list[asyncio.Task[object] | None] = []
    arrived = asyncio.Event()

    def sink(*_: bytes) -> None:
        try:
            taken_by.append(asyncio.current_task())
        finally:
            arrived.set()

    await client.subscribe_raw(SUNK, sink)
    async with asyncio.timeout(WAIT_SECONDS):
        await client.flush()
        assert server.writer is not None
        server.writer.write(server.message(SUNK, 1))
        await arrived.wait()
    assert taken_by == [None]
    await client.close()
