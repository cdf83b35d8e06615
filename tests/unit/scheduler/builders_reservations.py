"""Reservations in the scheduler's tests: documents, a log with them, and what must always hold of them."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.model.subjects import object_subject, reservation_status_subject
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story

GROUP = "scheduling.koordinator.sh"
AFFINITY = f"{GROUP}/reservation-affinity"


def reservation(
    name: str,
    *,
    app: str = "web",
    cpu: str = "4",
    memory: str = "4Gi",
    uid: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    created: str = "2026-01-01T11:00:00Z",
    requests: dict[str, str] | None = None,
    template: dict[str, Any] | None = None,
    deleting: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """A Reservation of pods with the label app; `template` adds fields of the pod's spec, `spec` of the reservation's."""
    wanted = requests if requests is not None else {"cpu": cpu, "memory": memory}
    metadata = {
        "name": name,
        "uid": uid or f"uid-{name}",
        "creationTimestamp": created,
        "labels": labels or {},
        "annotations": annotations or {},
    }
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    pod = {"containers": [{"name": "main", "image": "i", "resources": {"requests": wanted}}], **(template or {})}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "Reservation",
        "metadata": metadata,
        "spec": {
            "template": {"metadata": {"labels": {"reserve": name}}, "spec": pod},
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "ttl": "24h",
            "allocateOnce": True,
            **spec,
        },
    }


def wants(**affinity: Any) -> dict[str, str]:
    """The annotation of a pod with reservation affinity."""
    return {AFFINITY: msgspec.json.encode(affinity).decode()}


class ReservedStory(Story):
    """A log with reservations."""

    def reservation(self, document: dict[str, Any]) -> Event:
        return self.say(object_subject(GROUP, "reservations", "", document["metadata"]["name"]), stored(document))

    def reservation_deleted(self, name: str) -> Event:
        return self.say(object_subject(GROUP, "reservations", "", name), ObjectDeleted(), tombstone=True)

    def share(self, name: str) -> ReservationShare | None:
        """The share of a reservation; fails if there are two."""
        found = [
            event.data
            for event in self.last.values()
            if isinstance(event.data, ReservationShare) and event.data.name == name and not event.tombstone
        ]
        assert len(found) <= 1, found
        return found[0] if found else None

    def status(self, name: str) -> ReservationStatus | None:
        event = self.last.get(reservation_status_subject(name))
        return event.data if event is not None and not event.tombstone and isinstance(event.data, ReservationStatus) else None

    def phase(self, name: str) -> str:
        share, status = self.share(name), self.status(name)
        assert share is None or status is None, "a share and a status at once"
        return share.phase.value if share else status.phase.value if status else ""

    def used(self, pod: str) -> str:
        """The reservation that a pod uses; empty for none."""
        placement = self.placement(pod)
        assert placement is not None, f"{pod} has no node"
        allocation = placement.allocation
        return allocation.reservation.name if allocation is not None and allocation.reservation is not None else ""

    def owners_of(self, uid: str) -> list[Placement]:
        """The placements that use a reservation and have not ended."""
        return [
            event.data
            for event in self.last.values()
            if isinstance(event.data, Placement)
            and event.data.phase is not PlacementPhase.GONE
            and event.data.allocation is not None
            and event.data.allocation.reservation is not None
            and event.data.allocation.reservation.uid == uid
        ]

    def requested(self, node: str, resource: str = "cpu") -> int:
        """What the core counts as taken of a node."""
        nodes = self.core.nodes
        return int(nodes.requested[nodes.dims[resource], nodes.rows[node]])
