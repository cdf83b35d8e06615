"""The three streams of the simulated log, in memory."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from cotenant.log.contract import EXECUTION, LOG, USAGE
from cotenant.log.memory import MemoryStream


class Streams(msgspec.Struct, frozen=True):
    """The streams of the simulated log."""

    log: MemoryStream
    usage: MemoryStream
    execution: MemoryStream


def new_streams(clock: Callable[[], datetime]) -> Streams:
    """Empty streams that read the time from `clock`, with as many messages a subject as the simulation needs."""
    return Streams(
        MemoryStream(LOG, clock, keep_per_subject=64),
        MemoryStream(USAGE, clock, keep_per_subject=4),
        MemoryStream(EXECUTION, clock, keep_per_subject=256),
    )
