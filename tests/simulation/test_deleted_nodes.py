"""A Node is deleted through the API under running pods, and finished pods are collected: gateway, scheduler, executor."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import executor_subject, node_subject, placement_subject, pod_subject, run_subject
from cotenant.simulation import START, World
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.participants import participant
from tests.builders import node_document, pod_document

SECOND = timedelta(seconds=1)
SIZE = NodeSize(4000, 16 << 30)
OFFERED = {"cpu": "4", "memory": "16Gi", "pods": "110"}


class Cell:
    """A gateway, a scheduler and nodes of four CPUs."""

    def __init__(self, *nodes: str) -> None:
        self.world = World(seed=1)
        self.events: list[Event] = []
        self.world.watchers.append(self.events.append)
        self.gateway = SimulatedGateway()
        self.world.add(self.gateway)
        self.world.add(participant("scheduler", self.gateway))
        self.world.run_until(START + SECOND)
        self.nodes = {name: NodeParticipant(simulated_node(name, SIZE)) for name in nodes}
        for node in self.nodes.values():
            self.world.add(node)

    def create(self, second: float, document: Any) -> None:
        self.gateway.create(START + second * SECOND, document)
        self.world.wake(self.gateway, START + second * SECOND)

    def delete(self, second: float, plural: str, name: str, namespace: str = "") -> None:
        self.gateway.delete(START + second * SECOND, plural, namespace, name)
        self.world.wake(self.gateway, START + second * SECOND)

    def placed(self, name: str) -> list[Event]:
        """The placements that gave a pod the node `a`."""
        seen: dict[datetime | None, Event] = {}
        for event in self.of(placement_subject("a", "default", name)):
            if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND:
                seen.setdefault(event.data.bound_at, event)
        return list(seen.values())

    def run(self, until: float) -> None:
        self.world.run_until(START + until * SECOND)

    def of(self, subject: str) -> list[Event]:
        return [event for event in self.events if event.subject == subject]


def pod(name: str, cpu: str = "3", **annotations: str) -> Any:
    return pod_document(name, uid="", annotations=annotations, requests={"cpu": cpu}, image="app", restartPolicy="Never")


def test_the_room_on_a_deleted_node_is_taken_until_its_pods_are_over_also_when_it_is_created_again() -> None:
    cell = Cell("a")
    cell.create(2, pod("web"))
    cell.run(5)
    first = cell.placed("web")[0]
    # The executor hears of nothing for a while; its pod runs on.
    cell.world.remove(cell.nodes["a"])
    cell.delete(6, "nodes", "a")
    cell.create(7, node_document("a", capacity=OFFERED, allocatable=OFFERED))
    cell.create(8, pod("next"))
    cell.run(300)
    assert [event.tombstone for event in cell.of(node_subject("a"))] == [False, True, False]
    assert cell.of(executor_subject("a"))[-1].tombstone
    assert cell.of(placement_subject("a", "default", "web"))[-1].data.phase is PlacementPhase.TERMINATING  # type: ignore[attr-defined]
    assert cell.placed("next") == []
    cell.world.add(NodeParticipant(simulated_node("a", SIZE, boot="later")))
    cell.run(400)
    reports = cell.of(run_subject("a", "default", "web"))
    over = next(event.sequence for event in reports if isinstance(event.data, RunStatus) and event.data.phase.terminal)
    later = [event for event in (*cell.placed("web"), *cell.placed("next")) if event.sequence > first.sequence]
    assert later, "somebody has the room in the end"
    assert all(event.sequence > over for event in later)


def test_a_finished_pod_is_deleted_after_its_time_and_says_why() -> None:
    cell = Cell("a")
    cell.create(2, pod("job", **{"cotenant.io/simulated-duration": "3s", "cotenant.io/ttl-seconds-after-finished": "20"}))
    cell.run(60)
    end = cell.of(pod_subject("default", "job"))[-1]
    assert isinstance(end.data, ObjectDeleted)
    assert "ttl-seconds-after-finished: 20" in end.data.reason
    finished = next(
        event
        for event in cell.of(run_subject("a", "default", "job"))
        if isinstance(event.data, RunStatus) and event.data.phase is RunPhase.SUCCEEDED
    )
    assert finished.ref in end.causes
    assert finished.time is not None
    assert end.time is not None
    assert timedelta(seconds=20) <= end.time - finished.time < timedelta(seconds=25)
    assert cell.of(run_subject("a", "default", "job"))[-1].tombstone
    assert cell.of(placement_subject("a", "default", "job"))[-1].tombstone


@pytest.mark.parametrize("alive", [True, False])
def test_a_job_that_has_finished_does_not_run_again_when_its_node_is_deleted(alive: bool) -> None:
    cell = Cell("a", "b")
    cell.create(2, pod("job", **{"cotenant.io/simulated-duration": "3s"}))
    cell.run(20)
    [node] = {event.data.node for event in cell.events if isinstance(event.data, RunStatus)}
    if not alive:
        cell.world.remove(cell.nodes[node])
    cell.delete(20, "nodes", node)
    cell.run(60)
    assert {event.data.node for event in cell.events if isinstance(event.data, RunStatus)} == {node}
    end = cell.of(pod_subject("default", "job"))[-1]
    assert isinstance(end.data, ObjectDeleted)
    assert end.data.reason == f"it has finished, and its node {node} was deleted"
    assert cell.of(run_subject(node, "default", "job"))[-1].tombstone
