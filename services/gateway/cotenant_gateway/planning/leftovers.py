"""Facts about pods that outlive their pods.

In: the read model, the time. Out: tombstones:

    evictions.<namespace>.<pod>     KEPT after the answer, once its pod is gone
    node.<node>.run.<ns>.<pod>      once its placement has ended (`ended_runs`): the executor would end its report itself a
                                    little later, the gateway does it together with the object's end. Or once the node has no
                                    object, and no placement there: a machine that is gone has no executor. The report of a
                                    finished pod stays for as long as the pod, which would be started again without it

Level-triggered; every plan is fenced by the sequence of the fact that it ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain, islice

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.log.plans import Plan, PlannedWrite
from cotenant_gateway.planning.endings import MAX_PLANS
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.read_model.slots import Slot

KEPT = timedelta(minutes=10)
"""The requester has folded the answer by then, or repeats the request."""


def leftovers(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    """Yield what can end now, at most MAX_PLANS plans."""
    yield from islice(chain(_outcomes(core, now), _reports(core)), MAX_PLANS)


def _outcomes(core: GatewayCore, now: datetime) -> Iterator[Plan]:
    pods = core.collections[PODS].slots
    for event in core.pod_ends.outcomes.values():
        outcome = event.data
        assert isinstance(outcome, EvictionOutcome)
        slot = pods.get((outcome.namespace, outcome.name))
        alive = slot is not None and slot.stored is not None and slot.stored.meta.uid == outcome.uid
        if not alive and (event.time is None or now >= event.time + KEPT):
            yield _end(event)


def _reports(core: GatewayCore) -> Iterator[Plan]:
    nodes, deserted = core.collections[NODES].slots, core.pod_ends.deserted
    for subject, slot in list(deserted.items()):
        event = slot.parts.get(subject)
        if event is None or event.tombstone or not isinstance(event.data, RunStatus):
            del deserted[subject]
            continue
        node = nodes.get(("", event.data.node))
        if node is not None and node.stored is not None:
            del deserted[subject]
        elif not _is_needed(slot, event.data):
            yield _end(event)


def ended_runs(core: GatewayCore) -> Iterator[Plan]:
    """Yield the tombstones of reports whose placement has ended, at most MAX_PLANS plans."""
    yield from islice(_left(core.pod_ends.left), MAX_PLANS)


def _left(left: dict[str, Slot]) -> Iterator[Plan]:
    for subject, slot in list(left.items()):
        event = slot.parts.get(subject)
        if event is None or event.tombstone or not isinstance(event.data, RunStatus) or _is_placed(slot, event.data):
            del left[subject]
        elif not _is_needed(slot, event.data):
            yield _end(event)


def _is_needed(slot: Slot, run: RunStatus) -> bool:
    stored = slot.stored
    if stored is not None and stored.meta.uid == run.uid and run.phase.final:
        return True
    return _is_placed(slot, run)


def _is_placed(slot: Slot, run: RunStatus) -> bool:
    return any(
        isinstance(part.data, Placement)
        and not part.tombstone
        and part.data.phase is not PlacementPhase.GONE
        and part.data.node == run.node
        for part in slot.parts.values()
    )


def _end(event: Event) -> Plan:
    write = PlannedWrite(event.subject, event.data, event.sequence, tombstone=True, causes=(f"LOG:{event.sequence}",))
    return Plan((write,))
