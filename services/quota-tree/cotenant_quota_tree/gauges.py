"""The quotas as metrics, with Koordinator's name and labels.

In: the core's quotas. Out: one value per quota, resource and field (cpu in milli-cores, everything else in base units).
Bound: MAX_QUOTAS_SHOWN quotas; further ones, in the order of their trees, are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cotenant.engine.definition import Gauge
from cotenant_quota_tree.core import QuotaTreeCore

MAX_QUOTAS_SHOWN = 500
FIELDS = (
    ("runtime", "runtime"),
    ("request", "request"),
    ("child-request", "child_request"),
    ("guaranteed", "guaranteed"),
    ("allocated", "allocated"),
    ("non-preemptible-request", "non_preemptible_request"),
    ("non-preemptible-used", "non_preemptible_used"),
    ("used", "used"),
    ("min", "min"),
    ("max", "max"),
    ("sharedWeight", "shared_weight"),
)


def _status(core: QuotaTreeCore) -> Iterator[tuple[float, dict[str, str]]]:
    for quota in islice(core.quotas(), MAX_QUOTAS_SHOWN):
        labels = {
            "name": quota.quota,
            "tree": quota.tree,
            "is_parent": str(quota.is_parent).lower(),
            "parent": quota.parent,
        }
        for field, name in FIELDS:
            amounts: dict[str, int] = getattr(quota, name)
            for resource, amount in amounts.items():
                yield amount, {**labels, "resource": resource, "field": field}


GAUGES = (Gauge("scheduler_elastic_quota_status", "Amounts of a quota by resource and field", _status),)
