"""The whole stack on this machine: one nats-server or three, every service, the endpoint file, and their shutdown.

In: the data folder, ports, how many simulated nodes. Out: a running stack whose services are ready, or a clear error after a
bound. Services start in any order; each waits for what it needs. They are stopped in reverse order of what they serve: the
executors first, so that pods' processes and cgroups are gone while the log still takes their reports, nats-server last.
"""

from __future__ import annotations

import asyncio
import http.client
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path

from cotenant.log.nats.access import Access
from cotenant.log.nats.declaring import wanted_of
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.streams import StreamSizes
from cotenant_console.api.client import Client, StatusError
from cotenant_console.api.credentials import KUBECONFIG_FILE, Credentials
from cotenant_console.api.endpoint import ENDPOINT_FILE, Endpoint, write_endpoint
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import prepared_keys
from cotenant_console.nats_access.roles import ADMINISTRATOR
from cotenant_console.pki.identity import (
    GATEWAY_NAMES,
    MADE_HERE,
    GatewayIdentity,
    ProvidedCertificate,
    nats_certificate,
    prepared,
)
from cotenant_console.up.bootstrap import base_objects
from cotenant_console.up.declared_streams import DeclaredStreams
from cotenant_console.up.forking.client import ForkServer
from cotenant_console.up.nats_server import (
    LOOPBACK,
    OlderStreamsError,
    Secured,
    ServerMember,
    answers,
    free_port,
    members,
    nats_processes,
    nats_urls,
    store_folder,
    take_over_streams,
)
from cotenant_console.up.server_watch import ServerFault, keep_storing, server_answers, verdict
from cotenant_console.up.services import DECIDING, SERVICES, SIMULATED, UpRun, environment, service_process
from cotenant_console.up.supervisor import Supervisor

READY_SECONDS = 120.0
POLL_SECONDS = 0.1
SAME_CRASHES = 3
"""A process that has ended this often for the same reason without ever being ready will not become ready."""
PROGRESS_SECONDS = 5.0


class NotReadyError(Exception):
    """The stack did not become ready in time; the text states which part and where its log file is."""


@dataclass(frozen=True)
class StackPlan:
    """What to start, and where."""

    folder: Path
    simulated_nodes: int
    node: str
    api_port: int
    nats_ports: tuple[int, ...]
    """Of one nats-server, or of the three of a cluster."""
    given: ProvidedCertificate = MADE_HERE
    """Certificates of the user."""
    root_pods: bool = False
    """Pods may run as root."""
    nats_tls: bool = True
    """Clients and servers of NATS speak TLS."""
    configs: Mapping[str, Path] = field(default_factory=dict)
    """The configuration files of services that have one."""
    gates: Mapping[str, str] = field(default_factory=dict)
    """The feature gates of services that have some, as `--feature-gates` takes them."""


