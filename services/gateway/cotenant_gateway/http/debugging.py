"""`/debug`: what the scheduler would do with a pod, its gangs and reservations, and the quotas, for debugging.

In: GET requests. Out: what the scheduler answers to `SchedulerQuestion` and quota-tree to `QuotaQuestion`: tables as Markdown,
the others as JSON.

    /debug/scores/<namespace>/<pod>[?rows=N]       nodes that can take the pod, with scores by plugin (20; at most 1,000)
    /debug/filters/<namespace>/<pod>[?rows=N]      nodes that cannot, each with the filter that refuses it
    /debug/apis/v1/plugins/Coscheduling/gangs      every gang; .../gang/<namespace>/<name>: one
    /debug/apis/v1/plugins/Reservation/nodeReservations/<node>    the reservations of a node
    /debug/apis/v1/plugins/ElasticQuota/quotas     every quota; ?tree=ID: of one tree; .../quotas/<name>: one;
                                                   ?includePods=true: with their pods

The contents are those of Koordinator's scheduler (`--debug-scores`, `--debug-filters`, its services API). Callers need `get`
on the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec
from aiohttp import web

from cotenant.events.requests import (
    MOST_DEBUG_ROWS,
    QUOTA_DEBUG,
    SCHEDULER_DEBUG,
    DebugAnswer,
    QuotaQuestion,
    SchedulerQuestion,
)
from cotenant_gateway.http.logs import Ask
from cotenant_gateway.statuses import ApiError, bad_request, no_such_path, unavailable

DEBUG_PREFIX = "/debug/"
_GANGS = "apis/v1/plugins/Coscheduling"
_QUOTAS = "apis/v1/plugins/ElasticQuota/quotas"
_RESERVATIONS = "apis/v1/plugins/Reservation/nodeReservations/"


class Debugging:
    """Answers below DEBUG_PREFIX, with what the services answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def answer(self, path: str, query: Mapping[str, str]) -> web.StreamResponse:
        """Return the service's answer. Raises ApiError."""
        question = _question(path[len(DEBUG_PREFIX) :], query)
        service, subject = (
            ("quota-tree", QUOTA_DEBUG) if isinstance(question, QuotaQuestion) else ("the scheduler", SCHEDULER_DEBUG)
        )
        try:
            body, code, refusal = await self._ask(subject, msgspec.json.encode(question))
        except TimeoutError:
            raise unavailable(f"{service} does not answer") from None
        if code:
            raise unavailable(f"{service} refuses to answer: {refusal}")
        try:
            found = msgspec.json.decode(body, type=DebugAnswer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise unavailable(f"the answer of {service} cannot be read: {error}") from None
        if found.error:
            raise ApiError(404, "NotFound", found.error)
        return web.Response(text=found.text, content_type="application/json" if found.json else "text/markdown")


def _question(path: str, query: Mapping[str, str]) -> SchedulerQuestion | QuotaQuestion:
    if path == f"{_GANGS}/gangs":
        return SchedulerQuestion(about="gangs")
    if path == _QUOTAS:
        return QuotaQuestion(tree=query.get("tree"), pods=_includes_pods(query))
    if path.startswith(f"{_QUOTAS}/"):
        name = unquote(path.removeprefix(f"{_QUOTAS}/"))
        if name and "/" not in name:
            return QuotaQuestion(name=name, tree=query.get("tree"), pods=_includes_pods(query))
        raise no_such_path()
    if path.startswith(_RESERVATIONS):
        node = unquote(path.removeprefix(_RESERVATIONS))
        if node and "/" not in node:
            return SchedulerQuestion(about="reservations", name=node)
        raise no_such_path()
    match [unquote(part) for part in path.removeprefix(f"{_GANGS}/").split("/")]:
        case ["gang", namespace, name] if path.startswith(_GANGS) and name:
            return SchedulerQuestion(about="gang", namespace=namespace, name=name)
        case [("scores" | "filters") as about, namespace, name] if not path.startswith(_GANGS) and name:
            return SchedulerQuestion(about=about, namespace=namespace, name=name, rows=_rows(query.get("rows", "20")))
    raise no_such_path()


def _includes_pods(query: Mapping[str, str]) -> bool:
    text = query.get("includePods", "false")
    if text not in ("true", "false"):
        raise bad_request("includePods must be true or false")
    return text == "true"


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_DEBUG_ROWS):
        raise bad_request(f"rows must be a whole number from 1 to {MOST_DEBUG_ROWS}")
    return int(text)
