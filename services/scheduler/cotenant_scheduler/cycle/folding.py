"""Dispatch of messages to the parts of the state.

In: events of the subjects of FILTERS. Out: pods, nodes, quotas, priority classes, disruption budgets as they are then. The
state is a function of the last message of each subject; `last` returns that message for the subjects that the scheduler itself
writes. Other subjects change nothing.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import AnyObject
from cotenant.api.objects.pod_group import PodGroup, decode_pod_group
from cotenant.api.objects.policies import PriorityClassObject
from cotenant.domain.gangs import gang_id
from cotenant.domain.network_topology import DEFAULT_TOPOLOGY
from cotenant.events.envelope import Event
from cotenant.events.gangs import PodGroupStatus
from cotenant.events.node.runs import RunStatus, reports_stop
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant.model.subjects import selecting, tokens
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.pod_groups import PodGroups
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.gangs import GangCache
from cotenant_scheduler.state.network_domains import NetworkTopology
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.pod_records import PlacementRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.quotas.cache import Quotas
from cotenant_scheduler.state.reservations.cache import ReservationCache, placement_of
from cotenant_scheduler.state.reservations.records import reserve_key
from cotenant_scheduler.state.stored_placements import PlacementView
from cotenant_scheduler.state.volumes.volumes import Volumes

FILTERS = (
    "objects.core.pods.>",
    "objects.core.nodes.>",
    "objects.core.namespaces.>",
    "objects.core.persistentvolumeclaims.>",
    "objects.core.persistentvolumes.>",
    "objects.storage%2Ek8s%2Eio.storageclasses.>",
    "objects.storage%2Ek8s%2Eio.csinodes.>",
    "objects.scheduling%2Ek8s%2Eio.priorityclasses.>",
    "objects.policy.poddisruptionbudgets.>",
    "objects.scheduling%2Esigs%2Ek8s%2Eio.podgroups.>",
    "objects.scheduling%2Ekoordinator%2Esh.reservations.>",
    "objects.scheduling%2Ekoordinator%2Esh.clusternetworktopologies.>",
    "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>",
    "node.*.executor",
    "node.*.resources",
    "node.*.condition",
    "node.*.placement.>",
    "node.*.reservation.*",
    "node.*.run.>",
    "metrics.*",
    "waiting.>",
    "podgroups.>",
    "reservations.*",
)
"""What the service reads from LOG."""

def _document(event: Event) -> msgspec.Raw | None:
    """The object of a message; None: it is gone."""
    return event.data.object if not event.tombstone and isinstance(event.data, ObjectStored) else None


_READ = selecting(FILTERS)
_NAMESPACE = msgspec.json.Decoder(AnyObject)
_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClassObject)


class StateFolding:
    """Passes each message to its part of the state."""

    def __init__(
        self,
        pods: PodCache,
        nodes: NodeCache,
        quotas: Quotas,
        budgets: DisruptionBudgets,
        gangs: GangCache,
        pod_groups: PodGroups,
        reservations: ReservationCache,
        assumed: Assumed,
        volumes: Volumes,
        topology: NetworkTopology,
    ) -> None:
        self._topology = topology
        self._volumes = volumes
        self._pods = pods
        self._reservations = reservations
        self._nodes = nodes
        self._quotas = quotas
        self._budgets = budgets
        self._gangs = gangs
        self._pod_groups = pod_groups
        self._assumed = assumed

    def fold(self, event: Event, sequence: int) -> PlacementRecord | None:
        """Fold a message as if it had this sequence; return the record of a placement.

        Raises msgspec.DecodeError or QuantityError for an object that cannot be read; the state then is as without it.
        """
        match tokens(event.subject):
            case ("node", node, "run", namespace, name):
                if not event.tombstone and isinstance(event.data, RunStatus):
                    self._pods.store_run(event.data, sequence)
                else:
                    if isinstance(event.data, RunStatus) and reports_stop(event):
                        self._pods.store_stop(event.data, sequence)
                    self._pods.drop_run(node, (namespace, name))
            case ("objects", "core", "pods", namespace, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self._pods.store_object((namespace, name), event.data.object, sequence, event.time)
                else:
                    self._pods.drop_object((namespace, name))
            case ("node", node, "placement", namespace, name):
                if not event.tombstone and isinstance(event.data, PlacementView | Placement):
                    return self._store_placement(event.data, sequence)
                self._pods.drop_placement(node, (namespace, name))
            case ("node", node, "reservation", name):
                if not event.tombstone and isinstance(event.data, ReservationShare):
                    if self._assumed.holds(key := reserve_key(name)):
                        self._assumed.confirm(key, placement_of(event.data), False)
                    return self._reservations.store_share(event.data, sequence)
                self._reservations.drop_share(node, name)
            case ("waiting", namespace, name):
                if not event.tombstone and isinstance(event.data, Waiting):
                    self._pods.store_waiting(event.data, event.time)
                else:
                    self._pods.drop_waiting((namespace, name))
            case ("metrics", node):
                self._nodes.fold_metric(node, event)
            case ("node", node, "resources" | "executor" | "condition" as part):
                self._nodes.fold_part(node, part, event)
            case ("objects", "core", "nodes", _, node):
                self._nodes.fold_object(node, event)
            case ("objects", "core", "namespaces", _, name):
                self._fold_namespace(name, event)
            case ("objects", "scheduling.sigs.k8s.io", "elasticquotas", namespace, name):
                self._quotas.fold(namespace, name, event)
            case ("objects", "scheduling.k8s.io", "priorityclasses", _, name):
                self._fold_priority_class(name, event)
            case ("objects", "policy", "poddisruptionbudgets", namespace, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self._budgets.set(namespace, name, event.data.object)
                else:
                    self._budgets.drop(namespace, name)
            case ("objects", "scheduling.sigs.k8s.io", "podgroups", namespace, name):
                self._fold_pod_group(gang_id(namespace, name), event, sequence)
            case ("objects", "scheduling.koordinator.sh", "reservations", _, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self._reservations.store_object(name, event.data.object, sequence)
                else:
                    self._reservations.drop_object(name)
            case ("reservations", name):
                if not event.tombstone and isinstance(event.data, ReservationStatus):
                    self._reservations.store_status(event.data, event.time)
                else:
                    self._reservations.drop_status(name)
            case ("objects", "scheduling.koordinator.sh", "clusternetworktopologies", _, name):
                if name == DEFAULT_TOPOLOGY:
                    self._topology.put(_document(event))
            case ("objects", "core", "persistentvolumeclaims", namespace, name):
                self._volumes.put_claim((namespace, name), _document(event))
            case ("objects", "core", "persistentvolumes", _, name):
                self._volumes.put_volume(name, _document(event))
            case ("objects", "storage.k8s.io", "storageclasses", _, name):
                self._volumes.put_class(name, _document(event))
            case ("objects", "storage.k8s.io", "csinodes", _, name):
                self._volumes.put_csi_node(name, _document(event))
            case ("podgroups", namespace, name):
                status = event.data if not event.tombstone and isinstance(event.data, PodGroupStatus) else None
                self._pod_groups.fold(gang_id(namespace, name), status, event.time)
        return None

    def replace(self, event: Event, sequence: int) -> tuple[Event | None, PlacementRecord | None]:
        """Fold an own message as if it had this sequence; return the last message of its subject before it, and the record of a
        placement. Raises ValueError as `last` does."""
        data = event.data
        if isinstance(data, Placement) and not event.tombstone:
            # Nearly all are first placements: nothing was stored under their subjects.
            record = self._pods.records.get((data.namespace, data.name))
            before = self.last(event.subject) if record is not None and record.placements else None
            return before, self._store_placement(data, sequence)
        return self.last(event.subject), self.fold(event, sequence)

    def last(self, subject: str) -> Event | None:
        """Return the last message of a subject that the scheduler writes; None if the state has none, or does not read the
        subject. Raises ValueError for a subject that another service writes: its earlier messages are not kept."""
        match tokens(subject):
            case ("node", node, "placement", namespace, name):
                record = self._pods.records.get((namespace, name))
                placed = record.placements.get(node) if record is not None else None
                if placed is not None:
                    return Event(subject=subject, data=placed.stored.whole(), sequence=placed.sequence)
            case ("waiting", namespace, name):
                record = self._pods.records.get((namespace, name))
                if record is not None and record.waiting is not None:
                    return Event(subject=subject, data=record.waiting, time=record.waiting_at)
            case ("node", node, "reservation", name):
                reserve = self._reservations.by_name.get(name)
                if reserve is not None and node in reserve.shares:
                    return Event(subject=subject, data=reserve.shares[node], sequence=reserve.placements[node].sequence)
            case ("reservations", name):
                reserve = self._reservations.by_name.get(name)
                if reserve is not None and reserve.status is not None:
                    return Event(subject=subject, data=reserve.status, time=reserve.status_at)
            case ("podgroups", namespace, name):
                known = self._pod_groups.last(gang_id(namespace, name))
                if known is not None:
                    return Event(subject=subject, data=known[0], time=known[1])
            case _ if _READ.fullmatch(subject.encode()):
                raise ValueError(f"{subject} is not written by the scheduler")
        return None

    def _store_placement(self, data: Placement | PlacementView, sequence: int) -> PlacementRecord:
        key = (data.namespace, data.name)
        record = self._pods.records.get(key)
        first = record is not None and not record.placements and not record.runs
        return self._pods.store_placement(key, data, sequence, self._assumed.confirm(key, data, first))

    def _fold_namespace(self, name: str, event: Event) -> None:
        labels: dict[str, str] = {}
        try:
            if not event.tombstone and isinstance(event.data, ObjectStored):
                labels = _NAMESPACE.decode(event.data.object).metadata.labels
        finally:
            # An object that cannot be read counts as absent: its earlier labels are dropped.
            self._pods.label_namespace(name, labels)

    def _fold_pod_group(self, identity: str, event: Event, sequence: int) -> None:
        found: PodGroup | None = None
        try:
            if not event.tombstone and isinstance(event.data, ObjectStored):
                found = decode_pod_group(event.data.object)
        finally:
            # As for a namespace: one that cannot be read counts as absent.
            self._gangs.put_pod_group(identity, found, sequence)

    def _fold_priority_class(self, name: str, event: Event) -> None:
        if event.tombstone or not isinstance(event.data, ObjectStored):
            changed = self._pods.priorities.drop(name)
        else:
            changed = self._pods.priorities.set(name, _PRIORITY_CLASS.decode(event.data.object))
        if changed:
            self._pods.reprioritise()
