"""From a client's document to the plan that creates an object.

In: the read model, the document's bytes, the time and a uid. Out: a plan to store and the object's address, or an ApiError.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Address
from cotenant.api.splices import member_object, raw
from cotenant.api.times import rfc3339
from cotenant.events.objects import ObjectStored
from cotenant.log.plans import Plan, object_write
from cotenant_gateway.admission.quotas.charging import charge_quota
from cotenant_gateway.planning.documents import (
    Planned,
    admitted,
    read_object,
)
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import (
    already_exists,
)

_TRANSIENT = frozenset({"resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"})
"""Members of metadata that are removed from a new object's document."""


def plan_creation(
    core: GatewayCore, kind: Kind, namespace: str, body: bytes, now: datetime, uid: str, suffix: Callable[[], str]
) -> Planned:
    """Return the plan that creates an object. `suffix` completes a generateName. Raises ApiError."""
    top, head = read_object(core.kinds, kind, namespace, body)
    name = head.metadata.name
    metadata: dict[str, object] = {**member_object(top, "metadata")}
    if not name and head.metadata.generate_name:
        name = head.metadata.generate_name + suffix()
        metadata["name"] = name
    for transient in _TRANSIENT.intersection(metadata):
        del metadata[transient]
    if kind.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    metadata["creationTimestamp"] = rfc3339(now)
    metadata["generation"] = 1
    definition = core.kinds.of(kind)
    if definition.has_status and not definition.created_with_status:
        top.pop("status", None)
    top["metadata"] = raw(metadata)
    document = definition.default(raw(top))
    address = Address(kind, namespace, name)
    review = admitted(core, address, document, None)
    if core.get(kind, namespace, name) is not None:
        raise already_exists(kind, name)
    stored = ObjectStored(object=review.document, admission=review.notes)
    write = object_write(address, stored, core.own_sequence(kind, namespace, name), causes=review.causes)
    charge = charge_quota(review)
    plan = Plan((write,) if charge is None else (write, charge), creates=True)
    return Planned(address, review.document, plan, warnings=review.warnings)
