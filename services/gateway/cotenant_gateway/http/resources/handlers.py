"""The verbs on resources: get, list, watch, create, update, patch, delete, deletecollection, and the subresources.

In: a request whose path is a `RequestTarget`. Out: a response, or an ApiError that the application turns into a Status.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from cotenant.api.definitions import KindDefinition, Registry
from cotenant.events.migrations import EvictionRequest
from cotenant.kinds.pods import PODS
from cotenant.kinds.reviews import TOKEN_REVIEWS
from cotenant.kinds.service_accounts import SERVICE_ACCOUNTS, TOKEN
from cotenant_gateway.access.reviews import answer as answer_review
from cotenant_gateway.access.token_reviews import TokenReviews
from cotenant_gateway.access.tokens.account_tokens import AccountTokens
from cotenant_gateway.access.tokens.token_requests import answer_token_request
from cotenant_gateway.admission.pods.resizing import RESIZE
from cotenant_gateway.http.auth.access import actor_of, user_of
from cotenant_gateway.http.bodies import (
    check_json,
    json_response,
    read_body,
    read_eviction,
)
from cotenant_gateway.http.clients.streams import OpenStreams
from cotenant_gateway.http.facts.node_actions import NodeActions
from cotenant_gateway.http.logs import LogReader
from cotenant_gateway.http.queries import read_query
from cotenant_gateway.http.resources.reading import ResourceReader
from cotenant_gateway.http.resources.writing import ResourceWriter
from cotenant_gateway.http.routing import RequestTarget
from cotenant_gateway.planning.documents import existing
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import (
    budget_refuses,
    method_not_allowed,
    no_such_path,
    not_found,
    status_object,
    unavailable,
)


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
        actions: NodeActions | None = None,
    ) -> None:
        """`accounts`: issues tokens of service accounts, if any. `root_pods`: pods of the process runtime may run as
        root. `actions`: the last actions of nodes' executors, shown among the nodes' events."""
        self._token_reviews = token_reviews
        self._accounts = accounts
        self._gateway = gateway
        self._logs = logs
        self._reader = ResourceReader(gateway, streams, stopping, actions)
        self._writer = ResourceWriter(gateway, root_pods=root_pods)

    async def answer(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
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
            raise method_not_allowed(f"{target.kind.resource} are derived from other services' facts: they are read-only")
        if not target.name:
            if method in ("GET", "HEAD"):
                return await self._reader.list_or_watch(request, target, read_query(self._definition(target), request.query))
            if method == "POST":
                return await self._writer.create(request, target)
            if method == "DELETE":
                return await self._writer.delete_collection(request, target)
        elif method in ("GET", "HEAD"):
            return await self._reader.get(request, target)
        elif method == "PUT":
            return await self._writer.replace(request, target)
        elif method == "PATCH":
            return await self._writer.patch(request, target)
        elif method == "DELETE":
            return await self._writer.delete(request, target)
        raise method_not_allowed(f"the server does not allow {method} on {target.kind.resource}")

    async def _review(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        if request.method != "POST" or target.name:
            raise method_not_allowed(f"{target.kind.resource} are answered when they are created, and not stored")
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

    def _definition(self, target: RequestTarget) -> KindDefinition:
        return self.kinds.of(target.kind)

    # -- subresources --------------------------------------------------------------------------------------------

    async def _subresource(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        kind, method = target.kind, request.method
        if target.subresource == "status" or (kind is PODS and target.subresource == RESIZE):
            if method in ("GET", "HEAD"):
                return await self._reader.get(request, target)
            if method == "PUT":
                return await self._writer.replace(request, target)
            if method == "PATCH":
                return await self._writer.patch(request, target)
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

    async def _token(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        gateway = self._gateway
        if self._accounts is None:
            raise method_not_allowed("this gateway issues no tokens: start it with --service-account-signing-key-file")
        check_json(request)
        body = await read_body(request)
        account = existing(gateway.core, target.kind, target.namespace, target.name)
        return json_response(answer_token_request(gateway.core, self._accounts, account, body, gateway.clock()), 201)

    async def _evict(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
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
