"""`cotenant simulate --openb DIR`: the trace from its first second to its last, in virtual time.

In: the trace. Out: a `TraceResult`. The gateway's planning and admission, quota-tree and the scheduler are the
services' own; executors answer for all nodes at once, and there are no samples: a trace of requests has no
usage. Services are woken by events, and once in six hours.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.names import GPU_CORE
from cotenant.simulation import START, World
from cotenant_console.api.client import Document
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.openb import (
    GPU_CORE_PER_GPU,
    GPU_MODEL_LABEL,
    MAX_PODS_PER_NODE,
    NAMESPACE,
    OpenbTrace,
    TraceNode,
    offered_gpus,
    pod_document,
)
from cotenant_verification.simulate.participants import participant
from cotenant_verification.simulate.tally import SimulationTally
from cotenant_verification.simulate.trace_nodes import TraceNodes

SERVICES = ("quota-tree", "scheduler")
TICK = timedelta(hours=6)
SLICES = 200
SETTLE = timedelta(seconds=10)
MIB = 1024 * 1024


@dataclass(frozen=True)
class TraceResult:
    """The result of a trace."""

    tally: SimulationTally
    nodes: int
    pods: int
    refused: int
    refusals: tuple[str, ...]
    span_seconds: float
    events: int
    wall_seconds: float


def run_trace(trace: OpenbTrace, progress: Callable[[float], None], seed: int = 0) -> TraceResult:
    """Run a trace to its end; `progress` is called with the completed fraction, 0..1, SLICES times."""
    began_wall = time.monotonic()
    world = World(seed=seed)
    gateway = SimulatedGateway(budgets=False)
    begin = START + SETTLE
    tally = SimulationTally(begin, capacity_of(trace))
    world.watchers.append(tally.add)
    world.add(gateway)
    world.add(TraceNodes([executor_status(node) for node in trace.nodes]))
    for service in SERVICES:
        world.add(participant(service, gateway, tick=TICK))
    gateway.create(START + timedelta(seconds=1), namespace_document(NAMESPACE))
    for pod in trace.pods:
        gateway.create(begin + timedelta(seconds=pod.created), pod_document(pod))
        # A pod that comes and goes within one second is there for half of it.
        leaves = max(float(pod.deleted), pod.created + 0.5)
        gateway.delete(begin + timedelta(seconds=leaves), "pods", NAMESPACE, pod.name)
    span = float(max((pod.deleted for pod in trace.pods), default=0)) + 1.0
    for step in range(SLICES + 1):
        world.run_until(begin + timedelta(seconds=span * step / SLICES))
        progress(step / SLICES)
    world.run_until(begin + timedelta(seconds=span) + SETTLE)
    return TraceResult(
        tally=tally,
        nodes=len(trace.nodes),
        pods=len(trace.pods),
        refused=gateway.refused_count,
        refusals=tuple(f"{request.what}: {request.message}" for request in gateway.refused[:5]),
        span_seconds=span,
        events=world.events,
        wall_seconds=time.monotonic() - began_wall,
    )


def capacity_of(trace: OpenbTrace) -> dict[str, int]:
    """The allocatable of all nodes, as placements count it: cpu in thousandths, memory in bytes."""
    return {
        "cpu": sum(node.cpu_milli for node in trace.nodes),
        "memory": sum(node.memory_mib for node in trace.nodes) * MIB,
        GPU_CORE: sum(node.gpus for node in trace.nodes) * GPU_CORE_PER_GPU,
    }


def executor_status(node: TraceNode) -> ExecutorStatus:
    """What the executor of a machine would report."""
    amounts = {"cpu": node.cpu_milli, "memory": node.memory_mib * MIB, "pods": MAX_PODS_PER_NODE}
    labels = {"kubernetes.io/hostname": node.name}
    if node.gpus:
        amounts |= offered_gpus(node.gpus)
        labels[GPU_MODEL_LABEL] = node.model
    return ExecutorStatus(
        node=node.name, boot="trace", capacity=dict(amounts), allocatable=dict(amounts), labels=labels, simulated=True
    )


def namespace_document(name: str) -> Document:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
