"""All cores in one process under a virtual clock, on the in-memory log: no I/O, no threads, no real time.

`world` holds the clock, the streams and the participants; `routes` who reads what; `seats` what is on its way to each;
`links` what is wrong between a participant and the log; `service` a deciding service with its lives. One seed gives one
history.
"""

from cotenant.simulation.garbage import collecting_rarely
from cotenant.simulation.links import NEVER, Link
from cotenant.simulation.seats import Participant, SimulationError
from cotenant.simulation.service import Death, ServiceParticipant
from cotenant.simulation.world import HOP, START, TICK, Streams, World

__all__ = [
    "HOP",
    "NEVER",
    "START",
    "TICK",
    "Death",
    "Link",
    "Participant",
    "ServiceParticipant",
    "SimulationError",
    "Streams",
    "World",
    "collecting_rarely",
]
