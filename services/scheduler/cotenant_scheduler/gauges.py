"""The scheduler's metrics, under Koordinator's names: what its monitor found (`monitor`)."""

from __future__ import annotations

from collections.abc import Iterator

from cotenant.engine.definition import Gauge
from cotenant_scheduler.core import SchedulerCore

PROFILE = {"profile": "koord-scheduler"}


def _overdue(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    yield core.monitor.overdue, PROFILE


def _waiting_groups(core: SchedulerCore) -> Iterator[tuple[float, dict[str, str]]]:
    yield core.monitor.waiting_groups, {}


GAUGES = (
    Gauge("scheduler_scheduling_timeout", "Queued pods that nothing was decided about for too long", _overdue),
    Gauge("scheduler_waiting_gang_group_number", "Gang groups in the queue", _waiting_groups),
)
