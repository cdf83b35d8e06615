"""Clients of the gateways: they write and list small objects, and record requests, times and answers.

In: the gateways' URLs, a seed. Out: writes and listings. Each client sends one request after the other, at alternating
gateways; it never requests an older version than the newest that it has seen.

Bound: ANSWER_SECONDS for an answer; after that the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from random import Random
from typing import Any

import aiohttp

from cotenant_console.api.credentials import Credentials
from cotenant_verification.http_sessions import http_session
from cotenant_verification.stack_chaos.records import Action, History, Listing, ObservedObject, WriteOutcome, WriteRecord

NAMESPACE = "chaos"
OBJECTS = 12
PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
ANSWER_SECONDS = 12.0
PAUSE_SECONDS = 0.35
AFTER_FAILURE_SECONDS = 0.5
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)


class Registers:
    """The clients' side of one run."""

    def __init__(self, urls: dict[str, str], credentials: Credentials, seed: int, began: float) -> None:
        self.history = History()
        self.progress: list[float] = []
        """When writes were acknowledged."""
        self._urls = urls
        self.credentials = credentials
        self._seed = seed
        self._began = began

    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._began

    async def run(self, clients: int, stop: asyncio.Event) -> None:
        """Run this many clients until they are stopped."""
        async with http_session(self.credentials, timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)) as session:
            await asyncio.gather(*(_Client(self, session, f"client-{number}", stop).run() for number in range(clients)))

    async def list_finally(self, at_least: int) -> None:
        """Each gateway shows everything, at a version or a later one."""
        async with http_session(self.credentials, timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)) as session:
            client = _Client(self, session, "last", asyncio.Event())
            for gateway in self._urls:
                for _ in range(10):
                    if await client.list(gateway, "", at_least):
                        break
                    await asyncio.sleep(1.0)

    def random(self, name: str) -> Random:
        """A client's own random generator."""
        return Random(f"{name}/{self._seed}")

    def url(self, gateway: str) -> str:
        """Where the objects are."""
        return self._urls[gateway] + PATH

    @property
    def gateways(self) -> list[str]:
        """Their names."""
        return list(self._urls)


class _Client:
    def __init__(self, run: Registers, session: aiohttp.ClientSession, name: str, stop: asyncio.Event) -> None:
        self._run = run
        self._session = session
        self._name = name
        self._stop = stop
        self._random = run.random(name)
        self._known = 0
        """The newest version that this client has seen."""
        self._objects: dict[str, ObservedObject] = {}
        self._number = 0

    async def run(self) -> None:
        while not self._stop.is_set():
            gateway = self._random.choice(self._run.gateways)
            name = f"r{self._random.randrange(OBJECTS)}"
            lot = self._random.random()
            if lot < 0.40:
                good = await self.list(gateway, name if lot < 0.30 else "", self._known)
            else:
                good = await self._write(gateway, name, lot)
            pause = PAUSE_SECONDS * self._random.uniform(0.5, 1.5) if good else AFTER_FAILURE_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._stop.wait()
            except TimeoutError:
                continue

    async def list(self, gateway: str, name: str, at_least: int) -> bool:
        """List everything, or one object. False without an answer."""
        query = {"resourceVersion": str(at_least)} if at_least else {}
        if name:
            query["fieldSelector"] = f"metadata.name={name}"
        started = self._run.now()
        try:
            async with self._session.get(self._run.url(gateway), params=query) as answer:
                body: dict[str, Any] = await answer.json()
                if answer.status != 200:
                    return False
        except NO_ANSWER:
            return False
        objects = {item["metadata"]["name"]: _seen(item) for item in body["items"]}
        version = int(body["metadata"]["resourceVersion"])
        listing = Listing(
            client=self._name,
            gateway=gateway,
            name=name,
            at_least=at_least,
            started=started,
            ended=self._run.now(),
            version=version,
            objects=objects,
        )
        self._run.history.listings.append(listing)
        self._known = max(self._known, version)
        for known in list(self._objects):
            if name in ("", known) and known not in objects:
                del self._objects[known]
        self._objects |= objects
        return True

    async def _write(self, gateway: str, name: str, lot: float) -> bool:
        self._number += 1
        known = self._objects.get(name)
        value = f"{self._name}/{self._number}"
        write = WriteRecord(
            client=self._name, gateway=gateway, action=Action.PATCH, name=name, value=value, started=self._run.now()
        )
        document: dict[str, Any] = {"metadata": {"name": name}, "data": {"value": value}}
        url, method, kind = f"{self._run.url(gateway)}/{name}", "PATCH", "application/merge-patch+json"
        if known is None or lot > 0.96:
            write.action, method, url, kind = Action.CREATE, "POST", self._run.url(gateway), "application/json"
        elif lot < 0.68:
            write.action, write.expected, method, kind = Action.REPLACE, known.version, "PUT", "application/json"
            document["metadata"]["resourceVersion"] = str(known.version)
        elif lot > 0.91:
            write.action, write.value, method, kind = Action.DELETE, "", "DELETE", "application/json"
            document = {}
        if write.action is not Action.DELETE:
            document |= {"apiVersion": "v1", "kind": "ConfigMap"}
        self._run.history.writes.append(write)
        try:
            async with self._session.request(method, url, json=document or None, headers={"Content-Type": kind}) as answer:
                body = await answer.json()
                self._record_answer(write, answer.status, body)
        except NO_ANSWER as error:
            write.answer = f"{type(error).__name__}"
        write.ended = self._run.now()
        if write.outcome is WriteOutcome.OK:
            self._run.progress.append(write.ended)
            self._known = max(self._known, write.version)
            if write.action is Action.DELETE:
                self._objects.pop(name, None)
            else:
                self._objects[name] = ObservedObject(write.version, value)
        elif write.outcome is WriteOutcome.REFUSED:
            self._objects.pop(name, None)
        return write.outcome is not WriteOutcome.UNKNOWN

    def _record_answer(self, write: WriteRecord, status: int, body: dict[str, Any]) -> None:
        if status in (200, 201):
            write.outcome = WriteOutcome.OK
            if write.action is Action.DELETE:
                write.uid = body["details"]["uid"]
            else:
                write.version = int(body["metadata"]["resourceVersion"])
            return
        refused = 400 <= status < 500 or status == HTTPStatus.INSUFFICIENT_STORAGE
        write.outcome = WriteOutcome.REFUSED if refused else WriteOutcome.UNKNOWN
        write.answer = f"{status} {body.get('message', '')}"


def _seen(item: dict[str, Any]) -> ObservedObject:
    return ObservedObject(int(item["metadata"]["resourceVersion"]), item.get("data", {}).get("value", ""))
