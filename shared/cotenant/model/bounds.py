"""Bounds of the numbers that messages and documents may hold, so that every sum over a cell fits 64 bits.

They are enforced in three places. The API refuses a document beyond them and names the field. A message whose integers are out
of range cannot be decoded and becomes a dead letter: the annotated types here are those of its fields. Quantities, which are
text, are saturated where they are parsed (`saturated`), because a document may come from an older log.

    amount         0 .. 2^50        milli-CPUs (10^12 CPUs), bytes (1 PiB), pieces; 8,192 of the largest fit 64 bits
    seconds        0 .. 2^31 - 1    68 years
    milliseconds   |x| <= 2^53      of the epoch or between two moments
    count          0 .. 2^53
    time           1970 .. 2261     what 64-bit nanoseconds hold; a duration within the bounds can be added
    int32, int64                    Kubernetes' own types of the API's integer fields

Quotas are exempt: a max of 2^63 - 1 means everything there is, and their sums are not limited to 64 bits.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

MAX_AMOUNT = 1 << 50
MAX_SECONDS = (1 << 31) - 1
MAX_COUNT = 1 << 53
EARLIEST_YEAR = 1970
LATEST_YEAR = 2261

Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
SignedAmount = Annotated[int, Meta(ge=-MAX_AMOUNT, le=MAX_AMOUNT)]
Seconds = Annotated[int, Meta(ge=0, le=MAX_SECONDS)]
Milliseconds = Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Int32 = Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


def saturated(amount: int) -> int:
    """Return the amount, or the nearest one within the bounds; below zero as far as above."""
    return amount if -MAX_AMOUNT <= amount <= MAX_AMOUNT else -MAX_AMOUNT if amount < 0 else MAX_AMOUNT


def saturated_seconds(seconds: int) -> int:
    """Return a duration in seconds, or the nearest one within the bounds."""
    return seconds if 0 <= seconds <= MAX_SECONDS else 0 if seconds < 0 else MAX_SECONDS
