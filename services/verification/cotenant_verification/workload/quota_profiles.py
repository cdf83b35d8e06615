"""Quota trees of a zone's nodes, as profiles define them, and jobs in their quotas.

In: a header, the machines' CPUs. Out: entries, in every second run. One or two profiles, each with the nodes of a zone; which
nodes these are changes as machines die, come back under other names, and as administrators label them. Profiles change what
they give, are deleted and come again; the quotas below their roots are created several times, as they are refused without one.
"""

from __future__ import annotations

from random import Random

from cotenant_verification.workload.machines import ZONES, zone_of
from cotenant_verification.workload.schedule import LONG_MS, SETTLE_MS, Header, ScheduleEntry

FIRST_MS = 2_600
CHANGE_EVERY_MS = 120_000
POD_EVERY_MS = 30_000
LEAVES = ("a", "b")


def quota_profiles(header: Header, capacity: int) -> list[ScheduleEntry]:
    """Return the entries."""
    chance = Random(f"quota-profiles/{header.seed}")
    if chance.random() < 0.5 or header.span_ms < LONG_MS:
        return []
    trees = [f"zonal-{zone}" for zone in range(chance.choice((1, 1, 2)))]
    entries: list[ScheduleEntry] = []
    for zone, tree in enumerate(trees):
        entries.append(_profile(chance, FIRST_MS, tree, zone_of(zone)))
        for leaf in LEAVES:
            args = _leaf(chance, tree, capacity)
            # The root comes when the gateway has read what quota-tree makes of the profile.
            entries += [
                ScheduleEntry(at_ms=at_ms, kind="create-quota", target=f"{tree}-{leaf}", args=args)
                for at_ms in (SETTLE_MS, SETTLE_MS + 15_000, SETTLE_MS + 60_000)
            ]
        for _ in range(1 + header.span_ms // CHANGE_EVERY_MS):
            entries += _change(chance, header, tree, zone_of(zone), capacity)
    for index in range(2 + header.span_ms // POD_EVERY_MS):
        tree = chance.choice(trees)
        wants: dict[str, int | str] = {
            "class": chance.choice(("job", "job", "batch")),
            "cpu": chance.choice((250, 500, 1000)),
            "memory_mib": 128,
            "lasts": chance.choice((5, 20, 60, 180)),
            "quota": f"{tree}-{chance.choice(LEAVES)}",
        }
        if chance.random() < 0.2:
            wants["protected"] = "quota"
        at_ms = chance.randrange(SETTLE_MS, header.span_ms)
        entries.append(ScheduleEntry(at_ms=at_ms, kind="create-pod", target=f"zonal-{index}", args=wants))
    return entries


def _profile(chance: Random, at_ms: int, tree: str, zone: str) -> ScheduleEntry:
    args: dict[str, int | str] = {"zone": zone, "percent": chance.choice((100, 50, 33))}
    return ScheduleEntry(at_ms=at_ms, kind="quota-profile", target=tree, args=args)


def _leaf(chance: Random, tree: str, capacity: int) -> dict[str, int | str]:
    least = capacity * chance.choice((0, 0, 1, 3)) // 100
    most = least + capacity * chance.randrange(2, 20) // 100
    return {"min": least, "max": most, "parent": tree, "tree": tree, "is_parent": 0, "lends": int(chance.random() < 0.8)}


def _change(chance: Random, header: Header, tree: str, zone: str, capacity: int) -> list[ScheduleEntry]:
    at_ms = chance.randrange(SETTLE_MS, header.span_ms)
    match chance.choice(("share", "share", "zone", "leaf", "gone")):
        case "share":
            return [_profile(chance, at_ms, tree, zone)]
        case "zone":
            other = zone_of(chance.randrange(ZONES))
            back = at_ms + chance.choice((500, 20_000))
            return [_profile(chance, at_ms, tree, other), _profile(chance, back, tree, zone)]
        case "leaf":
            target, args = f"{tree}-{chance.choice(LEAVES)}", _leaf(chance, tree, capacity)
            return [ScheduleEntry(at_ms=at_ms, kind="update-quota", target=target, args=args)]
    gone = ScheduleEntry(at_ms=at_ms, kind="delete-quota-profile", target=tree)
    return [gone, _profile(chance, at_ms + chance.choice((10, 15_000)), tree, zone)]
