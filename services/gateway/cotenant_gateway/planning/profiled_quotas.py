"""The root quotas of quota profiles, whose objects the gateway maintains.

In: the read model: profiles with quota-tree's results. Out: a plan for each ElasticQuota that is missing or differs in
labels, annotations or spec; other members stay. Each is admitted like a user's write; a refusal is returned in
Koordinator's words (its events CreateQuotaFailed and UpdateQuotaFailed) instead, and the next pass tries again. A quota stays
when its profile is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.edits import same_json
from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Address
from cotenant.api.splices import member_object, members, raw
from cotenant.domain.quota.names import ANNOTATION_TOTAL, ANNOTATION_UNSCHEDULABLE
from cotenant.events.objects import ObjectStored
from cotenant.events.quotas import ProfiledQuota
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES, profiled
from cotenant.log.plans import Plan, object_write
from cotenant.model.amounts import as_texts
from cotenant_gateway.planning.documents import admitted
from cotenant_gateway.planning.updates import with_generation
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError


class QuotaRefused(msgspec.Struct, frozen=True):
    """A profile's quota that admission refuses."""

    profile: str
    message: str


def profiled_quotas(core: GatewayCore) -> Iterator[Plan | QuotaRefused]:
    """Yield the plans, in order of the profiles' namespaces and names."""
    for snapshot in core.objects(QUOTA_PROFILES):
        event = profiled(snapshot)
        if event is None or not isinstance(event.data, ProfiledQuota):
            continue
        found = _plan(core, event.data, event.ref)
        if found is not None:
            yield found


def _plan(core: GatewayCore, wanted: ProfiledQuota, cause: str) -> Plan | QuotaRefused | None:
    namespace, name = wanted.namespace, wanted.quota
    address = Address(ELASTIC_QUOTAS, namespace, name)
    before = core.get(ELASTIC_QUOTAS, namespace, name)
    stored = before.stored if before is not None else None
    if stored is not None and stored.meta.deletion_timestamp is not None:
        return None
    document = profiled_document(wanted, stored.raw if stored is not None else None)
    if stored is not None and same_json(document, stored.raw):
        return None
    try:
        review = admitted(core, address, document, before)
    except ApiError as error:
        doing = "create" if stored is None else "update"
        return QuotaRefused(f"{namespace}/{wanted.profile}", f"failed to {doing} quota, err: {error}")
    made = review.document if stored is None else with_generation(review.document, stored.raw, stored.meta.generation)
    payload = ObjectStored(object=made, admission=review.notes)
    expected = stored.sequence if stored is not None else core.own_sequence(ELASTIC_QUOTAS, namespace, name)
    write = object_write(address, payload, expected, causes=(cause, *review.causes))
    return Plan((write,), creates=stored is None)


def profiled_document(wanted: ProfiledQuota, existing: msgspec.Raw | None) -> msgspec.Raw:
    """Return the quota's document. `existing`: the stored one, None if there is none."""
    top = members(existing) if existing is not None else _head(ELASTIC_QUOTAS, wanted)
    metadata, spec = member_object(top, "metadata"), member_object(top, "spec")
    labels, annotations = member_object(metadata, "labels"), member_object(metadata, "annotations")
    labels.update({key: raw(value) for key, value in wanted.labels.items()})
    for key, amounts in ((ANNOTATION_TOTAL, wanted.total), (ANNOTATION_UNSCHEDULABLE, wanted.unschedulable)):
        annotations[key] = raw(msgspec.json.encode(as_texts(amounts)).decode())
    metadata["labels"], metadata["annotations"] = raw(labels), raw(annotations)
    spec["min"], spec["max"] = raw(as_texts(wanted.min)), raw(as_texts(wanted.max))
    top["metadata"], top["spec"] = raw(metadata), raw(spec)
    return raw(top)


def _head(kind: Kind, wanted: ProfiledQuota) -> dict[str, msgspec.Raw]:
    metadata = {"name": wanted.quota, "namespace": wanted.namespace}
    return {"apiVersion": raw(kind.api_version), "kind": raw(kind.kind), "metadata": raw(metadata)}


