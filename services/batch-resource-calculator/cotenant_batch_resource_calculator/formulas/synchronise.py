"""When a new figure is worth an event: the dead band, and when a metric is too old to be acted on.

In: old and new figures with the strategy's bounds. Out: yes or no. Source: Koordinator node resource controller,
NeedSync and degrade. Times are compared strictly: at the bound itself nothing happens yet. Koordinator sets no highest bound;
one that no clock reaches is NEVER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cotenant.model.times import NEVER


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Tell whether a resource moved by more than `threshold` of its old amount; None means that the node does not
    offer it.

    Appearing and vanishing always count; from 0 everything counts. Amounts are milli-units.
    """
    if old is None or new is None:
        return old is not new
    return float(abs(new - old)) > float(old) * threshold


def any_differs(names: Iterable[str], old: Mapping[str, int], new: Mapping[str, int], threshold: float) -> bool:
    """Tell whether one of the named resources moved by more than the threshold (milli-units by name)."""
    return any(differs(old.get(name), new.get(name), threshold) for name in names)


def is_due(last: datetime | None, now: datetime, update_threshold_seconds: int) -> bool:
    """Tell whether the last event is older than the refresh bound, or missing."""
    return last is None or now > due_from(last, update_threshold_seconds)


def due_from(last: datetime, update_threshold_seconds: int) -> datetime:
    """Return the refresh bound of the last event."""
    return _after(last, update_threshold_seconds)


def is_stale(update_time: datetime | None, now: datetime, degrade_minutes: int) -> bool:
    """Tell whether the metric is missing or older than the degrade time: batch and mid are then withdrawn."""
    return update_time is None or now > stale_from(update_time, degrade_minutes)


def stale_from(update_time: datetime, degrade_minutes: int) -> datetime:
    """Return the moment until which a metric can be acted on."""
    return _after(update_time, degrade_minutes * 60)


def _after(moment: datetime, seconds: int) -> datetime:
    try:
        return min(moment + timedelta(seconds=seconds), NEVER)
    except OverflowError:
        return NEVER


def settle(old: int | None, new: int, threshold: float) -> int:
    """Return the figure to publish where each figure has its own dead band: the old one as long as it is close enough."""
    return new if old is None or differs(old, new, threshold) else old
