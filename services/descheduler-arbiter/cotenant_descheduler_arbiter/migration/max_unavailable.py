"""How many pods of one workload may be migrating, or unavailable, at once.

    v = the configured count, or floor(percent * replicas / 100), at least 1
    default: 10 % of replicas above 10 replicas, 2 from 4 on, else 1
    result = min(v, replicas)

Source: koord-descheduler migration controller (GetMaxUnavailable, GetMaxMigrating).
"""

from __future__ import annotations

from cotenant_descheduler_arbiter.config.scaling import IntOrPercent, scaled


def max_away(replicas: int, value: IntOrPercent | None) -> int:
    """Return how many of `replicas` may be migrating or unavailable at once."""
    if value is not None:
        count = scaled(value, replicas) or 1
    elif replicas > 10:
        count = replicas * 10 // 100
    elif replicas >= 4:
        count = 2
    else:
        count = 1
    return min(count, replicas)
