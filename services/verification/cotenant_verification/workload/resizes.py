"""Users resize pods in place: services and jobs, up and down, also beyond what a node has, and back again.

In: a header, the entries of pods. Out: entries. A pod that is not there any more is not resized.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from cotenant_verification.workload.schedule import Header, ScheduleEntry

SHARE = 0.35
"""Of the pods are resized."""
PERCENT = (40, 60, 80, 120, 150, 200, 400, 5000)
SOON_MS = 20_000


def resizes(header: Header, entries: Sequence[ScheduleEntry]) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"resizes/{header.seed}")
    found: list[ScheduleEntry] = []
    for entry in entries:
        if entry.kind != "create-pod" or chance.random() >= SHARE:
            continue
        at, cpu, memory = entry.at_ms, entry.number("cpu"), entry.number("memory_mib")
        for _ in range(chance.randrange(1, 4)):
            at += chance.choice((1, 50, chance.randrange(SOON_MS), chance.randrange(SOON_MS)))
            if at >= header.span_ms:
                break
            percent = chance.choice(PERCENT)
            args: dict[str, int | str] = {
                "class": entry.text("class"),
                "cpu": max(1, cpu * percent // 100),
                "memory_mib": max(64, memory * chance.choice(PERCENT[:5]) // 100),
            }
            found.append(ScheduleEntry(at_ms=at, kind="resize-pod", target=entry.target, args=args))
    return found
