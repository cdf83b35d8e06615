"""A pod that waits for CPU that services have reserved is placed on what they lend, once a profile makes it a batch pod."""

from __future__ import annotations

from datetime import timedelta

from cotenant.events.placements import Placement, Waiting
from cotenant.kinds.pods import PODS
from cotenant.simulation import START, World
from cotenant_console.api.client import Document
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import SIMULATED_SERVICES, participant
from cotenant_verification.workload.manifests import node_config, pod

SERVICE: dict[str, int | str] = {
    "class": "ls", "app": "web", "cpu": 4000, "memory_mib": 256, "use_low": 800, "use_high": 800, "period": 60
}
REPORT: dict[str, int | str] = {"class": "ls", "app": "report", "cpu": 4100, "memory_mib": 256, "period": 60}
PROFILE: Document = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "reports", "labels": {"config.koordinator.sh/controller-managed": "true"}},
    "spec": {"selector": {"matchLabels": {"app": "report"}}, "qosClass": "BE", "priorityClassName": "koord-batch"},
}


def test_a_pod_that_waits_is_placed_on_batch_resources_when_a_profile_makes_it_a_batch_pod() -> None:
    world = World(seed=1, hop=timedelta(milliseconds=20), keep_history=True)
    gateway = SimulatedGateway()
    world.add(gateway)
    for service in SIMULATED_SERVICES:
        world.add(participant(service, gateway))
    world.run_until(START + timedelta(seconds=1))
    gateway.create(world.now, node_config({"reclaim": 65, "threshold": 65, "policy": "cpuset", "broken": 0}))
    world.add(NodeParticipant(simulated_node("n0", NodeSize(8_000, 32 << 30), seed=1)))
    gateway.create(START + timedelta(seconds=5), pod("web", SERVICE))
    gateway.create(START + timedelta(seconds=60), pod("report", REPORT))
    gateway.create(START + timedelta(seconds=200), PROFILE)
    world.wake(gateway, world.now)
    world.run_until(START + timedelta(seconds=260))
    assert world.history is not None
    told = [event for event in world.history if event.subject.rpartition(".")[2] == "report"]
    waited = [event.time for event in told if isinstance(event.data, Waiting) and event.time is not None]
    placed = [event.time for event in told if isinstance(event.data, Placement) and event.time is not None]
    assert waited[0] < START + timedelta(seconds=200) < placed[0] < START + timedelta(seconds=210)
    snapshot = gateway.core.get(PODS, "default", "report")
    assert snapshot is not None
    assert snapshot.pod.spec.containers[0].resources.requests["kubernetes.io/batch-cpu"] == "4100"
