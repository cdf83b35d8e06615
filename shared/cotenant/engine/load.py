"""One load of the log, sans I/O: from a start marker to its delivery, and what follows when it breaks off.

Every process that folds LOG begins with a fresh state, a reader, and a start marker that is stored once the reader has read its
snapshot. The marker's delivery means that everything before it is folded: the load is over, the state may be decided on and
shown. When a reader falls too far behind, or the outcome of a batch is unknown, the next incarnation starts over.

In: the loading process, its filters. Out: the marker, when the load is over, how long to wait before the next one. The
processes (`runtime.follower`), the cycle and the simulator use the same class.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cotenant.engine.commit import Identity
from cotenant.events.commits import ServiceStarted
from cotenant.events.envelope import Event
from cotenant.log.contract import MARKER_TTL_SECONDS

RELOAD_PAUSE = timedelta(seconds=1)
"""Pause between a load that broke off and the next one: a log without room is not loaded again and again."""


class Load:
    """One incarnation's load; `number` counts them from 1."""

    def __init__(
        self, identity: Identity, filters: Sequence[str], number: int, *, config: str = "", config_text: str = ""
    ) -> None:
        self.identity = identity
        self.filters = tuple(filters)
        self.number = number
        self.over = False
        """Whether the marker was delivered."""
        self._config = config
        self._config_text = config_text
        self._marker_id = ""

    def marker(self, now: datetime) -> Event:
        """Return the start marker, to be stored once the snapshot is read."""
        identity = self.identity
        self._marker_id = f"{identity.cell}/{identity.service}/{identity.replica}/start/{now.timestamp():.6f}/{self.number}"
        return Event(
            subject=identity.marker_subject,
            data=ServiceStarted(
                service=identity.service,
                partition=identity.partition,
                replica=identity.replica,
                version=identity.version,
                core=identity.core,
                config=self._config,
                config_text=self._config_text,
                filters=self.filters,
                load=self.number,
            ),
            time=now,
            id=self._marker_id,
            source=identity.source,
            ttl_seconds=MARKER_TTL_SECONDS,
        )

    def ends_with(self, event: Event) -> bool:
        """Return whether a delivered event is this load's marker; from then on the load is over."""
        if self._marker_id and event.id == self._marker_id and isinstance(event.data, ServiceStarted):
            self.over = True
            return True
        return False

    @property
    def pause(self) -> timedelta:
        """Return how long to wait before the next incarnation begins."""
        return timedelta(0) if self.over else RELOAD_PAUSE
