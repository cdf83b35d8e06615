"""`extensions.riskBudget` of the colocation strategy: how many node-hours may break, instead of a fixed CPU threshold.

In: a strategy's extensions. Out: the budget of `formulas.risk_budget`, or a ConfigError. Members, any case, all optional:

    brokenPercent    node-hours that may break, 0 to 100 in tenths; 1
    lowestPercent    bounds of the threshold, 0 to 100; 40 and 95
    highestPercent
    leastHours       hours of history of one node that are needed, 1 to 512; 6

Until then, and for memory always, the strategy's own reclaim threshold counts. `null` in a node entry removes the budget.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, camel_name, canonical, decode_object, fit

EXTENSION = "riskBudget"
MOST_HOURS = 1024
"""Hours that a node's history holds."""
_NULL = b"null"


class RiskBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`broken_permille`: thousandths of node-hours that may break. Percentages bound the threshold."""

    broken_permille: int = 10
    lowest_percent: int = 40
    highest_percent: int = 95
    start_percent: int = 60
    least_hours: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.broken_permille <= 1000:
            raise ValueError(f"broken_permille is {self.broken_permille}: must be 0 to 1000")
        if not 0 <= self.lowest_percent <= self.highest_percent <= 100:
            raise ValueError(f"the bounds {self.lowest_percent} and {self.highest_percent} must be ordered and within 0 to 100")
        if not 1 <= self.least_hours <= MOST_HOURS // 2:
            raise ValueError(f"least_hours is {self.least_hours}: must be 1 to {MOST_HOURS // 2}")


class _Given(msgspec.Struct, frozen=True, kw_only=True, rename=camel_name):
    broken_percent: float = 1.0
    lowest_percent: int = 40
    highest_percent: int = 95
    least_hours: int = 6


def read_risk_budget(extensions: Mapping[str, msgspec.Raw] | None, start_percent: int) -> RiskBudget | None:
    """Return the budget, None without one; `start_percent`: the strategy's own threshold. Raises ConfigError."""
    raw = extensions.get(EXTENSION) if extensions else None
    if raw is None or bytes(raw) == _NULL:
        return None
    where = f"extensions.{EXTENSION}"
    given = fit(canonical(decode_object(bytes(raw).decode(), where), _Given), _Given, where)
    permille = round(given.broken_percent * 10) if 0 <= given.broken_percent <= 100 else -1
    if permille < 0 or abs(given.broken_percent * 10 - permille) > 1e-6:
        raise ConfigError(f"{where}.brokenPercent is {given.broken_percent:g}: must be 0 to 100, in tenths")
    try:
        return RiskBudget(permille, given.lowest_percent, given.highest_percent, min(start_percent, 100), given.least_hours)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
