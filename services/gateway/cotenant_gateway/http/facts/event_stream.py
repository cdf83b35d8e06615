"""`events`: LOG's events as JSON lines, merged with those of EXECUTION in order of time, and with `follow` later ones.

In: the query `since=SEQ&for=KIND/NAME&follow=1&namespace=NS`. Out: one line an event, until the client is gone.
Of EXECUTION the last EXECUTION_SHOWN events are shown, the newest HELD_BYTES of their lines; a reader holds at most HELD_BYTES.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime

import msgspec
from aiohttp import web

from cotenant.events.envelope import Event
from cotenant.explain.causes import (
    concerns,
    event_line,
)
from cotenant.log.contract import EXECUTION, LOG
from cotenant.log.nats.log import NatsLog
from cotenant.log.nats.reader import NatsReader
from cotenant_gateway.http.clients.limits import MIB
from cotenant_gateway.http.clients.streams import OpenStream
from cotenant_gateway.statuses import bad_request

SILENT_SECONDS = 1.5
PULL = 500
EXECUTION_SHOWN = 2000
HELD_BYTES = 2 * MIB
"""A message is at most 1 MiB, a dead letter 64 KiB."""
EXECUTION_FILTERS = ("execution.>", "deadletter.>")


class Selection(msgspec.Struct, frozen=True):
    """What the query asks for."""

    kind: str
    namespace: str
    name: str

    def line(self, event: Event) -> bytes:
        """Return an event as a line; empty where it is not wanted."""
        if not concerns(event, self.kind, self.namespace, self.name):
            return b""
        return msgspec.json.encode(event_line(event)) + b"\n"


class Beside(msgspec.Struct, frozen=True, gc=False):
    """A line of EXECUTION that waits for its place among those of LOG."""

    time: datetime | None
    line: bytes


class EventStream:
    """Answers with events of the log."""

    def __init__(self, log: NatsLog, stopping: asyncio.Event) -> None:
        self._log = log
        self._stopping = stopping

    async def answer(self, request: web.BaseRequest, stream: OpenStream) -> web.StreamResponse:
        """Answer with the events that the query selects."""
        query = request.query
        since = query.get("since", "")
        if since and not (since.isascii() and since.isdigit() and len(since) < 20):
            raise bad_request(f"since: Invalid value: {since[:20]!r}: must be a sequence of LOG")
        about, slash, name = query.get("for", "").partition("/")
        if about and not (slash and name):
            raise bad_request(f"for: Invalid value: {query['for'][:80]!r}: must be KIND/NAME")
        wanted = Selection(about.lower(), query.get("namespace", ""), name)
        follow = query.get("follow", "").lower() in ("1", "true")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-cache"})
        begins = await self._log.first_sequence(LOG) if since else 0
        if since and int(since) + 1 < begins:
            response.headers["Warning"] = f'299 - "{since} is older than what LOG keeps, which begins at {LOG}:{begins}"'
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            async with contextlib.aclosing(self._stream(stream, wanted, int(since or "0"), follow=follow)) as found:
                async for lines in found:
                    if lines:
                        await response.write(lines)
            await response.write_eof()
        return response

    async def _stream(
        self, stream: OpenStream, wanted: Selection, since: int, *, follow: bool
    ) -> AsyncGenerator[bytes]:
        """Lines of LOG from a sequence on, merged with those of EXECUTION in order of time; with `follow` later ones too, until
        the client is gone."""
        end, execution_end = await self._log.last_sequence(LOG), await self._log.last_sequence(EXECUTION)
        beside = await self._last_of_execution(execution_end, wanted)
        log = await self._log.follow(LOG, (">",), after=since)
        log.loaded()
        log.max_behind = 0
        log.hold_at_most(HELD_BYTES)
        execution: NatsReader | None = None
        try:
            began: datetime | None = None
            while log.position < end and not stream.gone:
                events = await log.pull(PULL, SILENT_SECONDS)
                if not events:
                    break
                if began is None:
                    began = events[0].time
                yield b"".join(_merged(wanted, events, beside, began if since else None))
            yield b"".join(held.line for held in beside if not since or began is None or _is_since(held.time, began))
            if not follow or stream.gone:
                return
            execution = await self._log.follow(EXECUTION, EXECUTION_FILTERS, after=execution_end)
            execution.loaded()
            execution.hold_at_most(HELD_BYTES)
            while not self._stopping.is_set() and not stream.gone:
                pulls = await asyncio.gather(log.pull(PULL, 0.5), execution.pull(PULL, 0.5))
                for events in pulls:
                    yield b"".join(map(wanted.line, events))
        finally:
            await log.close()
            if execution is not None:
                await execution.close()

    async def _last_of_execution(self, end: int, wanted: Selection) -> deque[Beside]:
        """The last events of EXECUTION that are wanted, at most EXECUTION_SHOWN of all and HELD_BYTES."""
        found: deque[Beside] = deque()
        held = 0
        if not end:
            return found
        reader = await self._log.follow(EXECUTION, EXECUTION_FILTERS, after=max(0, end - EXECUTION_SHOWN))
        reader.loaded()
        reader.hold_at_most(HELD_BYTES)
        try:
            while reader.position < end:
                events = await reader.pull(PULL, SILENT_SECONDS)
                if not events:
                    break
                for event in events:
                    line = wanted.line(event)
                    if line:
                        found.append(Beside(event.time, line))
                        held += len(line)
                while held > HELD_BYTES:
                    held -= len(found.popleft().line)
        finally:
            await reader.close()
        return found


def _is_since(time: datetime | None, began: datetime | None) -> bool:
    return began is None or time is None or time >= began


def _merged(wanted: Selection, events: Sequence[Event], beside: deque[Beside], began: datetime | None) -> Iterator[bytes]:
    """Yield the lines of LOG's events with those of EXECUTION before each that were earlier; takes them from `beside`."""
    for event in events:
        while beside and event.time is not None and ((earliest := beside[0].time) is None or earliest <= event.time):
            earlier = beside.popleft()
            if _is_since(earlier.time, began):
                yield earlier.line
        yield wanted.line(event)
