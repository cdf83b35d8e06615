"""The quotas as metrics, with Koordinator's name and labels.

In: the core's quotas, and those that profiles define. Out: one value per quota, resource and field (cpu in milli-cores,
everything else in base units); of the root of a profile's tree also what of its total is on nodes that take no pods.
Bound: MAX_QUOTAS_SHOWN quotas of each; further ones, in the order of their trees, are not shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cotenant.domain.quota.names import LABEL_IS_PARENT, ROOT
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
        labels = _labels(quota.quota, quota.tree, quota.parent, quota.is_parent)
        for field, name in FIELDS:
            amounts: dict[str, int] = getattr(quota, name)
            for resource, amount in amounts.items():
                yield amount, {**labels, "resource": resource, "field": field}
    for root in islice(core.profiled(), MAX_QUOTAS_SHOWN):
        labels = _labels(root.quota, root.tree, ROOT, root.labels.get(LABEL_IS_PARENT) == "true")
        for resource, amount in root.unschedulable.items():
            yield amount, {**labels, "resource": resource, "field": "unschedulable-resource"}


def _labels(name: str, tree: str, parent: str, is_parent: bool) -> dict[str, str]:
    return {"name": name, "tree": tree, "is_parent": str(is_parent).lower(), "parent": parent}


GAUGES = (Gauge("scheduler_elastic_quota_status", "Amounts of a quota by resource and field", _status),)
