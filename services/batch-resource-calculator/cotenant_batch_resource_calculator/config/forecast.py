"""`extensions.forecast` of the colocation strategy: with `timeOfDay` batch-cpu leaves room for the forecast peak of services.

In: a strategy's extensions. Out: whether it is set. Any other value (`histogram`, none, `null`) means Koordinator's rule,
which uses present usage. The forecast itself is that of metrics-ingest (`prodPeak`), which falls back to its histogram.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EXTENSION = "forecast"
_BY_TIME_OF_DAY = b'"timeOfDay"'


def by_time_of_day(extensions: Mapping[str, msgspec.Raw] | None) -> bool:
    """Return whether batch-cpu uses the forecast."""
    return bytes((extensions or {}).get(EXTENSION, b"")) == _BY_TIME_OF_DAY
