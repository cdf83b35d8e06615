"""Access reviews: the caller's identity, a user's permissions. Used by `kubectl auth whoami` and `can-i`.

In: the read model, the caller, a review's document. Out: the document with its status, or an ApiError.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import View
from cotenant.api.objects.rbac import PolicyRule
from cotenant.api.times import rfc3339
from cotenant.kinds.reviews import (
    LOCAL_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_ACCESS_REVIEWS,
    SELF_SUBJECT_REVIEWS,
    SELF_SUBJECT_RULES_REVIEWS,
)
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.authorizer import authorize, user_rules
from cotenant_gateway.access.users import User
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import bad_request


class _ResourceAttributes(View, frozen=True, kw_only=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _PathAttributes(View, frozen=True, kw_only=True):
    path: str = ""
    verb: str = ""


class _Spec(View, frozen=True, kw_only=True):
    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _PathAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    namespace: str = ""


class _Review(View, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    spec: _Spec = _Spec()


_REVIEW = msgspec.json.Decoder(_Review)


def answer(core: GatewayCore, user: User, kind: Kind, namespace: str, body: bytes, now: datetime) -> bytes:
    """Return a review with its answer, as JSON. Raises ApiError."""
    try:
        review = _REVIEW.decode(body)
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"a {kind.kind} cannot be read: {error}") from error
    if (review.api_version or kind.api_version, review.kind or kind.kind) != (kind.api_version, kind.kind):
        raise bad_request(f"expected {kind.api_version}, Kind={kind.kind}, found {review.api_version}, Kind={review.kind}")
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"creationTimestamp": rfc3339(now)}}
    if kind is SELF_SUBJECT_REVIEWS:
        return msgspec.json.encode({**head, "status": {"userInfo": user_info(user)}})
    shown = {**head, "spec": given.get("spec", {})}
    if kind is SELF_SUBJECT_RULES_REVIEWS:
        if not review.spec.namespace:
            raise bad_request("spec.namespace: Required value: rules are those of one namespace")
        return msgspec.json.encode({**shown, "status": _rules_status(user_rules(core, user, review.spec.namespace))})
    if kind is not SELF_SUBJECT_ACCESS_REVIEWS:
        if not review.spec.user and not review.spec.groups:
            raise bad_request("spec.user: Required value: at least one of user or group must be specified")
        user = User(review.spec.user, review.spec.groups, review.spec.uid)
    decision = authorize(core, user, _asked(review.spec, namespace if kind is LOCAL_SUBJECT_ACCESS_REVIEWS else ""))
    status = {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})
    return msgspec.json.encode({**shown, "status": status})


def _asked(spec: _Spec, local_to: str) -> RequestAttributes:
    resource, path = spec.resource_attributes, spec.non_resource_attributes
    if (resource is None) == (path is None):
        raise bad_request("spec: exactly one of nonResourceAttributes or resourceAttributes must be specified")
    if resource is not None:
        if local_to and resource.namespace != local_to:
            raise bad_request(f"spec.resourceAttributes.namespace: must be {local_to!r}, as the request's")
        return RequestAttributes(
            resource.verb, resource.group, resource.resource, resource.subresource, resource.namespace, resource.name
        )
    assert path is not None
    if local_to:
        raise bad_request("spec.nonResourceAttributes: paths are of no namespace")
    return RequestAttributes(path.verb, path=path.path)


def user_info(user: User) -> dict[str, object]:
    """Return a user as reviews represent it."""
    info: dict[str, object] = {"username": user.name, "groups": user.groups}
    if user.uid:
        info["uid"] = user.uid
    if user.extra:
        info["extra"] = user.extra
    return info


def _rules_status(rules: Sequence[PolicyRule]) -> dict[str, object]:
    resources = [
        {
            "verbs": rule.verbs,
            "apiGroups": rule.api_groups,
            "resources": rule.resources,
            **({"resourceNames": rule.resource_names} if rule.resource_names else {}),
        }
        for rule in rules
        if rule.resources
    ]
    paths = [{"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls} for rule in rules if rule.non_resource_urls]
    return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