class Stack:
    """One running stack. Made by `start`, ended by `stop`."""

    def __init__(self, plan: StackPlan, progress: Callable[[str], None] = lambda _line: None) -> None:
        """`progress` gets a line every PROGRESS_SECONDS of waiting: which services, and why."""
        self.plan = plan
        self._progress = progress
        self._next_line = 0.0
        self.endpoint = Endpoint(f"https://{LOOPBACK}:{plan.api_port}", nats_urls(plan.nats_ports, tls=plan.nats_tls))
        self.kubeconfig = plan.folder / KUBECONFIG_FILE
        self.supervisor = Supervisor(plan.folder / "logs", ForkServer(environment()))
        self.status_ports: dict[str, int] = {}
        self._servers: tuple[ServerMember, ...] = ()
        self._watching: list[asyncio.Task[None]] = []
        self._streams: DeclaredStreams | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The services of this stack."""
        return (*SERVICES, SIMULATED) if self.plan.simulated_nodes else SERVICES

    async def start(self) -> None:
        """Start everything, wait until it is ready, declare the base objects. Raises NotReadyError, IdentityError."""
        await self.supervisor.prepare()
        identity = self._identify()
        keys = prepared_keys(keys_folder(self.plan.folder))
        keys.issue_node(self.plan.node)
        certificate = nats_certificate(self.plan.folder, GATEWAY_NAMES) if self.plan.nats_tls else None
        deadline = time.monotonic() + READY_SECONDS
        self._next_line = time.monotonic() + PROGRESS_SECONDS
        servers = members(self.plan.nats_ports, (self.plan.api_port,))
        specs, store_bytes = nats_processes(self.plan.folder, servers, Secured(keys.accounts_file, certificate))
        try:
            take_over_streams(self.plan.folder, servers, keys.cell_account)
        except OlderStreamsError as error:
            raise NotReadyError(str(error)) from error
        for spec, server in zip(specs, servers, strict=True):
            self.supervisor.start(spec)
            look, restart = partial(self._look_at_server, server), partial(self._restart_server, server)
            self._watching.append(asyncio.create_task(keep_storing(look, restart)))
        self._servers = servers
        run = UpRun(
            self.plan.folder,
            self.endpoint.nats_url,
            self.plan.node,
            self.plan.simulated_nodes,
            len(servers),
            keys.credentials,
            certificate.ca if certificate is not None else None,
            identity.gateway_flags(),
            self.plan.root_pods,
            self.plan.configs,
            self.plan.gates,
        )
        for name in self.names:
            promised = (*self.status_ports.values(), *(server.monitor_port for server in servers))
            self.status_ports[name] = self.plan.api_port if name == "gateway" else free_port(promised)
            self.supervisor.start(service_process(run, name, self.status_ports[name]))
        for server in servers:
            while not await answers(server.port):
                await self._pause(deadline, server.name)
        wanted = wanted_of(len(servers), StreamSizes.within(store_bytes))
        self._streams = DeclaredStreams(self.endpoint.nats_url, self.nats_access(ADMINISTRATOR), wanted)
        try:
            await self._streams.declare()
        except (BusError, *API_ERRORS) as error:
            raise NotReadyError(f"the streams cannot be declared: {error}") from error
        self._watching.append(asyncio.create_task(self._streams.maintain()))
        while not await asyncio.to_thread(self._is_ready, "gateway"):
            await self._pause(deadline, "gateway")
        if any(crash.name == "gateway" for crash in self.supervisor.crashes):
            # What answers may be another process that took the port.
            raise NotReadyError(f"{self.supervisor.crashes[-1]}; its log is {self.supervisor.processes['gateway'].log}")
        await asyncio.to_thread(self._declare)
        for name in self.names:
            while not await asyncio.to_thread(self._is_ready, name):
                await self._pause(deadline, name)
        write_endpoint(self.plan.folder, self.endpoint)

    async def stop(self) -> None:
        """End everything; the endpoint file goes first, so that no command finds a stack that is ending."""
        (self.plan.folder / ENDPOINT_FILE).unlink(missing_ok=True)
        for watching in self._watching:
            watching.cancel()
        if self._streams is not None:
            await self._streams.close()
        await self.supervisor.stop(
            [name for name in ("node-executor", SIMULATED) if name in self.supervisor.processes],
            [name for name in (*DECIDING, "gateway") if name in self.supervisor.processes],
            [server.name for server in self._servers],
        )

    def ready_services(self) -> dict[str, bool]:
        """Which services report that they are ready, and which nats-servers answer."""
        services = {name: self._is_ready(name) for name in self.status_ports}
        return services | {server.name: server_answers(LOOPBACK, server.monitor_port) for server in self._servers}

    def warning(self) -> str:
        """A ready gateway's warning: LOG or its disk is full."""
        _, answer = readiness(self.plan.api_port, self.endpoint.credentials)
        return answer.removeprefix("ok").removeprefix(": ")

    def nats_access(self, user: str) -> Access:
        """The NATS credentials of one of the cell's users."""
        return access_of(self.plan.folder, user, self.endpoint.nats_url)

    def _identify(self) -> GatewayIdentity:
        """Make, or find, certificates and the administrator's token, and write the kubeconfig."""
        self.plan.folder.mkdir(parents=True, exist_ok=True)
        identity = prepared(self.plan.folder, GATEWAY_NAMES, self.plan.given)
        identity.write_kubeconfig(self.kubeconfig, self.endpoint.api_url)
        self.endpoint = replace(self.endpoint, credentials=identity.credentials)
        return identity

    def _is_ready(self, name: str) -> bool:
        return readiness(self.status_ports[name], self.endpoint.credentials if name == "gateway" else None)[0]

    def _look_at_server(self, server: ServerMember) -> ServerFault:
        return verdict(LOOPBACK, server.monitor_port, store_folder(self.plan.folder, server.name))

    async def _restart_server(self, server: ServerMember, found: ServerFault) -> None:
        self._progress(f"{server.name}: {found}")
        await self.supervisor.restart(server.name)

    def _declare(self) -> None:
        with Client(self.endpoint.server) as client:
            try:
                base_objects(client)
            except StatusError as error:
                if error.code != HTTPStatus.INSUFFICIENT_STORAGE:
                    raise
                # A full log is no reason to stay down: existing objects can be read, and deleted.
                self._progress(f"base objects are not maintained: {error}")

    async def _pause(self, deadline: float, name: str) -> None:
        process = self.supervisor.processes[name]
        crashes = [str(crash) for crash in self.supervisor.crashes if crash.name == name]
        if crashes.count(crashes[-1] if crashes else "") >= SAME_CRASHES:
            raise NotReadyError(f"{name} does not start: {crashes[-1]}, {SAME_CRASHES} times; its log is {process.log}")
        seen = f" ({crashes[-1]})" if crashes else ""
        now = time.monotonic()
        if now > deadline:
            raise NotReadyError(f"{name} is not ready after {READY_SECONDS:.0f} s{seen}; its log is {process.log}")
        if now > self._next_line:
            self._next_line = now + PROGRESS_SECONDS
            self._progress(f"waiting for {name}{seen or ': it has not reported readiness yet'}; its log is {process.log}")
        await asyncio.sleep(POLL_SECONDS)


def is_ready(port: int, credentials: Credentials | None = None) -> bool:
    """Whether the service on this port reports that it is ready."""
    return readiness(port, credentials)[0]


def readiness(port: int, credentials: Credentials | None = None) -> tuple[bool, str]:
    """Whether the service on this port reports that it is ready, and the text of its report. With credentials HTTPS is used.
    """
    connection = (
        http.client.HTTPConnection(LOOPBACK, port, timeout=2)
        if credentials is None
        else http.client.HTTPSConnection(LOOPBACK, port, timeout=2, context=credentials.context())
    )
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status == 200, answer.read().decode("utf-8", "replace").strip() if answer.status == 200 else ""
    except (OSError, http.client.HTTPException):
        return False, ""
    finally:
        connection.close()
