"""Sharing among siblings from scratch, for tests and vectors: in columns, or by name in the order of the names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.domain.quota.trees.line import Line


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


def share_out(
    total: int, weights: Sequence[int], requests: Sequence[int], floors: Sequence[int], lends: Sequence[bool]
) -> tuple[list[int], int]:
    """Return the runtime of each sibling, and the number of splits."""
    line = Line(weights, floors, lends)
    for index, amount in enumerate(requests):
        line.request(index, amount)
    return line.amounts(total).copy(), len(line.splits(total).rounds)


def share(total: int, siblings: Sequence[Sibling]) -> Shared:
    """Share `total` among siblings with distinct names."""
    ordered = sorted(siblings, key=lambda sibling: sibling.name)
    runtime, rounds = share_out(
        total,
        [sibling.weight for sibling in ordered],
        [sibling.request for sibling in ordered],
        [sibling.floor for sibling in ordered],
        [sibling.lends for sibling in ordered],
    )
    return Shared(runtime={sibling.name: amount for sibling, amount in zip(ordered, runtime, strict=True)}, rounds=rounds)
