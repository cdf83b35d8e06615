"""Requests of the colocation benchmark: never two at once over one connection, also where a task is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cotenant_console.api.client import Client
from cotenant_console.api.credentials import Server
from cotenant_console.demo.interpreter import Interpreter
from cotenant_verification.bench.colocation.pods import ColocationPods

LIMIT_SECONDS = 60.0
NO_PODS: dict[str, list[object]] = {"items": []}


async def test_a_request_after_a_cancelled_one_waits_until_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end, order = asyncio.Event(), threading.Event(), list[str]()
    loop = asyncio.get_running_loop()

    def get(_client: Client, _path: str) -> object:
        if not order:
            order.append("first begins")
            loop.call_soon_threadsafe(began.set)
            assert may_end.wait(LIMIT_SECONDS)
            order.append("first ends")
        else:
            order.append("second")
        return NO_PODS

    monkeypatch.setattr(Client, "get", get)
    pods = ColocationPods(Server("https://127.0.0.1:1"), Interpreter("python3"))
    first = asyncio.ensure_future(pods.phases())
    await asyncio.wait_for(began.wait(), LIMIT_SECONDS)
    first.cancel()
    second = asyncio.ensure_future(pods.phases())
    loop.call_soon(may_end.set)
    assert await asyncio.wait_for(second, LIMIT_SECONDS) == {}
    assert order == ["first begins", "first ends", "second"]
