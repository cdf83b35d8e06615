"""How many pods of one workload may be away at once; the same rule for migrating and for unavailable.

    v = the given count, or floor(percent * replicas / 100); a given value that comes to 0 is 1
    not given: 10 % of replicas above 10 replicas, 2 from 4 on, else 1
    result = min(v, replicas)

Source: koord-descheduler migration controller (GetMaxUnavailable, GetMaxMigrating).
"""

from __future__ import annotations

IntOrPercent = int | str


def scaled(value: IntOrPercent, replicas: int) -> int:
    """Return the count that an int or a percentage text means. Raises ValueError on any other text."""
    if isinstance(value, int):
        return value
    digits = value[:-1] if value.endswith("%") else ""
    if not digits.isdecimal():
        raise ValueError(f"{value!r} is neither a whole number nor a percentage such as '25%'")
    return int(digits) * replicas // 100


def max_away(replicas: int, value: IntOrPercent | None) -> int:
    """Return how many of `replicas` may be away at once."""
    if value is not None:
        count = scaled(value, replicas) or 1
    elif replicas > 10:
        count = replicas * 10 // 100
    elif replicas >= 4:
        count = 2
    else:
        count = 1
    return min(count, replicas)
