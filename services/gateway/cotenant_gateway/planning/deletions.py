"""Deletions: preconditions and refusals, then the plan that ends an object or marks it as ending."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.kinds import Kind
from cotenant_gateway.admission.namespaces import namespace_deletion_refusal
from cotenant_gateway.admission.quotas.tree import quota_deletion_refusal
from cotenant_gateway.planning.documents import (
    Planned,
    check_version,
    check_writable,
    existing,
)
from cotenant_gateway.planning.endings import deletion
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import (
    conflict,
)


class DeletionRequest(msgspec.Struct, frozen=True):
    """A DELETE: grace period, and preconditions on uid and resourceVersion."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""


def plan_deletion(core: GatewayCore, kind: Kind, namespace: str, name: str, request: DeletionRequest, now: datetime) -> Planned:
    """Return the plan that ends an object, or marks it for deletion. Raises ApiError, TooNew."""
    snapshot = existing(core, kind, namespace, name)
    check_writable(snapshot)
    stored = snapshot.stored
    assert stored is not None
    if request.uid and request.uid != stored.meta.uid:
        why = f"Precondition failed: UID in precondition: {request.uid}, UID in object meta: {stored.meta.uid}"
        raise conflict(kind, name, why)
    check_version(core, snapshot, request.resource_version)
    refusal = namespace_deletion_refusal(snapshot) or quota_deletion_refusal(snapshot, core)
    if refusal is not None:
        raise refusal
    return Planned(snapshot.address, stored.raw, deletion(snapshot, now, request.grace_period_seconds), snapshot)
