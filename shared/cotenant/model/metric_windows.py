"""The windows of a NodeMetric's percentiles, `metricAggregatePolicy.durations`.

In: the durations as written. Out: seconds, in their order and each once; none where they cannot be windows: metrics-ingest
then takes its own, and the gateway warns.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from cotenant.model.durations import DurationError, parse_duration

MAX_WINDOWS = 8
SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=7)


def windows_seconds(durations: Sequence[str]) -> tuple[int, ...]:
    """Return the windows; none if they are too many, too short, too long, or no durations."""
    try:
        wanted = [parse_duration(text) for text in durations[: MAX_WINDOWS + 1]]
    except DurationError:
        return ()
    possible = 0 < len(wanted) <= MAX_WINDOWS and all(SHORTEST <= each <= LONGEST for each in wanted)
    return tuple(dict.fromkeys(each // timedelta(seconds=1) for each in wanted)) if possible else ()
