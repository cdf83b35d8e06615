"""The demonstration's load generator before its service is there."""

from __future__ import annotations

import asyncio

from cotenant_console.demo.load import LoadGenerator

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def test_nothing_is_counted_before_the_service_has_answered() -> None:
    refusals = 3
    enough = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            writer.close()
            return
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(ANSWER)
            if load.answered >= 5:
                enough.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    load = LoadGenerator("127.0.0.1", port, day_seconds=120, night=200, noon=200, seed=7)
    sending = asyncio.create_task(load.run())
    async with asyncio.timeout(30):
        await enough.wait()
    sending.cancel()
    server.close()
    assert refusals == 0
    assert load.failed == 0
    assert load.answered >= 5
