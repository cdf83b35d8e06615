"""Messages that could not be used, on stream EXECUTION."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Event, Payload
from cotenant.model.bounds import Count
from cotenant.model.subjects import deadletter_subject


class DeadLetter(Payload, frozen=True, kw_only=True):
    """Subject `deadletter.<stream>.<writer>`. `message` holds at most 64 KiB of the original, undecodable bytes replaced."""
    TYPE = "cotenant.deadletter.v1"

    stream: str
    subject: str
    sequence: Count
    reason: str
    service: str = ""
    message: str = ""
    truncated: bool = False


MAX_DEAD_LETTER_BYTES = 64 * 1024


def make_dead_letter(
    stream: str, subject: str, sequence: int, reason: str, raw: bytes, now: datetime, service: str, writer: str = ""
) -> Event:
    """Return the dead letter of a message: at most 64 KiB of it, with the reason. `writer`: whose subject it goes to, where
    that
    is not the service's."""
    return Event(
        subject=deadletter_subject(stream, writer or service),
        data=DeadLetter(
            stream=stream,
            subject=subject,
            sequence=sequence,
            reason=reason,
            service=service,
            message=raw[:MAX_DEAD_LETTER_BYTES].decode(errors="replace"),
            truncated=len(raw) > MAX_DEAD_LETTER_BYTES,
        ),
        causes=(f"{stream}:{sequence}",),
        time=now,
        id=f"deadletter/{service}/{stream}/{sequence}",
        source=f"/cotenant/{service}",
        stream="EXECUTION",
    )
