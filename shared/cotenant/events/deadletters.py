"""Messages that could not be used, on stream EXECUTION."""

from __future__ import annotations

from cotenant.events.envelope import Payload


class DeadLetter(Payload, frozen=True, kw_only=True):
    """Subject `deadletter.<stream>`. `message` holds at most 64 KiB of the original, undecodable bytes replaced."""
    TYPE = "cotenant.deadletter.v1"

    stream: str
    subject: str
    sequence: int
    reason: str
    service: str = ""
    message: str = ""
    truncated: bool = False
