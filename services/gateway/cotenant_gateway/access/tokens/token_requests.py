"""TokenRequest: what `kubectl create token` sends, and the answer with the token.

In: the account, the request's document. Out: the document with `status.token`, or an ApiError. Source: Kubernetes' validation
of TokenRequest and its REST storage (serviceaccount/storage/token.go).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot
from cotenant.api.times import rfc3339
from cotenant.api.validation.fields import FieldError, invalid, not_supported, required
from cotenant.kinds.pods import PODS
from cotenant.kinds.reviews import AUTHENTICATION_GROUP
from cotenant.kinds.service_accounts import DEFAULT_ACCOUNT
from cotenant.model.bounds import Int64
from cotenant_gateway.access.tokens.account_tokens import BINDABLE, AccountTokens
from cotenant_gateway.access.tokens.bearer_tokens import MAX_TOKEN_BYTES
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError, bad_request, conflict, forbidden, invalid_object, not_found

TOKEN_REQUESTS = Kind(AUTHENTICATION_GROUP, "v1", "tokenrequests", "TokenRequest", True)
DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 2**32


class _BoundTo(View, frozen=True, kw_only=True):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(View, frozen=True, kw_only=True):
    audiences: list[str] | None = None
    expiration_seconds: Int64 | None = None
    bound_object_ref: _BoundTo | None = None


class _PodSpec(View, frozen=True, kw_only=True):
    service_account_name: str = ""


class _Pod(View, frozen=True, kw_only=True):
    spec: _PodSpec = _PodSpec()


class _Request(View, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()


_REQUEST = msgspec.json.Decoder(_Request)
_POD = msgspec.json.Decoder(_Pod)


def answer_token_request(core: GatewayCore, tokens: AccountTokens, account: Snapshot, body: bytes, now: datetime) -> bytes:
    """Return the request with a new token, as JSON. Raises ApiError."""
    try:
        request = _REQUEST.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"a TokenRequest cannot be read: {error}") from error
    named = request.api_version or TOKEN_REQUESTS.api_version, request.kind or TOKEN_REQUESTS.kind
    if named != (TOKEN_REQUESTS.api_version, TOKEN_REQUESTS.kind):
        raise bad_request(f"expected {TOKEN_REQUESTS.api_version}, Kind=TokenRequest, found {named[0]}, Kind={named[1]}")
    where, meta = account.address, request.metadata
    if (meta.name or where.name, meta.namespace or where.namespace) != (where.name, where.namespace):
        raise bad_request(f"the request is about {meta.namespace}/{meta.name}, its path about {where.namespace}/{where.name}")
    spec = request.spec
    seconds = DEFAULT_SECONDS if spec.expiration_seconds is None else spec.expiration_seconds
    errors = _errors(spec, seconds)
    if errors:
        raise invalid_object(TOKEN_REQUESTS, where.name, errors)
    bound = _bound(core, account, spec.bound_object_ref) if spec.bound_object_ref is not None else None
    audiences = list(dict.fromkeys(spec.audiences or tokens.audiences))
    token, expires = tokens.issued(account, audiences, seconds, bound)
    if len(token) > MAX_TOKEN_BYTES:
        raise bad_request(f"spec.audiences: the token would have {len(token)} bytes; at most {MAX_TOKEN_BYTES} are accepted")
    shown: dict[str, Any] = {"audiences": audiences, "expirationSeconds": seconds}
    if bound is not None:
        kind = bound.address.kind
        shown["boundObjectRef"] = {
            "kind": kind.kind,
            "apiVersion": kind.api_version,
            "name": bound.address.name,
            "uid": bound.uid,
        }
    return msgspec.json.encode(
        {
            "apiVersion": TOKEN_REQUESTS.api_version,
            "kind": TOKEN_REQUESTS.kind,
            "metadata": {"name": where.name, "namespace": where.namespace, "creationTimestamp": rfc3339(now)},
            "spec": shown,
            "status": {"token": token, "expirationTimestamp": rfc3339(datetime.fromtimestamp(expires, UTC))},
        }
    )


def _errors(spec: _Spec, seconds: int) -> list[FieldError]:
    found: list[FieldError] = []
    if seconds < MIN_SECONDS:
        found.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes"))
    elif seconds > MAX_SECONDS:
        found.append(invalid("spec.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds"))
    found += [required(f"spec.audiences[{i}]") for i, audience in enumerate(spec.audiences or ()) if not audience]
    bound = spec.bound_object_ref
    if bound is not None:
        kind = BINDABLE.get(bound.kind)
        if kind is None:
            found.append(not_supported("spec.boundObjectRef.kind", bound.kind, sorted(BINDABLE)))
        elif bound.api_version != kind.api_version:
            found.append(not_supported("spec.boundObjectRef.apiVersion", bound.api_version, [kind.api_version]))
        if not bound.name:
            found.append(required("spec.boundObjectRef.name"))
    return found


def _bound(core: GatewayCore, account: Snapshot, ref: _BoundTo) -> Snapshot:
    """Return the object that the token is to be bound to. Raises ApiError."""
    kind = BINDABLE[ref.kind]
    found = core.get(kind, account.address.namespace if kind.namespaced else "", ref.name)
    if found is None:
        raise not_found(kind, ref.name)
    if ref.uid and ref.uid != found.uid:
        raise conflict(kind, ref.name, f"the UID in the bound object reference ({ref.uid}) does not match the UID in record")
    if kind is PODS:
        runs_as = _account_of(found)
        if runs_as != account.address.name:
            raise _of_another(ref.name, account.address.name, runs_as)
    return found


def _account_of(pod: Snapshot) -> str:
    """Return the name of the service account that a pod runs as. Its existence is not checked when the pod is created."""
    assert pod.stored is not None
    try:
        return _POD.decode(pod.stored.raw).spec.service_account_name or DEFAULT_ACCOUNT
    except msgspec.ValidationError:
        return ""


def _of_another(pod: str, account: str, runs_as: str) -> ApiError:
    why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name ("{runs_as}")'
    return forbidden(PODS, pod, why)
