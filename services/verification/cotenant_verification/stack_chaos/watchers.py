"""Watches of the clients' objects, one at a time at each gateway, each from where the last one ended.

In: a gateway's URL. Out: watches as they were delivered. After 410 the client lists again and begins there.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec

from cotenant_verification.http_sessions import http_session
from cotenant_verification.stack_chaos.clients import NO_ANSWER, Registers
from cotenant_verification.stack_chaos.records import WatchedChange, WatchRecord

WATCH_SECONDS = 20
SILENT_SECONDS = 30.0
LINE_BYTES = 4 << 20
PAUSE_SECONDS = 0.5


class Watcher:
    """Watches at one gateway until it is stopped."""

    def __init__(self, run: Registers, gateway: str) -> None:
        self._run = run
        self._gateway = gateway
        self._version = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Watch repeatedly."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=SILENT_SECONDS, sock_connect=5)
        async with http_session(self._run.credentials, timeout=timeout, read_bufsize=LINE_BYTES) as session:
            while not stop.is_set():
                try:
                    if not self._version:
                        await self._list(session)
                    await self._watch(session)
                except NO_ANSWER:
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _list(self, session: aiohttp.ClientSession) -> None:
        async with session.get(self._run.url(self._gateway)) as answer:
            answer.raise_for_status()
            self._version = int((await answer.json())["metadata"]["resourceVersion"])

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        query = {
            "watch": "1",
            "resourceVersion": str(self._version),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        seen = WatchRecord(
            gateway=self._gateway, started=self._run.now(), start=self._version, through=self._version, changes=[]
        )
        async with session.get(self._run.url(self._gateway), params=query) as answer:
            if answer.status == 410:
                self._version = 0
                return
            answer.raise_for_status()
            self._run.history.watches.append(seen)
            async for line in answer.content:
                event: dict[str, Any] = msgspec.json.decode(line)
                if event["type"] == "ERROR":
                    seen.expired = True
                    self._version = 0
                    return
                document = event["object"]
                version = int(document["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    value = document.get("data", {}).get("value", "")
                    seen.changes.append(WatchedChange(event["type"], document["metadata"]["name"], version, value))
                seen.through = max(seen.through, version)
                self._version = seen.through
