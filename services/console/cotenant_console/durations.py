"""Durations as users write them: `90s`, `10m`, `1h30m`, `2d`, or a bare number of seconds."""

from __future__ import annotations

import re

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
MOST_DAYS = 3_650
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])")


def parse_duration_seconds(text: str) -> float:
    """A duration in seconds, MOST_DAYS at most. Raises ValueError with what is expected."""
    stripped = text.strip()
    bare = re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", stripped)
    parts = [(stripped, "s")] if bare else _PART.findall(stripped)
    if not parts or (not bare and "".join(number + unit for number, unit in parts) != stripped):
        raise ValueError(f"{text[:80]!r} is not a duration such as 90s, 10m or 1h30m")
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if seconds > MOST_DAYS * UNITS["d"]:
        raise ValueError(f"{text[:80]!r} is longer than {MOST_DAYS} days")
    return seconds
