"""How objects end: level-triggered, from the read model.

An object with a deletionTimestamp ends (its tombstone is stored) when no finalizer is left and, for a pod, when no
placement of it is left: the scheduler has marked it gone after its executor reported that it ended. A namespace's contents
are deleted first, also those that a gateway stores later because it has not folded the deletion yet. With a node
its executor's reports of itself and of its machine end: nothing else would end them, and once the node's tombstone has
expired they would register a machine that is gone. Every intent is fenced by the object's own sequence, so two gateways
do no harm.

An ending object is checked again when it changes (`GatewayCore.may_end`), as many may be ending at a time; a namespace, whose
end depends on other objects, in every pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice

from cotenant.api.edits import marked_for_deletion
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.topology import MachineTopology
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS, live_placement
from cotenant.log.contract import replaces
from cotenant.log.plans import Plan, PlannedWrite, object_write
from cotenant.model.bounds import saturated_seconds
from cotenant_gateway.read_model.core import GatewayCore

MAX_PLANS = 999
DEFAULT_GRACE_SECONDS = 30


def end(snapshot: Snapshot) -> Plan:
    """Return the writes that end an object."""
    reports = snapshot.parts.values() if snapshot.address.kind is NODES else ()
    return Plan(
        (
            _tombstone(snapshot),
            *(
                PlannedWrite(event.subject, event.data, event.sequence, tombstone=True, causes=(f"LOG:{event.sequence}",))
                for event in reports
                if isinstance(event.data, ExecutorStatus | MachineTopology) and not event.tombstone
            ),
        )
    )


def _tombstone(snapshot: Snapshot) -> PlannedWrite:
    assert snapshot.stored is not None
    payload = ObjectDeleted(uid=snapshot.stored.meta.uid)
    # In the order of the log, whatever the order of the load.
    causes = (f"LOG:{sequence}" for sequence in sorted(part.sequence for part in snapshot.parts.values() if part.tombstone))
    return object_write(
        snapshot.address, payload, snapshot.stored.sequence, tombstone=True, causes=(f"LOG:{snapshot.stored.sequence}", *causes)
    )


def grace_of(snapshot: Snapshot, asked: int | None) -> int:
    """Return the grace period of a pod's deletion: the requested one, else the pod's own, else 30 s."""
    if asked is not None:
        return saturated_seconds(asked)
    own = snapshot.pod.spec.termination_grace_period_seconds
    return saturated_seconds(own) if own is not None and own >= 0 else DEFAULT_GRACE_SECONDS


def deletion(snapshot: Snapshot, now: datetime, grace_seconds: int | None) -> Plan | None:
    """Return the plan of a deletion: the tombstone at once, or the mark for deletion; None if it is marked already."""
    stored = snapshot.stored
    assert stored is not None
    is_pod = snapshot.address.kind is PODS
    grace = grace_of(snapshot, grace_seconds) if is_pod else 0
    waits = bool(stored.meta.finalizers) or snapshot.address.kind is NAMESPACES
    if is_pod and grace > 0 and live_placement(snapshot) is not None:
        waits = True
    if not waits:
        return end(snapshot)
    marked_grace = stored.meta.deletion_grace_period_seconds
    if stored.meta.deletion_timestamp is not None and (marked_grace is None or marked_grace <= grace):
        return None
    marked = ObjectStored(object=marked_for_deletion(stored.raw, now, grace))
    causes = (f"LOG:{stored.sequence}",)
    return Plan(
        (object_write(snapshot.address, marked, stored.sequence, causes=causes, replaces=replaces(stored.time, now)),)
    )


def endings(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    """Yield what can end now, in at most MAX_PLANS plans."""
    late = (plan for namespace in sorted(core.orphaned) for plan in _deletions(_contents(core, namespace), now))
    due = (plan for key in sorted(core.may_end) for plan in _due(core, key, now))
    yield from islice(chain(late, due), MAX_PLANS)


def _contents(core: GatewayCore, namespace: str) -> list[Snapshot]:
    """Return the objects in a namespace, at most MAX_PLANS: the others follow when these are gone."""
    return list(islice(core.contents(namespace), MAX_PLANS))


def _due(core: GatewayCore, key: tuple[str, str, str], now: datetime) -> Iterator[Plan]:
    """Yield the plans of one ending object; one that waits is left out of later passes until it changes."""
    snapshot = core.ending[key].snapshot
    waits = True
    for plan in _ending(core, snapshot, now):
        waits = False
        yield plan
    if waits and (snapshot is None or snapshot.address.kind is not NAMESPACES):
        core.may_end.discard(key)


def _ending(core: GatewayCore, snapshot: Snapshot | None, now: datetime) -> Iterator[Plan]:
    if snapshot is None or snapshot.stored is None:
        return
    stored = snapshot.stored
    if snapshot.address.kind is NAMESPACES:
        contents = _contents(core, snapshot.address.name)
        yield from _deletions(contents, now)
        if contents:
            return
    if stored.meta.finalizers:
        return
    if (
        snapshot.address.kind is PODS
        and live_placement(snapshot) is not None
        and stored.meta.deletion_grace_period_seconds != 0
    ):
        return
    yield end(snapshot)


def _deletions(contents: Sequence[Snapshot], now: datetime) -> Iterator[Plan]:
    """Yield the plans that delete these objects; objects that are being deleted already are skipped."""
    for content in contents:
        plan = deletion(content, now, None)
        if plan is not None:
            yield plan


def registrations(core: GatewayCore) -> Iterator[Plan]:
    """Yield the Node objects of executors that reported and have none: a node registers itself, as with kubelet."""
    for name in sorted(core.unregistered)[:MAX_PLANS]:
        document = raw({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}})
        slot = core.collections[NODES].slots["", name]
        causes = tuple(f"LOG:{event.sequence}" for event in slot.parts.values())
        yield Plan(
            (object_write(slot.address, ObjectStored(object=document), core.own_sequence(NODES, "", name), causes=causes),),
            creates=True,
        )
