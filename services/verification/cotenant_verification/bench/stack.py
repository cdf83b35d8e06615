"""The rest of the stack on a benchmark's testbed: gateway, quota-tree, calculator, arbiter, and simulated executors.

In: a testbed with nodes on its log. Out: running processes that are ready, and the gateway's address. The executors are the
node-executor's own simulation, of the sizes that the nodes have; as in `cotenant up`, one process is many nodes. metrics-ingest
is not among them: metrics are those that the workload has written.

Bounds: MAX_NODES nodes, NODES_A_PROCESS in one process, READY_SECONDS for all to be ready.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from cotenant_console.up.nats_server import LOOPBACK, free_port
from cotenant_console.up.services import module_of
from cotenant_console.up.stack import is_ready
from cotenant_verification.bench.testbed import BenchError, Testbed
from cotenant_verification.bench.workload import Workload, node_name

SERVICES = ("gateway", "quota-tree", "batch-resource-calculator", "descheduler-arbiter")
EXECUTORS = "executors"
"""Name of the executors' processes, followed by a number."""
NODES_A_PROCESS = 200
MAX_NODES = 2_000
READY_SECONDS = 240.0
SAMPLE_SECONDS = "15"


class Fleet(msgspec.Struct, frozen=True):
    """Nodes of one size that one process simulates."""

    cpu: str
    memory: str
    names: tuple[str, ...]


def fleets(workload: Workload) -> list[Fleet]:
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


async def start_stack(testbed: Testbed, simulated: Sequence[Fleet]) -> str:
    """Start everything, wait until it is ready; returns the gateway's address."""
    ports: dict[str, int] = {}

    def start(name: str, service: str, *flags: str) -> None:
        ports[name] = free_port(ports.values())
        common = ("--nats", testbed.url, "--replica", name, "--http-port", str(ports[name]))
        testbed.start_module(name, module_of(service), *common, *flags)

    for service in SERVICES:
        start(service, service)
    for number, fleet in enumerate(simulated):
        size = ("--simulated-cpu", fleet.cpu, "--simulated-memory", fleet.memory)
        periods = ("--sample-period", SAMPLE_SECONDS, "--report-period", SAMPLE_SECONDS)
        start(f"{EXECUTORS}-{number}", "node-executor", "--simulate", ",".join(fleet.names), *size, *periods)
    deadline = time.monotonic() + READY_SECONDS
    for name, port in ports.items():
        while not await asyncio.to_thread(is_ready, port):
            if testbed.processes[name].poll() is not None:
                raise BenchError(f"{name} ended: {testbed.tail(name)}")
            if time.monotonic() > deadline:
                raise BenchError(f"{name} is not ready after {READY_SECONDS:.0f} s: {testbed.tail(name)}")
            await asyncio.sleep(0.1)
    return f"http://{LOOPBACK}:{ports['gateway']}"
