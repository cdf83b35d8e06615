"""One `cotenant up` from start to end.

In: a plan, whether to demonstrate, how long. Out: the screen while it runs, the summary, and the exit status: 0, or
1 if anything could not be started or a process ended unexpectedly (also one that a user killed: it is
restarted, and counted).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from cotenant.api.kinds import Kind
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant_console.api.client import Client, Document, Json, StatusError, UnreachableError, list_at
from cotenant_console.demo.interpreter import choose_interpreter
from cotenant_console.demo.objects import SERVICE_SCRIPT
from cotenant_console.nats_access.keys import NatsKeysError
from cotenant_console.nats_access.roles import READER
from cotenant_console.pki.identity import MADE_HERE, IdentityError, ProvidedCertificate
from cotenant_console.up.claims import Claims, NothingLeftError, host_node_name
from cotenant_console.up.demonstration import DayCurve, Demonstration, Readings
from cotenant_console.up.figures import CpuReading, NodeFigures, cpu_percent, cpu_reading, node_figures, phase_counts
from cotenant_console.up.folder_lock import FolderLock
from cotenant_console.up.journal import Journal
from cotenant_console.up.nats_server import DiskTooSmallError, ReplicasDifferError, replicas_in
from cotenant_console.up.reading import keep_journal
from cotenant_console.up.screen import Screen
from cotenant_console.up.stack import NotReadyError, Stack, StackPlan
from cotenant_console.up.view import DemoJobs, DisplayState, summary_lines

REFRESH_SECONDS = 1.0
UNSEEN_SECONDS = 5.0
"""How often to read when no screen is shown and no demonstration is running: an idle stack stays idle."""
END_READING_SECONDS = 5.0
HEALTH_EVERY = 5
JOBS_EVERY = 1
PROC_STAT = Path("/proc/stat")
API_PORT = 8001
NATS_PORT = 4222
FAILURES = (
    NotReadyError,
    DiskTooSmallError,
    IdentityError,
    NatsKeysError,
    StatusError,
    UnreachableError,
    ExceptionGroup,
)
"""Ends a session, with its text as the summary."""
NO_READINGS = Readings({}, {}, None)


@dataclass(frozen=True)
class UpOptions:
    """The user's options of `up`."""

    folder: Path
    simulated_nodes: int
    demo: bool = False
    for_seconds: float | None = None
    api_port: int = 0
    nats_port: int = 0
    replicas: int = 0
    """Of the log; 0: as the data folder was created, else one."""
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


@dataclass(frozen=True)
class ClusterState:
    """The gateway's documents."""

    nodes: list[NodeFigures]
    phases: dict[str, int]


