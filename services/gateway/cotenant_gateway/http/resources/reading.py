"""Reading resources: get, list, watch, as objects or as Tables.

In: a GET whose path is a `RequestTarget`, and its query. Out: a response, or an ApiError that the application turns into a
Status.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Snapshot
from cotenant.kinds.events import EVENTS
from cotenant_gateway.http.bodies import (
    json_response,
)
from cotenant_gateway.http.clients.limits import StreamKind
from cotenant_gateway.http.clients.streams import OpenStreams
from cotenant_gateway.http.facts.node_actions import NodeActions, node_of
from cotenant_gateway.http.queries import Query, continue_token, read_query
from cotenant_gateway.http.routing import RequestTarget
from cotenant_gateway.http.tables import TableFormat, table, wants_table
from cotenant_gateway.http.watching import watch
from cotenant_gateway.planning.documents import existing
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import (
    expired,
    timeout,
)


class ResourceReader:
    """Answers reading requests."""

    def __init__(
        self, gateway: Gateway, streams: OpenStreams, stopping: asyncio.Event, actions: NodeActions | None = None
    ) -> None:
        """`actions`: the last actions of nodes' executors; None: they are not shown."""
        self._gateway = gateway
        self._actions = actions
        self._streams = streams
        self._stopping = stopping

    def _definition(self, target: RequestTarget) -> KindDefinition:
        return self._gateway.core.kinds.of(target.kind)

    def _table_format(self, request: web.BaseRequest, include: str) -> TableFormat | None:
        return TableFormat(include) if wants_table(request.headers.get("Accept", "")) else None

    async def get(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a GET of one object; or watch it, if the query requests that."""
        query = read_query(self._definition(target), request.query) if request.query_string else Query()
        if query.watch:
            by_name = f"metadata.name={target.name}"
            narrowed = read_query(self._definition(target), {**request.query, "fieldSelector": by_name})
            return await self._watch(request, target, narrowed)
        snapshot = existing(self._gateway.core, target.kind, target.namespace, target.name)
        form = self._table_format(request, query.include_object)
        if form is None:
            return json_response(snapshot.document)
        metadata = {"resourceVersion": str(snapshot.version)}
        return json_response(table(self._definition(target).layout, [snapshot], metadata, self._gateway.clock(), form))

    async def list_or_watch(self, request: web.BaseRequest, target: RequestTarget, query: Query) -> web.StreamResponse:
        """Answer a list, or a watch of a selection."""
        if query.version > self._gateway.core.folded:
            await self._wait_for(query.version)
        if query.watch:
            return await self._watch(request, target, query)
        core = self._gateway.core
        version = core.folded
        after = ("", "")
        if query.after is not None:
            if query.after.version < core.ring.oldest:
                raise expired(query.after.version, core.ring.oldest)
            version, after = query.after.version, (query.after.namespace, query.after.name)
        found, more = core.select(target.kind, target.namespace, query.predicate(target), query.limit, after)
        if target.kind is EVENTS and self._actions is not None and not more and (node := node_of(query.fields)):
            selected = query.predicate(target)
            found = [*found, *(each for each in await self._actions.of(node, version) if selected(each))]
        metadata: dict[str, object] = {"resourceVersion": str(version)}
        if more:
            metadata["continue"] = continue_token(version, found[-1])
        form = self._table_format(request, query.include_object)
        if form is not None:
            return json_response(table(self._definition(target).layout, found, metadata, self._gateway.clock(), form))
        return json_response(list_document(target.kind, found, metadata))

    async def _wait_for(self, version: int) -> None:
        try:
            async with asyncio.timeout(2.0):
                await self._gateway.follower.folded(version)
        except TimeoutError:
            current = self._gateway.core.folded
            raise timeout(f"Too large resource version: {version}, current: {current}") from None

    async def _watch(self, request: web.BaseRequest, target: RequestTarget, query: Query) -> web.StreamResponse:
        form = self._table_format(request, query.include_object)
        with self._streams.open(request, StreamKind.WATCH) as stream:
            gateway = self._gateway
            return await watch(request, stream, gateway.follower, target, query, form, self._stopping, gateway.clock)


def list_document(kind: Kind, snapshots: list[Snapshot], metadata: dict[str, object]) -> bytes:
    """Return a list object; its items are joined, not decoded."""
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        kind.kind.encode(),
        kind.api_version.encode(),
        msgspec.json.encode(metadata),
    )
    return b"".join((head, b",".join([snapshot.document for snapshot in snapshots]), b"]}\n"))
