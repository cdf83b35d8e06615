"""The HTTP application: from a path to its handler, and every error to a Status.

In: requests. Out: Kubernetes-shaped answers. Access is checked here, for all handlers (`AccessControl`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from aiohttp import web

from cotenant.api.definitions import Registry
from cotenant.log.contract import LogUnavailableError
from cotenant.runtime.process import VERSION
from cotenant_gateway.access.attributes import of_fact, of_path, of_resource
from cotenant_gateway.http.auth.access import OPEN_PATHS, AccessControl
from cotenant_gateway.http.bodies import MAX_BODY_BYTES, json_response
from cotenant_gateway.http.clients.connections import connection_of
from cotenant_gateway.http.clients.large_answers import sent_in_pieces
from cotenant_gateway.http.debugging import DEBUG_PREFIX as DEBUG
from cotenant_gateway.http.debugging import Debugging
from cotenant_gateway.http.discovery import (
    api_group,
    api_groups,
    api_resources,
    api_versions,
    version_document,
)
from cotenant_gateway.http.facts.handlers import FACTS_PREFIX, FactHandlers
from cotenant_gateway.http.openapi.documents import (
    NO_SCHEMAS,
    OPENAPI_V2,
    OPENAPI_V2_PROTOBUF,
    OPENAPI_V2_PROTOBUF_SENT,
    openapi_group,
    openapi_index,
    openapi_v2,
)
from cotenant_gateway.http.resources.handlers import ResourceHandlers
from cotenant_gateway.http.routing import target_of
from cotenant_gateway.statuses import ApiError, bad_request, internal, no_such_path, timeout, too_large, unavailable

logger = logging.getLogger(__name__)

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_READING = frozenset({"GET", "HEAD"})
_REPEATABLE = _READING | {"DELETE"}
"""Requests that may be carried out twice."""
_NO_QUERY: Mapping[str, str] = {}
Observe = Callable[[str, int, float], None]
"""Called for every answer: verb, status, seconds."""


def discovery_document(path: str, kinds: Registry) -> dict[str, object] | dict[str, str] | None:
    """Return the discovery document of a path, None where there is none."""
    parts = path.strip("/").split("/")
    document: dict[str, object] | dict[str, str] | None = None
    if parts == ["version"]:
        document = version_document(VERSION)
    elif parts == ["api"]:
        document = api_versions()
    elif parts == ["apis"]:
        document = api_groups(kinds)
    elif parts == ["api", "v1"]:
        document = api_resources(kinds, "", "v1")
    elif parts[0] == "apis" and len(parts) == 2:
        document = api_group(kinds, parts[1])
    elif parts[0] == "apis" and len(parts) == 3:
        document = api_resources(kinds, parts[1], parts[2])
    elif parts == ["openapi", "v2"]:
        document = openapi_v2(kinds)
    elif parts[:2] == ["openapi", "v3"]:
        if len(parts) == 2:
            document = openapi_index(kinds)
        elif parts[2:] == ["api", "v1"]:
            document = openapi_group(kinds, "", "v1")
        elif len(parts) == 5 and parts[2] == "apis":
            document = openapi_group(kinds, parts[3], parts[4])
    return document


def request_handler(
    access: AccessControl,
    resources: ResourceHandlers,
    facts: FactHandlers | None,
    routes: Sequence[web.RouteDef],
    observe: Observe | None = None,
    debugging: Debugging | None = None,
) -> Handler:
    """Return the handler of all requests. `routes` are those that every service serves (/metrics, /healthz, /readyz)."""
    kinds = resources.kinds
    plain = {route.path: route.handler for route in routes}

    async def dispatch(request: web.BaseRequest) -> web.StreamResponse:
        path = request.rel_url.raw_path
        access.check_origin(request)
        target = target_of(path, kinds)
        if target is not None:
            about = target.kind, target.namespace, target.name, target.subresource
            query = request.query if request.method in _READING and request.query_string else _NO_QUERY
            await access.admit(request, of_resource(request.method, *about, query))
            return await resources.answer(request, target)
        if facts is not None and path.startswith(FACTS_PREFIX + "/"):
            await access.admit(request, of_fact(request.method, path[len(FACTS_PREFIX) :], request.query))
            return await facts.answer(request, path[len(FACTS_PREFIX) :])
        if path not in OPEN_PATHS:
            await access.admit(request, of_path(request.method, path))
        if path == OPENAPI_V2 and request.method == "GET" and OPENAPI_V2_PROTOBUF in request.headers.get("Accept", ""):
            return web.Response(body=NO_SCHEMAS, headers={"Content-Type": OPENAPI_V2_PROTOBUF_SENT})
        if debugging is not None and path.startswith(DEBUG) and request.method == "GET":
            return await debugging.answer(path, request.query)
        document = discovery_document(path, kinds)
        if path in plain and request.method == "GET":
            answer: web.StreamResponse = await plain[path](request)  # type: ignore[arg-type]
            return answer
        if document is None or request.method not in ("GET", "HEAD"):
            raise no_such_path()
        return json_response(msgspec.json.encode(document))

    async def sent(request: web.BaseRequest) -> web.StreamResponse:
        return await sent_in_pieces(request, await dispatch(request))

    async def answered(request: web.BaseRequest) -> web.StreamResponse:
        started = time.perf_counter()
        connection = connection_of(request)
        connection.begin()
        try:
            response = await answer_errors(request, sent)
        finally:
            connection.end()
        access.answered(request, response.status)
        if observe is not None:
            observe(request.method, response.status, time.perf_counter() - started)
        return response

    return answered


async def answer_errors(request: web.BaseRequest, dispatch: Handler) -> web.StreamResponse:
    """Turn errors into a Status; unexpected ones are logged with their trace and answered with 500."""
    try:
        return await dispatch(request)
    except ApiError as error:
        return refusal(error)
    except RecursionError:
        return refusal(bad_request("the JSON document is nested too deeply"))
    except web.HTTPRequestEntityTooLarge:
        return refusal(too_large(MAX_BODY_BYTES))
    except LogUnavailableError as error:
        return refusal(unavailable(f"the log does not answer ({error})"), repeatable=request.method in _REPEATABLE)
    except ConnectionResetError:
        raise
    except TimeoutError as late:
        late_answer = timeout(f"the log did not answer in time{f': {late}' if str(late) else ''}")
        return refusal(late_answer, repeatable=request.method in _REPEATABLE)
    except Exception as failure:
        if connection_of(request).gone:
            # The answer could not be sent, and there is no client to read another.
            raise ConnectionResetError("the client is gone") from failure
        logger.exception("%s %s failed", request.method, request.rel_url.path)
        return refusal(internal(f"{type(failure).__name__}: {failure}"))


def refusal(error: ApiError, *, repeatable: bool = True) -> web.Response:
    """Return the answer for an error; temporary errors carry a Retry-After, upon which clients such as kubectl repeat the
    request by themselves. A write that is not `repeatable` may have been carried out: its user has to look first."""
    response = json_response(error.body, error.code)
    if repeatable and error.code in (429, 503, 504):
        response.headers["Retry-After"] = "1"
    elif error.code == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="cotenant"'
    return response
