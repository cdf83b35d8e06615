"""ElasticQuota = document + quota.

In: the quota's document and the last QuotaRuntime event of that name. Out: `status.used`, and the annotations
runtime, request and guaranteed, as Koordinator's scheduler writes them on the object.
"""

from __future__ import annotations

import msgspec

from cotenant.api.overlay import Overlay
from cotenant.api.splices import raw
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.quantities import format_amount
from cotenant_gateway.read_model.snapshots import Snapshot

_PREFIX = "quota.scheduling.koordinator.sh/"


def _texts(amounts: dict[str, int]) -> dict[str, str]:
    return {name: format_amount(name, amount) for name, amount in sorted(amounts.items())}


def compose_quota(snapshot: Snapshot) -> Overlay:
    """Return what quota-tree says of the quota."""
    newest = max(
        (event for event in snapshot.parts.values() if not event.tombstone and isinstance(event.data, QuotaRuntime)),
        key=lambda event: event.sequence,
        default=None,
    )
    if newest is None or not isinstance(newest.data, QuotaRuntime):
        return Overlay()
    quota = newest.data
    annotations = {
        f"{_PREFIX}{name}": msgspec.json.encode(_texts(amounts)).decode()
        for name, amounts in (
            ("runtime", quota.runtime),
            ("request", quota.request),
            ("child-request", quota.child_request),
            ("guaranteed", quota.guaranteed),
            ("allocated", quota.allocated),
            ("non-preemptible-request", quota.non_preemptible_request),
            ("non-preemptible-used", quota.non_preemptible_used),
        )
        if amounts or name in ("runtime", "request")
    }
    if quota.reason:
        annotations["cotenant.io/reason"] = quota.reason
    return Overlay(annotations=annotations, status={"used": raw(_texts(quota.used))})
