"""A data folder from before servers had accounts: its streams go on in the cell's account."""

from __future__ import annotations

from pathlib import Path

import pytest

from cotenant.log.contract import Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import prepared_keys
from cotenant_console.nats_access.roles import ADMINISTRATOR
from cotenant_console.up.nats_server import (
    OlderStreamsError,
    Secured,
    ServerMember,
    members,
    nats_processes,
    nats_urls,
    store_folder,
    take_over_streams,
)
from cotenant_console.up.supervisor import Supervisor
from tests.contract.toy import metric
from tests.nats_server import free_port


async def started(folder: Path, server: ServerMember, secured: Secured | None) -> tuple[Supervisor, NatsLog]:
    supervisor = Supervisor(folder / "logs")
    supervisor.start(nats_processes(folder, [server], secured)[0][0])
    log = await connect(nats_urls([server.port]), "test", access_of(folder, ADMINISTRATOR))
    return supervisor, log


async def test_the_streams_of_a_server_without_accounts_are_those_of_the_cell(tmp_path: Path) -> None:
    (server,) = members([free_port()])
    supervisor, log = await started(tmp_path, server, None)
    await log.declare()
    assert isinstance(await log.append([Write(event=metric("a", 7))]), Stored)
    created = (await log.identity("metrics.a")).created
    await log.close()
    await supervisor.stop()
    keys = prepared_keys(keys_folder(tmp_path))
    take_over_streams(tmp_path, [server], keys.cell_account)
    take_over_streams(tmp_path, [server], keys.cell_account)
    supervisor, log = await started(tmp_path, server, Secured(keys.accounts_file))
    try:
        await log.check_streams()
        assert await log.declare() == []
        assert (await log.identity("metrics.a")).created == created
        head = await log.head("metrics.a")
        assert head is not None
        assert head.sequence == 1
    finally:
        await log.close()
        await supervisor.stop()


def test_the_streams_of_three_servers_are_not_taken_over_in_silence(tmp_path: Path) -> None:
    servers = members([free_port() for _ in range(3)])
    (store_folder(tmp_path, servers[0].name) / "jetstream" / "$G" / "streams").mkdir(parents=True)
    with pytest.raises(OlderStreamsError, match="cannot be taken over"):
        take_over_streams(tmp_path, servers, "A")
