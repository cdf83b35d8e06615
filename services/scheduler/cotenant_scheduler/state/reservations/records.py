"""The record of a reservation: object, share of a node, status; and the reserve pod that the queue and the nodes know.

It is a `PodRecord` under a key that no pod can have, so that it is queued, counted and inspected like one.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.objects.reservation import Reservation
from cotenant.events.reservations import ReservationShare, ReservationStatus
from cotenant_scheduler.state.counting import RESERVE_NAMESPACE, PodKey
from cotenant_scheduler.state.pod_records import PodRecord


def reserve_key(name: str) -> PodKey:
    """Return the key of a reservation's reserve pod."""
    return RESERVE_NAMESPACE, name


class ReserveRecord(PodRecord):
    """Everything about the reservations of one name; normally one, two while one replaces the other."""

    __slots__ = (
        "expires",
        "inside",
        "order",
        "owners",
        "problem",
        "reservation",
        "restricted",
        "shares",
        "source",
        "status",
        "status_at",
    )

    def __init__(self, name: str) -> None:
        super().__init__(reserve_key(name))
        self.reservation: Reservation | None = None
        self.source: msgspec.Raw | None = None
        """The document of the Reservation."""
        self.problem = ""
        """Why it cannot be placed or matched; empty if it can."""
        self.expires: datetime | None = None
        """The moment after which it expires."""
        self.owners = 0
        """The number of its list of owners."""
        self.order = 0
        self.restricted: tuple[str, ...] = ()
        self.inside: dict[str, int] = {}
        """The part of it that no pod may be given."""
        self.shares: dict[str, ReservationShare] = {}
        """Its shares by node; their sequences are those of the placements."""
        self.status: ReservationStatus | None = None
        self.status_at: datetime | None = None

    @property
    def name(self) -> str:
        """The reservation's name."""
        return self.key[1]

    @property
    def uid(self) -> str:
        """The uid of its object; empty without one."""
        return self.reservation.metadata.uid if self.reservation is not None else ""

    @property
    def empty(self) -> bool:
        """No part is left."""
        return super().empty and self.reservation is None and self.status is None

    @property
    def finished(self) -> bool:
        """It has ended: it never gets a node again."""
        status = self.status
        return bool(self.problem) or (status is not None and status.ended and status.uid == self.uid)

    def share(self) -> ReservationShare | None:
        """Return the share of the present reservation; None without one."""
        for data in self.shares.values():
            if data.uid == self.uid:
                return data
        return None
