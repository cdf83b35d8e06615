"""Non-negative integers as few bytes: how the windows' state travels in an event.

In: integers below 2^63. Out: LEB128 bytes (seven bits a byte, the lowest first, the highest bit says that more
follow), and back. Both ways are vectorised: writing is done once per report for all slots of time that ended since the
last one, reading once per start.
"""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

LONGEST = 9
"""Bytes of one integer: nine times seven bits."""


class VarintError(ValueError):
    """The bytes are not LEB128 integers below 2^63."""


_SHIFTS = np.arange(0, 7 * LONGEST, 7)[:, np.newaxis]


def encode_each(values: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[bytes]:
    """The bytes of parts of the integers, which follow one another; `lengths` says how many integers each part has."""
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
    """The integers. Raises VarintError where the bytes end within one, or one is too long."""
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
