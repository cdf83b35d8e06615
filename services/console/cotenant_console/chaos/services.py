"""Deciding services under faults: replicas whose wishes reach some gateway that is up.

In: a world, gateways. Out: participants. A wish is sent again after REPEAT while the core has it; a wish that is lost on
its way, or that finds no gateway, is simply sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import cast

import msgspec

from cotenant.core import Requesting
from cotenant.definition import Definition
from cotenant.events.envelope import Event
from cotenant.events.migrations import EVICT_ENDPOINT, EvictionRequest
from cotenant.sealing import Identity
from cotenant.simulation import HOP, NEVER, TICK, ServiceParticipant, World
from cotenant_console.chaos.gateways import ChaosGateway

REPEAT = timedelta(seconds=5)
_WISH = msgspec.json.Decoder(EvictionRequest)


class ChaosService:
    """One replica; `service` is its process."""

    def __init__(self, definition: Definition, config: str, replica: str, gateways: Sequence[ChaosGateway]) -> None:
        identity = Identity(service=definition.name, replica=replica, core=definition.core_version)
        self.service = ServiceParticipant(definition, definition.config_from(config), identity, tick=TICK)
        self.name = self.service.name
        self.filters = self.service.filters
        self.usage_filters = self.service.usage_filters
        self.mute_until = NEVER
        """Until then its wishes are lost on their way."""
        self._gateways = gateways
        self._asked: dict[str, datetime] = {}
        self._turn = 0
        self._wishes = isinstance(self.service.cycle.core, Requesting)

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One turn of the service, then its wishes."""
        again = self.service.step(now, inbox, world)
        cycle = self.service.cycle
        core = cycle.core
        if self._wishes and self.service.deciding and cycle.ready and not cycle.holding_back:
            wanted = cast(Requesting, core).requests(now)
            keys = {request.key for request in wanted}
            self._asked = {key: at for key, at in self._asked.items() if key in keys}
            for request in wanted:
                asked = self._asked.get(request.key)
                if request.subject == EVICT_ENDPOINT and (asked is None or now - asked >= REPEAT):
                    self._asked[request.key] = now
                    self._send(_WISH.decode(request.body), now, world)
        return again

    def _send(self, wish: EvictionRequest, now: datetime, world: World) -> None:
        link = world.link(self.name)
        up = [gateway for gateway in self._gateways if gateway.up]
        if not up or now < self.mute_until or (link is not None and link.severed(now)):
            return
        self._turn += 1
        gateway = up[self._turn % len(up)]
        gateway.wish_eviction(now + HOP, wish)
        world.wake(gateway, now + HOP)
