"""LEB128 encoding of non-negative integers, for the windows' state in an event; and integers as they are.

In: int64 arrays of integers from 0 to 2^63 - 1. Out: LEB128 bytes (seven bits per byte, lowest first, the highest bit set if
more follow), and back. Both directions are vectorised: encoding runs once per report over all slots closed since the last one,
decoding once per start.
"""

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

LONGEST = 9
"""Maximum bytes of one integer: nine times seven bits."""


class VarintError(ValueError):
    """The bytes are not LEB128 integers below 2^63."""


_SHIFTS = np.arange(0, 7 * LONGEST, 7)[:, np.newaxis]


def encode_each(values: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """Encode consecutive parts of `values` (int64, 1-D); `lengths`: int64, the number of integers in each part. Returns one
    bytes object per part."""
    if not len(values):
        return [b""] * len(lengths)
    octets = max(1, -(-int(values.max()).bit_length() // 7))
    rests = values >> _SHIFTS[:octets]
    written = rests > 0
    written[0] = True
    table = rests.astype(np.uint8) & 127
    table[:-1] |= written[1:].view(np.uint8) << 7
    encoded = table.T[written.T].tobytes()
    borders = np.concatenate(([0], written.sum(axis=0).cumsum()))
    stops = borders[np.concatenate(([0], lengths.cumsum()))].tolist()
    return [encoded[start:stop] for start, stop in pairwise(stops)]


def decode(data: bytes) -> npt.NDArray[np.int64]:
    """Decode to int64, 1-D. Raises VarintError if the bytes end within an integer, or one is too long."""
    if not data:
        return np.zeros(0, dtype=np.int64)
    octets = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(octets < 128)
    if not len(ends) or ends[-1] != len(octets) - 1:
        raise VarintError("integers are cut off")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > LONGEST:
        raise VarintError(f"an integer has more than {LONGEST} bytes")
    places = np.arange(len(octets)) - np.repeat(starts, lengths)
    parts = (octets & 127).astype(np.int64) << (7 * places)
    return np.add.reduceat(parts, starts)


@lru_cache(maxsize=4096)
def integers(count: int) -> Callable[..., bytes]:
    """The function from so many integers to bytes, by far the quickest way. It raises struct.error."""
    return struct.Struct(f"{count}q").pack


def packed(series: Sequence[Sequence[int]]) -> bytes:
    """Return the integers of all series in a row, as int64. Raises struct.error."""
    values: list[int] = []
    for each in series:
        values += each
    return integers(len(values))(*values)
