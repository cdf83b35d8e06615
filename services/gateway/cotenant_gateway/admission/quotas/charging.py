"""Quota admission of pods (gate EnableQuotaAdmission): a pod is refused at its creation when its quota has no room.

In: a new pod, or (gate EnableQuotaAdmissionOnUpdate) one that changes its quota; the ElasticQuotas, with what quota-tree
published of them. Out: the write that charges the quota, stored in one batch with the pod and expecting the quota as it was
read, so that neither a burst nor two gateways overshoot; None where nothing is charged; or ApiError 403. The rule:

    quota       by label, else the one of the pod's namespace; a pod of no quota, or of a built-in one, is not checked
    limit       annotation `admission` where it lists anything, else max; a resource that the limit lacks is not limited
    charged     what the quota's pods request: as quota-tree published it; until that counts what admission wrote last
                (annotation `child-request`), the larger of both
    request     the pod's, overhead included, in the resources of max; a max that lists none of RESOURCES limits no pod here
    refused     charged + request is above the limit in a resource that the pod requests

Ancestors are not checked. Nothing is subtracted when a pod ends: quota-tree's next figures are without it.
Source: Koordinator's quota evaluator, with its texts.
"""

from __future__ import annotations

import msgspec

from cotenant.api.edits import with_annotation
from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.snapshots import Snapshot
from cotenant.domain.quota.membership import QuotaIdentity, QuotaIndex
from cotenant.domain.quota.names import ANNOTATION_CHILD_REQUEST, BUILT_IN_QUOTAS
from cotenant.domain.quota.view import ElasticQuotaView, bound_namespaces, decode_quota
from cotenant.events.objects import ObjectStored
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS, published_quota
from cotenant.kinds.pods import PODS
from cotenant.log.plans import PlannedWrite, object_write
from cotenant.model.amounts import Amounts, as_texts, exceeding, larger, masked, plus, without_zeros
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cotenant.model.quantities import QuantityError, format_amount
from cotenant_gateway.admission.review import ObjectSource, Review
from cotenant_gateway.statuses import forbidden

RESOURCES = frozenset(
    {
        *("cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory", "requests.ephemeral-storage"),
        *(BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY),
        *("koordinator.sh/gpu", "nvidia.com/gpu", "koordinator.sh/gpu.shared", "koordinator.sh/gpu-memory-ratio"),
    }
)
"""A quota is checked only if its max lists one of these."""


class _Index(msgspec.Struct, frozen=True):
    quotas: QuotaIndex
    by_name: dict[str, list[Snapshot]]


def charge_quota(review: Review) -> PlannedWrite | None:
    """Return the write that charges a pod's quota. Raises ApiError."""
    gates, pod = review.objects.quota_gates, review.view
    if not gates.admission or not isinstance(pod, Pod) or (review.old is not None and not gates.admission_on_update):
        return None
    index = review.objects.derived(ELASTIC_QUOTAS, _index)
    name = _looked_up(index, pod.metadata)
    if not name or name in BUILT_IN_QUOTAS or (review.old is not None and name == _looked_up(index, review.old.meta)):
        return None
    found = index.by_name.get(name, [])
    if len(found) != 1:
        why = f"more than one elastic quota {name} found" if found else f"elastic quota {name} not found"
        raise forbidden(PODS, pod.metadata.name, why)
    stored = found[0].stored
    assert stored is not None
    try:
        quota = decode_quota(stored.raw)
    except (msgspec.MsgspecError, QuantityError) as error:
        raise forbidden(PODS, pod.metadata.name, f"elastic quota {name} cannot be read: {error}") from error
    request = without_zeros(masked(pod_requests(pod), quota.max))
    if not request or RESOURCES.isdisjoint(quota.max):
        return None
    charged = plus(_charged(quota, found[0], stored.sequence), request)
    above = exceeding(masked(charged, request), quota.admission or quota.max)
    if above:
        raise forbidden(PODS, pod.metadata.name, _refusal(found[0], quota, request, charged, above))
    text = msgspec.json.encode(as_texts(charged)).decode()
    payload = ObjectStored(object=with_annotation(stored.raw, ANNOTATION_CHILD_REQUEST, text))
    return object_write(found[0].address, payload, stored.sequence, causes=(f"LOG:{found[0].version}",))


def _refusal(
    found: Snapshot, quota: ElasticQuotaView, request: Amounts, charged: Amounts, above: tuple[str, ...]
) -> str:
    used = {resource: charged[resource] - request[resource] for resource in above}
    limit = quota.admission or quota.max
    return (
        f"exceeded quota: {found.address.namespace}/{found.address.name}, requested: {_listed(masked(request, above))}, "
        f"used: {_listed(without_zeros(used))}, limited: {_listed(masked(limit, above))}"
    )


def _listed(amounts: Amounts) -> str:
    return ",".join(f"{resource}={format_amount(resource, amount)}" for resource, amount in sorted(amounts.items()))


def _charged(quota: ElasticQuotaView, snapshot: Snapshot, sequence: int) -> Amounts:
    published, written = published_quota(snapshot), quota.charged or {}
    if published is None:
        return written
    return larger(published.child_request, written) if published.charged_at < sequence else published.child_request


def _looked_up(index: _Index, pod: ObjectMeta) -> str:
    return index.quotas.lookup(pod.namespace, pod.labels)


def _index(objects: ObjectSource) -> _Index:
    by_name: dict[str, list[Snapshot]] = {}
    identities = []
    for snapshot in objects.objects(ELASTIC_QUOTAS):
        if snapshot.stored is not None:
            address = snapshot.address
            by_name.setdefault(address.name, []).append(snapshot)
            namespaces = bound_namespaces(snapshot.meta.annotations)
            identities.append(QuotaIdentity(address.name, address.namespace, "", namespaces))
    return _Index(QuotaIndex(identities, default_quota=not objects.quota_gates.disable_default_quota), by_name)
