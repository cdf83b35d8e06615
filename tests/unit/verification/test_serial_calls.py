"""Blocking calls of the colocation benchmark: never two at once, also where a task is cancelled while its call runs."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cotenant_verification.bench.colocation.serial_calls import SerialCalls

LIMIT_SECONDS = 30.0


async def test_a_call_after_a_cancelled_one_waits_until_that_has_ended() -> None:
    calls, began, may_end, order = SerialCalls(), asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def slow() -> None:
        loop.call_soon_threadsafe(began.set)
        assert may_end.wait(LIMIT_SECONDS)
        order.append("first")

    first = asyncio.ensure_future(calls.call(slow))
    await asyncio.wait_for(began.wait(), LIMIT_SECONDS)
    first.cancel()
    second = asyncio.ensure_future(calls.call(lambda: order.append("second")))
    loop.call_soon(may_end.set)
    await asyncio.wait_for(second, LIMIT_SECONDS)
    assert order == ["first", "second"]
    assert first.cancelled()


async def test_a_call_raises_what_its_function_raises_and_the_next_one_runs() -> None:
    calls = SerialCalls()
    with pytest.raises(ZeroDivisionError):
        await calls.call(lambda: 1 // 0)
    assert await calls.call(lambda: 7) == 7
