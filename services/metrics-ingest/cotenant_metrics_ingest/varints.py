"""Non-negative integers as few bytes: how the windows' state travels in an event.

In: integers below 2^63. Out: LEB128 bytes (seven bits a byte, the lowest first, the highest bit says that more
follow), and back. Both ways are vectorised; writing is done once per slot of time, when it ends, reading once per start.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LONGEST = 9
"""Bytes of one integer: nine times seven bits."""


class VarintError(ValueError):
    """The bytes are not LEB128 integers below 2^63."""


_LIMITS = np.array([1 << (7 * octets) for octets in range(1, LONGEST)], dtype=np.int64)


def encode(values: Sequence[int]) -> bytes:
    """The bytes of the integers, one after the other."""
    array = np.array(values, dtype=np.int64)
    lengths = _LIMITS.searchsorted(array, side="right") + 1
    ends = lengths.cumsum()
    places = np.arange(ends[-1] if len(ends) else 0) - (ends - lengths).repeat(lengths)
    octets = array.repeat(lengths) >> (7 * places) & 127
    octets |= 128
    octets[ends - 1] &= 127
    return octets.astype(np.uint8).tobytes()


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
