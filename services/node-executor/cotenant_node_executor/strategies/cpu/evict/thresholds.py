"""How much CPU to release because usage, or requests, exceed a percentage.

In: capacity and usage, or offered amount and requests (milli-CPU), the percentages. Out: milli-CPU to release, 0 for none.

    usage        usage% = used * 100 // capacity;  from the threshold on: capacity * (usage% - lower) // 100
    allocatable  requests / offered > threshold%:  requests - lower% * offered;  everything where nothing is offered

`lower` of usage is threshold - 2 where it is not set. Source: gates CPUEvict (v1.7) and CPUAllocatableEvict (v1.8), koordlet
rules.
"""

from __future__ import annotations


def usage_release_milli(capacity_milli: int, used_milli: float, threshold_percent: int, lower_percent: int | None) -> int:
    """Usage to release."""
    if capacity_milli <= 0 or threshold_percent < 0:
        return 0
    lower = threshold_percent - 2 if lower_percent is None else lower_percent
    usage_percent = int(used_milli) * 100 // capacity_milli
    if usage_percent < threshold_percent or lower > threshold_percent:
        return 0
    return max(capacity_milli * (usage_percent - lower) // 100, 0)


def allocatable_release_milli(
    requested_milli: int, offered_milli: int, threshold_percent: int, lower_percent: int
) -> int:
    """Requests to release."""
    if offered_milli <= 0:
        return requested_milli
    if requested_milli * 100 <= offered_milli * threshold_percent:
        return 0
    return max(int(requested_milli - lower_percent / 100 * offered_milli), 0)
