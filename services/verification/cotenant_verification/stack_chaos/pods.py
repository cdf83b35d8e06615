"""Pods that come and go, and evictions: the load of scheduler, executors and arbiter in a run.

In: the gateways' URLs, a seed. Out: load. Two groups have a budget and lose pods by evictions only; the others are deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import aiohttp

from cotenant_console.api.credentials import Credentials
from cotenant_verification.http_sessions import http_session
from cotenant_verification.stack_chaos.clients import ANSWER_SECONDS, NAMESPACE, NO_ANSWER

LABEL = "group"
BUDGETS = {"kept-a": 4, "kept-b": 3}
SIZES = {"kept-a": 6, "kept-b": 5, "free": 8}
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
STEP_SECONDS = 0.7
EVICTED_TOGETHER = 4
"""More evictions than a budget allows, requested from both gateways at once."""


class PodClients:
    """The load of one run."""

    def __init__(self, urls: dict[str, str], credentials: Credentials, seed: int) -> None:
        self._urls = urls
        self._credentials = credentials
        self._random = Random(f"pods/{seed}")
        self._number = 0
        self.evictions = {"allowed": 0, "refused": 0, "unanswered": 0}

    async def declare(self) -> None:
        """Create the namespace and the budgets."""
        url = next(iter(self._urls.values()))
        documents = [("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})]
        documents += [
            (
                f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets",
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": group},
                    "spec": {"minAvailable": count, "selector": {"matchLabels": {LABEL: group}}},
                },
            )
            for group, count in BUDGETS.items()
        ]
        async with http_session(self._credentials, url, raise_for_status=True) as session:
            for path, document in documents:
                async with session.post(path, json=document):
                    pass

    async def run(self, stop: asyncio.Event) -> None:
        """Create, delete and evict until stopped."""
        async with http_session(self._credentials, timeout=aiohttp.ClientTimeout(ANSWER_SECONDS)) as session:
            while not stop.is_set():
                with contextlib.suppress(*NO_ANSWER):
                    await self._step(session)
                try:
                    async with asyncio.timeout(STEP_SECONDS):
                        await stop.wait()
                except TimeoutError:
                    continue

    async def _step(self, session: aiohttp.ClientSession) -> None:
        url = self._urls[self._random.choice(list(self._urls))]
        async with session.get(url + PODS) as answer:
            answer.raise_for_status()
            items = (await answer.json())["items"]
        live: dict[str, list[str]] = {group: [] for group in SIZES}
        for item in items:
            if "deletionTimestamp" not in item["metadata"]:
                live.setdefault(item["metadata"].get("labels", {}).get(LABEL, ""), []).append(item["metadata"]["name"])
        missing = [group for group, size in SIZES.items() if len(live[group]) < size]
        if missing:
            await self._create(session, url, self._random.choice(missing))
        elif self._random.random() < 0.3:
            async with session.delete(f"{url}{PODS}/{self._random.choice(live['free'])}"):
                pass
        else:
            group = live[self._random.choice(list(BUDGETS))]
            names = self._random.sample(group, min(EVICTED_TOGETHER, len(group)))
            urls = [self._random.choice(list(self._urls.values())) for _ in names]
            await asyncio.gather(*(self._evict(session, url, name) for url, name in zip(urls, names, strict=True)))

    async def _create(self, session: aiohttp.ClientSession, url: str, group: str) -> None:
        self._number += 1
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{group}-{self._number}", "labels": {LABEL: group}},
            "spec": {
                "terminationGracePeriodSeconds": 2,
                "containers": [{"name": "main", "image": "any", "resources": {"requests": {"cpu": "200m", "memory": "128Mi"}}}],
            },
        }
        async with session.post(url + PODS, json=document):
            pass

    async def _evict(self, session: aiohttp.ClientSession, url: str, name: str) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
        try:
            async with session.post(f"{url}{PODS}/{name}/eviction", json=body) as answer:
                key = "allowed" if answer.status in (200, 201) else "refused" if answer.status == 429 else "unanswered"
                self.evictions[key] += 1
        except NO_ANSWER:
            self.evictions["unanswered"] += 1
