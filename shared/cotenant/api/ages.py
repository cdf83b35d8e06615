"""Ages as kubectl prints them. Source: `duration.HumanDuration` of k8s.io/apimachinery."""

from __future__ import annotations

from datetime import datetime

from cotenant.api.times import parse_rfc3339


def human_duration(seconds: float) -> str:
    """Return at most two units, truncated to whole seconds: 59s, 2m5s, 10m, 3h7m, 2d4h, 45d, 3y12d."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes = whole // 60
    if minutes < 10:
        return f"{minutes}m{whole % 60}s" if whole % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 24 * 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 365 * 2:
        return f"{days}d"
    years, rest = divmod(days, 365)
    if years < 8:
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def age(timestamp: str | None, now: datetime) -> str:
    """Return the age of an RFC 3339 time, `<unknown>` where there is none."""
    time = parse_rfc3339(timestamp)
    return "<unknown>" if time is None else human_duration((now - time).total_seconds())
