"""Scaling of siblings' mins that do not fit in their parent's total.

In: the parent's total and the siblings' mins, each scalable or fixed. Out: the scaled min of each sibling; None where
scaling does not apply to it (it is fixed, or the parent has no total), so it keeps its min. The rule, per resource of
the total:

    short         where total < sum of fixed mins + sum of scalable mins; else the min stays
    to distribute = total - sum of fixed mins
    scaled min    = floor(to distribute x min / sum of scalable mins), 0 where there is nothing to distribute

Requests are irrelevant. The division is exact where Koordinator (getScaledMinQuota) uses doubles, so the sum of scaled mins
never exceeds the total. Resources that the total lacks are not scaled.
"""

from collections.abc import Sequence

import msgspec

from cotenant.model.amounts import Amounts
from cotenant.model.amounts import total as sum_of


class MinOf(msgspec.Struct, frozen=True, kw_only=True):
    """One sibling's min."""

    name: str
    min: dict[str, int] = {}
    scalable: bool = True


def scale_mins(parent_total: Amounts | None, siblings: Sequence[MinOf]) -> dict[str, dict[str, int] | None]:
    """The scaled min of every sibling by name; None where scaling does not apply."""
    if parent_total is None:
        return {sibling.name: None for sibling in siblings}
    fixed = sum_of(sibling.min for sibling in siblings if not sibling.scalable)
    scalable = sum_of(sibling.min for sibling in siblings if sibling.scalable)
    short = [
        resource for resource, amount in parent_total.items() if amount < fixed.get(resource, 0) + scalable.get(resource, 0)
    ]
    scaled: dict[str, dict[str, int] | None] = {}
    for sibling in siblings:
        if not sibling.scalable:
            scaled[sibling.name] = None
            continue
        result = dict(sibling.min)
        for resource in short:
            distributable = parent_total[resource] - fixed.get(resource, 0)
            whole = scalable.get(resource, 0)
            possible = distributable > 0 and whole > 0
            result[resource] = distributable * sibling.min.get(resource, 0) // whole if possible else 0
        scaled[sibling.name] = result
    return scaled
