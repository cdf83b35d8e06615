"""Fair sharing of one resource among sibling quotas, in exact integers.

In: a total and, per sibling, weight, request (already limited by max), floor (scaled min, or the usage guarantee where
that is larger) and whether others may use its unused min (`lends`, from `allow-lent-resource`). Out: each sibling's runtime.
The rule:

1. A sibling whose request is above its floor gets the floor and competes for the rest; any other gets its request, or its
   floor if it does not lend. The rest may be negative: floors are granted in full, which is why mins are scaled first.
2. While there is a rest and a competitor with weight, the rest is split by weight. A competitor above its request returns the
   surplus to the next round and stops competing.
3. A split gives floor(weight x rest / weights) to each, in exact integers, and one more unit to those with the largest
   remainders, ties by name; the parts always sum to the rest.

The result does not depend on the order of siblings. Capacity beyond all requests stays unassigned. Source: Koordinator
ElasticQuota, runtime quota calculator with the largest-remainder split.
"""

from collections.abc import Sequence

import msgspec


class Sibling(msgspec.Struct, frozen=True, kw_only=True):
    """One quota in the sharing of one resource. All amounts in that resource's unit, none negative."""

    name: str
    weight: int
    request: int
    floor: int = 0
    lends: bool = True


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one sharing. `rounds`: the number of splits."""

    runtime: dict[str, int]
    rounds: int


def share(total: int, siblings: Sequence[Sibling]) -> Shared:
    """Share `total` among siblings with distinct names."""
    runtime: dict[str, int] = {}
    competing: list[Sibling] = []
    for sibling in siblings:
        if sibling.request > sibling.floor:
            runtime[sibling.name] = sibling.floor
            competing.append(sibling)
        else:
            runtime[sibling.name] = sibling.request if sibling.lends else sibling.floor
    rest = total - sum(runtime.values())
    # Without weight a sibling never gets more than its floor.
    competing = [sibling for sibling in competing if sibling.weight > 0]
    rounds = 0
    while rest > 0 and competing:
        parts = split(rest, [(sibling.name, sibling.weight) for sibling in competing])
        still_competing: list[Sibling] = []
        rest = 0
        for sibling in competing:
            granted = runtime[sibling.name] + parts[sibling.name]
            if granted < sibling.request:
                still_competing.append(sibling)
            else:
                rest += granted - sibling.request
                granted = sibling.request
            runtime[sibling.name] = granted
        competing = still_competing
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
