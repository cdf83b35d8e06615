"""quota-tree vectors of preemption within a quota, answered by the rules that the scheduler runs."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.domain.quota.membership import QuotaIdentity, QuotaIndex, is_preemptible
from cotenant.domain.quota.preemption import may_preempt
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets

Json = dict[str, Any]


def quota_preempt(given: Json) -> object:
    index = QuotaIndex([QuotaIdentity(name) for name in given["knownQuotas"]])
    preemptor, victim = (msgspec.convert(given[who], Pod) for who in ("preemptor", "victim"))
    quota, of_victim = (index.associate(pod.metadata.namespace, pod.metadata.labels) for pod in (preemptor, victim))
    assert quota is not None
    assert of_victim is not None
    allowed = may_preempt(
        quota.quota,
        preemptor.spec.priority or 0,
        of_victim.quota,
        victim.spec.priority or 0,
        victim_preemptible=is_preemptible(victim.metadata.labels),
        protect_default=given["args"].get("disableDefaultQuotaPreemption", True),
    )
    return {"canPreempt": allowed}


def quota_preempt_pdb(given: Json) -> object:
    budgets = DisruptionBudgets()
    for budget in given["pdbs"]:
        meta = budget["metadata"]
        budgets.set(meta["namespace"], meta["name"], msgspec.Raw(json.dumps(budget).encode()))
    heads = [pod["metadata"] for pod in given["pods"]]
    violates = budgets.violating((meta["namespace"], meta["name"], meta.get("labels") or {}) for meta in heads)
    return {
        "violating": [meta["name"] for meta, found in zip(heads, violates, strict=True) if found],
        "nonViolating": [meta["name"] for meta, found in zip(heads, violates, strict=True) if not found],
    }
