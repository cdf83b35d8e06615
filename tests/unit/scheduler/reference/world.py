"""What the plain scheduler knows: the last message of each subject, in dictionaries, and the rooms that are held in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.objects.node import Node, Taint, decode_node
from cotenant.api.objects.pod import Pod, Toleration, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting
from cotenant.events.reservations import ReservationShare
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import tokens


class World:
    """What the last messages say."""

    def __init__(self, events: Iterable[Event], now: datetime) -> None:
        self.now = now
        self.nodes: dict[str, Node] = {}
        self.batch: dict[str, NodeResources] = {}
        self.metrics: dict[str, NodeMetricComputed] = {}
        self.pods: dict[str, Pod] = {}
        self.placements: dict[str, tuple[str, Pod, datetime]] = {}
        self.ended: set[tuple[str, str]] = set()
        self.budgets: dict[str, dict[str, Any]] = {}
        self.quota_objects: dict[str, dict[str, Any]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of the namespaces that have an object."""
        self.told_to_end: set[str] = set()
        self.bound_in_this_pass: set[str] = set()
        """They make room for nobody yet: what is not stored is nobody's victim."""
        self.nominated_in_this_pass: list[tuple[str, int]] = []
        """Node and priority."""
        self.given_up_in_this_pass: dict[str, Nomination] = {}
        self.network: dict[str, Any] | None = None
        """The ClusterNetworkTopology named `default`."""
        self.gathered: dict[str, tuple[str, str, int, int, int]] = {}
        self.keeps_rooms = True
        self.head: tuple[str, str, datetime] | None = None
        """Whom this pass keeps room for, on which node, since when (`queue_head`)."""
        self.shares: list[ReservationShare] = []
        """Reservations by what they hold (`reserved`)."""
        self.reservation_specs: dict[str, dict[str, Any]] = {}
        self.uses: dict[str, str] = {}
        """By pod, the uid of the reservation that it is in."""
        said: dict[str, Waiting] = {}
        for event in events:
            parts = tokens(event.subject)
            data: Any = event.data
            if event.tombstone:
                continue
            if isinstance(data, ObjectStored) and parts[2] == "nodes":
                self.nodes[parts[4]] = decode_node(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "pods":
                self.pods[parts[4]] = decode_pod(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "namespaces":
                self.namespaces[parts[4]] = msgspec.json.decode(data.object)["metadata"].get("labels", {})
            elif isinstance(data, ObjectStored) and parts[2] == "poddisruptionbudgets":
                self.budgets[parts[4]] = msgspec.json.decode(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "elasticquotas":
                self.quota_objects[parts[4]] = msgspec.json.decode(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "clusternetworktopologies" and parts[4] == "default":
                self.network = msgspec.json.decode(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "reservations":
                document = msgspec.json.decode(data.object)
                self.reservation_specs[document["metadata"]["uid"]] = document["spec"]
            elif isinstance(data, ReservationShare):
                self.shares.append(data)
            elif isinstance(data, Waiting):
                said[data.name] = data
            elif isinstance(data, NodeResources):
                self.batch[data.node] = data
            elif isinstance(data, NodeMetricComputed):
                self.metrics[data.node] = data
            elif isinstance(data, RunStatus) and data.phase.terminal:
                self.ended.add((data.name, data.uid))
            elif isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
                assert data.bound_at is not None
                self.placements[data.name] = (data.node, decode_pod(data.pod), data.bound_at)
                if data.allocation is not None and data.allocation.reservation is not None:
                    self.uses[data.name] = data.allocation.reservation.uid
                if data.phase is PlacementPhase.TERMINATING:
                    self.told_to_end.add(data.name)
        self.nominations: dict[str, Nomination] = {
            name: waiting.nomination
            for name, waiting in said.items()
            if waiting.nomination is not None and self.queued(name) and self.pods[name].metadata.uid == waiting.uid
        }

        self.kept_rooms: dict[str, tuple[str, datetime]] = {
            name: (waiting.hold.node, waiting.hold.at)
            for name, waiting in said.items()
            if waiting.hold is not None and self.queued(name) and self.pods[name].metadata.uid == waiting.uid
        }
        """The room that the last pass kept."""

    def queued(self, name: str) -> bool:
        """The pod wants a node: it has none, and has not run to its end."""
        pod = self.pods.get(name)
        if pod is None or name in self.placements or pod.metadata.deletion_timestamp is not None:
            return False
        return (name, pod.metadata.uid) not in self.ended

    def is_ending(self, name: str) -> bool:
        """A placed pod that ends whatever is decided."""
        pod, placed = self.pods.get(name), self.placements[name][1]
        if name in self.told_to_end or pod is None or pod.metadata.deletion_timestamp is not None:
            return True
        return pod.metadata.uid != placed.metadata.uid

    def with_rooms(self, pod: Pod) -> World:
        """This world, with the nominated pods placed that the pod has to leave room for."""
        world = copy(self)
        world.placements = dict(self.placements)
        for name, nomination in self.rooms(pod).items():
            # Under a name that no report knows.
            world.placements[f"{name}'s room"] = (nomination.node, self.pods[name], nomination.at)
        if self.head is not None and self.pods[self.head[0]] is not pod:
            name, node, at = self.head
            if queue_key(self.pods[name]) < queue_key(pod):
                world.placements[f"{name}'s kept room"] = (node, self.pods[name], at)
        return world

    def rooms(self, pod: Pod) -> Mapping[str, Nomination]:
        return {
            name: nomination
            for name, nomination in self.nominations.items()
            if name != pod.metadata.name
            and priority_of(self.pods[name]) >= priority_of(pod)
            and nomination.node in self.nodes
        }

    def without(self, names: Iterable[str]) -> World:
        """This world without some placed pods."""
        world = copy(self)
        world.placements = {name: placed for name, placed in self.placements.items() if name not in names}
        return world

    def on_node(self, name: str) -> list[tuple[Pod, datetime]]:
        return [
            (pod, at)
            for node, pod, at in self.placements.values()
            if node == name and (pod.metadata.name, pod.metadata.uid) not in self.ended
        ]

    def owners(self, share: ReservationShare) -> list[Pod]:
        """The pods that are in a reservation and have not ended."""
        return [
            pod
            for name, (_, pod, _) in self.placements.items()
            if self.uses.get(name) == share.uid and (pod.metadata.name, pod.metadata.uid) not in self.ended
        ]

    def held(self, name: str) -> dict[str, int]:
        """What reservations keep of a node for owners that are still to come."""
        found: dict[str, int] = {}
        for share in self.shares:
            users = self.owners(share) if share.node == name else []
            for resource, amount in share.allocatable.items() if share.node == name else ():
                left = amount - sum(pod_requests(pod).get(resource, 0) for pod in users)
                found[resource] = found.get(resource, 0) + max(0, left)
        return found

    def allocatable(self, name: str) -> dict[str, int]:
        node = self.nodes[name]
        amounts = {r: resource_amount(r, q) for r, q in node.status.allocatable.items()}
        if name in self.batch:
            amounts["kubernetes.io/batch-cpu"] = self.batch[name].batch_cpu_milli
            amounts["kubernetes.io/batch-memory"] = self.batch[name].batch_memory_bytes
        return amounts


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def queue_key(pod: Pod) -> tuple[int, str, str, str]:
    metadata = pod.metadata
    return -priority_of(pod), metadata.creation_timestamp or "", metadata.namespace, metadata.name


def tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    for t in tolerations:
        if t.effect not in ("", taint.effect):
            continue
        if t.operator == "Exists" and t.key in ("", taint.key):
            return True
        if t.operator == "Equal" and t.key == taint.key and t.value == taint.value:
            return True
    return False
