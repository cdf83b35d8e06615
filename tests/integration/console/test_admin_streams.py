"""`cotenant admin streams` on real servers: what it creates, changes, leaves and says."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE
from cotenant.log.nats.log import connect
from cotenant_console.commands.admin.streams import wanted_in
from tests.nats_server import NatsServer

COTENANT = Path(sys.executable).parent / "cotenant"
SMALL = "storeBytes: 64Mi\nstreams:\n  USAGE: {maxAge: 5m}\n"
WAIT_SECONDS = 120


class Operator:
    """Runs the command with a file's content."""

    def __init__(self, server: NatsServer, folder: Path) -> None:
        self.server = server
        self.file = folder / "streams.yaml"
        self.folder = folder

    def declare(self, text: str, *flags: str) -> list[str]:
        self.file.write_text(text)
        where = ["--nats", self.server.url, "--data", str(self.folder), "-f", str(self.file)]
        command = [str(COTENANT), "admin", "streams", *where, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def operator(nats_server: NatsServer, tmp_path: Path) -> Operator:
    return Operator(nats_server, tmp_path)


async def config(server: NatsServer, stream: str, **changes: Any) -> dict[str, Any]:
    """A stream's configuration; with `changes`, as an operator has changed it."""
    log = await connect(server.url, "test")
    try:
        found = (await log._api.info(stream)).config
        if changes:
            assert await log._api.update_stream({**found, **changes}) is None
        return {**found, **changes}
    finally:
        await log.close()


async def quota_tree(server: NatsServer) -> asyncio.subprocess.Process:
    """A service, as good as any."""
    program = Path(sys.executable).parent / "cotenant-quota-tree"
    command = (program, "--nats", server.url, "--http-port", "-1")
    return await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)


async def test_streams_are_created_as_a_file_says_and_a_second_time_nothing_changes(operator: Operator) -> None:
    planned = operator.declare(SMALL, "--dry-run")
    assert [line.split(":")[0] for line in planned] == [f"+ {stream}" for stream in (LOG, HISTORY, USAGE, EXECUTION)]
    assert operator.declare(SMALL, "--dry-run") == planned, "nothing was made"
    assert operator.declare(SMALL) == planned
    assert operator.declare(SMALL) == ["the streams match the declaration"]
    assert (await config(operator.server, LOG))["max_bytes"] == 32 << 20
    assert (await config(operator.server, USAGE))["max_age"] == 300 * 10**9
    log = await connect(operator.server.url, "test")
    await log.check_streams()
    assert (await log.identity("node.a.executor")).last == 1, "LOG knows which one it is, for nodes"
    await log.close()


async def test_what_the_server_has_more_of_stays_and_what_it_lacks_is_changed(operator: Operator) -> None:
    operator.declare(SMALL)
    await config(operator.server, LOG, max_bytes=40 << 20)
    await config(operator.server, USAGE, max_age=3600 * 10**9)
    await config(operator.server, EXECUTION, max_bytes=4 << 20)
    expected = [
        "= LOG: max_bytes stays 40 MiB, not 32 MiB",
        "= USAGE: max_age stays 3600 s, not 300 s",
        "~ EXECUTION: max_bytes 4 MiB -> 8 MiB",
    ]
    assert operator.declare(SMALL, "--dry-run") == expected
    assert (await config(operator.server, EXECUTION))["max_bytes"] == 4 << 20
    assert operator.declare(SMALL) == expected
    assert operator.declare(SMALL) == expected[:2]
    assert (await config(operator.server, LOG))["max_bytes"] == 40 << 20


async def test_a_broken_promise_is_mended(operator: Operator) -> None:
    operator.declare(SMALL)
    await config(operator.server, LOG, discard="old")
    assert operator.declare(SMALL) == ["~ LOG: discard old -> new"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("streams: {LOGS: {replicas: 3}}", "streams.LOGS: the streams are LOG, HISTORY, USAGE, EXECUTION"),
        ("streams: {LOG: {replicas: 2}}", "streams.LOG.replicas: 2: expected 1, 3 or 5"),
        ("streams: {LOG: {maxBytes: lots}}", "streams.LOG.maxBytes: "),
        ("streams: {LOG: {maxBytes: 12}}", "streams.LOG.maxBytes: 12: expected 1Mi or more"),
        ("streams: {USAGE: {maxAge: soon}}", "streams.USAGE.maxAge: 'soon' is not a duration"),
        ("replica: 3", "unknown field `replica`"),
        ("[1, 2]", "Expected `object`, got `array`"),
        ("a: [", "expected the node content"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^streams\.yaml: ") as refused:
        wanted_in(text, "streams.yaml")
    assert told in str(refused.value)


async def test_a_service_waits_for_the_streams_and_says_what_makes_them(operator: Operator) -> None:
    server = operator.server
    service = await quota_tree(server)
    assert service.stderr is not None
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            waits = (await service.stderr.readline()).decode()
            assert "waiting for the streams: the server has no stream LOG, HISTORY, USAGE, EXECUTION" in waits
            assert "`cotenant admin streams` declares them" in waits
            await asyncio.to_thread(operator.declare, SMALL)
            while b"quota-tree 0.1.0 started" not in await service.stderr.readline():
                pass
    finally:
        service.terminate()
        await asyncio.wait_for(service.communicate(), WAIT_SECONDS)
    log = await connect(server.url, "test")
    assert await log._api.names() == {LOG, HISTORY, USAGE, EXECUTION}
    await log.close()


async def test_a_service_ends_at_a_stream_that_breaks_a_promise(operator: Operator) -> None:
    operator.declare(SMALL)
    await config(operator.server, LOG, discard="old")
    service = await quota_tree(operator.server)
    _, said = await asyncio.wait_for(service.communicate(), WAIT_SECONDS)
    assert service.returncode == 1
    assert b"stream LOG: discard is 'old' and must be 'new'; `cotenant admin streams` sets it" in said
