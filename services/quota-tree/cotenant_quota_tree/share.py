"""Fair sharing of one resource among sibling quotas, in exact integers.

In: a total and, per sibling, weight, request (already limited by max), floor (scaled min, or the usage guarantee where
that is larger) and whether it lends. Out: each sibling's runtime. The rule:

1. A sibling whose request is above its floor gets the floor and is hungry; else it gets its request, or its floor if
   it does not lend. What remains of the total may be negative: floors are granted in full, which is why mins are
   scaled first.
2. While something remains and somebody hungry has weight: the rest is split by weight; who has more than its request
   returns the surplus to the next round, who has less stays hungry.
3. A split gives floor(weight x rest / weights) to each, exactly, and one unit more to those with the largest
   remainders, the smaller name first among equals; so the parts sum to the rest, no card is lost and none invented.

The result does not depend on the order of siblings. What nobody wants stays unassigned. Source: Koordinator
ElasticQuota, runtime quota calculator with the largest-remainder split.
"""

from collections.abc import Sequence

import msgspec


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """One contender for one resource. All amounts in that resource's unit, none negative."""

    name: str
    weight: int
    request: int
    floor: int = 0
    lends: bool = True


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one sharing. `rounds`: how often the rest was split."""

    runtime: dict[str, int]
    rounds: int


def share(total: int, siblings: Sequence[Sibling]) -> Shared:
    """Share `total` among siblings with distinct names."""
    runtime: dict[str, int] = {}
    hungry: list[Sibling] = []
    for sibling in siblings:
        if sibling.request > sibling.floor:
            runtime[sibling.name] = sibling.floor
            hungry.append(sibling)
        else:
            runtime[sibling.name] = sibling.request if sibling.lends else sibling.floor
    rest = total - sum(runtime.values())
    # Without weight a sibling never gets more than its floor.
    hungry = [sibling for sibling in hungry if sibling.weight > 0]
    rounds = 0
    while rest > 0 and hungry:
        parts = split(rest, [(sibling.name, sibling.weight) for sibling in hungry])
        still_hungry: list[Sibling] = []
        rest = 0
        for sibling in hungry:
            granted = runtime[sibling.name] + parts[sibling.name]
            if granted < sibling.request:
                still_hungry.append(sibling)
            else:
                rest += granted - sibling.request
                granted = sibling.request
            runtime[sibling.name] = granted
        hungry = still_hungry
        rounds += 1
    return Shared(runtime=runtime, rounds=rounds)


def split(rest: int, weights: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Split `rest` by positive weights into integers that sum to it: largest remainder, ties by name in byte order."""
    whole = sum(weight for _, weight in weights)
    parts: dict[str, int] = {}
    remainders: list[tuple[int, bytes, str]] = []
    left = rest
    for name, weight in weights:
        parts[name], remainder = divmod(weight * rest, whole)
        left -= parts[name]
        remainders.append((-remainder, name.encode(), name))
    if left:
        remainders.sort()
        for _, _, name in remainders[:left]:
            parts[name] += 1
    return parts
