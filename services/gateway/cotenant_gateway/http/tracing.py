"""The span of an HTTP request, and the trace of its writes and log lines.

In: a request, its header `traceparent`. Out: the same answer; if spans are sent, one with method, route, status and user.
A request without a valid traceparent begins a trace. If no spans are sent, only those that write get one, for their events
and log lines. Routes are those of served resources, so names are few. Attributes are OpenTelemetry's for HTTP servers:
https://opentelemetry.io/docs/specs/semconv/http/http-spans/.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from aiohttp import web

from cotenant.api.definitions import Registry
from cotenant.model.trace_context import CURRENT, parsed
from cotenant_gateway.http.app import Handler
from cotenant_gateway.http.auth.access import OPEN_PATHS, user_of
from cotenant_gateway.http.facts.handlers import FACTS_PREFIX
from cotenant_gateway.http.routing import target_of

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

METRICS = "/metrics"
_FACTS = frozenset({"events", "explain", "deadletters", "status", "nodes"})
_READING = frozenset({"GET", "HEAD"})
_METHODS = _READING | {"POST", "PUT", "PATCH", "DELETE"}


def traced(handler: Handler, tracing: Tracing | None, kinds: Registry) -> Handler:
    """Return a handler that does the same within the request's trace. `tracing` None: no spans are sent."""

    async def without_spans(request: web.BaseRequest) -> web.StreamResponse:
        given = parsed(request.headers.get("traceparent", ""))
        CURRENT.set(given or (new_trace() if request.method not in _READING else ""))
        return await handler(request)

    if tracing is None:
        return without_spans
    sending = tracing

    async def with_span(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        if path in OPEN_PATHS or path == METRICS:
            CURRENT.set("")
            return await handler(request)
        route = route_of(path, kinds)
        method = request.method if request.method in _METHODS else "_OTHER"
        name = f"{method} {route}"
        parent = parsed(request.headers.get("traceparent", ""))
        own = sending.begin(parent, name)
        CURRENT.set(own)
        began_ns, status = time.time_ns(), 499  # the client has gone (nginx' code)
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            sending.record(
                name,
                own,
                parent,
                began_ns,
                time.time_ns(),
                {
                    "http.request.method": method,
                    "http.route": route,
                    "http.response.status_code": status,
                    "user.name": _user_name(request),
                },
                served=True,
                error=str(status) if status >= 500 else "",
            )

    return with_span


def new_trace() -> str:
    """Return the traceparent of a request that came without one."""
    return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-01"


def route_of(path: str, kinds: Registry) -> str:
    """Return a path with placeholders for names; paths that are not served have no route of their own."""
    target = target_of(path, kinds)
    if target is None:
        first = path.removeprefix(FACTS_PREFIX + "/").partition("/")[0] if path.startswith(FACTS_PREFIX + "/") else ""
        return f"{FACTS_PREFIX}/{first}" if first in _FACTS else "other"
    kind = target.kind
    route = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    if target.namespace:
        route += "/namespaces/{namespace}"
    route += f"/{kind.plural}"
    if target.name:
        route += "/{name}"
    known = target.subresource in ("status", "resize", "eviction", "log", "binding", "")
    return f"{route}/{target.subresource if known else 'other'}" if target.subresource else route


def _user_name(request: web.BaseRequest) -> str:
    try:
        return user_of(request).name
    except KeyError:
        return ""
