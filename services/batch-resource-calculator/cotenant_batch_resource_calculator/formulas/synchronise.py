"""The dead band that decides whether a figure is published, and the age at which a metric becomes stale.

In: old and new figures with the strategy's bounds. Out: a boolean. Source: Koordinator node resource controller,
NeedSync and degrade. Times are compared strictly: at the bound itself nothing happens yet. Koordinator has no maximum bound;
one beyond the calendar is NEVER.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from cotenant.model.times import NEVER


def differs(old: int | None, new: int | None, threshold: float) -> bool:
    """Whether a resource changed by more than `threshold` of its old amount; None: the node does not offer it.

    A resource that appears or disappears always differs, and so does any change from 0. Amounts are milli-units.
    """
    if old is None or new is None:
        return old is not new
    return float(abs(new - old)) > float(old) * threshold


def any_differs(names: Iterable[str], old: Mapping[str, int], new: Mapping[str, int], threshold: float) -> bool:
    """Whether one of the named resources changed by more than the threshold (milli-units by name)."""
    return any(differs(old.get(name), new.get(name), threshold) for name in names)


def is_due(last: datetime | None, now: datetime, update_threshold_seconds: int) -> bool:
    """Whether the last event is older than the refresh bound, or missing."""
    return last is None or now > due_from(last, update_threshold_seconds)


def due_from(last: datetime, update_threshold_seconds: int) -> datetime:
    """Return the refresh bound of the last event."""
    return _after(last, update_threshold_seconds)


def is_stale(update_time: datetime | None, now: datetime, degrade_minutes: int) -> bool:
    """Whether the metric is missing or older than the degrade time: batch and mid are then withdrawn."""
    return update_time is None or now > stale_from(update_time, degrade_minutes)


def stale_from(update_time: datetime, degrade_minutes: int) -> datetime:
    """Return the time at which a metric becomes stale."""
    return _after(update_time, degrade_minutes * 60)


def _after(moment: datetime, seconds: int) -> datetime:
    try:
        return min(moment + timedelta(seconds=seconds), NEVER)
    except OverflowError:
        return NEVER


def within_band(old: int | None, new: int, threshold: float) -> int:
    """Return the figure to publish if each has its own dead band: the old one while the new one is within the band."""
    return new if old is None or differs(old, new, threshold) else old
