"""pods/log: the end of a container's log, requested from the node's executor over NATS; followed by polling.

The executor has no stream: following polls every FOLLOW_SECONDS and prints the text after the last one. If more
was written in between than fits into one answer, a separate line reports the gap.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from aiohttp import web

from cotenant.api.snapshots import Snapshot
from cotenant.events.requests import MAX_LOG_ANSWER_BYTES, LogsRequest, logs_subject
from cotenant.kinds.pods import PODS
from cotenant_gateway.http.clients.limits import StreamKind
from cotenant_gateway.http.clients.streams import OpenStream, OpenStreams
from cotenant_gateway.statuses import ApiError, bad_request, not_found, unavailable

FOLLOW_SECONDS = 0.5
ANSWER_SECONDS = 5.0

Ask = Callable[[str, bytes], Awaitable[tuple[bytes, int, str]]]
"""Sends a request to a subject; returns the answer, and the code and text of a refusal (0 if none). Raises TimeoutError."""


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise bad_request(f"{name}: Invalid value: {text[:20]!r}: must be a number that is not negative")
    return int(text)


def _yes(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in ("1", "true")


class LogReader:
    """Answers pods/log."""

    def __init__(
        self, ask: Ask, is_live: Callable[[str, str, str], bool], streams: OpenStreams, stopping: asyncio.Event
    ) -> None:
        """`is_live(namespace, name, uid)`: whether more output may follow."""
        self._ask = ask
        self._is_live = is_live
        self._streams = streams
        self._stopping = stopping

    async def answer(self, request: web.BaseRequest, pod: Snapshot) -> web.StreamResponse:
        """Return the log as text, or as a stream that follows it."""
        query = request.query
        node = pod.fields.get("spec.nodeName", "")
        if not node:
            raise bad_request(f'pod "{pod.address.name}" does not have a host assigned')
        limit = _number(query, "limitBytes")
        wanted = LogsRequest(
            namespace=pod.address.namespace,
            name=pod.address.name,
            uid=pod.uid,
            container=query.get("container", ""),
            tail_lines=_number(query, "tailLines"),
            limit_bytes=MAX_LOG_ANSWER_BYTES if limit is None else limit,
            previous=_yes(query, "previous"),
        )
        if not _yes(query, "follow"):
            return web.Response(body=await self._read(node, wanted), content_type="text/plain", charset="utf-8")
        with self._streams.open(request, StreamKind.LOG) as stream:
            return await self._follow(request, stream, node, wanted, await self._read(node, wanted))

    async def _read(self, node: str, wanted: LogsRequest) -> bytes:
        try:
            text, code, refusal = await self._ask(logs_subject(node), msgspec.json.encode(wanted))
        except TimeoutError as error:
            raise unavailable(f"the executor of node {node} does not answer: its logs cannot be read now") from error
        if code == 404:
            raise not_found_log(wanted.name, refusal)
        if code:
            raise ApiError(400 if code < 500 else 500, "BadRequest" if code < 500 else "InternalError", refusal)
        return text

    async def _follow(
        self, request: web.BaseRequest, stream: OpenStream, node: str, wanted: LogsRequest, text: bytes
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-cache"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        whole = msgspec.structs.replace(wanted, tail_lines=None, limit_bytes=MAX_LOG_ANSWER_BYTES)
        with contextlib.suppress(ConnectionError):
            await response.write(text)
            last = await self._whole(node, whole, text)
            await response.write(new_text(text, last))
            while not self._stopping.is_set() and not stream.gone:
                live = self._is_live(wanted.namespace, wanted.name, wanted.uid)
                now = await self._whole(node, whole, last)
                if now != last:
                    await response.write(new_text(last, now))
                    last = now
                if not live:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(FOLLOW_SECONDS):
                        await stream.wake.wait()
            await response.write_eof()
        return response

    async def _whole(self, node: str, wanted: LogsRequest, last: bytes) -> bytes:
        """A restarting executor or a pod that has just ended does not end a followed log: it counts as no new text."""
        try:
            return await self._read(node, wanted)
        except ApiError:
            return last


def not_found_log(name: str, refusal: str) -> ApiError:
    """404 with the executor's message."""
    error = not_found(PODS, name)
    return ApiError(404, "NotFound", refusal or str(error), error.status.details)


def new_text(last: bytes, now: bytes) -> bytes:
    """Return the text after `last`, given the end of the log now. Both are ends of one growing text."""
    if not last or now == last:
        return b"" if now == last else now
    if now.startswith(last):
        return now[len(last) :]
    # The answer is bounded: it begins later than the last one did. The overlap is the end of that and near the start of this.
    probe = last[-4096:]
    place = now.rfind(probe)
    if place >= 0:
        return now[place + len(probe) :]
    return b"[cotenant: output was written faster than it could be followed; some is left out]\n" + now
