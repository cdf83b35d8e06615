"""The load of `bench churn`: pods that are created and deleted over HTTP, and one watch that observes them.

In: the gateway, a rate, the lifetime of a pod. Out: when each pod was created and deleted, and after how many seconds it
ran and was gone. Open loop: a slow stack does not slow its users down.

Bound: MAX_UNDER_WAY requests at once beside the live pods; further ones are counted as `skipped`, not queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from cotenant_console.api.credentials import Server
from cotenant_verification.bench.testbed import BenchError
from cotenant_verification.http_sessions import http_session

NAMESPACE = "churn"
MAX_UNDER_WAY = 500
DRAIN_SECONDS = 60.0


class Churn:
    """One run against one stack."""

    def __init__(self, gateway: Server, rate: float, life: float) -> None:
        self.gateway = gateway
        self.rate = rate
        self.life = life
        self.created: dict[str, float] = {}
        self.deleted: dict[str, float] = {}
        self.running: list[tuple[float, float]] = []
        """When created, and after how many seconds it ran."""
        self.gone: list[tuple[float, float]] = []
        self.pods = self.skipped = self.failed = 0
        self._ran: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Create pods for the given time, then wait until all deleted ones are gone."""
        gateway, timeout = self.gateway, aiohttp.ClientTimeout(30)
        async with http_session(gateway.credentials, gateway.url, connections=64, timeout=timeout) as session:
            await self._namespace(session)
            watching = asyncio.ensure_future(self._watch(session))
            try:
                await self._create_all(session, seconds)
                deadline = time.monotonic() + self.life + DRAIN_SECONDS
                while (self._tasks or self.deleted) and time.monotonic() < deadline:  # noqa: ASYNC110 - bounded
                    await asyncio.sleep(0.2)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _namespace(self, session: aiohttp.ClientSession) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        async with session.post("/api/v1/namespaces", json=body) as answer:
            if answer.status not in (201, 409):
                raise BenchError(f"the namespace was refused: {await answer.text()}")

    async def _create_all(self, session: aiohttp.ClientSession, seconds: float) -> None:
        started = time.monotonic()
        for number in itertools.count():
            due = started + number / self.rate
            if due > started + seconds:
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if len(self._tasks) >= MAX_UNDER_WAY + self.life * self.rate:
                self.skipped += 1
                continue
            task = asyncio.ensure_future(self._live(session, f"p{number}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self, session: aiohttp.ClientSession, name: str) -> None:
        """One pod from its creation to the request for its deletion."""
        self.created[name] = time.monotonic()
        self.pods += 1
        if not await self._ask(lambda: session.post(f"/api/v1/namespaces/{NAMESPACE}/pods", json=pod(name)), 201, 409):
            self.created.pop(name, None)
            return
        await asyncio.sleep(self.life)
        self.deleted[name] = time.monotonic()
        if not await self._ask(lambda: session.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"), 200, 202, 404):
            self.deleted.pop(name, None)

    async def _ask(self, request: Callable[[], Any], *wanted: int) -> bool:
        """Repeat a request until it is answered, for at most 60 s: users try again while a gateway restarts."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                async with request() as answer:
                    await answer.read()
                    if answer.status in wanted:
                        return True
                    if answer.status < 500:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            await asyncio.sleep(0.25)
        self.failed += 1
        return False

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                await self._watch_once(session)
            await asyncio.sleep(0.2)

    async def _watch_once(self, session: aiohttp.ClientSession) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        async with session.get(path) as answer:
            if answer.status != 200:
                return
            listed = await answer.json()
        there = set()
        for item in listed["items"]:
            there.add(item["metadata"]["name"])
            self._see("MODIFIED", item)
        for name in [name for name in self.deleted if name not in there]:
            self._gone(name)
        version = listed["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version}
        async with session.get(path, params=query, timeout=aiohttp.ClientTimeout(None)) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._see(event["type"], event["object"])

    def _see(self, what: str, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        now = time.monotonic()
        if what == "DELETED":
            self._gone(name)
        elif item.get("status", {}).get("phase") == "Running" and name not in self._ran and name in self.created:
            self._ran.add(name)
            self.running.append((self.created[name], now - self.created[name]))

    def _gone(self, name: str) -> None:
        asked = self.deleted.pop(name, None)
        self.created.pop(name, None)
        self._ran.discard(name)
        if asked is not None:
            self.gone.append((asked, time.monotonic() - asked))


def pod(name: str) -> dict[str, Any]:
    """A small pod for simulated nodes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeSelector": {"cotenant.io/simulated": "true"},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
            ],
        },
    }
