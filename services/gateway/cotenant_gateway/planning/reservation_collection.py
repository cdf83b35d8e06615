"""Garbage collection of ended reservations, as Koordinator does.

In: the read model, the time. Out: plans that delete Reservations, each with the reason that `explain` shows: those that expired
or were used up more than a day ago, or ended while their node is gone (`cotenant.domain.reservations.lifecycle`). Every plan is
fenced by the object's own sequence, so two gateways do no harm. Bound: MAX_PLANS a look.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import msgspec

from cotenant.domain.reservations.lifecycle import State, collectable
from cotenant.events.objects import ObjectDeleted
from cotenant.events.reservations import ReservationStatus
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.kinds.nodes import NODES
from cotenant.log.plans import Plan
from cotenant_gateway.planning.endings import MAX_PLANS, deletion
from cotenant_gateway.read_model.core import GatewayCore


def collected_reservations(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    """Yield the deletions that are due, at most MAX_PLANS."""
    yield from islice(_due(core, now), MAX_PLANS)


def _due(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    nodes = core.collections[NODES].slots
    for slot in list(core.collections[RESERVATIONS].slots.values()):
        stored = slot.stored
        if stored is None or stored.meta.deletion_timestamp is not None:
            continue
        for event in slot.parts.values():
            data = event.data
            if event.tombstone or not isinstance(data, ReservationStatus) or data.uid != stored.meta.uid:
                continue
            state = State(phase=data.phase, node=data.node, conditions=data.conditions)
            node = nodes.get(("", data.node))
            if collectable(state, now, node_exists=node is not None and node.stored is not None):
                snapshot = slot.snapshot
                plan = deletion(snapshot, now, None) if snapshot is not None else None
                if plan is not None:
                    yield _with_reason(plan, f"it is {data.phase.value} ({data.reason}) and no longer kept", event.ref)


def _with_reason(plan: Plan, why: str, cause: str) -> Plan:
    first, *others = plan.writes
    payload = first.payload
    if isinstance(payload, ObjectDeleted):
        payload = msgspec.structs.replace(payload, reason=why)
    return Plan((msgspec.structs.replace(first, payload=payload, causes=(*first.causes, cause)), *others))
