"""The verbs on resources: get, list, watch, create, update, patch, delete, deletecollection, and the subresources.

In: a request whose path is a `Target`. Out: a response, or an ApiError that the application turns into a Status.

Over 300 lines: a method of a few lines for each verb and subresource.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from cotenant.api.definitions import Definition, Registry
from cotenant.api.kinds import Kind
from cotenant.api.objects.rbac import RBAC_GROUP
from cotenant.api.snapshots import Snapshot
from cotenant.events.migrations import EvictionRequest
from cotenant.kinds.pods import PODS
from cotenant.kinds.reviews import TOKEN_REVIEWS
from cotenant.kinds.service_accounts import SERVICE_ACCOUNTS, TOKEN
from cotenant_gateway.access.escalation import refuse_escalation
from cotenant_gateway.access.pods import check_pod
from cotenant_gateway.access.reviews import answer as answer_review
from cotenant_gateway.access.token_reviews import TokenReviews
from cotenant_gateway.access.tokens.account_tokens import AccountTokens
from cotenant_gateway.access.tokens.token_requests import answer_token_request
from cotenant_gateway.http.access import actor_of, user_of
from cotenant_gateway.http.bodies import (
    check_json,
    is_dry_run,
    json_response,
    read_body,
    read_deletion,
    read_eviction,
)
from cotenant_gateway.http.clients.limits import StreamKind
from cotenant_gateway.http.clients.streams import OpenStreams
from cotenant_gateway.http.logs import LogReader
from cotenant_gateway.http.openapi.unknown_fields import unknown_fields
from cotenant_gateway.http.queries import Query, continue_token, read_query
from cotenant_gateway.http.routing import Target
from cotenant_gateway.http.tables import TableFormat, table, wants_table
from cotenant_gateway.http.warning_headers import with_warnings
from cotenant_gateway.http.watching import watch
from cotenant_gateway.loop.requests import Check, no_check
from cotenant_gateway.planning.documents import existing
from cotenant_gateway.planning.updates import PATCH_TYPES
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import (
    ApiError,
    StatusDetails,
    bad_request,
    budget_refuses,
    expired,
    method_not_allowed,
    no_such_path,
    not_found,
    status_object,
    timeout,
    unavailable,
    unsupported_media,
)

IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
"""Values of the parameter `fieldValidation`; absent: Ignore."""


class ResourceHandlers:
    """Answers requests for resources."""

    def __init__(
        self,
        gateway: Gateway,
        logs: LogReader,
        streams: OpenStreams,
        stopping: asyncio.Event,
        token_reviews: TokenReviews,
        accounts: AccountTokens | None,
        *,
        root_pods: bool = False,
    ) -> None:
        """`accounts`: makes tokens of service accounts; None: nothing does. `root_pods`: pods of the process runtime may run as
        root."""
        self._token_reviews = token_reviews
        self._accounts = accounts
        self._gateway = gateway
        self._root_pods = root_pods
        self._logs = logs
        self._streams = streams
        self._stopping = stopping

    async def answer(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Dispatch on verb and subresource."""
        if not self._gateway.follower.ready.is_set():
            raise unavailable("the read model is still loading")
        method = request.method
        if target.subresource:
            return await self._subresource(request, target)
        definition = self._definition(target)
        if definition.create_only:
            return await self._review(request, target)
        if definition.read_only and method not in ("GET", "HEAD"):
            raise method_not_allowed(f"{target.kind.resource} are made of other services' facts: they can be read only")
        if not target.name:
            if method in ("GET", "HEAD"):
                return await self._list_or_watch(request, target, read_query(self._definition(target), request.query))
            if method == "POST":
                return await self._create(request, target)
            if method == "DELETE":
                return await self._delete_collection(request, target)
        elif method in ("GET", "HEAD"):
            return await self._get(request, target)
        elif method == "PUT":
            return await self._replace(request, target, status_only=False)
        elif method == "PATCH":
            return await self._patch(request, target, status_only=False)
        elif method == "DELETE":
            return await self._delete(request, target)
        raise method_not_allowed(f"the server does not allow {method} on {target.kind.resource}")

    def _check(self, request: web.BaseRequest, target: Target) -> Check:
        """Return what is to be checked of an object before it is stored: nobody gives rights or priority that is not theirs."""
        core, user = self._gateway.core, user_of(request)
        if target.kind is PODS and not target.subresource:
            return lambda planned: check_pod(core, user, planned, root_pods=self._root_pods)
        if target.kind.group == RBAC_GROUP:
            return lambda planned: refuse_escalation(core, user, planned)
        return no_check

    async def _review(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if request.method != "POST" or target.name:
            raise method_not_allowed(f"{target.kind.resource} are answered when they are created, and kept nowhere")
        check_json(request)
        body = await read_body(request)
        gateway = self._gateway
        if target.kind is TOKEN_REVIEWS:
            return json_response(await self._token_reviews.answer(body, gateway.clock()), 201)
        answer = answer_review(gateway.core, user_of(request), target.kind, target.namespace, body, gateway.clock())
        return json_response(answer, 201)

    @property
    def kinds(self) -> Registry:
        """The kinds that are served."""
        return self._gateway.core.kinds

    def _definition(self, target: Target) -> Definition:
        return self.kinds.of(target.kind)

    # -- reading -------------------------------------------------------------------------------------------------

    def _table_format(self, request: web.BaseRequest, include: str) -> TableFormat | None:
        return TableFormat(include) if wants_table(request.headers.get("Accept", "")) else None

    async def _get(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
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

    async def _list_or_watch(self, request: web.BaseRequest, target: Target, query: Query) -> web.StreamResponse:
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

    async def _watch(self, request: web.BaseRequest, target: Target, query: Query) -> web.StreamResponse:
        form = self._table_format(request, query.include_object)
        with self._streams.open(request, StreamKind.WATCH) as stream:
            gateway = self._gateway
            return await watch(request, stream, gateway.follower, target, query, form, self._stopping, gateway.clock)

    # -- writing -------------------------------------------------------------------------------------------------

    async def _create(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        if target.kind.namespaced and not target.namespace:
            raise bad_request(f"{target.kind.kind} is namespaced: create it below /namespaces/<namespace>/")
        check_json(request)
        body = await read_body(request)
        warnings = self._unknown_fields(request, target, body)
        shown = await self._gateway.create(
            target.kind,
            target.namespace,
            body,
            actor_of(request),
            dry_run=is_dry_run(request),
            check=self._check(request, target),
        )
        return with_warnings(json_response(shown.document, 201), warnings, shown.warnings)

    def _unknown_fields(self, request: web.BaseRequest, target: Target, body: bytes) -> list[str]:
        """Return what to warn of in a body, as `fieldValidation` asks. Raises ApiError (400) where it asks to refuse that."""
        asked = request.query.get("fieldValidation", IGNORE) if request.query_string else IGNORE
        if asked == IGNORE or request.content_type == "application/json-patch+json":
            return []
        if asked not in (STRICT, WARN):
            supported = f"supported values: {IGNORE}, {WARN}, {STRICT}"
            raise bad_request(f"fieldValidation: Unsupported value: {asked[:40]!r}: {supported}")
        kind = target.kind
        found = [f'unknown field "{path}"' for path in unknown_fields(self.kinds, kind, body)]
        if found and asked == STRICT:
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: '
                + ", ".join(found)
            )
        return found

    async def _replace(self, request: web.BaseRequest, target: Target, *, status_only: bool) -> web.StreamResponse:
        check_json(request)
        body = await read_body(request)
        warnings = self._unknown_fields(request, target, body)
        shown = await self._gateway.replace(
            target.kind,
            target.namespace,
            target.name,
            body,
            actor_of(request),
            dry_run=is_dry_run(request),
            status_only=status_only,
            check=self._check(request, target),
        )
        return with_warnings(json_response(shown.document), warnings, shown.warnings)

    async def _patch(self, request: web.BaseRequest, target: Target, *, status_only: bool) -> web.StreamResponse:
        if request.content_type not in PATCH_TYPES:
            raise unsupported_media(request.content_type, PATCH_TYPES)
        body = await read_body(request)
        warnings = self._unknown_fields(request, target, body)
        shown = await self._gateway.patch(
            target.kind,
            target.namespace,
            target.name,
            request.content_type,
            body,
            actor_of(request),
            dry_run=is_dry_run(request),
            status_only=status_only,
            check=self._check(request, target),
        )
        return with_warnings(json_response(shown.document), warnings, shown.warnings)

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        deletion, dry_run = await read_deletion(request)
        snapshot = existing(self._gateway.core, target.kind, target.namespace, target.name)
        document, ended = await self._gateway.delete(
            target.kind, target.namespace, target.name, deletion, actor_of(request), dry_run=dry_run
        )
        if not ended:
            return json_response(document)
        details = StatusDetails(name=target.name, group=target.kind.group, kind=target.kind.plural, uid=snapshot.uid)
        return json_response(msgspec.json.encode(status_object(200, "", "", details, status="Success")))

    async def _delete_collection(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query = read_query(self._definition(target), request.query)
        deletion, dry_run = await read_deletion(request)
        if target.kind.namespaced and not target.namespace:
            raise method_not_allowed("a collection is deleted in one namespace at a time")
        core = self._gateway.core
        found, _ = core.select(target.kind, target.namespace, query.predicate(target), 0, ("", ""))
        ended: list[Snapshot] = []
        for snapshot in found:
            if snapshot.stored is None:
                continue
            try:
                await self._gateway.delete(
                    target.kind, snapshot.address.namespace, snapshot.address.name, deletion, actor_of(request), dry_run=dry_run
                )
            except ApiError as error:
                # Objects that ended in the meantime need no deletion.
                if error.code != 404:
                    raise
            ended.append(snapshot)
        return json_response(list_document(target.kind, ended, {"resourceVersion": str(self._gateway.core.folded)}))

    # -- subresources --------------------------------------------------------------------------------------------

    async def _subresource(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        kind, method = target.kind, request.method
        if target.subresource == "status":
            if method in ("GET", "HEAD"):
                return await self._get(request, target)
            if method == "PUT":
                return await self._replace(request, target, status_only=True)
            if method == "PATCH":
                return await self._patch(request, target, status_only=True)
        elif kind is PODS and target.subresource == "eviction" and method == "POST":
            return await self._evict(request, target)
        elif kind is PODS and target.subresource == "log" and method == "GET":
            pod = existing(self._gateway.core, kind, target.namespace, target.name)
            return await self._logs.answer(request, pod)
        elif kind is SERVICE_ACCOUNTS and target.subresource == TOKEN and method == "POST":
            return await self._token(request, target)
        elif kind is PODS and target.subresource == "binding":
            raise method_not_allowed("pods are placed by the scheduler, as an event; they cannot be bound through the API")
        else:
            raise no_such_path()
        raise method_not_allowed(f"the server does not allow {method} on {kind.resource}/{target.subresource}")

    async def _token(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        gateway = self._gateway
        if self._accounts is None:
            raise method_not_allowed("this gateway makes no tokens: start it with --service-account-signing-key-file")
        check_json(request)
        body = await read_body(request)
        account = existing(gateway.core, target.kind, target.namespace, target.name)
        return json_response(answer_token_request(gateway.core, self._accounts, account, body, gateway.clock()), 201)

    async def _evict(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        eviction = await read_eviction(request)
        pod = self._gateway.core.get(target.kind, target.namespace, target.name)
        if pod is None:
            raise not_found(target.kind, target.name)
        if not eviction.dry_run:
            asked = EvictionRequest(
                namespace=target.namespace,
                name=target.name,
                uid=eviction.uid or pod.uid,
                trigger=actor_of(request),
                grace_period_seconds=eviction.grace_period_seconds,
            )
            outcome = await self._gateway.evict(asked, actor_of(request))
            if not outcome.allowed:
                raise budget_refuses(target.kind, target.name, outcome.message)
        return json_response(msgspec.json.encode(status_object(201, "", "", status="Success")), 201)


def list_document(kind: Kind, snapshots: list[Snapshot], metadata: dict[str, object]) -> bytes:
    """Return a list object; its items are joined, not decoded."""
    head = b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[' % (
        kind.kind.encode(),
        kind.api_version.encode(),
        msgspec.json.encode(metadata),
    )
    return b"".join((head, b",".join([snapshot.document for snapshot in snapshots]), b"]}\n"))
