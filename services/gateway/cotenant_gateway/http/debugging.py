"""`/debug`: what the scheduler would do with a pod, its nodes, gangs and reservations, and the quotas, for debugging.

In: GET requests. Out: what the scheduler answers to `SchedulerQuestion` and quota-tree to `QuotaQuestion`: tables as Markdown,
the others as JSON.

    /debug/scores/<namespace>/<pod>[?rows=N]       nodes that can take the pod, with scores by plugin (20; at most 1,000)
    /debug/filters/<namespace>/<pod>[?rows=N]      nodes that cannot, each with the filter that refuses it
    /debug/apis/v1/__services__                    these paths
    /debug/apis/v1/nodes/<node>                    a node: what it offers, what is requested and left, its pods
    /debug/apis/v1/plugins/LoadAwareScheduling/node/<node>        what its pods use beyond what is measured
    /debug/apis/v1/plugins/Coscheduling/gangs      every gang; .../gang/<namespace>/<name>: one
    /debug/apis/v1/plugins/Reservation/nodeReservations/<node>    the reservations of a node
    /debug/apis/v1/plugins/ElasticQuota/quotas     every quota; ?tree=ID: of one tree; .../quotas/<name>: one;
                                                   ?includePods=true: with their pods
    /debug/elasticQuota                            the quotas' topology, as Koordinator's webhook shows it

The contents are those of Koordinator's scheduler (`--debug-scores`, `--debug-filters`, its services API). Callers need `get`
on the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
Question = SchedulerQuestion | QuotaQuestion


class Debugging:
    """Answers below DEBUG_PREFIX, with what the services answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def answer(self, path: str, query: Mapping[str, str]) -> web.StreamResponse:
        """Return the service's answer. Raises ApiError."""
        if path == DEBUG_PREFIX + _SERVICES:
            return web.Response(text=_services(), content_type="application/json")
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


def _question(path: str, query: Mapping[str, str]) -> Question:
    for pattern, make in _ROUTES.items():
        names = _names_in(path, pattern)
        if names is not None:
            return make(names, query)
    raise no_such_path()


def _names_in(path: str, pattern: str) -> list[str] | None:
    """Return what stands in a path where the pattern has a `:name`; None where the path is another one."""
    given, wanted = path.split("/"), pattern.split("/")
    if len(given) != len(wanted):
        return None
    names = []
    for have, want in zip(given, wanted, strict=True):
        if want.startswith(":") and have:
            names.append(unquote(have))
        elif have != want:
            return None
    return names


def _services() -> str:
    """Return the paths in the form of Koordinator's scheduler: by method, names of things as `:name`."""
    paths = sorted(DEBUG_PREFIX + pattern for pattern in (_SERVICES, *_ROUTES))
    return msgspec.json.encode({"GET": paths}).decode()


def _of_quotas(names: Sequence[str], query: Mapping[str, str]) -> QuotaQuestion:
    return QuotaQuestion(name=names[0] if names else "", tree=query.get("tree"), pods=_includes_pods(query))


def _of_node(about: str) -> Callable[[Sequence[str], Mapping[str, str]], SchedulerQuestion]:
    return lambda names, _: SchedulerQuestion(about=about, name=names[0])


def _of_pod(about: str) -> Callable[[Sequence[str], Mapping[str, str]], SchedulerQuestion]:
    def make(names: Sequence[str], query: Mapping[str, str]) -> SchedulerQuestion:
        namespace, name = names
        return SchedulerQuestion(about=about, namespace=namespace, name=name, rows=_rows(query.get("rows", "20")))

    return make


def _includes_pods(query: Mapping[str, str]) -> bool:
    text = query.get("includePods", "false")
    if text not in ("true", "false"):
        raise bad_request("includePods must be true or false")
    return text == "true"


def _rows(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MOST_DEBUG_ROWS):
        raise bad_request(f"rows must be a whole number from 1 to {MOST_DEBUG_ROWS}")
    return int(text)


_SERVICES = "apis/v1/__services__"
_ROUTES: Mapping[str, Callable[[Sequence[str], Mapping[str, str]], Question]] = {
    "scores/:namespace/:name": _of_pod("scores"),
    "filters/:namespace/:name": _of_pod("filters"),
    "apis/v1/nodes/:nodeName": _of_node("node"),
    "apis/v1/plugins/LoadAwareScheduling/node/:nodeName": _of_node("load"),
    "apis/v1/plugins/Reservation/nodeReservations/:nodeName": _of_node("reservations"),
    "apis/v1/plugins/Coscheduling/gangs": lambda _, __: SchedulerQuestion(about="gangs"),
    "apis/v1/plugins/Coscheduling/gang/:namespace/:name": lambda names, _: SchedulerQuestion(
        about="gang", namespace=names[0], name=names[1]
    ),
    "elasticQuota": lambda _, __: QuotaQuestion(topology=True),
    "apis/v1/plugins/ElasticQuota/quotas": _of_quotas,
    "apis/v1/plugins/ElasticQuota/quotas/:name": _of_quotas,
}
"""What each path below DEBUG_PREFIX asks."""
