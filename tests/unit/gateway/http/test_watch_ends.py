"""How a watch ends: its last bookmark names what it has sent, so a client that resumes there misses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from aiohttp import hdrs, web
from aiohttp.test_utils import TestClient, TestServer

from cotenant_gateway.http.clients.streams import OpenStream
from cotenant_gateway.http.queries import read_query
from cotenant_gateway.http.routing import target_of
from cotenant_gateway.http.watching import watch
from cotenant_gateway.read_model.ring import ChangeRing
from tests.unit.gateway.builders_gateway import World, manifest

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class _Client:
    """A connection whose client is there."""

    gone = False


class _Follower:
    """A read model that folds nothing by itself; `folding` runs when a watch begins to wait for changes."""

    def __init__(self, world: World, folding: Any) -> None:
        self.core = world.core
        self._folding = folding

    @contextlib.contextmanager
    def changes(self, watcher: asyncio.Event) -> Iterator[asyncio.Event]:
        self._folding()
        yield watcher


async def _lines(world: World, version: int, folding: Any, stopping: asyncio.Event) -> list[dict[str, Any]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        target = target_of("/api/v1/namespaces/default/pods", world.core.kinds)
        assert target is not None
        query = read_query(world.core.kinds.of(target.kind), request.query)
        stream: Any = OpenStream(_Client(), asyncio.Event())  # type: ignore[arg-type]
        follower: Any = _Follower(world, folding)
        return await watch(request, stream, follower, target, query, None, stopping, lambda: NOW)

    app = web.Application()
    app.router.add_route(hdrs.METH_GET, "/", answer)
    async with TestClient(TestServer(app)) as client:
        query = {"watch": "1", "resourceVersion": str(version), "allowWatchBookmarks": "true"}
        async with client.get("/", params=query) as response:
            return [json.loads(line) async for line in response.content]


async def test_a_watch_that_ends_before_it_has_sent_a_change_does_not_claim_it() -> None:
    world = World()
    world.create("pods", manifest("old"))
    start = world.sequence
    stopping = asyncio.Event()

    def folding() -> None:
        world.create("pods", manifest("new"))
        stopping.set()

    [bookmark] = await _lines(world, start, folding, stopping)
    resumed = int(bookmark["object"]["metadata"]["resourceVersion"])
    assert bookmark["type"] == "BOOKMARK"
    assert start <= resumed
    [left] = world.core.ring.read(world.core.ring.position_after(resumed), 10)
    assert left.after is not None
    assert left.after.address.name == "new"


async def test_a_watch_that_has_sent_all_ends_with_the_newest_version() -> None:
    world = World()
    world.create("pods", manifest("old"))
    stopping = asyncio.Event()
    [bookmark] = await _lines(world, world.sequence, stopping.set, stopping)
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(world.core.folded)


def test_a_reader_between_two_changes_of_one_version_has_not_read_that_version() -> None:
    world = World()
    world.create("pods", manifest("a"))
    [change] = world.core.ring.read(world.core.ring.end - 1, 1)
    ring = ChangeRing()
    ring.append(change)
    ring.append(change)
    assert ring.complete_to(1, change.version) == change.version - 1
    assert ring.complete_to(2, change.version + 5) == change.version + 5
