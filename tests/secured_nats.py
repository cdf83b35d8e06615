"""A real nats-server that asks who its clients are, with the keys and credentials of a cell, as `cotenant up` sets one up."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from cotenant.log.nats.access import Access
from cotenant.log.nats.log import NatsLog, connect
from cotenant_console.nats_access.keys import NatsKeys, prepared_keys
from cotenant_console.nats_access.roles import ADMINISTRATOR
from tests.nats_server import NatsServer


class SecuredNats:
    """Use `start`, then `close`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-secured-"))
        self.keys: NatsKeys = prepared_keys(self.folder / "nats")
        self.server = NatsServer()
        with (self.server.folder / "server.conf").open("a") as file:
            file.write('include "accounts.conf"\n')
        self.url = self.server.url

    def start(self) -> None:
        """Start the server."""
        shutil.copy(self.keys.accounts_file, self.server.folder)
        self.server.start()

    def reload(self) -> None:
        """Have the server read its accounts again; returns once it says that it has."""
        shutil.copy(self.keys.accounts_file, self.server.folder)
        log = self.server.folder / "server.log"
        before = log.read_text().count("Reloaded server configuration")
        os.kill(self.server.pid, signal.SIGHUP)
        deadline = time.monotonic() + 60
        while log.read_text().count("Reloaded server configuration") == before:
            assert time.monotonic() < deadline, log.read_text()[-500:]
            time.sleep(0.01)

    def access(self, user: str) -> Access:
        """The credentials of a service, or of another user that every cell has."""
        return Access(self.keys.credentials(user))

    def node(self, name: str) -> Access:
        """The credentials of a node."""
        return Access(self.keys.issue_node(name))

    async def connect(self, access: Access, name: str = "test") -> NatsLog:
        """Connect as somebody."""
        return await connect(self.url, name, access)

    async def administrator(self) -> NatsLog:
        """Connect as an administrator, and declare the streams."""
        log = await self.connect(self.access(ADMINISTRATOR))
        await log.declare()
        await log.store_identity()
        return log

    def close(self) -> None:
        """Stop the server and remove everything."""
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
