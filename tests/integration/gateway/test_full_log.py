"""LOG at its bound, and a disk that others have filled: what clients get, and that deletion always finds room."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant.log.contract import LOG, Refused, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant_gateway.shell.space import LOOK_SECONDS
from tests.contract.toy import metric
from tests.integration.gateway.gateway_process import MERGE, WAIT_SECONDS, GatewayProcess, body_of
from tests.nats_server import NatsServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
STORE_BYTES = 4 << 20
LOG_BYTES = 2 << 20
"""The half of it, which LOG gets."""
NO_ROOM = 507
with_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root for a file system of its own"
)


@pytest.fixture(scope="module")
def gateway(shared_nats_server: NatsServer) -> Iterator[GatewayProcess]:
    process = GatewayProcess(shared_nats_server.url, "g1", store_bytes=STORE_BYTES)
    asyncio.run(process.ready())
    yield process
    process.close()


@pytest.fixture
async def log(shared_nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    made = await connect(shared_nats_server.url, "test")
    yield made
    await made.close()


@pytest.fixture
async def http(gateway: GatewayProcess, log: NatsLog) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the gateway; the log is as good as empty again afterwards."""
    timeout = aiohttp.ClientTimeout(total=WAIT_SECONDS)
    async with gateway.session(timeout=timeout) as session:
        yield session
        await log.purge(LOG, "metrics.>")
        assert (await session.delete(CONFIG_MAPS)).status == 200
        await until(lambda: has_room(session, "last"))
        assert (await session.delete(f"{CONFIG_MAPS}/last")).status == 200


def config_map(name: str, size: int = 20_000) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": "x" * size}}


