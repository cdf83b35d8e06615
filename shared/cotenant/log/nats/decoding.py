"""Decoding of stored messages: subject, sequence, headers and data in, event out; dead letters for what cannot be decoded."""

from __future__ import annotations

from typing import Protocol

from cotenant.events.envelope import WHOLE, Event, MessageDecoders, decode_event
from cotenant.log.contract import HISTORY, LOG

Headers = dict[str, str]
_MOST_DIGITS = 18
"""Of a number in a header; anybody may have written it."""


class DeadLetters(Protocol):
    """Takes messages that cannot be decoded."""

    unknown_types: int
    """Messages of types that this version does not know."""

    async def add_dead_letter(self, stream: str, subject: str, sequence: int, reason: str, raw: bytes) -> None:
        """Publish the message as a dead letter, with the reason; the reader continues."""


def _ttl_seconds(headers: Headers) -> int:
    text = headers.get("Nats-TTL", "").removesuffix("s")
    return int(text) if _is_number(text) else 0


def _origin_sequence(headers: Headers, own: int) -> int:
    """Return the LOG sequence of a message that HISTORY took over: second word of the source header."""
    words = headers.get("Nats-Stream-Source", "").split(" ")
    return int(words[1]) if len(words) > 1 and _is_number(words[1]) else own


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def event_of(
    stream: str, subject: str, sequence: int, data: bytes, headers: Headers, decoders: MessageDecoders = WHOLE
) -> Event:
    """Return the event of a message. A message of HISTORY is returned as the message of LOG that it was, with its sequence
    there."""
    return decode_event(
        data,
        subject=subject,
        stream=LOG if stream == HISTORY else stream,
        sequence=_origin_sequence(headers, sequence) if stream == HISTORY else sequence,
        tombstone=headers.get("Nats-Rollup") == "sub",
        ttl_seconds=_ttl_seconds(headers),
        decoders=decoders,
    )
