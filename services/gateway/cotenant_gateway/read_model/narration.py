"""core/v1 Events for `kubectl get events`, composed from the facts on the log.

In: facts about pods and nodes (placements, waiting reasons, runs, evictions and those called off, readiness), and rejected
sections of the node configuration. Out: Event objects: one per object and reason (and section), counted when the same happens
again. At most MAX_EVENTS are kept, oldest dropped. They are recomposed from the last facts after a restart and never stored:
the log itself is the record.

Over 300 lines: one short function a kind of fact, and the table of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Address, Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid, rfc3339
from cotenant.domain.reservations.diagnosis import reservation_message
from cotenant.events.configurations import ConfigurationRejected
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition, disruption_text
from cotenant.events.node.runs import RunPhase, RunStatus, reports_stop
from cotenant.events.placements import Placement, PlacementPhase, Waiting, condition_message
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.kinds.events import DEFINITION, EVENTS
from cotenant.model.values import Value
from cotenant_gateway.read_model.slots import Collection

MAX_EVENTS = 2000
MAX_DEFERRED = 1000
_REPORTED_ONCE = ("Scheduled", "Started", "Killing", "Killed")
"""Reasons whose facts may be stored again although nothing happened."""


class Narration(Value, frozen=True):
    """What happened to which object, as in a core/v1 Event."""

    kind: str
    namespace: str
    name: str
    uid: str
    normal: bool
    reason: str
    message: str
    component: str
    about: str = ""
    """The part of the object that it is about, where one reason stands for several."""


_OF_RUNS = {
    RunPhase.RUNNING: (True, "Started", "Started on"),
    RunPhase.SUCCEEDED: (True, "Completed", "Completed on"),
    RunPhase.FAILED: (False, "Failed", "Failed on"),
    RunPhase.EVICTED: (False, "Evicted", "Evicted by"),
    RunPhase.STOPPED: (True, "Killed", "Stopped on"),
}


def _narrate_placement(placed: Placement) -> Narration:
    if placed.phase is PlacementPhase.TERMINATING:
        message = f"Stopping pod {placed.name}" + (f": {placed.reason}" if placed.reason else "")
        return Narration("Pod", placed.namespace, placed.name, placed.uid, True, "Killing", message, "scheduler")
    message = f"Successfully assigned {placed.namespace}/{placed.name} to {placed.node}"
    return Narration("Pod", placed.namespace, placed.name, placed.uid, True, "Scheduled", message, "scheduler")


def _narrate_waiting(waiting: Waiting) -> Narration:
    message = condition_message(waiting)
    return Narration("Pod", waiting.namespace, waiting.name, waiting.uid, False, "FailedScheduling", message, "scheduler")


def _narrate_eviction(outcome: EvictionOutcome) -> Narration:
    reason = "Evicted" if outcome.allowed else "EvictionRefused"
    message = outcome.message or ("eviction allowed" if outcome.allowed else "eviction refused")
    return Narration("Pod", outcome.namespace, outcome.name, outcome.uid, outcome.allowed, reason, message, "gateway")


def _narrate_run(run: RunStatus) -> Narration | None:
    """What became of a pod on its node; an eviction is told when it begins, before the pod's grace period is over."""
    begun = run.eviction
    if begun is not None and not run.phase.terminal:
        message = f"Evicted by {begun.strategy} of {run.node}, {begun.grace_seconds} s until SIGKILL: {begun.why}"
        return Narration("Pod", run.namespace, run.name, run.uid, False, "Evicted", message, "node-executor")
    narration = _OF_RUNS.get(run.phase)
    if narration is None:
        return None
    normal, reason, begin = narration
    detail = run.message or run.reason
    message = f"{begin} {run.node}: {detail}" if detail else f"{begin} {run.node}"
    return Narration("Pod", run.namespace, run.name, run.uid, normal, reason, message, "node-executor")


def _narrate_migration(job: Migration) -> Narration | None:
    """An eviction by taint that was cancelled, in the words of Kubernetes' taint eviction controller."""
    if job.phase != "Aborted" or not job.taint:
        return None
    message = f"Cancelling deletion of Pod {job.namespace}/{job.pod}: {job.message}"
    return Narration("Pod", job.namespace, job.pod, job.uid, True, "TaintManagerEviction", message, "descheduler-arbiter")


