"""Watches: the changes of a selection as a stream of JSON lines, in order of resourceVersion.

An object that enters the selection is ADDED, one that leaves it DELETED. A watch that starts below the oldest kept change,
or reads too slowly and falls behind it, ends with an ERROR event that carries a 410 Status; the client lists again.
Bookmarks give the position of the watch.

Bounds: the number of watches (`streams`); CHUNK changes or SMALL_BYTES written at once, one change where it is larger; the ring
of changes; and unread bytes of the first objects and of large changes (`limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime

import msgspec
from aiohttp import web

from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Snapshot
from cotenant.log.waits import set_within
from cotenant_gateway.http.clients.limits import SMALL_BYTES
from cotenant_gateway.http.clients.streams import OpenStream
from cotenant_gateway.http.queries import Query
from cotenant_gateway.http.routing import RequestTarget
from cotenant_gateway.http.tables import TableFormat, table, with_version
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.read_model.ring import ObjectChange, TooOld
from cotenant_gateway.shell.following import ReadModel
from cotenant_gateway.statuses import ApiError, expired, too_many

CHUNK = 256
BOOKMARK_SECONDS = 30.0
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEvents:
    """Encodes the events of one watch: objects as they are, or as rows of a table."""

    def __init__(self, definition: KindDefinition, form: TableFormat | None, clock: Callable[[], datetime]) -> None:
        self._definition = definition
        self._form = form
        self._clock = clock
        self._columns_sent = False

    def line(self, word: str, snapshot: Snapshot, version: int) -> bytes:
        """Return one event as a line."""
        if self._form is not None:
            metadata = {"resourceVersion": str(version)}
            body = table(
                self._definition.layout, [snapshot], metadata, self._clock(), self._form, with_columns=not self._columns_sent
            )
            self._columns_sent = True
        elif version != snapshot.version:
            body = with_version(snapshot.document, version)
        else:
            body = snapshot.document
        return b'{"type":"%s","object":%s}\n' % (word.encode(), body)

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark: everything up to `version` has been sent."""
        metadata: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
        kind = self._definition.kind
        body = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%s}\n' % msgspec.json.encode(body)


def error_line(error: ApiError) -> bytes:
    """Return the event that ends a watch."""
    return b'{"type":"ERROR","object":%s}\n' % error.body


def seen_change(change: ObjectChange, kind: Kind, selected: Callable[[Snapshot], bool]) -> tuple[str, Snapshot] | None:
    """Return a change as seen by a selection: the event's type and the object, None if unaffected."""
    if change.kind is not kind:
        return None
    before = change.before if change.before is not None and selected(change.before) else None
    after = change.after if change.after is not None and selected(change.after) else None
    if after is not None:
        return ("MODIFIED" if before is not None else "ADDED"), after
    if before is not None:
        return "DELETED", before
    return None


async def watch(
    request: web.BaseRequest,
    stream: OpenStream,
    follower: ReadModel,
    target: RequestTarget,
    query: Query,
    form: TableFormat | None,
    stopping: asyncio.Event,
    clock: Callable[[], datetime],
) -> web.StreamResponse:
    """Answer a watch request; returns when the client leaves, its time is over, or it cannot be continued.

    With bookmarks the last line is one of all that was sent. Raises ApiError (410, 429) before the first line."""
    core = follower.core
    events = WatchEvents(core.kinds.of(target.kind), form, clock)
    selected = query.predicate(target)
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache"})
    response.enable_chunked_encoding()
    from_now = query.version <= 0 or query.initial_events
    try:
        position = core.ring.end if from_now else core.ring.position_after(query.version)
    except TooOld as old:
        raise expired(query.version, old.oldest) from old
    version = core.folded
    initial = deque(_initial(core, target, selected)) if from_now else deque()
    if not stream.hold(sum(snapshot.weight_bytes for snapshot in initial)):
        raise too_many("objects that other watches have yet to read fill the memory reserved for them; try again later")
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        while initial and not stream.gone:
            lines, size, weight = [], 0, 0
            while initial and size < SMALL_BYTES:
                snapshot = initial.popleft()
                line = events.line("ADDED", snapshot, snapshot.version)
                lines.append(line)
                size += len(line)
                weight += snapshot.weight_bytes
            await response.write(b"".join(lines))
            stream.taken(weight)
        if query.initial_events and query.bookmarks:
            await response.write(events.bookmark(version, initial_end=True))
        await _stream(response, stream, follower, core, target, query, selected, events, position, stopping)
        await response.write_eof()
    return response


def _initial(core: GatewayCore, target: RequestTarget, selected: Callable[[Snapshot], bool]) -> Iterator[Snapshot]:
    return (snapshot for snapshot in core.objects(target.kind, target.namespace) if selected(snapshot))


async def _stream(
    response: web.StreamResponse,
    stream: OpenStream,
    follower: ReadModel,
    core: GatewayCore,
    target: RequestTarget,
    query: Query,
    selected: Callable[[Snapshot], bool],
    events: WatchEvents,
    position: int,
    stopping: asyncio.Event,
) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + query.timeout_seconds
    next_bookmark = loop.time() + BOOKMARK_SECONDS
    with follower.changes(stream.wake):
        while not stream.gone and not stopping.is_set() and loop.time() < deadline:
            stream.wake.clear()
            if follower.core is not core:
                await response.write(error_line(expired(core.folded, follower.core.ring.oldest)))
                return
            try:
                changes = core.ring.read(position, CHUNK, SMALL_BYTES)
            except TooOld as old:
                await response.write(error_line(expired(core.folded, old.oldest)))
                return
            position += len(changes)
            lines = []
            for change in changes:
                seen = seen_change(change, target.kind, selected)
                if seen is not None:
                    lines.append(events.line(*seen, change.version))
            if lines and not await stream.send(response, b"".join(lines)):
                await response.write(error_line(expired(changes[0].version, core.folded)))
                return
            if changes:
                continue
            now = loop.time()
            if query.bookmarks and now >= next_bookmark:
                next_bookmark = now + BOOKMARK_SECONDS
                await response.write(events.bookmark(core.folded))
            await set_within(stream.wake, min(1.0, max(deadline - now, 0.01)))
        if query.bookmarks:
            # Changes may have been folded since the last read: the client resumes here, and would miss them.
            with contextlib.suppress(TooOld):
                await response.write(events.bookmark(core.ring.complete_to(position, core.folded)))
