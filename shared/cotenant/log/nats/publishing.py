"""How messages are written: an atomic batch leaves in one write, and only its last message asks for the answer.

In: messages to store. Out: frames, and the server's acknowledgement.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_urlsafe

import msgspec

from cotenant.log.contract import Write
from cotenant.log.nats.decoding import EXPECTED_SUBJECT, REPLACES
from cotenant.log.nats.frames import frame
from cotenant.log.nats.jetstream import ANSWER_SECONDS, JetStreamError
from cotenant.log.nats.wire import BusClient

BATCH_ID_BYTES = 9
DRAINED_SECONDS = 1.0
"""How long to wait for an optional answer that only saves time."""

Message = tuple[str, bytes, bytes]
"""Subject, header lines, data."""


class Ack(msgspec.Struct):
    """Where the last message was stored, or why nothing was."""

    seq: int = 0
    duplicate: bool = False
    error: JetStreamError | None = None


_ACK = msgspec.json.Decoder(Ack)


def header_lines(write: Write, longest_ttl: int = 0) -> bytes:
    """Return the header lines with a message's kind and expectation. `longest_ttl` (seconds, 0: none) cuts
    the TTL of a tombstone."""
    event = write.event
    lines = b"" if write.expected is None else b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % write.expected
    if write.expected_subject:
        lines += b"%b: %b\r\n" % (EXPECTED_SUBJECT.encode(), write.expected_subject.encode())
    if write.message_id:
        lines += b"Nats-Msg-Id: %b\r\n" % write.message_id.encode()
    if event.tombstone:
        lines += b"Nats-Rollup: sub\r\n"
    elif event.replaces:
        lines += b"Nats-Rollup: sub\r\n%b: 1\r\n" % REPLACES.encode()
    if event.ttl_seconds:
        scaled = longest_ttl and event.tombstone
        lines += b"Nats-TTL: %ds\r\n" % (min(event.ttl_seconds, longest_ttl) if scaled else event.ttl_seconds)
    return lines


async def send(client: BusClient, messages: Sequence[Message]) -> Ack:
    """Send one message, or several as an atomic batch; raises API_ERRORS without an answer."""
    frames: list[bytes] = []
    subject, lines, data = messages[-1]
    if len(messages) > 1:
        batch = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: " % token_urlsafe(BATCH_ID_BYTES).encode()
        for index, (earlier, more, body) in enumerate(messages[:-1], start=1):
            frames.append(frame(earlier, b"", b"%b%d\r\n%b" % (batch, index, more), body))
        lines = b"%b%d\r\nNats-Batch-Commit: 1\r\n%b" % (batch, len(messages), lines)
    return _ACK.decode(await client.ask(subject, lines, data, seconds=ANSWER_SECONDS, before=frames))


async def drained(client: BusClient, subject: str) -> None:
    """Return when the stream has processed all that reached it before: a message that it must refuse is answered in turn."""
    await client.ask(subject, b"Nats-Expected-Stream: none\r\n", b"", seconds=DRAINED_SECONDS)
