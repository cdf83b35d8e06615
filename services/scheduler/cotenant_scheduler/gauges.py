"""The scheduler's metrics, under Koordinator's names: what its monitor found (`monitor`), and the Reservations.

Bound: MAX_RESERVATIONS_SHOWN Reservations; further ones, in the order of their names, are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cotenant.engine.definition import Gauge
from cotenant.events.reservations import ReservationPhase
from cotenant.model.names import CPU, MEMORY
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.state.reservations.records import ReserveRecord

PROFILE = {"profile": "koord-scheduler"}
MAX_RESERVATIONS_SHOWN = 500
PHASES = tuple(phase for phase in ReservationPhase if phase is not ReservationPhase.WAITING)
GIB = 1 << 30
UNITS = {CPU: ("core", 1000), MEMORY: ("Gi", GIB)}
"""By resource, its unit and how many of the amounts counted here are one of it."""


def _overdue(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    yield core.monitor.overdue, PROFILE


def _waiting_groups(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    yield core.monitor.waiting_groups, {}


def _phases(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    for record in _reservations(core):
        share, status = record.share(), record.status
        if share is not None:
            present = share.phase
        else:
            present = status.phase if status is not None and status.uid == record.uid else ReservationPhase.PENDING
        for phase in PHASES:
            yield phase is present, {"name": record.name, "phase": phase.value}


def _resources(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    for record in _reservations(core):
        share = record.share()
        if share is None:
            continue
        for resource, held in share.allocatable.items():
            used = share.allocated.get(resource, 0)
            unit, one = UNITS.get(resource, ("", 1))
            labels = {"name": record.name, "resource": resource}
            yield held / one, {**labels, "type": "allocatable", "unit": unit}
            yield used / one, {**labels, "type": "allocated", "unit": unit}
            yield used / held if held else 0.0, {**labels, "type": "utilization", "unit": "ratio"}


def _reservations(core: SchedulerCore) -> Iterator[ReserveRecord]:
    """The Reservations, without the pods that act as one."""
    cache = core.reservations.by_name
    objects = (cache[name] for name in sorted(cache) if cache[name].source is not None)
    return islice(objects, MAX_RESERVATIONS_SHOWN)


GAUGES = (
    Gauge("scheduler_scheduling_timeout", "Queued pods that nothing was decided about for too long", _overdue),
    Gauge("scheduler_waiting_gang_group_number", "Gang groups in the queue", _waiting_groups),
    Gauge("scheduler_reservation_status_phase", "Whether a Reservation is in a phase", _phases),
    Gauge("scheduler_reservation_resource", "Amounts of a Reservation that has a node, by resource", _resources),
)
