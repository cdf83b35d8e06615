"""The deciding services that the console runs in its own process, for simulate and replay.

In: service names. Out: their Definitions. Each is imported when it is asked for; it is the one that the service's
process runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec

from cotenant.core import Request, Requesting
from cotenant.definition import Definition
from cotenant.events.envelope import Event
from cotenant.events.migrations import EVICT_ENDPOINT, EvictionRequest
from cotenant.sealing import Identity
from cotenant.simulation import HOP, TICK, Participant, ServiceParticipant, World
from cotenant_console.simulate.api import SimulatedGateway
from cotenant_console.up.services import DECIDING, module_of

REPEAT = timedelta(seconds=5)
_WISH = msgspec.json.Decoder(EvictionRequest)


def definition(service: str) -> Definition:
    """The Definition of a service."""
    found = importlib.import_module(f"{module_of(service)}.definition").DEFINITION
    assert isinstance(found, Definition)
    return found


def definitions(services: Sequence[str] = DECIDING) -> dict[str, Definition]:
    """Definitions by name."""
    return {service: definition(service) for service in services}


class RequestingParticipant:
    """A deciding service with wishes, which reach the gateway each at most once in REPEAT while it is wanted."""

    def __init__(self, service: ServiceParticipant, gateway: SimulatedGateway) -> None:
        self.name = service.name
        self.filters = service.filters
        self.usage_filters = service.usage_filters
        self.service = service
        self._gateway = gateway
        self._asked: dict[str, datetime] = {}

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One turn of the service, then its wishes."""
        again = self.service.step(now, inbox, world)
        cycle = self.service.cycle
        if self.service.deciding and cycle.ready and not cycle.holding_back:
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
            if request.subject == EVICT_ENDPOINT and (asked is None or now - asked >= REPEAT):
                self._asked[request.key] = now
                self._gateway.evict(now + HOP, _WISH.decode(request.body))
                world.wake(self._gateway, now + HOP)


def participant(
    service: str, gateway: SimulatedGateway, config: str = "{}", tick: timedelta = TICK
) -> Participant:
    """A service as a participant, with the configuration that JSON text describes."""
    found = definition(service)
    identity = Identity(service=service, replica=service, core=found.core_version)
    made = ServiceParticipant(found, found.config_from(config), identity, tick=tick)
    return RequestingParticipant(made, gateway) if isinstance(made.cycle.core, Requesting) else made
