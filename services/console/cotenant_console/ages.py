"""Ages and moments as kubectl shows them.

In: an RFC 3339 time and the present. Out: `45s`, `3m12s`, `5h`, `2d4h`, `3y20d`; the boundaries are those of the
duration printer of Kubernetes' apimachinery (HumanDuration).
"""

from __future__ import annotations

from datetime import UTC, datetime


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time, None if it is none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def age(text: str, now: datetime) -> str:
    """The age of a timestamp: `<unknown>` where it cannot be read."""
    moment = parse_time(text)
    return "<unknown>" if moment is None else human_duration((now - moment).total_seconds())


def human_duration(seconds: float) -> str:
    """A duration in at most two units, as coarse as kubectl shows it."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    whole = max(whole, 0)
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    if years < 8:
        return _two(years, "y", days % 365, "d")
    return f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
