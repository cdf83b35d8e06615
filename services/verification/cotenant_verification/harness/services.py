"""Deciding services under faults: replicas whose requests reach some gateway that is up.

In: a definition, gateways. Out: participants. A request that is lost, or that finds no gateway, is repeated later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cotenant.engine.commit import Identity
from cotenant.engine.definition import ServiceDefinition
from cotenant.model.times import EPOCH
from cotenant.simulation import HOP, TICK, ServiceParticipant, World
from cotenant_verification.harness.gateways import ChaosGateway
from cotenant_verification.simulate.requests import GatewayRequest, RequestingParticipant


class ChaosService(RequestingParticipant):
    """One replica."""

    def __init__(self, definition: ServiceDefinition, config: str, replica: str, gateways: Sequence[ChaosGateway]) -> None:
        identity = Identity(service=definition.name, replica=replica, core=definition.core_version)
        super().__init__(ServiceParticipant(definition, definition.config_from(config), identity, tick=TICK), self._send)
        self.mute_until = EPOCH
        """Until then its requests are lost."""
        self._gateways = gateways
        self._turn = 0

    def _send(self, request: GatewayRequest, now: datetime, world: World) -> None:
        link = world.link(self.name)
        up = [gateway for gateway in self._gateways if gateway.up]
        if not up or now < self.mute_until or (link is not None and link.severed(now)):
            return
        self._turn += 1
        gateway = up[self._turn % len(up)]
        gateway.take_request(now + HOP, request)
        world.wake(gateway, now + HOP)
