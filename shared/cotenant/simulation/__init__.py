"""All cores in one process under a virtual clock, on the in-memory log: no I/O, no threads, no real time.

`world` holds the clock, the streams and the participants; `routes` maps subjects to readers; `subscriptions` hold what is in
flight to each participant; `links` inject faults between a participant and the log; `service` is a deciding service with its
restarts. One seed gives one history.
"""

from cotenant.simulation.garbage import collecting_rarely
from cotenant.simulation.links import NetworkLink
from cotenant.simulation.service import Death, ServiceParticipant
from cotenant.simulation.streams import Streams
from cotenant.simulation.subscriptions import SimulationError
from cotenant.simulation.world import HOP, START, TICK, Participant, World

__all__ = [
    "HOP",
    "START",
    "TICK",
    "Death",
    "NetworkLink",
    "Participant",
    "ServiceParticipant",
    "SimulationError",
    "Streams",
    "World",
    "collecting_rarely",
]
