"""The rest of the stack on a benchmark's testbed: gateway, quota-tree, calculator, arbiter, and simulated executors.

In: a testbed with nodes on its log. Out: running processes that are ready, and the gateway's address. The executors are the
node-executor's own simulation, of the sizes that the nodes have; as in `cotenant up`, one process is many nodes. metrics-ingest
is not among them: metrics are part of the workload.

Bounds: MAX_NODES nodes, NODES_A_PROCESS in one process, STALLED_SECONDS without another node or process becoming ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import msgspec

from cotenant.log.contract import LOG
from cotenant.log.nats.jetstream import API_ERRORS, BusError, JetStream
from cotenant_console.api.credentials import Credentials, Server
from cotenant_console.pki.identity import GATEWAY_NAMES, prepared
from cotenant_console.up.nats_server import LOOPBACK, free_port
from cotenant_console.up.services import module_of
from cotenant_console.up.stack import is_ready
from cotenant_verification.bench.testbed import BenchError, Testbed
from cotenant_verification.bench.workload import BenchWorkload, node_name

SERVICES = ("gateway", "quota-tree", "batch-resource-calculator", "descheduler-arbiter")
EXECUTORS = "executors"
"""Name of the executors' processes, followed by a number."""
REPORTS = "node.*.executor"
"""The subjects that a node stores when it joins."""
NODES_A_PROCESS = 200
MAX_NODES = 4_000
"""The server takes many more, but they are simulated on the same machine: 20 processes of 80 MiB."""
STALLED_SECONDS = 240.0
PROGRESS_SECONDS = 5.0
POLL_SECONDS = 0.5
SAMPLE_SECONDS = "15"


class Fleet(msgspec.Struct, frozen=True):
    """Nodes of one size that one process simulates."""

    cpu: str
    memory: str
    names: tuple[str, ...]


def fleets(workload: BenchWorkload) -> list[Fleet]:
    """Divide the nodes among processes. Raises BenchError for more than MAX_NODES."""
    if workload.nodes > MAX_NODES:
        raise BenchError(f"--stack runs an executor for every node: at most {MAX_NODES} nodes, not {workload.nodes}")
    by_size: dict[tuple[str, str], list[str]] = {}
    for i in range(workload.nodes):
        kind = workload.node_kinds[i % len(workload.node_kinds)]
        by_size.setdefault((kind["cpu"], kind["memory"]), []).append(node_name(i))
    return [
        Fleet(cpu, memory, tuple(names[first : first + NODES_A_PROCESS]))
        for (cpu, memory), names in by_size.items()
        for first in range(0, len(names), NODES_A_PROCESS)
    ]


async def start_stack(
    testbed: Testbed, simulated: Sequence[Fleet], say: Callable[[str], None], *, at_once: int = MAX_NODES
) -> Server:
    """Start everything, wait until it is ready; returns the gateway. `say` gets a line now and then: how many nodes
    have joined, and which processes are not ready. `at_once`: how many processes of executors are started together; the next
    ones follow when these are ready. Raises BenchError if a process ends, or nothing happens any more."""
    ports: dict[str, int] = {}

    def start(name: str, service: str, *flags: str) -> None:
        ports[name] = free_port(ports.values())
        common = ("--nats", testbed.url, "--replica", name, "--http-port", str(ports[name]))
        testbed.start_module(name, module_of(service), *common, *flags)

    identity = prepared(testbed.folder, GATEWAY_NAMES)
    gateway_credentials = identity.credentials
    for service in SERVICES:
        start(service, service, *(identity.gateway_flags() if service == "gateway" else ()))
    nodes = 0
    for number, fleet in enumerate(simulated):
        if number and number % at_once == 0:
            await _until_ready(testbed, ports, gateway_credentials, nodes, say)
        nodes += len(fleet.names)
        size = ("--simulated-cpu", fleet.cpu, "--simulated-memory", fleet.memory)
        periods = ("--sample-period", SAMPLE_SECONDS, "--report-period", SAMPLE_SECONDS)
        start(f"{EXECUTORS}-{number}", "node-executor", "--simulate", ",".join(fleet.names), *size, *periods)
    await _until_ready(testbed, ports, gateway_credentials, nodes, say)
    return Server(f"https://{LOOPBACK}:{ports['gateway']}", gateway_credentials)


async def _until_ready(
    testbed: Testbed, ports: dict[str, int], of_gateway: Credentials, nodes: int, say: Callable[[str], None]
) -> None:
    waiting = list(ports)
    best = (0, 0)
    moved = reported = time.monotonic()
    while True:
        for name in waiting:
            if testbed.processes[name].poll() is not None:
                raise BenchError(f"{name} ended: {testbed.tail(name)}")
        waiting = [
            name
            for name in waiting
            if not await asyncio.to_thread(is_ready, ports[name], of_gateway if name == "gateway" else None)
        ]
        if not waiting:
            say(f"{nodes} nodes joined, everything is ready")
            return
        joined = await _joined(testbed)
        now = time.monotonic()
        if (joined, len(ports) - len(waiting)) > best:
            best, moved = (joined, len(ports) - len(waiting)), now
        state = f"{joined} of {nodes} nodes joined; not ready: {', '.join(waiting[:3])}" + (
            f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        )
        if now - moved > STALLED_SECONDS:
            last = testbed.tail(waiting[0])
            raise BenchError(f"nothing moved for {STALLED_SECONDS:.0f} s: {state}. {waiting[0]} says: {last}")
        if now - reported > PROGRESS_SECONDS:
            reported = now
            say(state)
        await asyncio.sleep(POLL_SECONDS)


async def _joined(testbed: Testbed) -> int:
    """How many nodes have stored a report of their own; 0 if the server does not answer."""
    try:
        return (await JetStream(testbed.log.client).subjects(LOG, REPORTS)).total
    except (BusError, *API_ERRORS):
        return 0
