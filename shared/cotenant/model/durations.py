"""Go durations that users write: "5m0s", "500ms", "1h30m", "0".

In: the text. Out: a timedelta; any other text raises a DurationError with the expected form.

Source: Go `time.ParseDuration`; fractions below a microsecond are truncated.
"""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"ns": 0.001, "us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_MAX_TEXT = 64


class DurationError(ValueError):
    """The text is not a duration."""


def parse_duration(text: str) -> timedelta:
    """Return the duration. Raises DurationError."""
    sign, body = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if body == "0":
        return timedelta(0)
    micros = 0.0
    position = 0
    if len(text) <= _MAX_TEXT:
        while (part := _PART.match(body, position)) is not None:
            micros += float(part[1]) * _UNITS[part[2]]
            position = part.end()
    if not body or position != len(body):
        raise DurationError(f"{text!r} is not a duration such as 30s, 5m or 1h30m")
    try:
        return sign * timedelta(microseconds=int(micros))
    except OverflowError as error:
        raise DurationError(f"{text!r} is longer than can be counted") from error
