"""YARN beside the executors, in every second run: NodeManagers, and applications that take and return capacity."""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

DEMAND_EVERY_MS = 60_000
ANNOUNCED = ((0, 0), (8, 8_192))
"""vcores and MB that a NodeManager announces when it registers: its total until another is set."""


def yarn(header: Header, capacity: int) -> list[ScheduleEntry]:
    """NodeManagers on some nodes (one belongs to no node of ours), and the demand of applications over time."""
    chance = Random(f"yarn/{header.seed}")
    if header.seed % 2:
        return []
    entries = []
    for index in range(header.nodes):
        if chance.random() < 0.7:
            vcores, memory = ANNOUNCED[chance.randrange(len(ANNOUNCED))]
            args: dict[str, int | str] = {"vcores": vcores, "memory_mb": memory}
            entries.append(ScheduleEntry(at_ms=2_600 + index, kind="yarn-register", target=f"n{index}", args=args))
    entries.append(ScheduleEntry(at_ms=2_700, kind="yarn-register", target="stranger", args={"vcores": 4, "memory_mb": 4_096}))
    for _ in range(2 + header.span_ms // DEMAND_EVERY_MS):
        vcores = chance.choice((0, capacity // 10_000, capacity // 4_000, capacity // 1_000))
        args = {"vcores": vcores, "memory_mb": vcores * chance.choice((256, 1_024))}
        entries.append(ScheduleEntry(at_ms=chance.randrange(SETTLE_MS, header.span_ms), kind="yarn-demand", args=args))
    return entries