async def until(what: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await what():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def fill_by_creating(http: aiohttp.ClientSession) -> tuple[list[str], dict[str, Any]]:
    """Create objects until they are refused, and stay so when the gateway has looked again: before that a refusal may be for
    its estimate of what it has just stored. Returns the names of those that were created, and the last refusal."""
    names: list[str] = []
    clock = asyncio.get_running_loop().time
    refused_since: float | None = None
    while True:
        answer = await http.post(CONFIG_MAPS, json=config_map(f"a{len(names)}"))
        if answer.status == 201:
            refused_since = None
            names.append(f"a{len(names)}")
            assert len(names) * 20_000 < LOG_BYTES
            continue
        refusal = await body_of(answer, NO_ROOM)
        refused_since = refused_since or clock()
        if clock() - refused_since > 2 * LOOK_SECONDS:
            return names, refusal
        await asyncio.sleep(0.05)


async def fill_to_the_bound(log: NatsLog) -> None:
    """Store facts of many nodes until not even a small one fits."""
    for size in (200, 1):
        node = 0
        while True:
            facts = [metric(f"n{size}-{node + index}-{'x' * size}", 1) for index in range(size)]
            outcome = await log.append([Write(event=fact) for fact in facts])
            if isinstance(outcome, Refused):
                assert outcome.no_space, outcome
                break
            node += size


async def has_room(http: aiohttp.ClientSession, name: str) -> bool:
    answer = await http.post(CONFIG_MAPS, json=config_map(name, 10))
    return answer.status == 201


def leave(foreign: Path, free_bytes: int) -> None:
    """Fill a disk of 16 MiB with somebody else's file but for so many bytes."""
    foreign.write_bytes(bytes((16 << 20) - free_bytes))


async def figures(http: aiohttp.ClientSession) -> dict[str, float]:
    text = await (await http.get("/metrics")).text()
    return {name: float(value) for name, value in re.findall(r"^(cotenant_log_\w+) (\S+)$", text, re.MULTILINE)}


async def test_from_ninety_percent_on_only_what_ends_something_is_taken(http: aiohttp.ClientSession, log: NatsLog) -> None:
    names, refusal = await fill_by_creating(http)
    assert (refusal["kind"], refusal["reason"], refusal["code"]) == ("Status", "InsufficientStorage", NO_ROOM)
    assert "LOG" in refusal["message"]
    assert "Delete unused objects" in refusal["message"]
    assert (await log.space()).used >= 0.85 * LOG_BYTES

    update = {"data": {"more": "text"}}
    await body_of(await http.patch(f"{CONFIG_MAPS}/a0", json=update, headers=MERGE), NO_ROOM)
    await body_of(await http.put(f"{CONFIG_MAPS}/a0", json=config_map("a0", 10)), NO_ROOM)
    assert (await http.post(f"{CONFIG_MAPS}?dryRun=All", json=config_map("dry"))).status == 201
    assert (await http.get(f"{CONFIG_MAPS}/a0")).status == 200
    ready = await http.get("/readyz")
    assert (ready.status, (await ready.text())[:16]) == (200, "ok: LOG is full:")
    shown = await figures(http)
    assert shown["cotenant_log_full"] == 1
    assert 0.85 * LOG_BYTES <= shown["cotenant_log_bytes"] <= shown["cotenant_log_limit_bytes"] == LOG_BYTES

    for name in names[:20]:
        assert (await http.delete(f"{CONFIG_MAPS}/{name}")).status == 200
    await until(lambda: has_room(http, "again"))
    assert await (await http.get("/readyz")).text() == "ok\n"
    listed = await body_of(await http.get(CONFIG_MAPS), 200)
    assert {item["metadata"]["name"] for item in listed["items"]} == {*names[20:], "again"}


async def test_an_object_that_waits_for_its_finalizers_can_still_lose_them(http: aiohttp.ClientSession) -> None:
    held = config_map("held", 10)
    held["metadata"]["finalizers"] = ["example.com/held"]
    await body_of(await http.post(CONFIG_MAPS, json=held), 201)
    await fill_by_creating(http)
    assert (await http.delete(f"{CONFIG_MAPS}/held")).status == 200
    await body_of(await http.patch(f"{CONFIG_MAPS}/held", json={"metadata": {"finalizers": []}}, headers=MERGE), 200)

    async def is_gone() -> bool:
        return (await http.get(f"{CONFIG_MAPS}/held")).status == 404

    await until(is_gone)


async def test_deletion_finds_room_where_others_have_taken_the_last_byte(http: aiohttp.ClientSession, log: NatsLog) -> None:
    await body_of(await http.post(CONFIG_MAPS, json=config_map("old")), 201)
    await fill_to_the_bound(log)
    await body_of(await http.post(CONFIG_MAPS, json=config_map("new", 10)), NO_ROOM)
    assert (await http.delete(f"{CONFIG_MAPS}/old")).status == 200
    assert (await http.get(f"{CONFIG_MAPS}/old")).status == 404
    await log.purge(LOG, "metrics.>")
    await until(lambda: has_room(http, "new"))

    async def bound_is_back() -> bool:
        return (await log.space()).limit == LOG_BYTES  # this connection has declared nothing: the server's own figure

    await until(bound_is_back)


async def test_a_gateway_that_starts_on_a_log_without_room_serves_deletions(
    http: aiohttp.ClientSession, shared_nats_server: NatsServer, log: NatsLog
) -> None:
    await body_of(await http.post(CONFIG_MAPS, json=config_map("old")), 201)
    await fill_to_the_bound(log)
    second = GatewayProcess(shared_nats_server.url, "g2", store_bytes=STORE_BYTES)
    await second.ready()
    async with second.session() as client:
        assert (await client.delete(f"{CONFIG_MAPS}/old")).status == 200
    second.close()


async def test_a_full_log_gives_up_history_and_no_last_message(http: aiohttp.ClientSession, log: NatsLog) -> None:
    await body_of(await http.post(CONFIG_MAPS, json=config_map("kept")), 201)
    fewest = 64
    for version in range(62):
        change = {"data": {"text": f"{version}{'y' * 40_000}"}}
        answer = await http.patch(f"{CONFIG_MAPS}/kept", json=change, headers=MERGE)
        while answer.status == NO_ROOM:
            answer = await http.patch(f"{CONFIG_MAPS}/kept", json=change, headers=MERGE)
        assert answer.status == 200
        fewest = min(fewest, (await log.space()).versions)
    assert (await log.space()).used < LOG_BYTES
    kept = await body_of(await http.get(f"{CONFIG_MAPS}/kept"), 200)
    head = await log.head("objects.core.configmaps.default.kept")
    assert kept["data"]["text"].startswith("61y")
    assert head is not None
    assert str(head.sequence) == kept["metadata"]["resourceVersion"]
    assert fewest < 64
    assert (await http.delete(f"{CONFIG_MAPS}/kept")).status == 200

    async def has_history_again() -> bool:
        return (await log.space()).versions == 64

    await until(has_history_again)


@with_mounts
async def test_a_disk_that_others_fill_is_the_same_as_a_full_log(shared_nats_server: NatsServer, tmp_path: Path) -> None:
    """The gateway is told that a disk of 16 MiB is the server's."""
    mount = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o size=16m tmpfs {tmp_path} && exec "$@"', "sh")
    store = ("--store-dir", str(tmp_path))
    process = GatewayProcess(shared_nats_server.url, "g3", *store, before=mount, store_bytes=STORE_BYTES)
    await process.ready()
    foreign = Path(f"/proc/{process.process.pid}/root{tmp_path}/foreign")
    async with process.session() as http:
        assert await has_room(http, "first")
        leave(foreign, 2 << 20)

        async def is_full() -> bool:
            answer = await http.patch(f"{CONFIG_MAPS}/first", json={"data": {"more": "text"}}, headers=MERGE)
            return answer.status == NO_ROOM

        await until(is_full)
        refusal = await body_of(await http.post(CONFIG_MAPS, json=config_map("second")), NO_ROOM)
        assert f"the disk of nats-server ({tmp_path}) is full: 2.0 MiB are free" in refusal["message"]
        assert (await (await http.get("/readyz")).text()).startswith("ok: the disk of nats-server")
        assert (await http.delete(f"{CONFIG_MAPS}/first")).status == 200
        leave(foreign, 16 << 20)
        await until(lambda: has_room(http, "second"))
    process.close()


async def test_the_server_enforces_the_bound_of_a_log_only_where_it_is_short(nats_server: NatsServer) -> None:
    gateway = GatewayProcess(nats_server.url, "g1")
    await gateway.ready()
    log = await connect(nats_server.url, "test")
    try:
        bound = (await log.space()).limit
        await until(lambda: is_relaxed(log))
        assert (await log.space()).limit == bound > 1 << 30
        async with gateway.session() as http:
            assert (await http.post(CONFIG_MAPS, json=config_map("one"))).status == 201
    finally:
        await log.close()
        gateway.close()


async def is_relaxed(log: NatsLog) -> bool:
    return not (await log.space()).enforced
