"""core/v1 Events for `kubectl get events`, told from the facts on the log.

In: facts about pods and nodes (placements, waiting reasons, runs, evictions, readiness). Out: Event objects: one per
object and reason, counted when the same happens again. At most MAX_EVENTS are kept; the oldest go. They are made anew
from the last facts after a restart and never stored: the log itself is the record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from hashlib import blake2b

import msgspec

from cotenant.events.conditions import NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.runs import RunPhase, RunStatus
from cotenant.objects.kinds import BY_RESOURCE
from cotenant_gateway.composing.overlay import Overlay, head_of
from cotenant_gateway.composing.times import derived_uid, rfc3339
from cotenant_gateway.snapshots import Address, Snapshot
from cotenant_gateway.splices import raw

MAX_EVENTS = 2000
_KIND = BY_RESOURCE["", "events"]


class Told(msgspec.Struct, frozen=True):
    """What happened to whom, in the words of a core/v1 Event."""

    kind: str
    namespace: str
    name: str
    uid: str
    normal: bool
    reason: str
    message: str
    component: str


_OF_RUNS = {
    RunPhase.RUNNING: (True, "Started", "Started on"),
    RunPhase.SUCCEEDED: (True, "Completed", "Completed on"),
    RunPhase.FAILED: (False, "Failed", "Failed on"),
    RunPhase.EVICTED: (False, "Evicted", "Evicted by"),
    RunPhase.STOPPED: (True, "Killed", "Stopped on"),
}


def tell(event: Event) -> Told | None:
    """Return the story of one fact, None where there is nothing to tell."""
    data = event.data
    if event.tombstone:
        return None
    if isinstance(data, Placement):
        if data.phase is PlacementPhase.TERMINATING:
            message = f"Stopping pod {data.name}" + (f": {data.reason}" if data.reason else "")
            return Told("Pod", data.namespace, data.name, data.uid, True, "Killing", message, "scheduler")
        message = f"Successfully assigned {data.namespace}/{data.name} to {data.node}"
        return Told("Pod", data.namespace, data.name, data.uid, True, "Scheduled", message, "scheduler")
    if isinstance(data, Waiting):
        return Told("Pod", data.namespace, data.name, data.uid, False, "FailedScheduling", data.message, "scheduler")
    if isinstance(data, EvictionOutcome):
        reason = "Evicted" if data.allowed else "EvictionRefused"
        message = data.message or ("eviction allowed" if data.allowed else "eviction refused")
        return Told("Pod", data.namespace, data.name, data.uid, data.allowed, reason, message, "gateway")
    if isinstance(data, RunStatus):
        return _tell_run(data)
    if isinstance(data, NodeCondition):
        reason = "NodeReady" if data.ready else "NodeNotReady"
        message = data.message or f"Node {data.node} status is now: {reason}"
        return Told("Node", "", data.node, "", data.ready, reason, message, "descheduler-arbiter")
    return None


def _tell_run(run: RunStatus) -> Told | None:
    told = _OF_RUNS.get(run.phase)
    if told is None:
        return None
    normal, reason, begin = told
    detail = run.message or run.reason
    message = f"{begin} {run.node}: {detail}" if detail else f"{begin} {run.node}"
    return Told("Pod", run.namespace, run.name, run.uid, normal, reason, message, "node-executor")


class _Kept(msgspec.Struct):
    told: Told
    count: int
    first: datetime | None
    last: datetime | None
    sequence: int


class Narrator:
    """The Event objects that are shown, oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def tell(self, event: Event) -> Iterator[tuple[str, str, Snapshot | None]]:
        """Yield the Event objects that a fact adds, changes or (as None) drops: namespace, name, object."""
        told = tell(event)
        if told is None:
            return
        digest = blake2b(f"{told.kind}/{told.uid}/{told.reason}".encode(), digest_size=8).hexdigest()
        key = (told.namespace or "default", f"{told.name}.{digest}")
        kept = self._kept.get(key)
        if kept is not None and kept.sequence >= event.sequence:
            return
        if kept is None:
            kept = self._kept[key] = _Kept(told, 1, event.time, event.time, event.sequence)
        elif kept.told == told and told.reason in ("Scheduled", "Started", "Killing"):
            return
        else:
            kept.count += 1
            kept.told, kept.last, kept.sequence = told, event.time, event.sequence
            self._kept.move_to_end(key)
        yield *key, _object(key, kept)
        while len(self._kept) > MAX_EVENTS:
            oldest, _ = self._kept.popitem(last=False)
            yield *oldest, None


def _object(key: tuple[str, str], kept: _Kept) -> Snapshot:
    """The Event object as it is now; few are ever read, so it is composed when it is."""
    address, told, count, first, last = Address(_KIND, *key), kept.told, kept.count, kept.first, kept.last
    return Snapshot(address, None, {}, kept.sequence, lambda _: _composed(address, told, count, first, last))


def _composed(address: Address, told: Told, count: int, first: datetime | None, last: datetime | None) -> Overlay:
    namespace, name = address.namespace, address.name
    involved = {"kind": told.kind, "apiVersion": "v1", "name": told.name}
    if told.namespace:
        involved["namespace"] = told.namespace
    if told.uid:
        involved["uid"] = told.uid
    head = head_of("v1", "Event") | {
        "involvedObject": raw(involved),
        "reason": raw(told.reason),
        "message": raw(told.message),
        "source": raw({"component": told.component}),
        "count": raw(count),
        "type": raw("Normal" if told.normal else "Warning"),
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
            "involvedObject.kind": told.kind,
            "involvedObject.name": told.name,
            "involvedObject.namespace": told.namespace,
            "involvedObject.uid": told.uid,
            "reason": told.reason,
            "type": "Normal" if told.normal else "Warning",
        },
    )
