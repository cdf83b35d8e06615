"""The elastic quota that a pod belongs to, and what follows from it at admission.

In: a pod and the ElasticQuotas. The quota is the one that the label `quota.scheduling.koordinator.sh/name` names (or, without
the label, that has the namespace's name), else the one whose annotation lists the pod's namespace. Out: field errors: a pod
belongs to a leaf of the tree, and whether it may be preempted for its quota does not change. Source: Koordinator's quota
webhook. A pod that belongs to no quota is the default quota's.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.validation.fields import FieldError, forbidden, invalid
from cotenant.domain.quota.names import LABEL_IS_PARENT, LABEL_PREEMPTIBLE, LABEL_QUOTA
from cotenant.domain.quota.view import bound_namespaces
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant_gateway.admission.review import ObjectSource, Review


class _Quotas(msgspec.Struct, frozen=True):
    """A quota is identified by its name alone; of two with one name the first in order of namespace counts."""

    by_name: Mapping[str, ObjectMeta]
    by_namespace: Mapping[str, ObjectMeta]


def quota_of(objects: ObjectSource, pod: ObjectMeta) -> ObjectMeta | None:
    """Return the metadata of the quota that a pod belongs to."""
    quotas = objects.derived(ELASTIC_QUOTAS, _quotas)
    if not quotas.by_name:
        return None
    named = pod.labels.get(LABEL_QUOTA, "")
    if objects.quota_gates.disable_default_quota:
        return quotas.by_name.get(named)
    found = quotas.by_name.get(named or pod.namespace)
    return found if found is not None else quotas.by_namespace.get(pod.namespace)


def _quotas(objects: ObjectSource) -> _Quotas:
    by_name: dict[str, ObjectMeta] = {}
    by_namespace: dict[str, ObjectMeta] = {}
    for quota in objects.objects(ELASTIC_QUOTAS):
        by_name.setdefault(quota.address.name, quota.meta)
        for namespace in bound_namespaces(quota.meta.annotations):
            by_namespace.setdefault(namespace, quota.meta)
    return _Quotas(by_name, by_namespace)


def quota_of_pod_is_a_leaf(review: Review) -> list[FieldError]:
    """A pod belongs to a leaf of the tree, not to a parent quota, unless a gate lets these take pods."""
    if review.objects.quota_gates.parents_take_pods:
        return []
    pod = review.view.metadata
    found = quota_of(review.objects, pod)
    if found is None or found.labels.get(LABEL_IS_PARENT) != "true":
        return []
    detail = f"pod can not be linked to a parentQuotaGroup,quota:{found.name}, pod:{pod.name}"
    return [invalid(f"metadata.labels[{LABEL_QUOTA}]", pod.labels.get(LABEL_QUOTA, ""), detail)]


def preemptible_label_stays(review: Review) -> list[FieldError]:
    """Whether a live pod may be preempted for its quota does not change."""
    if review.old is None:
        return []
    before, now = review.old.meta.labels.get(LABEL_PREEMPTIBLE), review.view.metadata.labels.get(LABEL_PREEMPTIBLE)
    if before == now:
        return []
    return [forbidden(f"metadata.labels[{LABEL_PREEMPTIBLE}]", "Preemptible label is forbidden modify now.")]
