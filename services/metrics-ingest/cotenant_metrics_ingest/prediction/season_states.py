"""A node's profile by time of day in a stored state.

In: a `SeasonalCheckpoint`. Out: `SeasonState`, and back. The quarter hours of the week are stored each as the difference to the
one before, which deflate makes small: some 300 bytes where use is alike from day to day, 690 at most.
"""

import zlib

from cotenant.events.node.predictions import SeasonState
from cotenant_metrics_ingest.prediction.seasonal import (
    QUARTERS_A_WEEK,
    SeasonalCheckpoint,
    SeasonalError,
    SeasonalProfiles,
)

_BYTE = 256
_LATEST_QUARTER = 2**40
"""Beyond any clock."""


def state_of(resource: str, checkpoint: SeasonalCheckpoint, *, by_time_of_day: bool) -> SeasonState:
    """The state of one resource."""
    before = b"\0" + checkpoint.peaks[:-1]
    deltas = bytes((peak - last) % _BYTE for peak, last in zip(checkpoint.peaks, before, strict=True))
    return SeasonState(
        resource=resource,
        by_time_of_day=by_time_of_day,
        latest_quarter=checkpoint.latest_quarter,
        peaks=zlib.compress(deltas, 9),
    )


def load(state: SeasonState, profiles: SeasonalProfiles, row: int) -> bool:
    """Put a state into a row; returns False, and does not change the row, if the state is damaged."""
    try:
        deltas = zlib.decompressobj().decompress(state.peaks, QUARTERS_A_WEEK + 1)
    except zlib.error:
        return False
    peak, peaks = 0, bytearray()
    for delta in deltas:
        peak = (peak + delta) % _BYTE
        peaks.append(peak)
    if not 0 <= state.latest_quarter < _LATEST_QUARTER:
        return False
    try:
        profiles.load(row, SeasonalCheckpoint(state.latest_quarter, bytes(peaks)))
    except SeasonalError:
        return False
    return True
