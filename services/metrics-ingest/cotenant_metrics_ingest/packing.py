"""Integers as few bytes: how the windows' state travels in an event.

In: 64-bit integers of which neighbours are alike (sorted samples, sums of equal periods). Out: bytes, by differences
of neighbours, regrouped by byte place, deflated. Exact both ways, on every machine.
"""

import zlib

import numpy as np
import numpy.typing as npt

LEVEL = 1


class PackingError(ValueError):
    """The bytes are not what `pack` made for so many integers."""


def pack(values: npt.NDArray[np.int64]) -> bytes:
    """The packed form of the integers in flat order."""
    flat = values.reshape(-1).astype("<i8")
    differences = np.diff(flat, prepend=np.int64(0)).astype("<i8")
    # Zigzag keeps small negative differences small in all but the lowest byte.
    zigzag = (differences << 1) ^ (differences >> 63)
    return zlib.compress(zigzag.view(np.uint8).reshape(-1, 8).T.tobytes(), LEVEL)


def unpack(packed: bytes, count: int) -> npt.NDArray[np.int64]:
    """The `count` integers. Raises PackingError for anything else; never unpacks more than they need."""
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(packed, count * 8 + 1) if packed else b""
    except zlib.error as error:
        raise PackingError(f"packed integers are damaged: {error}") from error
    if len(raw) != count * 8:
        raise PackingError(f"packed integers are damaged: expected {count * 8} bytes")
    zigzag = np.ascontiguousarray(np.frombuffer(raw, dtype=np.uint8).reshape(8, count).T).view("<i8").reshape(-1)
    differences = ((zigzag >> 1) & np.int64(2**63 - 1)) ^ -(zigzag & 1)
    return np.cumsum(differences, dtype=np.int64)
