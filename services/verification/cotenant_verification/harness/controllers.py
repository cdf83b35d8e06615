"""Controllers of workloads: an evicted pod of an application is created again under its name.

In: eviction outcomes from the log, what was created before. Out: creations at a gateway as soon as the name is free: checked
every AGAIN, at most AGAIN_TRIES times.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant_verification.workload.schedule import ScheduleEntry, located

AGAIN = timedelta(seconds=5)
AGAIN_TRIES = 12


class Controllers:
    """What was last created under each name."""

    def __init__(
        self,
        later: Callable[[timedelta, Callable[[datetime], object]], None],
        exists: Callable[[str], bool],
        create: Callable[[ScheduleEntry, datetime], object],
    ) -> None:
        self._made: dict[tuple[str, str], ScheduleEntry] = {}
        self._later = later
        self._exists = exists
        self._create = create

    def note(self, entry: ScheduleEntry) -> None:
        """Note that a pod is created."""
        self._made[located(entry.target)] = entry

    def see(self, event: Event) -> None:
        """Take in an event of the log."""
        data = event.data
        if not isinstance(data, EvictionOutcome) or data.reason != "Evicted" or event.tombstone:
            return
        made = self._made.get((data.namespace, data.name))
        if made is not None and "app" in made.args:
            self._again(made, AGAIN_TRIES)

    def _again(self, entry: ScheduleEntry, tries: int) -> None:
        def act(now: datetime) -> None:
            if not self._exists(entry.target):
                self._create(entry, now)
            elif tries:
                self._again(entry, tries - 1)

        self._later(AGAIN, act)
