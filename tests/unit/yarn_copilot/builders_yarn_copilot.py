"""A copilot that folds events, and NodeManagers as a ResourceManager lists them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from cotenant.events import Event, NodeResources, ObjectDeleted, Payload, Placement, YarnNode
from cotenant.events.node.metrics import Usage
from cotenant.model.subjects import node_subject, placement_subject, resources_subject, yarn_subject
from cotenant_yarn_copilot.capacity import Rounding
from cotenant_yarn_copilot.core import YarnCopilot
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_messages import RmNode, read_node
from tests.builders import encoded, node_document, pod_document, stored

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GIB = 1 << 30


def manager(
    node_id: str, *, vcores: int = 4, memory_mb: int = 4096, used: tuple[int, int] = (0, 0), state: str = "RUNNING"
) -> RmNode:
    """Return a NodeManager as `/nodes` lists it; `used` is vcores and MB."""
    document = {
        "id": node_id,
        "nodeHostName": node_id.rpartition(":")[0],
        "state": state,
        "numContainers": 1 if used[0] else 0,
        "usedVirtualCores": used[0],
        "usedMemoryMB": used[1],
        "totalResource": {"memory": memory_mb, "vCores": vcores},
    }
    return read_node(msgspec.json.encode({"node": document}))


class Bench:
    """One copilot; events are folded as they are stored."""

    def __init__(self, rounding: Rounding = Rounding.EXACT) -> None:
        self.copilot = YarnCopilot(rounding)
        self.sequence = 0

    def store(self, subject: str, data: Payload, *, tombstone: bool = False) -> None:
        self.sequence += 1
        self.copilot.apply(Event(subject=subject, data=data, sequence=self.sequence, tombstone=tombstone))

    def node(self, name: str, *, annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None) -> None:
        self.store(node_subject(name), stored(node_document(name, annotations=annotations, labels=labels)))

    def delete_node(self, name: str) -> None:
        self.store(node_subject(name), ObjectDeleted(), tombstone=True)

    def has_batch(self, name: str, cpu_milli: int, memory_bytes: int, *, withdrawn: bool = False) -> None:
        origin = Usage(cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        self.store(resources_subject(name), NodeResources(node=name, origin=origin, withdrawn=withdrawn))

    def place(
        self,
        name: str,
        pod: str,
        *,
        requests: dict[str, int] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> None:
        data = Placement(
            node=name,
            namespace="default",
            name=pod,
            uid=pod,
            pod=encoded(pod_document(pod, uid=pod, labels=labels, annotations=annotations)),
            requests=requests or {},
        )
        self.store(placement_subject(name, "default", pod), data)

    def place_node_manager(self, name: str, node_id: str | None, *, cluster: str = "") -> None:
        annotations: dict[str, str] = {}
        if node_id is not None:
            annotations["yarn.hadoop.apache.org/node-id"] = node_id
        if cluster:
            annotations["yarn.hadoop.apache.org/cluster-id"] = cluster
        labels = {"app.kubernetes.io/component": "node-manager"}
        self.place(name, "nm", labels=labels, annotations=annotations)

    def facts(self, *managers: RmNode, now: datetime = NOON, failures: dict[str, str] | None = None) -> dict[str, YarnNode]:
        """Sync the default cluster, fold the new events and return them by `<entity>`."""
        return self.pass_over({DEFAULT_CLUSTER: managers}, now=now, failures=failures)

    def pass_over(
        self, reports: dict[str, Sequence[RmNode]], *, now: datetime = NOON, failures: dict[str, str] | None = None
    ) -> dict[str, YarnNode]:
        matches = self.copilot.match(reports, now)
        found = {}
        for event in self.copilot.facts(matches, reports, failures or {}, now):
            assert isinstance(event.data, YarnNode)
            found[event.data.node or event.data.node_id] = event.data
            self.store(event.subject, event.data, tombstone=event.tombstone)
        return found

    def settings(self, *managers: RmNode) -> list[tuple[str, int, int]]:
        """Return the totals that would be set: node id, vcores, MB."""
        matches = self.copilot.match({DEFAULT_CLUSTER: managers}, NOON)
        return [
            (setting.node_id.text, setting.total.vcores, setting.total.memory_mb) for setting in self.copilot.settings(matches)
        ]

    def is_known(self, entity: str) -> bool:
        """Whether the entity's last event is not a tombstone."""
        return entity in self.copilot._published and self.copilot.head_of(yarn_subject(entity)) > 0
