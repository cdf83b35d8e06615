"""Pods that use more memory than they should: leaks, jobs that outgrow their request, services without a limit.

In: a header. Out: entries, in every second run. A leaking pod holds little after each start; a bloated one has no limit and
repeatedly takes more than it requested, until the machine lacks memory.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

Args = dict[str, int | str]

EVERY_MS = 60_000
PERIODS = (60, 240, 1_200)
"""Period in seconds in which memory rises and falls."""


def memory(header: Header) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"memory/{header.seed}")
    if chance.random() < 0.5:
        return []
    entries = [_pod(chance, header, f"leak-{index}", _leak(chance)) for index in range(2)]
    entries += [_pod(chance, header, f"bloat-{index}", _bloat(chance, header)) for index in range(2 + header.nodes // 2)]
    return entries + [_pod(chance, header, f"hoard-{index}", _hoard(chance)) for index in range(2 + header.span_ms // EVERY_MS)]


def _pod(chance: Random, header: Header, name: str, args: Args) -> ScheduleEntry:
    at_ms = chance.randrange(SETTLE_MS, header.span_ms // 2)
    return ScheduleEntry(
        at_ms=at_ms, kind="create-pod", target=name, args={"cpu": 100, "period": chance.choice(PERIODS), **args}
    )


def _leak(chance: Random) -> Args:
    limit = chance.choice((256, 512))
    args: Args = {"class": "ls", "app": "leak", "memory_mib": 128, "memory_limit": limit, "leaks": 1}
    return args | {"hold_low": 64, "hold_high": limit * chance.choice((2, 4))}


def _bloat(chance: Random, header: Header) -> Args:
    args: Args = {"class": "ls", "app": "bloat", "memory_mib": 512, "hold_low": 400, "hold_high": chance.choice((3_000, 7_000))}
    if chance.random() < 0.7:
        # Together, so that one machine has to hold them.
        args["selects"] = f"n{header.seed % header.nodes}"
    return args


def _hoard(chance: Random) -> Args:
    asked = chance.choice((128, 512, 1_024))
    high = asked * chance.choice((70, 100, 150)) // 100
    args: Args = {"class": "batch", "memory_mib": asked, "hold_low": asked // 2, "hold_high": high}
    if chance.random() < 0.7:
        args["lasts"] = chance.choice((60, 180, 600))
    return args
