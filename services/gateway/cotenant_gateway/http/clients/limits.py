"""Limits of clients: connections, open streams, bytes of requests and of answers.

The figures are in docs/operations.md. One gateway serves up to a few thousand clients; a client that exceeds its share gets
429 with Retry-After, and one that does not read its answer is disconnected. `connections` and `streams` enforce it.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

MIB = 1 << 20
SMALL_BYTES = 64 * 1024
"""Bodies and events up to this size are not counted: the limit of connections bounds them."""
OTHER_FILES = 256
"""Open files beside connections: NATS, libraries, the log."""


class StreamKind(StrEnum):
    """Requests that last until the client disconnects, or cost many reads of the log."""

    WATCH = "watch"
    EVENTS = "events"
    LOG = "log"
    EXPLAIN = "explain"


STREAMS = MappingProxyType(
    {
        StreamKind.WATCH: (3072, 2048),
        StreamKind.EVENTS: (64, 32),
        StreamKind.LOG: (256, 128),
        StreamKind.EXPLAIN: (16, 16),
    }
)
"""Streams at a time, and at a time from one address."""


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one gateway; times in seconds."""

    connections: int = 5120
    connections_of_address: int = 4096
    streams: Mapping[StreamKind, tuple[int, int]] = STREAMS
    request_bytes: int = 128 * MIB
    """Bodies of all requests in progress."""
    answer_bytes: int = 256 * MIB
    """Answers and events that clients have not read yet, beyond SMALL_BYTES each. A larger answer is sent alone."""
    head_seconds: float = 30.0
    """From the first byte of a request to the end of its head."""
    body_seconds: float = 60.0
    idle_seconds: float = 900.0
    stalled_seconds: float = 30.0
    """A client reads nothing (of more than SMALL_BYTES) for this long."""


def within_open_files(limits: GatewayLimits) -> GatewayLimits:
    """Raise the process' limit of open files to its maximum, and return limits that fit into it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    most = max(soft - OTHER_FILES, 16)
    return msgspec.structs.replace(
        limits, connections=most, connections_of_address=min(limits.connections_of_address, max(most * 4 // 5, 8))
    )


class ByteBudget:
    """Bytes reserved at a time. A reservation larger than the whole budget is granted alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def fits(self, size: int) -> bool:
        """Return whether this many more may be reserved."""
        return self.held + size <= self.limit or not self.held

    def take(self, size: int) -> None:
        """Reserve this many more."""
        self.held += size

    def give(self, size: int) -> None:
        """Release this many."""
        self.held -= size
        assert self.held >= 0, "more bytes were given back than were taken"
