"""Non-negative integers as few bytes: how the windows' state travels in an event.

In: integers below 2^63. Out: LEB128 bytes (seven bits a byte, the lowest first, the highest bit says that more
follow), and back. Writing is done once per slot of time, when it ends; reading, once per start, is vectorised.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

LONGEST = 9
"""Bytes of one integer: nine times seven bits."""


class VarintError(ValueError):
    """The bytes are not LEB128 integers below 2^63."""


def encode(values: Iterable[int]) -> bytes:
    """The bytes of the integers, one after the other."""
    out = bytearray()
    append = out.append
    for value in values:
        while value > 127:
            append(value & 127 | 128)
            value >>= 7
        append(value)
    return bytes(out)


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
