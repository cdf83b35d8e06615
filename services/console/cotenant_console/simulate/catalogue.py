"""The deciding services that the console runs in its own process, for simulate and replay.

In: service names. Out: their Definitions. Each is imported when it is asked for; it is the one that the service's
process runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from cotenant.engine.commit import Identity
from cotenant.engine.core import Requesting
from cotenant.engine.definition import Definition
from cotenant.events.migrations import EvictionRequest
from cotenant.simulation import HOP, TICK, Participant, ServiceParticipant, World
from cotenant_console.simulate.api import SimulatedGateway
from cotenant_console.simulate.wishes import RequestingParticipant
from cotenant_console.up.services import DECIDING, module_of


def definition(service: str) -> Definition:
    """The Definition of a service."""
    found = importlib.import_module(f"{module_of(service)}.definition").DEFINITION
    assert isinstance(found, Definition)
    return found


def definitions(services: Sequence[str] = DECIDING) -> dict[str, Definition]:
    """Definitions by name."""
    return {service: definition(service) for service in services}


def participant(
    service: str, gateway: SimulatedGateway, config: str = "{}", tick: timedelta = TICK
) -> Participant:
    """A service as a participant, with the configuration that JSON text describes."""
    found = definition(service)
    identity = Identity(service=service, replica=service, core=found.core_version)
    made = ServiceParticipant(found, found.config_from(config), identity, tick=tick)
    if not isinstance(made.cycle.core, Requesting):
        return made

    def tell(wish: EvictionRequest, now: datetime, world: World) -> None:
        gateway.evict(now + HOP, wish)
        world.wake(gateway, now + HOP)

    return RequestingParticipant(made, tell)
