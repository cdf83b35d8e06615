"""Extensions of a colocation strategy: `riskBudget`, how many node-hours may break, instead of a fixed CPU threshold; and
`forecast`, how the peak of services is predicted.

In: the extensions as JSON values. Out: field errors; those of the budget by the bounds of batch-resource-calculator, which
rejects the section for the same reasons. Extensions of other names are stored as they are.
"""

from __future__ import annotations

from math import isfinite

from cotenant.api.validation.fields import FieldError, invalid, wrong_type
from cotenant_gateway.admission.node_configuration.values import Json, mapping, member, members_of, one_of, shown, whole

EXTENSION = "riskBudget"
FORECAST = "forecast"
LOWEST_PERCENT, HIGHEST_PERCENT = 40, 95
"""Defaults of a budget."""
MOST_LEAST_HOURS = 512


def _tenths(field: str, value: Json) -> list[FieldError]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return [wrong_type(field, "must be a number")]
    whole_tenths = not isinstance(value, float) or (isfinite(value) and abs(value * 10 - round(value * 10)) <= 1e-6)
    if not whole_tenths or not 0 <= value <= 100:
        return [invalid(field, shown(value), "must be 0 to 100, in tenths")]
    return []


_forecast = one_of("histogram", "timeOfDay")
_MEMBERS = members_of(
    {
        "brokenPercent": _tenths,
        "lowestPercent": whole(0, 100),
        "highestPercent": whole(0, 100),
        "leastHours": whole(1, MOST_LEAST_HOURS),
    }
)


def extensions(field: str, value: Json) -> list[FieldError]:
    """The extensions of a strategy, of which the risk budget and the forecast have rules."""
    found = mapping(field, value)
    if isinstance(value, dict) and value.get(FORECAST) is not None:
        found += _forecast(f"{field}.{FORECAST}", value[FORECAST])
    budget = value.get(EXTENSION) if isinstance(value, dict) else None
    return found if budget is None else [*found, *_budget(f"{field}.{EXTENSION}", budget)]


def _budget(field: str, budget: Json) -> list[FieldError]:
    found = _MEMBERS(field, budget)
    if found:
        return found
    lowest, highest = member(budget, "lowestPercent"), member(budget, "highestPercent")
    low = lowest if isinstance(lowest, int) else LOWEST_PERCENT
    high = highest if isinstance(highest, int) else HIGHEST_PERCENT
    if low > high:
        return [invalid(f"{field}.lowestPercent", low, f"must not be above highestPercent, which is {high}")]
    return []
