"""Elastic quotas: their place in the tree."""

from __future__ import annotations

import msgspec

from cotenant.api.edits import with_metadata
from cotenant.api.objects.policies import ElasticQuota
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, quantity
from cotenant.domain.quota.names import ANNOTATION_SHARED_WEIGHT, LABEL_PARENT, LABEL_TREE, ROOT
from cotenant.domain.quota.validation import binds, validate_quota, validate_quota_deletion
from cotenant.domain.quota.view import ElasticQuotaView, completed_weight, decode_quota
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS, published_quota
from cotenant.kinds.pods import PODS
from cotenant.model.names import LABEL_QUOTA_NAME
from cotenant.model.quantities import QuantityError
from cotenant_gateway.admission.review import Mutation, ObjectSource, Review
from cotenant_gateway.statuses import ApiError, forbidden


def stored_quotas(objects: ObjectSource) -> list[ElasticQuotaView]:
    """Return every quota in the read model; one that cannot be read (stored by another writer) is left out."""
    found: list[ElasticQuotaView] = []
    for snapshot in objects.objects(ELASTIC_QUOTAS):
        if snapshot.stored is None:
            continue
        try:
            found.append(with_facts(decode_quota(snapshot.stored.raw), snapshot))
        except (msgspec.MsgspecError, QuantityError):
            continue
    return found


def with_facts(quota: ElasticQuotaView, snapshot: Snapshot) -> ElasticQuotaView:
    """Return the view with quota-tree's last published figures instead of the document's."""
    published = published_quota(snapshot)
    if published is None:
        return quota
    return msgspec.structs.replace(quota, used=published.used, guaranteed=published.guaranteed)


def inherit_tree(review: Review) -> Mutation | None:
    """A new quota without a tree id takes that of its parent."""
    quota = review.view
    if not isinstance(quota, ElasticQuota) or review.old is not None:
        return None
    labels = quota.metadata.labels
    parent_name = labels.get(LABEL_PARENT, "") or ROOT
    if labels.get(LABEL_TREE) or parent_name == ROOT:
        return None
    parent = next((found for found in stored_quotas(review.objects) if found.name == parent_name), None)
    if parent is None or not parent.tree:
        return None
    document = with_metadata(review.document, {"labels": {**labels, LABEL_TREE: parent.tree}})
    return Mutation(document, (f"tree {parent.tree} from parent quota {parent_name}",))


def complete_weight(review: Review) -> Mutation | None:
    """A new quota is stored with a shared weight for every resource of its max, and for no other."""
    quota = review.view
    if not isinstance(quota, ElasticQuota) or review.old is not None or quota.metadata.name == ROOT:
        return None
    weight = completed_weight(quota)
    if weight is None:
        return None
    text = msgspec.json.encode(weight).decode()
    document = with_metadata(review.document, {"annotations": {**quota.metadata.annotations, ANNOTATION_SHARED_WEIGHT: text}})
    return Mutation(document, (f"shared weight {text} completed from max",))


def quota_is_valid(review: Review) -> list[FieldError]:
    """Quantities, then the quota among the others."""
    quota = review.view
    if not isinstance(quota, ElasticQuota):
        return []
    found: list[FieldError] = []
    used = quota.status.used if quota.status is not None else None
    for section, amounts in (("spec.max", quota.spec.max), ("spec.min", quota.spec.min), ("status.used", used or {})):
        for resource, amount in amounts.items():
            found += quantity(f"{section}[{resource}]", amount)
    if found:
        return found
    view = decode_quota(review.document)
    if review.old is not None:
        view = with_facts(view, review.old)
    gates = review.objects.quota_gates
    return validate_quota(view, stored_quotas(review.objects), lambda old: _has_pods(review, old), gates)


def _has_pods(review: Review, quota: ElasticQuotaView) -> bool:
    return any(binds(quota, pod.address.namespace, pod.labels) for pod in review.objects.objects(PODS))


def quota_deletion_refusal(snapshot: Snapshot, objects: ObjectSource) -> ApiError | None:
    """A quota with children or pods cannot be deleted."""
    if snapshot.address.kind is not ELASTIC_QUOTAS or snapshot.stored is None:
        return None
    name = snapshot.address.name
    quotas = stored_quotas(objects)
    quota = next((found for found in quotas if found.name == name), None)
    if quota is None:
        return None
    pods = [pod.address.name for pod in objects.objects(PODS) if pod.labels.get(LABEL_QUOTA_NAME) == name]
    why = validate_quota_deletion(quota, quotas, pods)
    return forbidden(ELASTIC_QUOTAS, name, why) if why else None
