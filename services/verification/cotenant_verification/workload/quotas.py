"""Elastic quotas: two trees and what administrators do to them.

In: a header, the machines' CPUs. Out: entries. The default tree has three levels below its root; the mins of its first level
may sum up to more than the machines have; then they are scaled. The second tree has a total of its own.
Changes keep the rules of admission (mins of children within the parent's, min within max), but for one in ten, which must
be refused and change nothing. One in five is made by two administrators at the same moment.
"""

from __future__ import annotations

from random import Random

import msgspec

from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry

POOL = "pool"
"""The second tree and its root quota."""
LEAVES = ("web-a", "web-b", "ml", "lone", "pool-x", "pool-y")
"""Quotas of pods."""
FIRST_MS = 2_100
CHANGE_EVERY_MS = 150_000
WRONG = 0.1
PERMILLE = 1000


class QuotaShape(msgspec.Struct, frozen=True):
    """The position of a quota. `least` and `room`: ranges in permille of the parent's min, and of the machines beyond min."""

    name: str
    parent: str
    is_parent: bool
    tree: str
    least: tuple[int, int]
    room: tuple[int, int]


SHAPES = (
    QuotaShape("org", "", True, "", (200, 750), (50, 300)),
    QuotaShape("org-web", "org", True, "", (300, 600), (20, 200)),
    QuotaShape("web-a", "org-web", False, "", (100, 500), (10, 100)),
    QuotaShape("web-b", "org-web", False, "", (100, 500), (10, 100)),
    QuotaShape("ml", "org", False, "", (100, 400), (10, 150)),
    QuotaShape("lone", "", False, "", (20, 500), (10, 100)),
    QuotaShape(POOL, "", True, POOL, (100, 200), (10, 50)),
    QuotaShape("pool-x", POOL, False, POOL, (100, 500), (10, 100)),
    QuotaShape("pool-y", POOL, False, POOL, (100, 500), (10, 100)),
)
"""Parents come before their children; the children's upper bounds take no more than all of a parent's min."""


def quotas(header: Header, capacity: int) -> list[ScheduleEntry]:
    """The trees, and their changes."""
    chance = Random(f"quotas/{header.seed}")
    least: dict[str, int] = {}
    entries = []
    for index, shape in enumerate(SHAPES):
        args = _bounds(chance, shape, least, capacity)
        least[shape.name] = int(args["min"])
        args |= {"parent": shape.parent, "is_parent": int(shape.is_parent), "tree": shape.tree}
        args["lends"] = int(chance.random() < 0.8)
        if shape.name == POOL:
            args["total"] = int(args["min"]) + capacity * chance.randrange(5, 20) // 100
        entries.append(ScheduleEntry(at_ms=FIRST_MS + 20 * index, kind="create-quota", target=shape.name, args=args))
    moments = sorted(
        chance.randrange(SETTLE_MS, header.span_ms) for _ in range(2 + header.span_ms // CHANGE_EVERY_MS)
    )
    for at_ms in moments:
        entries += _change(chance, at_ms, least, capacity)
    return entries


def _bounds(chance: Random, shape: QuotaShape, least: dict[str, int], capacity: int) -> dict[str, int | str]:
    above = least[shape.parent] if shape.parent else capacity
    low = above * chance.randrange(*shape.least) // PERMILLE
    args: dict[str, int | str] = {"min": low, "max": low + capacity * chance.randrange(*shape.room) // PERMILLE}
    if chance.random() < 0.3:
        args["weight"] = chance.choice((0, 1_000, capacity))
    return args


def _change(chance: Random, at_ms: int, least: dict[str, int], capacity: int) -> list[ScheduleEntry]:
    shape = SHAPES[chance.randrange(len(SHAPES))]
    if shape.name in LEAVES and chance.random() < 0.1:
        # Refused while pods carry its name; otherwise it is gone for a while, and pods arrive that name it.
        again = _bounds(chance, shape, least, capacity)
        again |= {"parent": shape.parent, "is_parent": 0, "tree": shape.tree, "lends": 1}
        gone = ScheduleEntry(at_ms=at_ms, kind="delete-quota", target=shape.name)
        return [gone, ScheduleEntry(at_ms=at_ms + 5_000, kind="create-quota", target=shape.name, args=again)]
    args = _bounds(chance, shape, least, capacity)
    if chance.random() < WRONG:
        args["min"] = int(args["max"]) + 1 if chance.random() < 0.5 else capacity * 10
        return [ScheduleEntry(at_ms=at_ms, kind="update-quota", target=shape.name, args=args)]
    if shape.is_parent:
        # A parent's min stays at what its children hold.
        args["min"] = max(int(args["min"]), sum(least[child.name] for child in SHAPES if child.parent == shape.name))
        args["max"] = max(int(args["min"]), int(args["max"]))
    least[shape.name] = int(args["min"])
    entries = [ScheduleEntry(at_ms=at_ms, kind="update-quota", target=shape.name, args=args)]
    if chance.random() < 0.2:
        other = {**args, "max": int(args["max"]) + capacity // 50}
        entries.append(ScheduleEntry(at_ms=at_ms + chance.choice((0, 1)), kind="update-quota", target=shape.name, args=other))
    return entries