def _narrate_condition(condition: NodeCondition) -> Narration:
    if condition.ready and condition.no_execute:
        taints = ", ".join(taint.key for taint in condition.no_execute)
        message = f"pods that do not tolerate {taints} are evicted"
        return Narration("Node", "", condition.node, "", True, "NodeTainted", message, "descheduler-arbiter")
    reason = "NodeReady" if condition.ready else "NodeNotReady"
    message = condition.message or f"Node {condition.node} status is now: {reason}"
    if condition.disruption is not None:
        message = f"{message}; {disruption_text(condition.disruption)}"
    return Narration("Node", "", condition.node, "", condition.ready, reason, message, "descheduler-arbiter")


def _narrate_share(share: ReservationShare) -> Narration:
    message = f"Successfully assigned reservation {share.name} to {share.node}"
    return Narration("Reservation", "", share.name, share.uid, True, "Scheduled", message, "scheduler")


def _narrate_reservation(status: ReservationStatus) -> Narration:
    if status.phase is ReservationPhase.PENDING:
        message = status.full_message
        return Narration("Reservation", "", status.name, status.uid, False, "FailedScheduling", message, "scheduler")
    normal = status.phase is ReservationPhase.SUCCEEDED
    return Narration("Reservation", "", status.name, status.uid, normal, status.reason, status.message, "scheduler")


def _narrate_reservations(waiting: Waiting) -> Narration | None:
    """A waiting pod's diagnosis of reservations, computed independently, in Koordinator's words."""
    message = reservation_message(waiting.message)
    if not message:
        return None
    return Narration("Pod", waiting.namespace, waiting.name, waiting.uid, False, "FailedReservation", message, "scheduler")


def _narrate_rejections(rejected: ConfigurationRejected) -> Sequence[Narration]:
    """Rejected sections of the node configuration, each with Koordinator's reason."""
    return [
        Narration(
            "ConfigMap",
            rejected.namespace,
            rejected.name,
            rejected.uid,
            False,
            section.reason,
            f"{section.message}; the previous value of {section.key} stays in force",
            "batch-resource-calculator",
            section.key,
        )
        for section in rejected.sections
    ]


def _each(*narrators: Callable[[Any], Narration | None]) -> Callable[[Any], Sequence[Narration | None]]:
    """What several functions make of one fact."""
    return lambda data: [narrator(data) for narrator in narrators]


_NARRATORS: dict[type, Callable[[Any], Sequence[Narration | None]]] = {
    Placement: _each(_narrate_placement),
    Waiting: _each(_narrate_waiting, _narrate_reservations),
    EvictionOutcome: _each(_narrate_eviction),
    RunStatus: _each(_narrate_run),
    NodeCondition: _each(_narrate_condition),
    Migration: _each(_narrate_migration),
    ReservationShare: _each(_narrate_share),
    ReservationStatus: _each(_narrate_reservation),
    ConfigurationRejected: _narrate_rejections,
}
"""Each function takes the payload type that it is listed with; None stands for no Event."""


class Narrated(Snapshot, eq=False, gc=False, kw_only=True):
    """An Event object: what was narrated last, how often, and the first and last time."""

    narration: Narration
    count: int
    first: datetime | None
    last: datetime | None


_NO_PARTS: Mapping[str, Event] = {}


