"""Which reservation is used first: the label `scheduling.koordinator.sh/reservation-order`.

In: labels of a reservation. Out: its order; the smallest that is not 0 is used first. Source: Koordinator's
reservation extension.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.domain.reservations.names import LABEL_ORDER

_MOST = (1 << 63) - 1


def order_of(labels: Mapping[str, str]) -> int:
    """Return the order of a reservation's label; 0 where there is none, or no whole number."""
    text = labels.get(LABEL_ORDER, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return 0
    number = int(text)
    return number if abs(number) <= _MOST else 0
