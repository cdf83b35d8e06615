"""Reservations: room that is kept for pods with a label, once or often, of every policy; most expire within the run.

In: a header, the machines' CPUs. Out: entries. Most fit when the machines are not crowded; some never do, some are deleted
while they are used, some are created again under their name. Owners come before, with and after them, more than they can hold.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry, moments

EVERY_MS = 60_000
"""Between two reservations, on average."""


def reservations(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"reservations/{header.seed}")
    entries: list[ScheduleEntry] = []
    for number, at in enumerate(moments(chance, EVERY_MS, header.span_ms - 30_000)):
        entries += _reservation(chance, header, capacity, f"reservation-{number}", int(at))
    return entries


def _reservation(chance: Random, header: Header, capacity: int, name: str, at_ms: int) -> list[ScheduleEntry]:
    cpu = capacity if chance.random() < 0.1 else chance.choice((500, 1000, 2000))
    args: dict[str, int | str] = {
        "cpu": cpu,
        "memory_mib": 256,
        "once": int(chance.random() < 0.5),
        "policy": chance.choice(("", "Aligned", "Restricted")),
        "ttl": chance.choice((0, 40, 120, 86_400)),
    }
    entries = [ScheduleEntry(at_ms=at_ms, kind="create-reservation", target=name, args=args)]
    if chance.random() < 0.4 and at_ms + 40_000 < header.span_ms:
        gone = at_ms + chance.randrange(100, 30_000)
        entries.append(ScheduleEntry(at_ms=gone, kind="delete-reservation", target=name, args={}))
        if chance.random() < 0.5:
            entries.append(ScheduleEntry(at_ms=gone + 2_000, kind="create-reservation", target=name, args=args))
    for index in range(chance.randrange(0, 5)):
        born = max(SETTLE_MS, at_ms + chance.choice((-1_000, 0, 3_000, 20_000)))
        owner: dict[str, int | str] = {
            "class": "job",
            "cpu": chance.choice((250, 500, 1000)),
            "memory_mib": 64,
            "lasts": chance.choice((5, 30, 90)),
            "claim": name,
        }
        if chance.random() < 0.3:
            owner["reserved_only"] = 1
        entries.append(ScheduleEntry(at_ms=born, kind="create-pod", target=f"{name}-{index}", args=owner))
    return entries
