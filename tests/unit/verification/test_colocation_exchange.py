"""The exchange of `bench colocation`: services are known while their connection lasts."""

from __future__ import annotations

import asyncio

import msgspec

from cotenant_verification.bench.colocation.exchange import Exchange

BOUND_SECONDS = 10.0


async def _connect(exchange: Exchange) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", exchange.port)
    writer.write(msgspec.json.encode({"token": exchange.token, "name": "service-0"}) + b"\n")
    return writer


async def test_a_service_that_ended_between_two_windows_is_waited_for() -> None:
    async with asyncio.timeout(BOUND_SECONDS), Exchange() as exchange:
        ended = await _connect(exchange)
        await exchange.until_connected(["service-0"])
        ended.close()
        await ended.wait_closed()
        while not exchange.over("service-0"):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)
        waiting = asyncio.ensure_future(exchange.until_connected(["service-0"]))
        await asyncio.sleep(0)
        assert not waiting.done()
        again = await _connect(exchange)
        await waiting
        again.close()
