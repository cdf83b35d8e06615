"""Direct gets: several stored messages in one answer, from whichever replica is asked.

In: a stream and a request (`multi_last`, or `next_by_subj` with `batch`). Out: the messages in order of sequence, and how the
answer ended. A replica may be behind; it answers with a prefix of the stream.

Bound: ANSWER_SECONDS for the whole answer; its size is the request's `max_bytes` and one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from cotenant.log.nats.frames import inline_status, parse_headers
from cotenant.log.nats.jetstream import ANSWER_SECONDS
from cotenant.log.nats.wire import BusClient

MAX_GET_BYTES = 8 << 20

Message = tuple[bytes, int, bytes, bytes]
"""Subject, sequence, header block, data."""


class DirectAnswer:
    """The answer to a direct get."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.ended = asyncio.Event()
        self.status = ""
        """204 at the end of messages, 404 if there are none, 503 if no stream answers, else the error."""
        self.status_text = ""
        self.pending = 0
        """Messages that the answer left out."""
        self.up_to = 0
        """The end of the stream on the replica that answered, where the answer says so (`multi_last`)."""

    def take(self, _subject: bytes, _reply: bytes, block: bytes, data: bytes) -> None:
        """Take a message of the answer, or its end."""
        status = inline_status(block)
        if status:
            headers = parse_headers(block)
            self.status = status
            self.status_text = block.split(b"\r\n", 1)[0].decode(errors="replace")
            self.pending = int(headers.get("Nats-Num-Pending", "0"))
            self.up_to = int(headers.get("Nats-UpTo-Sequence", "0"))
            self.ended.set()
            return
        self.messages.append((server_header(block, b"Nats-Subject"), int(server_header(block, b"Nats-Sequence")), block, data))


async def direct_get(client: BusClient, stream: str, request: Mapping[str, Any]) -> DirectAnswer:
    """Ask once. Raises API_ERRORS without a whole answer in time."""
    answer = DirectAnswer()
    inbox = client.new_inbox()
    subscription = await client.subscribe_raw(inbox, answer.take)
    try:
        await client.publish(f"{client.api}.DIRECT.GET.{stream}", msgspec.json.encode(request), reply=inbox)
        async with asyncio.timeout(ANSWER_SECONDS):
            await answer.ended.wait()
    finally:
        await client.unsubscribe_raw(subscription)
    return answer


def server_header(block: bytes, name: bytes) -> bytes:
    """Return a header that the server has added: the last one of its name. Raises ValueError where it is missing."""
    start = block.rindex(b"\r\n%b: " % name) + len(name) + 4
    return block[start : block.index(b"\r\n", start)]
