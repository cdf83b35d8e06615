"""Decoding of stored messages: subject, sequence, headers and data in, event out; dead letters for what cannot be decoded."""

from __future__ import annotations

import logging
from typing import Protocol

from cotenant.events.envelope import WHOLE, Event, EventError, MessageDecoders, UnknownEventTypeError, decode_event
from cotenant.log.contract import HISTORY, LOG

logger = logging.getLogger(__name__)

Headers = dict[str, str]
REPLACES = "Cotenant-Replaces"
"""Header of a message that rolls its subject up and is no tombstone."""
EXPECTED_SUBJECT = "Nats-Expected-Last-Subject-Sequence-Subject"
"""Header of a message whose expectation concerns another subject than its own."""
_MOST_DIGITS = 18
"""Of a number in a header, which any client may have written."""
_READ = tuple(
    (name, b"\r\n%b:" % name.encode())
    for name in (
        "Nats-Rollup", "Nats-TTL", "Nats-Expected-Last-Subject-Sequence", EXPECTED_SUBJECT, REPLACES, "Nats-Stream-Source"
    )
)
"""The headers that an event depends on, and how their lines begin."""


def text_of(subject: bytes) -> str:
    """Return a subject as text. The server takes any bytes; those that are not UTF-8 are escaped (`\\xff`)."""
    return subject.decode(errors="backslashreplace")


class DeadLetters(Protocol):
    """Takes messages that cannot be decoded."""

    unknown_types: int
    """Messages of types that this version does not know."""

    async def add_dead_letter(
        self, stream: str, subject: str, sequence: int, reason: str, raw: bytes, writer: str = ""
    ) -> None:
        """Publish the message as a dead letter, with the reason; the reader continues."""


def headers_of_event(block: bytes) -> Headers:
    """Return the headers of a block that an event depends on, each as its first line has it: the server goes by that one. A
    load reads many blocks of a dozen lines."""
    headers: Headers = {}
    for name, beginning in _READ:
        start = block.find(beginning)
        if start >= 0:
            start += len(beginning)
            end = block.find(b"\r\n", start)
            headers[name] = block[start : end if end >= 0 else len(block)].decode(errors="replace").strip()
    return headers


def _ttl_seconds(headers: Headers) -> int:
    text = headers.get("Nats-TTL", "").removesuffix("s")
    return int(text) if _is_number(text) else 0


def _followed(headers: Headers) -> int:
    text = headers.get("Nats-Expected-Last-Subject-Sequence", "")
    own = EXPECTED_SUBJECT not in headers
    return int(text) if own and _is_number(text) and headers.get("Nats-Rollup") == "sub" else 0


def is_tombstone(headers: Headers) -> bool:
    """Return whether a message is a tombstone."""
    return headers.get("Nats-Rollup") == "sub" and REPLACES not in headers


def origin_sequence(headers: Headers, own: int) -> int:
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
        sequence=origin_sequence(headers, sequence) if stream == HISTORY else sequence,
        tombstone=is_tombstone(headers),
        replaces=REPLACES in headers,
        ttl_seconds=_ttl_seconds(headers),
        follows=_followed(headers),
        decoders=decoders,
    )


class MessageDecoder:
    """Decodes the messages of one stream for one reader."""

    def __init__(self, stream: str, dead_letters: DeadLetters, writer: str = "") -> None:
        """`writer`: of its dead letters; empty: the service."""
        self._stream = stream
        self._writer = writer
        self._dead_letters = dead_letters
        self.decoders = WHOLE

    async def into(self, events: list[Event], subject: str, sequence: int, block: bytes, data: bytes) -> None:
        """Add the event of a message to `events`; what is no event becomes a dead letter, and one of a type that is unknown
        here is counted and left out."""
        # Most messages carry headers of their batch only, which do not matter here.
        reads_headers = self._stream == HISTORY or b"Nats-Rollup" in block or b"Nats-TTL" in block
        try:
            if reads_headers:
                event = event_of(self._stream, subject, sequence, data, headers_of_event(block), self.decoders)
            else:
                event = decode_event(data, subject=subject, stream=self._stream, sequence=sequence, decoders=self.decoders)
        except UnknownEventTypeError as error:
            self._dead_letters.unknown_types += 1
            logger.debug("%s:%d skipped: %s", self._stream, sequence, error)
        except EventError as error:
            await self._dead_letters.add_dead_letter(self._stream, subject, sequence, str(error), data, self._writer)
        else:
            events.append(event)