class Narrator(Collection):
    """The Event objects: those that are narrated, oldest first, and those that a client stored."""

    def __init__(self) -> None:
        super().__init__(DEFINITION)
        self._narrated: OrderedDict[tuple[str, str], Narrated] = OrderedDict()
        self._deferred: list[Event] = []
        """Facts that are not narrated yet."""

    def defer(self, event: Event) -> None:
        """Take a fact; it is narrated at the next read, or when MAX_DEFERRED are waiting."""
        if type(event.data) in _NARRATORS and _is_news(event):
            if not self._deferred:
                self._order = None
                self.derived.clear()
            self._deferred.append(event)
            if len(self._deferred) >= MAX_DEFERRED:
                self._catch_up()

    def _catch_up(self) -> None:
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self._narrate(event)

    def get(self, namespace: str, name: str) -> Snapshot | None:
        """Return one Event object, None where it does not exist."""
        self._catch_up()
        return self._narrated.get((namespace, name)) or super().get(namespace, name)

    def _names(self) -> Iterator[tuple[str, str]]:
        self._catch_up()
        return iter({*super()._names(), *self._narrated})

    def narrate(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        """Return the Event objects that a fact adds, changes or drops, as they were and as they are."""
        if self._deferred:
            self._catch_up()
        changes = self._narrate(event)
        if changes:
            self._order = None
            self.derived.clear()
        return changes

    def _narrate(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        if not _is_news(event):
            return ()
        changes: list[tuple[Narrated | None, Narrated | None]] = []
        narrator = _NARRATORS.get(type(event.data))
        for narration in narrator(event.data) if narrator is not None else ():
            if narration is not None:
                changes += self._take(narration, event)
        return changes

    def _take(self, narration: Narration, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        name = f"{narration.name}.{narration.uid or narration.kind.lower()}.{narration.reason.lower()}"
        key = narration.namespace or "default", f"{name}.{narration.about}" if narration.about else name
        before = self._narrated.get(key)
        if before is None:
            address, count, first = Address(EVENTS, *key), 1, event.time
        elif before.version >= event.sequence or (before.narration == narration and narration.reason in _REPORTED_ONCE):
            return ()
        else:
            address, count, first = before.address, before.count + 1, before.first
            self._narrated.move_to_end(key)
        after = self._narrated[key] = Narrated(
            address, None, _NO_PARTS, event.sequence, _composed, narration=narration, count=count, first=first, last=event.time
        )
        if len(self._narrated) <= MAX_EVENTS:
            return ((before, after),)
        _, oldest = self._narrated.popitem(last=False)
        return (before, after), (oldest, None)


def _is_news(event: Event) -> bool:
    """Whether a fact is narrated: a tombstone only if it is a report by itself."""
    return not event.tombstone or reports_stop(event)


def narrated_once(address: Address, narration: Narration, version: int, at: datetime | None) -> Narrated:
    """An Event object outside of any collection, of something that happened once."""
    return Narrated(address, None, _NO_PARTS, version, _composed, narration=narration, count=1, first=at, last=at)


def _composed(event: Snapshot) -> Overlay:
    """The content of the Event object; composed on demand, as few are ever read."""
    assert isinstance(event, Narrated)
    namespace, name = event.address.namespace, event.address.name
    narration, first, last = event.narration, event.first, event.last
    # kubectl requests a node's events by the node's name as uid, as kubelet writes it.
    uid_of = narration.uid or (narration.name if narration.kind == "Node" else "")
    involved = {"kind": narration.kind, "apiVersion": "v1", "name": narration.name}
    if narration.namespace:
        involved["namespace"] = narration.namespace
    if uid_of:
        involved["uid"] = uid_of
    head = head_of("v1", "Event") | {
        "involvedObject": raw(involved),
        "reason": raw(narration.reason),
        "message": raw(narration.message),
        "source": raw({"component": narration.component}),
        "count": raw(event.count),
        "type": raw("Normal" if narration.normal else "Warning"),
    }
    began = rfc3339(first) if first is not None else ""
    if first is not None and last is not None:
        head |= {"firstTimestamp": raw(began), "lastTimestamp": raw(rfc3339(last))}
    uid = derived_uid("Event", namespace, name)
    return Overlay(
        head=head,
        metadata={"name": name, "namespace": namespace, "uid": uid} | ({"creationTimestamp": began} if began else {}),
        uid=uid,
        fields={
            "involvedObject.kind": narration.kind,
            "involvedObject.name": narration.name,
            "involvedObject.namespace": narration.namespace,
            "involvedObject.uid": uid_of,
            "reason": narration.reason,
            "type": "Normal" if narration.normal else "Warning",
        },
    )
