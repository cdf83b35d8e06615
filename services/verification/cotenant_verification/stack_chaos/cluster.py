"""The stack under test: three servers behind relays, every service, two gateways, two processes of simulated nodes.

In: a folder. Out: running processes that are ready; each service reaches each server through a relay of its own, and each
server each other one, so that any of these ways can be cut. Processes are supervised as those of `cotenant up` are.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from cotenant.log.nats.declaring import wanted_of
from cotenant.log.nats.streams import StreamSizes
from cotenant_console.api.client import Client
from cotenant_console.api.credentials import Credentials, Server
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import prepared_keys
from cotenant_console.nats_access.roles import ADMINISTRATOR, SIMULATED_NODES
from cotenant_console.pki.identity import GATEWAY_NAMES, prepared
from cotenant_console.up.bootstrap import base_objects
from cotenant_console.up.declared_streams import DeclaredStreams
from cotenant_console.up.nats_server import (
    LOOPBACK,
    Secured,
    ServerMember,
    answers,
    free_port,
    nats_processes,
    nats_urls,
    store_folder,
)
from cotenant_console.up.server_watch import ServerFault, keep_storing, verdict
from cotenant_console.up.services import DECIDING, environment, module_of
from cotenant_console.up.stack import is_ready
from cotenant_console.up.supervisor import ProcessSpec, Supervisor
from cotenant_verification.stack_chaos.disks import STORE_BYTES, ServerDisk
from cotenant_verification.stack_chaos.network import Relay

SERVERS = ("nats-server-1", "nats-server-2", "nats-server-3")
GATEWAYS = ("gateway-a", "gateway-b")
EXECUTORS = {"executors-a": "node-1,node-2", "executors-b": "node-3,node-4"}
DECIDERS = tuple(name for name in DECIDING if name != "yarn-copilot")
STACK_SERVICES = (*GATEWAYS, *DECIDERS, *EXECUTORS)
SKEWED = (*GATEWAYS, *DECIDERS)
READY_SECONDS = 180.0


class StackError(RuntimeError):
    """The stack did not start, or did not come back; the text says which part."""


class ServerCluster:
    """Use `start`, then `stop`."""

    def __init__(self, folder: Path, *, own_disks: bool = False) -> None:
        """`own_disks`: each server stores on a small disk of its own."""
        self.folder = folder
        self.disks = {server: ServerDisk(store_folder(folder, server).parent) for server in SERVERS} if own_disks else {}
        self._watching: list[asyncio.Task[None]] = []
        self.supervisor = Supervisor(folder / "logs")
        taken: list[int] = []

        def port() -> int:
            taken.append(free_port(taken))
            return taken[-1]

        clients = {server: port() for server in SERVERS}
        peers = {server: port() for server in SERVERS}
        self.between = {(one, other): Relay(port(), peers[other]) for one in SERVERS for other in SERVERS if one != other}
        """From a server to another."""
        self.to_servers = {
            (service, server): Relay(port(), clients[server]) for service in STACK_SERVICES for server in SERVERS
        }
        nowhere = port()
        self.members = [
            ServerMember(
                server,
                clients[server],
                peers[server],
                tuple(self.between[server, other].port for other in SERVERS if other != server),
                monitor_port=port(),
                # Others must not learn an address that bypasses the relays.
                advertised=nowhere,
            )
            for server in SERVERS
        ]
        self.ports = {service: port() for service in STACK_SERVICES}
        self.nats_url = nats_urls([member.port for member in self.members])
        """Without relays: for observers."""
        self._specs: dict[str, ProcessSpec] = {}
        self._identity = prepared(folder, GATEWAY_NAMES)
        self._keys = prepared_keys(keys_folder(folder))
        self.access = access_of(folder, ADMINISTRATOR)
        """An administrator's, for NATS. (It is spoken without TLS: relays cut connections, and see nothing else.)"""
        self.credentials = self._identity.credentials
        """An administrator's, for both gateways."""

    @property
    def gateway_urls(self) -> dict[str, str]:
        """The addresses of the gateways."""
        return {gateway: f"https://{LOOPBACK}:{self.ports[gateway]}" for gateway in GATEWAYS}

    async def start(self) -> None:
        """Start everything and wait until it is ready."""
        for relay in self._relays():
            await relay.open()
        most = STORE_BYTES if self.disks else 0
        servers, store_bytes = nats_processes(self.folder, self.members, Secured(self._keys.accounts_file), most)
        for spec, member in zip(servers, self.members, strict=True):
            self.supervisor.start(spec)
            look, restart = partial(self._look_at_server, member), partial(self._restart_server, member)
            self._watching.append(asyncio.create_task(keep_storing(look, restart)))
        for member in self.members:
            await self._until(member.name, answers, member.port)
        wanted = wanted_of(len(SERVERS), StreamSizes.within(store_bytes))
        streams = DeclaredStreams(self.nats_url, self.access, wanted)
        await streams.declare()
        await streams.close()
        for service in STACK_SERVICES:
            self._specs[service] = self._service(service)
            self.supervisor.start(self._specs[service])
        await self.until_ready()
        await asyncio.to_thread(self._declare)

    def _declare(self) -> None:
        with Client(Server(self.gateway_urls[GATEWAYS[0]], self.credentials)) as client:
            base_objects(client)

    def _service(self, name: str) -> ProcessSpec:
        service = "gateway" if name in GATEWAYS else "node-executor" if name in EXECUTORS else name
        urls = nats_urls([self.to_servers[name, server].port for server in SERVERS])
        common = ("--nats", urls, "--replica", name, "--http-port", str(self.ports[name]))
        user = SIMULATED_NODES if name in EXECUTORS else service
        access = ("--nats-creds", str(self._keys.credentials(user)))
        own: tuple[str, ...] = ()
        if name in EXECUTORS:
            own = ("--simulate", EXECUTORS[name], "--sample-period", "5")
        elif name in GATEWAYS:
            own = self._identity.gateway_flags()
        elif name == "metrics-ingest":
            own = ("--set", "report_interval_seconds=10", "--set", "aggregate_duration_seconds=60")
        argv = (sys.executable, "-m", module_of(service), *common, *access, *own)
        return ProcessSpec(name, argv, environment(), stop_seconds=8.0)

    async def restart(self, service: str, offset_seconds: float) -> None:
        """Start a service again with another clock."""
        offset = ("--clock-offset", str(offset_seconds)) if offset_seconds else ()
        spec = self._specs[service]
        await self.supervisor.replace(replace(spec, argv=(*spec.argv, *offset)))

    async def until_ready(self) -> None:
        """Wait until every service is ready. Raises StackError."""
        for service in STACK_SERVICES:
            credentials = self.credentials if service in GATEWAYS else None
            await self._until(service, partial(_ready, credentials=credentials), self.ports[service])

    async def _until(self, name: str, asked: object, port: int) -> None:
        assert callable(asked)
        deadline = time.monotonic() + READY_SECONDS
        while not await asked(port):
            if time.monotonic() > deadline:
                raise StackError(f"{name} is not ready after {READY_SECONDS:.0f} s: {self.supervisor.processes[name].log}")
            await asyncio.sleep(0.1)

    def pid(self, name: str) -> int:
        """The present process of a server or service, 0 between two."""
        return self.supervisor.processes[name].pid

    def _relays(self) -> Iterable[Relay]:
        return itertools.chain(self.between.values(), self.to_servers.values())

    def relays_of(self, server: str, *, peers: bool, clients: bool) -> list[Relay]:
        """The ways to a server and from it to the others."""
        found = [relay for ends, relay in self.between.items() if server in ends] if peers else []
        return found + ([relay for (_, to), relay in self.to_servers.items() if to == server] if clients else [])

    def relays_from(self, service: str) -> list[Relay]:
        """The ways of a service to the servers."""
        return [relay for (by, _), relay in self.to_servers.items() if by == service]

    def heal(self) -> None:
        """Heal all relays."""
        for relay in self._relays():
            if relay.is_cut:
                relay.heal()

    def _look_at_server(self, server: ServerMember) -> ServerFault:
        return verdict(LOOPBACK, server.monitor_port, store_folder(self.folder, server.name))

    async def _restart_server(self, server: ServerMember, _found: ServerFault) -> None:
        await self.supervisor.restart(server.name)

    async def stop(self) -> None:
        """End everything; `close` follows."""
        for watching in self._watching:
            watching.cancel()
        self.heal()
        await self.supervisor.stop(list(EXECUTORS), [*DECIDERS, *GATEWAYS], list(SERVERS))
        for relay in self._relays():
            await relay.close()

    def close(self, *, keep: bool) -> None:
        """Give the servers' disks back. `keep`: what is on them stays in the folder."""
        for disk in self.disks.values():
            disk.close(keep=keep)


async def _ready(port: int, credentials: Credentials | None) -> bool:
    return await asyncio.to_thread(is_ready, port, credentials)
