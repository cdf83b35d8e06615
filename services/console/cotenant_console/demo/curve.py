"""The demonstration's day: how many requests a second at which moment.

In: seconds since the start, the length of the compressed day, the rates at night and at noon. Out: requests a
second. The shape is a raised cosine to the power of two: a long night of low load, one broad peak, as request rates of
interactive services have; the day begins at night, so that the first seconds have little load.
"""

from __future__ import annotations

import math


def rate_at(seconds: float, day_seconds: float, night: float, noon: float) -> float:
    """Requests a second at a moment of the day."""
    height = (1.0 - math.cos(2.0 * math.pi * seconds / day_seconds)) / 2.0
    return night + (noon - night) * height * height


def is_quiet(rate: float, night: float, noon: float) -> bool:
    """Whether a rate belongs to the quiet part of the day: the lowest fifth between night and noon."""
    return rate <= night + 0.2 * (noon - night)


def is_loaded(rate: float, night: float, noon: float) -> bool:
    """Whether a rate belongs to the loaded part of the day: the upper two fifths between night and noon."""
    return rate >= night + 0.6 * (noon - night)
