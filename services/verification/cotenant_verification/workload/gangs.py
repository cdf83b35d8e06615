"""Gangs: jobs whose pods are placed together or not at all, alone or two gangs in a group, stated by annotations.

In: a header, the machines' CPUs. Out: entries. Most fit when the machines are not crowded; some never do. The pods of a gang
come one after the other, sometimes one late, sometimes one is deleted and comes again.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

EVERY_MS = 90_000
"""Between two gangs, on average."""


def gangs(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"gangs/{header.seed}")
    entries: list[ScheduleEntry] = []
    at, number = float(SETTLE_MS), 0
    while True:
        at += chance.expovariate(1.0 / EVERY_MS)
        if at >= header.span_ms - 30_000:
            return entries
        names = [f"gang-{number}", f"gang-{number + 1}"] if chance.random() < 0.2 else [f"gang-{number}"]
        number += len(names)
        for name in names:
            entries += _gang(chance, header, capacity, name, names, int(at))


def _gang(chance: Random, header: Header, capacity: int, gang: str, group: list[str], at_ms: int) -> list[ScheduleEntry]:
    least = chance.randrange(2, 7)
    # One in eight requests more than all machines have.
    cpu = capacity if chance.random() < 0.125 else chance.choice((250, 500, 1000))
    args: dict[str, int | str] = {
        "class": "job",
        "cpu": cpu,
        "memory_mib": 64,
        "lasts": chance.choice((5, 20, 60)),
        "gang": gang,
        "gang_min": least,
        "gang_mode": chance.choice(("Strict", "Strict", "NonStrict")),
    }
    if len(group) > 1:
        args["gang_groups"] = "|".join(f"default/{one}" for one in group)
    entries: list[ScheduleEntry] = []
    for index in range(least + chance.choice((0, 0, 1, 2))):
        late = chance.choice((0, 10, 400)) if index else 0
        if index == least - 1 and chance.random() < 0.3:
            late = chance.choice((2_000, 25_000))
        born = at_ms + late
        entries.append(ScheduleEntry(at_ms=born, kind="create-pod", target=f"{gang}-{index}", args=args))
        if chance.random() < 0.1 and born + 20_000 < header.span_ms:
            ended = born + chance.randrange(100, 15_000)
            entries.append(ScheduleEntry(at_ms=ended, kind="delete-pod", target=f"{gang}-{index}", args={"grace": -1}))
            entries.append(ScheduleEntry(at_ms=ended + 3_000, kind="create-pod", target=f"{gang}-{index}", args=args))
    return entries
