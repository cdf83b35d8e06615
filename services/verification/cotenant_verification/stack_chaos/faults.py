"""The faults of a run, chosen from its seed before it begins.

In: a seed, a span, the participants. Out: faults in order, each over before the next begins but for some that come two
together. The last FAULT_FREE_SECONDS have no faults; at their end everything must be idle.

They include those of Jepsen's report on NATS 2.12.1 as far as processes can have them: killed leaders and whole clusters,
paused servers beside killed ones, partitions with and without the clients. A full disk is one that others have filled. A power
failure (unsynced pages lost) is not among them: it needs a machine of its own; `sync_interval: always` protects against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from cotenant_verification.stack_chaos.records import Fault

FIRST_SECONDS = 8.0
FAULT_FREE_SECONDS = 30.0
LEADER = "leader"
"""The server that leads LOG when the fault begins."""
ALL = "all servers"
MAJORITY = "two servers"
FILL = "fill the disk of"

SERVER_FAULTS = (
    # kind, seconds at least and at most, how often
    ("kill", (1.0, 8.0), 6),
    ("pause", (2.0, 20.0), 4),
    ("part from the other servers", (5.0, 25.0), 4),
    ("part from clients", (5.0, 25.0), 2),
    ("part from everybody", (5.0, 25.0), 3),
    (FILL, (5.0, 20.0), 3),
)
SERVICE_FAULTS = (
    ("kill", (1.0, 5.0), 6),
    ("pause", (2.0, 45.0), 4),
    ("part from all servers", (5.0, 40.0), 4),
    ("set the clock ahead", (10.0, 20.0), 1),
    ("set the clock back", (10.0, 20.0), 1),
)
SKEW_SECONDS = {"set the clock ahead": 120.0, "set the clock back": -20.0}


def chosen_faults(
    seed: int, span: float, servers: Sequence[str], services: Sequence[str], skewed: Sequence[str]
) -> list[Fault]:
    """Choose. `skewed`: the services whose clocks can be set."""
    random = Random(f"stack-chaos/{seed}")
    faults: list[Fault] = []
    at = FIRST_SECONDS
    while True:
        fault = _server_fault(random, at, servers) if random.random() < 0.55 else _service_fault(random, at, services, skewed)
        together = random.random() < 0.25
        second = _service_fault(random, at + random.uniform(0.0, 3.0), services, skewed) if together else None
        ends = max(one.at + one.seconds for one in (fault, second) if one is not None)
        if ends > span - FAULT_FREE_SECONDS:
            return faults
        faults.append(fault)
        if second is not None and second.target != fault.target:
            faults.append(second)
        at = round(ends + random.uniform(2.0, 12.0), 1)


def _server_fault(random: Random, at: float, servers: Sequence[str]) -> Fault:
    kind, (low, high), _ = random.choices(SERVER_FAULTS, [weight for _, _, weight in SERVER_FAULTS])[0]
    targets = [LEADER, LEADER, *servers]
    if kind == "kill" or kind == FILL:
        targets += [ALL, MAJORITY]
    elif kind == "pause":
        targets += [MAJORITY]
    return Fault(at=round(at, 1), seconds=round(random.uniform(low, high), 1), kind=kind, target=random.choice(targets))


def _service_fault(random: Random, at: float, services: Sequence[str], skewed: Sequence[str]) -> Fault:
    kind, (low, high), _ = random.choices(SERVICE_FAULTS, [weight for _, _, weight in SERVICE_FAULTS])[0]
    target = random.choice(skewed if kind in SKEW_SECONDS else services)
    return Fault(at=round(at, 1), seconds=round(random.uniform(low, high), 1), kind=kind, target=target)
