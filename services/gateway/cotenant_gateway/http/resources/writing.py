"""Writing resources: create, replace, patch, delete, and the deletion of a collection.

In: a request whose path is a `RequestTarget`. Out: a response with the resulting object, and warnings for its writer;
or an ApiError that the application turns into a Status.
"""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from cotenant.api.definitions import Registry
from cotenant.api.objects.rbac import RBAC_GROUP
from cotenant.api.snapshots import Snapshot
from cotenant.kinds.pods import PODS
from cotenant_gateway.access.escalation import refuse_escalation
from cotenant_gateway.access.pods import check_pod
from cotenant_gateway.http.auth.access import actor_of, user_of
from cotenant_gateway.http.bodies import (
    check_json,
    is_dry_run,
    json_response,
    read_body,
    read_deletion,
)
from cotenant_gateway.http.openapi.unknown_fields import unknown_fields
from cotenant_gateway.http.queries import read_query
from cotenant_gateway.http.resources.reading import list_document
from cotenant_gateway.http.routing import RequestTarget
from cotenant_gateway.http.warning_headers import with_warnings
from cotenant_gateway.loop.requests import Check, no_check
from cotenant_gateway.planning.documents import existing
from cotenant_gateway.planning.updates import PATCH_TYPES
from cotenant_gateway.shell.gateway import Gateway
from cotenant_gateway.statuses import (
    ApiError,
    StatusDetails,
    bad_request,
    method_not_allowed,
    status_object,
    unsupported_media,
)

COLLECTION_AT_ONCE = 100
"""Deletions of one request that are in progress at a time."""
IGNORE, WARN, STRICT = "Ignore", "Warn", "Strict"
"""Values of the parameter `fieldValidation`; absent: Ignore."""


class ResourceWriter:
    """Answers writing requests."""

    def __init__(self, gateway: Gateway, *, root_pods: bool = False) -> None:
        """`root_pods`: pods of the process runtime may run as root."""
        self._gateway = gateway
        self._root_pods = root_pods

    @property
    def _kinds(self) -> Registry:
        return self._gateway.core.kinds

    def _check(self, request: web.BaseRequest, target: RequestTarget) -> Check:
        """Return the checks of an object before it is stored: no user grants rights or a priority beyond their own."""
        core, user = self._gateway.core, user_of(request)
        if target.kind is PODS and not target.subresource:
            return lambda planned: check_pod(core, user, planned, root_pods=self._root_pods)
        if target.kind.group == RBAC_GROUP:
            return lambda planned: refuse_escalation(core, user, planned)
        return no_check

    async def create(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a POST."""
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

    def _unknown_fields(self, request: web.BaseRequest, target: RequestTarget, body: bytes) -> list[str]:
        """Return the warnings about a body's unknown members, by `fieldValidation`. Raises ApiError (400) with `Strict`."""
        asked = request.query.get("fieldValidation", IGNORE) if request.query_string else IGNORE
        if asked == IGNORE or request.content_type == "application/json-patch+json":
            return []
        if asked not in (STRICT, WARN):
            supported = f"supported values: {IGNORE}, {WARN}, {STRICT}"
            raise bad_request(f"fieldValidation: Unsupported value: {asked[:40]!r}: {supported}")
        kind = target.kind
        found = [f'unknown field "{path}"' for path in unknown_fields(self._kinds, kind, body)]
        if found and asked == STRICT:
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: strict decoding error: '
                + ", ".join(found)
            )
        return found

    async def replace(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a PUT of an object, or of a subresource that writes it."""
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
            subresource=target.subresource,
            check=self._check(request, target),
        )
        return with_warnings(json_response(shown.document), warnings, shown.warnings)

    async def patch(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a PATCH of an object, or of a subresource that writes it."""
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
            subresource=target.subresource,
            check=self._check(request, target),
        )
        return with_warnings(json_response(shown.document), warnings, shown.warnings)

    async def delete(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a DELETE of one object."""
        deletion, dry_run = await read_deletion(request)
        snapshot = existing(self._gateway.core, target.kind, target.namespace, target.name)
        carried = await self._gateway.delete(
            target.kind, target.namespace, target.name, deletion, actor_of(request), dry_run=dry_run
        )
        if not carried.ended:
            return json_response(carried.document(self._gateway.core))
        details = StatusDetails(name=target.name, group=target.kind.group, kind=target.kind.plural, uid=snapshot.uid)
        return json_response(msgspec.json.encode(status_object(200, "", "", details, status="Success")))

    async def delete_collection(self, request: web.BaseRequest, target: RequestTarget) -> web.StreamResponse:
        """Answer a DELETE of a selection: each object separately, COLLECTION_AT_ONCE at a time, whose writes share batches.
        Those that are refused are tried once more, one by one, as what refused them may be of the same selection (a quota's
        children)."""
        query = read_query(self._kinds.of(target.kind), request.query)
        deletion, dry_run = await read_deletion(request)
        if target.kind.namespaced and not target.namespace:
            raise method_not_allowed("a collection is deleted in one namespace at a time")
        core = self._gateway.core
        found, _ = core.select(target.kind, target.namespace, query.predicate(target), 0, ("", ""))
        ended = [snapshot for snapshot in found if snapshot.stored is not None]
        actor = actor_of(request)

        async def delete(snapshot: Snapshot) -> None:
            address = snapshot.address
            try:
                await self._gateway.delete(address.kind, address.namespace, address.name, deletion, actor, dry_run=dry_run)
            except ApiError as error:
                # Objects that ended in the meantime need no deletion.
                if error.code != 404:
                    raise

        refused: list[Snapshot] = []
        for start in range(0, len(ended), COLLECTION_AT_ONCE):
            some = ended[start : start + COLLECTION_AT_ONCE]
            outcomes = await asyncio.gather(*map(delete, some), return_exceptions=True)
            for snapshot, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, ApiError) and outcome.code < 500:
                    refused.append(snapshot)
                elif outcome is not None:
                    raise outcome
        for snapshot in refused:
            await delete(snapshot)
        return json_response(list_document(target.kind, ended, {"resourceVersion": str(self._gateway.core.folded)}))
