"""The client against a server that behaves like a ResourceManager: on standby, late, with errors."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.rm_client import NotConfirmedError, ResourceManagerClient, ResourceManagerError
from cotenant_yarn_copilot.rm_messages import AnswerError


class Answers:
    """One ResourceManager: its state, the node's total, and the number of reads until an update shows."""

    def __init__(self, ha_state: str = "ACTIVE") -> None:
        self.ha_state = ha_state
        self.total = (4, 4096)
        self.pending: tuple[int, int] | None = None
        self.delay = 0
        self.updates: list[bytes] = []
        self.drop = 0
        self.url = ""

    async def info(self, request: web.Request) -> web.Response:
        return web.json_response({"clusterInfo": {"haState": self.ha_state}})

    async def node(self, request: web.Request) -> web.Response:
        if self.drop:
            self.drop -= 1
            assert request.transport is not None
            request.transport.close()
        if self.ha_state != "ACTIVE":
            return web.Response(status=307, text="This is standby RM.")
        if self.pending is not None and self.delay == 0:
            self.total, self.pending = self.pending, None
        self.delay = max(self.delay - 1, 0)
        resource = {"vCores": self.total[0], "memory": self.total[1]}
        return web.json_response({"node": {"id": "a:1", "state": "RUNNING", "totalResource": resource}})

    async def update(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.updates.append(body)
        document = await request.json()
        self.pending = (document["resource"]["vCores"], document["resource"]["memory"])
        return web.json_response({"resourceInfo": {"memory": self.total[1], "vCores": self.total[0]}})

    async def html(self, request: web.Request) -> web.Response:
        return web.Response(text="<html>", content_type="text/html")

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/ws/v1/cluster/info", self.info),
                web.get("/ws/v1/cluster/nodes", self.html),
                web.get("/ws/v1/cluster/nodes/a:1", self.node),
                web.post("/ws/v1/cluster/nodes/a:1/resource", self.update),
            ]
        )
        return app


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Answers, Answers]]:
    """A standby and an active one."""
    both = (Answers("STANDBY"), Answers("ACTIVE"))
    servers = [TestServer(answers.app()) for answers in both]
    for answers, server in zip(both, servers, strict=True):
        await server.start_server()
        answers.url = f"http://127.0.0.1:{server.port}"
    yield both
    for server in servers:
        await server.close()


def client_of(session: aiohttp.ClientSession, pair: tuple[Answers, Answers]) -> ResourceManagerClient:
    return ResourceManagerClient(session, [answers.url for answers in pair])


async def test_only_an_active_resource_manager_is_called(session: aiohttp.ClientSession, pair: tuple[Answers, Answers]) -> None:
    client = client_of(session, pair)
    assert await client.find_active() == pair[1].url
    pair[1].ha_state = "INITIALIZING"
    with pytest.raises(ResourceManagerError, match=r"is STANDBY.*is INITIALIZING"):
        await client.find_active()
    assert client.active == ""


async def test_a_total_counts_once_it_is_read_back(session: aiohttp.ClientSession, pair: tuple[Answers, Answers]) -> None:
    client = client_of(session, pair)
    pair[1].delay = 3
    await client.set_total("a:1", YarnResource(6, 2048))
    assert (await client.confirm("a:1", YarnResource(6, 2048))).total == YarnResource(6, 2048)
    assert pair[0].updates == []
    assert len(pair[1].updates) == 1


async def test_a_total_that_never_shows_is_an_error(
    session: aiohttp.ClientSession, pair: tuple[Answers, Answers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_yarn_copilot.rm_client.READ_BACK_PAUSE_SECONDS", 0.0)
    client = client_of(session, pair)
    with pytest.raises(NotConfirmedError, match="reports 4 vcores and 4096 MB"):
        await client.confirm("a:1", YarnResource(6, 2048))


async def test_after_a_failover_the_active_one_is_looked_up_again(
    session: aiohttp.ClientSession, pair: tuple[Answers, Answers]
) -> None:
    client = client_of(session, pair)
    await client.node("a:1")
    pair[0].ha_state, pair[1].ha_state = "ACTIVE", "STANDBY"
    with pytest.raises(ResourceManagerError, match="307"):
        await client.node("a:1")
    assert (await client.node("a:1")).id == "a:1"
    assert client.active == pair[0].url


async def test_a_broken_connection_is_tried_again(session: aiohttp.ClientSession, pair: tuple[Answers, Answers]) -> None:
    client = client_of(session, pair)
    pair[1].drop = 2
    assert (await client.node("a:1")).id == "a:1"


async def test_what_is_not_json_is_named(session: aiohttp.ClientSession, pair: tuple[Answers, Answers]) -> None:
    with pytest.raises(AnswerError, match="cluster/nodes"):
        await client_of(session, pair).nodes()