class Session:
    """Runs until its time is over or it is stopped."""

    def __init__(self, options: UpOptions) -> None:
        self.options = options
        self.stopping = asyncio.Event()
        self._journal = Journal(began=datetime.now(UTC))
        self._cluster = ClusterState([], {})
        self._readings = NO_READINGS
        self._not_ready: list[str] = []
        self._warning = ""
        self._cpu: CpuReading = cpu_reading(PROC_STAT.read_text())
        self._percent = 0.0
        self._elapsed = 0.0
        self._notes: list[str] = []

    async def run(self) -> int:
        """Start, show, stop. Returns the exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.stopping.set)
        with FolderLock(self.options.folder), Claims() as claims, Screen() as screen:
            screen.say(f"cotenant: data folder {self.options.folder}")
            began = time.monotonic()
            stack = Stack(planned(self.options, claims), screen.say)
            demonstration: Demonstration | None = None
            failure = ""
            try:
                if await self._unless_stopped(stack.start()):
                    screen.say(
                        f"ready after {time.monotonic() - began:.1f} s: API {stack.endpoint.api_url}, "
                        f"NATS {stack.endpoint.nats_url}, KUBECONFIG={stack.kubeconfig}"
                    )
                    if self.options.demo:
                        demonstration = await asyncio.to_thread(self._demonstration, stack)
                        stack.supervisor.start(demonstration.load_process())
                    await self._show(stack, demonstration, screen)
            except FAILURES as error:
                failure = str(error)
            final = self._view(stack, demonstration, self._elapsed)
            crashes = stack.supervisor.crash_count
            screen.say("ending: pods, services, nats-server")
            await self._end(stack, demonstration)
        for line in [failure] if failure else summary_lines(replace(final, restarts=crashes)):
            print(line)
        return 1 if failure or crashes else 0

    def _demonstration(self, stack: Stack) -> Demonstration:
        seconds = self.options.for_seconds
        shape = DayCurve() if seconds is None else DayCurve(day_seconds=max(30.0, min(120.0, seconds * 0.8)))
        demonstration = Demonstration(stack.endpoint.server, self.options.folder, stack.plan.node, shape)
        demonstration.declare()
        if demonstration.interpreter.note:
            self._notes.append(demonstration.interpreter.note)
        return demonstration

    async def _unless_stopped(self, starting: object) -> bool:
        """Await the start; False if the user ended it first."""
        assert asyncio.iscoroutine(starting)
        task = asyncio.ensure_future(starting)
        stop = asyncio.ensure_future(self.stopping.wait())
        await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return False
        task.result()
        return True

    async def _show(self, stack: Stack, demonstration: Demonstration | None, screen: Screen) -> None:
        began, step = time.monotonic(), 0
        pause = REFRESH_SECONDS if screen.is_terminal or demonstration is not None else UNSEEN_SECONDS
        access = stack.nats_access(READER)
        reading = asyncio.create_task(keep_journal(stack.endpoint.nats_url, access, self._journal))
        try:
            with Client(stack.endpoint.server, timeout_seconds=3) as client:
                while not self.stopping.is_set():
                    await asyncio.to_thread(self._look, stack, demonstration, client, step)
                    self._elapsed = time.monotonic() - began
                    screen.show(self._view(stack, demonstration, self._elapsed))
                    if self.options.for_seconds is not None and self._elapsed >= self.options.for_seconds:
                        return
                    if reading.done():
                        self._journal.note(datetime.now(UTC), f"reading the log starts over: {reading.exception()}")
                        reading = asyncio.create_task(keep_journal(stack.endpoint.nats_url, access, self._journal))
                    step += 1
                    left = math.inf if self.options.for_seconds is None else self.options.for_seconds - self._elapsed
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(min(pause, max(left, 0.01))):
                            await self.stopping.wait()
        finally:
            reading.cancel()
            # Whatever the client does with the cancellation, Ctrl-C also reaches the processes.
            await asyncio.wait([reading], timeout=END_READING_SECONDS)

    def _look(self, stack: Stack, demonstration: Demonstration | None, client: Client, step: int) -> None:
        """Read everything once. If the gateway does not answer the last figures stay; the screen shows that it is not ready."""
        now = cpu_reading(PROC_STAT.read_text())
        self._percent, self._cpu = cpu_percent(self._cpu, now), now
        if step % HEALTH_EVERY == 0:
            self._not_ready = [name for name, ready in stack.ready_services().items() if not ready]
        self._warn(stack.warning())
        if demonstration is not None:
            self._readings = demonstration.readings()
        try:
            if demonstration is not None and step % JOBS_EVERY == 0:
                demonstration.step()
            self._cluster = look_at(client)
        except (UnreachableError, StatusError) as error:
            self._not_ready = sorted({*self._not_ready, "gateway"})
            self._journal.note(datetime.now(UTC), str(error))

    def _warn(self, warning: str) -> None:
        """Note the gateway's warning; its beginning and end are reported."""
        if warning and not self._warning:
            self._journal.note(datetime.now(UTC), warning)
        elif self._warning and not warning:
            self._journal.note(datetime.now(UTC), "there is room on LOG and its disk again")
        self._warning = warning

    def _view(self, stack: Stack, demonstration: Demonstration | None, elapsed: float) -> DisplayState:
        jobs = None if demonstration is None else demonstration.jobs
        return DisplayState(
            endpoint=stack.endpoint,
            folder=self.options.folder,
            node=stack.plan.node,
            elapsed=elapsed,
            until=self.options.for_seconds,
            cpu_percent=self._percent,
            cpus=os.cpu_count() or 1,
            nodes=self._cluster.nodes,
            phases=self._cluster.phases,
            not_ready=self._not_ready,
            warning=self._warning,
            restarts=stack.supervisor.crash_count,
            crashes=[str(crash) for crash in stack.supervisor.crashes],
            suppression_now=self._journal.suppression_now,
            suppressions=self._journal.suppressions,
            placed=self._journal.placed,
            lines=tuple(self._journal.lines),
            service=self._readings.service,
            load=self._readings.load,
            service_cpu_milli=self._readings.service_cpu_milli,
            work=DemoJobs() if jobs is None else DemoJobs(jobs.submitted, jobs.done, jobs.failed, jobs.cpu_seconds_done),
            demo=demonstration is not None,
            notes=self._notes,
        )

    async def _end(self, stack: Stack, demonstration: Demonstration | None) -> None:
        if "demo-load" in stack.supervisor.processes:
            await stack.supervisor.stop_one("demo-load")
        if demonstration is not None:
            await asyncio.to_thread(demonstration.close)
        await stack.stop()


def planned(options: UpOptions, claims: Claims) -> StackPlan:
    """What to start: the node's name and the ports that this stack holds from now on. Raises NotReadyError."""
    try:
        preferred = options.nats_port or NATS_PORT
        first = claims.port(preferred, exactly=options.nats_port != 0)
        others = [claims.port(first + 1) for _ in range(replicas_in(options.folder, options.replicas) - 1)]
        return StackPlan(
            folder=options.folder,
            simulated_nodes=options.simulated_nodes,
            node=claims.node(host_node_name()),
            api_port=claims.port(options.api_port or API_PORT, exactly=options.api_port != 0),
            nats_ports=(first, *others),
            given=options.given,
            nats_tls=options.nats_tls,
            configs=options.configs,
            gates=options.gates,
            root_pods=options.root_pods or (options.demo and choose_interpreter(SERVICE_SCRIPT).user == 0),
        )
    except (NothingLeftError, ReplicasDifferError) as error:
        raise NotReadyError(str(error)) from error


def look_at(client: Client) -> ClusterState:
    """Nodes and pods as the gateway shows them."""
    nodes, pods = (_items(client, kind) for kind in (NODES, PODS))
    return ClusterState(node_figures(nodes, pods), phase_counts(pods))


def _items(client: Client, kind: Kind) -> list[Json]:
    listed: Document = client.get(kind.path())
    return list_at(listed, "items")
