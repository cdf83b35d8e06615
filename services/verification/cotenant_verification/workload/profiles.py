"""Colocation profiles that change during a run, including invalid ones, and the pods that they apply to.

In: a header. Out: entries. Pods of the applications PROFILED request the machines' own resources; the profile of that name, if
it exists, turns them into batch pods, or only marks them. Every version has a revision, which its pods carry.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

PROFILED = ("crunch", "render")
CHANGE_EVERY_MS = 60_000
POD_EVERY_MS = 20_000
BROKEN = 0.25


def profiles(header: Header) -> list[ScheduleEntry]:
    """Versions of two profiles, their deletion, and their pods."""
    chance = Random(f"profiles/{header.seed}")
    entries = []
    for revision in range(2 + header.span_ms // CHANGE_EVERY_MS):
        name = chance.choice(PROFILED)
        at_ms = chance.randrange(SETTLE_MS // 2, header.span_ms)
        if chance.random() < 0.15:
            entries.append(ScheduleEntry(at_ms=at_ms, kind="delete-profile", target=name))
            continue
        args: dict[str, int | str] = {"revision": revision, "broken": int(chance.random() < BROKEN)}
        args["lends"] = int(chance.random() < 0.7)
        args["percent"] = chance.choice((100, 100, 100, 50, 0))
        entries.append(ScheduleEntry(at_ms=at_ms, kind="profile", target=name, args=args))
    for index in range(2 + header.span_ms // POD_EVERY_MS):
        app = chance.choice(PROFILED)
        wants: dict[str, int | str] = {
            "class": "job",
            "app": app,
            "cpu": chance.choice((100, 250, 500)),
            "memory_mib": 64,
            "lasts": chance.choice((5, 20, 60)),
        }
        at_ms = chance.randrange(SETTLE_MS, header.span_ms)
        entries.append(ScheduleEntry(at_ms=at_ms, kind="create-pod", target=f"{app}-{index}", args=wants))
    return entries
