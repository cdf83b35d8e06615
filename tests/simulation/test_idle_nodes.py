"""Nodes that are sampled rarely while nothing changes lead to the same decisions."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from cotenant.events.commits import Commit
from cotenant.events.envelope import Payload, encode_payload
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.simulation import START, World
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import SIMULATED_SERVICES, participant
from cotenant_verification.workload.manifests import node_config, pod

SERVICE: dict[str, int | str] = {
    "class": "ls", "app": "web", "cpu": 1000, "memory_mib": 256, "use_low": 800, "use_high": 800, "period": 60
}
JOB: dict[str, int | str] = {"class": "batch", "cpu": 1000, "memory_mib": 256, "exit": 0}

MEANS = ("node-usage", "mid-unused")

Decided = tuple[str, str, bytes, bool]


def without_means(data: Payload) -> Payload:
    """Means over a window in which jobs ended weigh the samples that there are: of a node's figures those stay away that repeat
    its whole measured usage."""
    if not isinstance(data, NodeResources):
        return data
    return msgspec.structs.replace(data, terms=tuple(term for term in data.terms if term.name not in MEANS))


def decided(calm_seconds: int) -> tuple[list[Decided], int]:
    """What is decided and reported on LOG (subject, time, data, whether it ends), and the steps that it took: services at
    the beginning, borrowing jobs when loads have stood still for a while, and again after those have ended."""
    world = World(seed=1, hop=timedelta(milliseconds=20), keep_history=True)
    gateway = SimulatedGateway()
    world.add(gateway)
    for service in SIMULATED_SERVICES:
        world.add(participant(service, gateway))
    world.run_until(START + timedelta(seconds=1))
    gateway.create(world.now, node_config({"reclaim": 65, "threshold": 65, "policy": "cpuset", "broken": 0}))
    for index in range(3):
        node = simulated_node(f"n{index}", NodeSize(8_000, 32 << 30), seed=1)
        world.add(NodeParticipant(node, idle_period=timedelta(seconds=calm_seconds)))
    for index in range(9):
        gateway.create(START + timedelta(seconds=5 + index), pod(f"web-{index}", SERVICE))
    for index in range(8):
        at = (500 if index < 4 else 1_100) + index
        gateway.create(START + timedelta(seconds=at), pod(f"job-{index}", {**JOB, "lasts": (40, 150)[index % 2]}))
    world.wake(gateway, world.now)
    world.run_until(START + timedelta(seconds=1_400))
    assert world.history is not None
    events = [
        (event.subject, str(event.time), encode_payload(without_means(event.data)), event.tombstone)
        for event in world.history
        if not isinstance(event.data, Commit | NodeMetricComputed | PredictionState)
    ]
    return events, world.steps


def test_nodes_that_are_calm_between_changes_lead_to_the_same_decisions_at_the_same_times() -> None:
    every_second, many_steps = decided(1)
    calm, steps = decided(15)
    assert {subject.split(".")[2] for subject, *_ in every_second if subject.startswith("node.")} >= {"placement", "run"}
    assert calm == every_second
    assert steps < many_steps * 3 // 4
