"""Gangs: jobs whose pods are placed together or not at all, alone or two gangs in a group, by annotations or by PodGroups.

In: a header, the machines' CPUs. Out: entries. Most fit when the machines are not crowded; some never do. The pods of a gang
come one after the other, sometimes one late, sometimes one is deleted and comes again. A PodGroup comes before its pods or
after them; some are changed, some deleted while their pods wait or run, and some come again.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.schedule import LONG_MS, Header, ScheduleEntry, moments

EVERY_MS = 90_000
"""Between two gangs, on average."""
POD_GROUP_EVERY_MS = 120_000
"""Between two gangs with PodGroups."""


def gangs(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    return [*_annotated(header, capacity), *(_with_pod_groups(header, capacity) if header.span_ms >= LONG_MS else ())]


def _annotated(header: Header, capacity: int) -> list[ScheduleEntry]:
    chance = Random(f"gangs/{header.seed}")
    entries: list[ScheduleEntry] = []
    number = 0
    for at in moments(chance, EVERY_MS, header.span_ms - 30_000):
        names = _names(chance, "gang", number)
        number += len(names)
        for name in names:
            entries += _gang(chance, header, capacity, name, names, int(at))
    return entries


def _names(chance: Random, word: str, number: int) -> list[str]:
    """Of one gang, or of the two of a group."""
    return [f"{word}-{number + index}" for index in range(2 if chance.random() < 0.2 else 1)]


def _with_pod_groups(header: Header, capacity: int) -> list[ScheduleEntry]:
    chance = Random(f"podgroups/{header.seed}")
    entries: list[ScheduleEntry] = []
    number = 0
    for at in moments(chance, POD_GROUP_EVERY_MS, header.span_ms - 60_000):
        names = _names(chance, "crew", number)
        number += len(names)
        policy = chance.choice(("", "only-waiting", "waiting-and-running"))
        for name in names:
            entries += _crew(chance, capacity, name, names, policy, int(at))
    return entries


def _crew(
    chance: Random, capacity: int, name: str, names: list[str], policy: str, at_ms: int
) -> list[ScheduleEntry]:
    """A gang with a PodGroup, within a minute."""
    least = chance.choice((2, 3, 5, 8, 12))
    group: dict[str, int | str] = {"min": least, "mode": chance.choice(("Strict", "NonStrict"))}
    if policy:
        group["policy"] = policy
    if len(names) > 1:
        group["groups"] = "|".join(f"default/{one}" for one in names)
    stated_ms = at_ms + chance.choice((-500, 0, 2_000))
    entries = [ScheduleEntry(at_ms=stated_ms, kind="create-pod-group", target=name, args=group)]
    args: dict[str, int | str] = {
        "class": "job",
        "cpu": capacity if chance.random() < 0.1 else chance.choice((100, 250, 500)),
        "memory_mib": 64,
        "lasts": chance.choice((5, 20, 60)),
        "pod_group": name,
    }
    pods = least + chance.choice((-1, 0, 0, 0, 1, 3))
    for index in range(pods):
        born = at_ms + chance.choice((0, 5, 300))
        entries.append(ScheduleEntry(at_ms=born, kind="create-pod", target=f"{name}-{index}", args=args))
    if chance.random() < 0.3:
        at = at_ms + chance.randrange(10, 30_000)
        fewer: dict[str, int | str] = {"min": max(1, least + chance.choice((-2, -1, 1)))}
        entries.append(ScheduleEntry(at_ms=at, kind="update-pod-group", target=name, args=fewer))
    if chance.random() < 0.3:
        gone = at_ms + chance.choice((0, 5, 10, 400, 20_000))
        entries.append(ScheduleEntry(at_ms=gone, kind="delete-pod-group", target=name))
        if chance.random() < 0.5:
            again = gone + chance.choice((10, 3_000, 20_000))
            entries.append(ScheduleEntry(at_ms=again, kind="create-pod-group", target=name, args=group))
    for index in range(pods) if chance.random() < 0.25 else ():
        ended = at_ms + chance.choice((10, 400, 5_000)) + index
        entries.append(ScheduleEntry(at_ms=ended, kind="delete-pod", target=f"{name}-{index}", args={"grace": -1}))
    return entries


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
