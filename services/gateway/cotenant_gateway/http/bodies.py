"""Bodies of requests and answers: JSON or protobuf in, JSON out; DeleteOptions and Eviction; dry runs.

In: a request. Out: its body, or an ApiError (400, 413, 415).
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, TransferEncodingError
from aiohttp.web_protocol import RequestPayloadError

from cotenant_gateway.http.clients.connections import connection_of
from cotenant_gateway.http.protobuf import CONTENT_TYPE as PROTOBUF
from cotenant_gateway.http.protobuf import ProtobufError, as_json
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.statuses import (
    ApiError,
    bad_request,
    encodable,
    request_timeout,
    too_large,
    too_many,
    unsupported_media,
)

MAX_BODY_BYTES = 2 * 1024 * 1024
_JSON = "application/json"


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


class _EvictionMeta(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""


class _Eviction(msgspec.Struct, rename="camel"):
    kind: str = ""
    metadata: _EvictionMeta | None = None
    delete_options: _DeleteOptions | None = None
    dry_run: list[str] | None = None


_DELETE_OPTIONS = msgspec.json.Decoder(_DeleteOptions)
_EVICTION = msgspec.json.Decoder(_Eviction)


def json_response(body: bytes, status: int = 200) -> web.Response:
    """Return a JSON answer."""
    return web.Response(body=body, status=status, content_type=_JSON)


def _hold(request: web.BaseRequest, size: int) -> None:
    connection = connection_of(request)
    if not connection.owner.reserve_request(connection, size):
        raise too_many("the bodies of the requests in progress fill the memory reserved for them; try again later")


async def _arriving(request: web.BaseRequest) -> bytes:
    """Return a body, counted as it arrives: a large Content-Length alone reserves nothing."""
    seconds = connection_of(request).owner.limits.body_seconds
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            while piece := await request.content.readany():
                _hold(request, len(piece))
                pieces.append(piece)
                size += len(piece)
                if size > MAX_BODY_BYTES:
                    break
    except TimeoutError as error:
        raise request_timeout(f"the body of the request did not arrive within {seconds:.0f} s") from error
    except (RequestPayloadError, ContentEncodingError, TransferEncodingError) as error:
        raise bad_request(encodable(f"the body does not match its head: {error}"[:300])) from error
    return b"".join(pieces)


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body; its bytes are counted until the request ends. Raises ApiError (408, 413, 415, 429)."""
    length = request.content_length
    if length is not None and length > MAX_BODY_BYTES:
        raise too_large(MAX_BODY_BYTES)
    content = request.content
    if content.is_eof():
        # It arrived with its head, as small bodies do: no need to wait.
        body = content.read_nowait()
        _hold(request, len(body))
    else:
        body = await _arriving(request)
    if len(body) > MAX_BODY_BYTES:
        raise too_large(MAX_BODY_BYTES)
    if request.content_type != PROTOBUF:
        return body
    try:
        return as_json(body)
    except ProtobufError as error:
        raise ApiError(415, "UnsupportedMediaType", str(error)) from error


def check_json(request: web.BaseRequest) -> None:
    """Refuse a body that is neither JSON nor protobuf (415); without a header it is JSON. Raises ApiError."""
    if request.headers.get("Content-Type") and request.content_type not in (_JSON, PROTOBUF):
        raise unsupported_media(request.content_type, (_JSON, PROTOBUF))


def is_dry_run(request: web.BaseRequest) -> bool:
    """Return whether the query requests a dry run."""
    return bool(request.query_string) and request.query.get("dryRun") == "All"


async def read_deletion(request: web.BaseRequest) -> tuple[DeletionRequest, bool]:
    """Return the options of a DELETE, and whether it is a dry run. Raises ApiError."""
    body = await read_body(request)
    if body:
        check_json(request)
    options = _DeleteOptions()
    if body.strip():
        try:
            options = _DELETE_OPTIONS.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"DeleteOptions cannot be read: {error}") from error
    grace = options.grace_period_seconds
    text = request.query.get("gracePeriodSeconds", "")
    if text:
        if not text.isascii() or not text.isdigit() or len(text) > 9:
            raise bad_request(f"gracePeriodSeconds: Invalid value: {text[:20]!r}: must be a number that is not negative")
        grace = int(text)
    if grace is not None and grace < 0:
        raise bad_request("gracePeriodSeconds must not be negative")
    conditions = options.preconditions or _Preconditions()
    deletion = DeletionRequest(grace, conditions.uid or "", conditions.resource_version or "")
    return deletion, is_dry_run(request) or "All" in (options.dry_run or [])


class Eviction(msgspec.Struct, frozen=True):
    """A POST to pods/eviction."""

    uid: str
    grace_period_seconds: int | None
    dry_run: bool


async def read_eviction(request: web.BaseRequest) -> Eviction:
    """Return the content of an Eviction. Raises ApiError."""
    check_json(request)
    body = await read_body(request)
    try:
        eviction = _EVICTION.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"Eviction cannot be read: {error}") from error
    if eviction.kind not in ("", "Eviction"):
        raise bad_request(f"expected an Eviction, found {eviction.kind}")
    options = eviction.delete_options or _DeleteOptions()
    conditions = options.preconditions or _Preconditions()
    dry_run = is_dry_run(request) or "All" in [*(options.dry_run or []), *(eviction.dry_run or [])]
    return Eviction(conditions.uid or "", options.grace_period_seconds, dry_run)
