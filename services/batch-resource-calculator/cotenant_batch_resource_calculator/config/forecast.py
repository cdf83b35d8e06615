"""`extensions.forecast` of the colocation strategy: `timeOfDay` lets batch-cpu leave what services are forecast to use at most.

In: a strategy's extensions. Out: whether it says so. Any other value (`histogram`, none, `null`) leaves Koordinator's rule,
which looks at what is used now. The forecast itself is that of metrics-ingest (`prodPeak`), which falls back to its histogram.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

EXTENSION = "forecast"
_BY_TIME_OF_DAY = b'"timeOfDay"'


def by_time_of_day(extensions: Mapping[str, msgspec.Raw] | None) -> bool:
    """Return whether batch-cpu goes by the forecast."""
    return bytes((extensions or {}).get(EXTENSION, b"")) == _BY_TIME_OF_DAY
