"""How fast the simulator is: all cores on 10, 100 and (with `--large`) 1,000 nodes, 30 pods a node, in CPU time of one core.

Events are what was stored on LOG, USAGE and EXECUTION; each went through every core that subscribes to it, the gateway and
the nodes' executors among them. Nothing is checked meanwhile. Figures: `simulator_events_per_second` while 30 pods a node
arrive one by one within 30 s and start on 100 nodes, and `simulator_deliveries_per_second` of the same time: messages handed to
participants, an event counting once for each that reads it; `..._at_rest` when nothing changes and each node is sampled every
15 s; `simulator_virtual_day`, the CPU time of one day at rest, from ten minutes of it. The same for the other sizes shows how
it grows.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import NamedTuple

from cotenant.simulation import START, World, collecting_rarely
from cotenant_console.api.client import Document
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import SIMULATED_SERVICES, participant
from tests.builders import pod_document

PODS_PER_NODE = 30
ARRIVE_SECONDS = 30
REST_SECONDS = 600
DAY_SECONDS = 86_400


def pod(name: str) -> Document:
    """A small service."""
    return pod_document(name, uid="", image="simulated", requests={"cpu": "300m", "memory": "256Mi"})


def measure(nodes: int) -> None:
    """Print the figures of one size."""
    world = World(seed=1, hop=timedelta(milliseconds=20))
    gateway = SimulatedGateway()
    world.add(gateway)
    for service in SIMULATED_SERVICES:
        world.add(participant(service, gateway))
    world.run_until(START + timedelta(seconds=1))
    for index in range(nodes):
        node = simulated_node(f"n{index}", NodeSize(16_000, 64 << 30), seed=1)
        world.add(NodeParticipant(node, idle_period=timedelta(seconds=15)))
    world.run_until(START + timedelta(seconds=3))
    pods = nodes * PODS_PER_NODE
    for index in range(pods):
        gateway.create(world.now + timedelta(seconds=ARRIVE_SECONDS * index / pods), pod(f"p{index}"))
    world.wake(gateway, world.now)
    busy = _rate(world, ARRIVE_SECONDS + 10)
    _rate(world, 90)
    rest = _rate(world, REST_SECONDS)
    print(f"simulator_events_per_second_{nodes}_nodes {busy.events / busy.seconds:.0f} 1/s")
    print(f"simulator_deliveries_per_second_{nodes}_nodes {busy.deliveries / busy.seconds:.0f} 1/s", flush=True)
    print(f"simulator_events_per_second_at_rest_{nodes}_nodes {rest.events / rest.seconds:.0f} 1/s")
    print(f"simulator_virtual_day_{nodes}_nodes {rest.seconds * DAY_SECONDS / REST_SECONDS:.0f} s", flush=True)
    if nodes == 100:
        print(f"simulator_events_per_second {busy.events / busy.seconds:.0f} 1/s")
        print(f"simulator_deliveries_per_second {busy.deliveries / busy.seconds:.0f} 1/s", flush=True)


class Stretch(NamedTuple):
    """What a stretch came to; CPU seconds."""

    events: int
    deliveries: int
    seconds: float


def _rate(world: World, seconds: float) -> Stretch:
    """Run for a while."""
    events, deliveries, began = world.events, world.deliveries, time.process_time()
    world.run_until(world.now + timedelta(seconds=seconds))
    return Stretch(world.events - events, world.deliveries - deliveries, time.process_time() - began)


if __name__ == "__main__":
    for size in (10, 100, 1000) if "--large" in sys.argv else (10, 100):
        with collecting_rarely():
            measure(size)
