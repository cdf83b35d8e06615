"""Deciding services as participants of a simulation whose one gateway carries out their evictions.

In: a service's name, the simulated gateway, configuration. Out: a Participant that runs the service's own core.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cotenant.engine.commit import Identity
from cotenant.engine.core import Requesting
from cotenant.simulation import HOP, TICK, Participant, ServiceParticipant, World
from cotenant_console.definitions import definition
from cotenant_verification.simulate.api import SimulatedGateway
from cotenant_verification.simulate.requests import GatewayRequest, RequestingParticipant

SIMULATED_SERVICES = ("metrics-ingest", "batch-resource-calculator", "quota-tree", "scheduler", "descheduler-arbiter")


def service_of(made: Participant) -> ServiceParticipant:
    """Return the process of a participant that `participant` has made."""
    service = made.service if isinstance(made, RequestingParticipant) else made
    assert isinstance(service, ServiceParticipant)
    return service


def participant(
    service: str, gateway: SimulatedGateway, config: str = "{}", tick: timedelta = TICK
) -> Participant:
    """A service as a participant, with the configuration that JSON text describes."""
    found = definition(service)
    identity = Identity(service=service, replica=service, core=found.core_version)
    made = ServiceParticipant(found, found.config_from(config), identity, tick=tick)
    if not isinstance(made.cycle.core, Requesting):
        return made

    def send(request: GatewayRequest, now: datetime, world: World) -> None:
        gateway.take(now + HOP, request)
        world.wake(gateway, now + HOP)

    return RequestingParticipant(made, send)
