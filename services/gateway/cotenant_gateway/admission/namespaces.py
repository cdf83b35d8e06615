"""Namespaces: objects are created only in one that exists and is not ending; the built-in ones stay."""

from __future__ import annotations

from cotenant.api.snapshots import Snapshot
from cotenant.kinds.namespaces import BUILT_IN_NAMESPACES, NAMESPACES
from cotenant_gateway.admission.review import ObjectSource, Review
from cotenant_gateway.statuses import ApiError, forbidden, not_found

LABEL_CONTROL_PLANE = "control-plane"
"""On a namespace, with any value: Koordinator's pod webhooks skip it."""


def is_of_control_plane(objects: ObjectSource, name: str) -> bool:
    """Return whether a namespace has the label `control-plane`: Koordinator's rules for pods do not apply there."""
    namespace = objects.get(NAMESPACES, "", name)
    return namespace is not None and LABEL_CONTROL_PLANE in namespace.labels


def namespace_refusal(review: Review) -> ApiError | None:
    """Refuse a creation in a namespace that does not exist (404) or is ending (403)."""
    kind, meta = review.definition.kind, review.view.metadata
    if not kind.namespaced or review.old is not None:
        return None
    namespace = review.objects.get(NAMESPACES, "", meta.namespace)
    if namespace is None:
        return not_found(NAMESPACES, meta.namespace)
    if namespace.meta.deletion_timestamp is not None:
        why = f"unable to create new content in namespace {meta.namespace} because it is being terminated"
        return forbidden(kind, meta.name, why)
    return None


def namespace_deletion_refusal(snapshot: Snapshot) -> ApiError | None:
    """The built-in namespaces cannot be deleted."""
    if snapshot.address.kind is NAMESPACES and snapshot.address.name in BUILT_IN_NAMESPACES:
        return forbidden(NAMESPACES, snapshot.address.name, "this namespace may not be deleted")
    return None
