"""Deciding services whose requests to the gateway reach one in the simulation.

In: a service's process and the gateway. Out: a participant. A request is repeated after REPEAT while the core returns it, so
a lost one is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec

from cotenant.engine.core import Request, Requesting
from cotenant.events.envelope import Event
from cotenant.events.migrations import EVICT_ENDPOINT, RESERVE_ENDPOINT, EvictionRequest, ReservationRequest
from cotenant.model.subjects import matches
from cotenant.simulation import ServiceParticipant, World

REPEAT = timedelta(seconds=5)
GatewayRequest = EvictionRequest | ReservationRequest
_REQUESTS = {EVICT_ENDPOINT: EvictionRequest, RESERVE_ENDPOINT: ReservationRequest}

Send = Callable[[GatewayRequest, datetime, World], None]
"""Passes a request for an eviction, or for the reservation before it, to a gateway at a moment."""


class RequestingParticipant:
    """A deciding service and its requests, each sent at most once in REPEAT while the core returns it; `service` is its
    process."""

    def __init__(self, service: ServiceParticipant, send: Send) -> None:
        self.name = service.name
        self.filters = service.filters
        self.usage_filters = service.usage_filters
        self.service = service
        self._send_on = send
        self._requesting = isinstance(service.cycle.core, Requesting)
        self._asked: dict[str, datetime] = {}

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One step of the service, then its requests."""
        again = self.service.step(now, inbox, world)
        cycle = self.service.cycle
        if self._requesting and self.service.deciding and cycle.ready and not cycle.holding_back:
            wanted = cast(Requesting, cycle.core).requests(now)
            if wanted:
                self._ask(wanted, now, world)
            else:
                self._asked.clear()
        return again

    def _ask(self, wanted: Sequence[Request], now: datetime, world: World) -> None:
        keys = {request.key for request in wanted}
        self._asked = {key: at for key, at in self._asked.items() if key in keys}
        for request in wanted:
            asked = self._asked.get(request.key)
            for endpoint, form in _REQUESTS.items():
                if matches(endpoint, request.subject) and (asked is None or now - asked >= REPEAT):
                    self._asked[request.key] = now
                    self._send_on(msgspec.json.decode(request.body, type=form), now, world)
