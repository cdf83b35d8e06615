"""The quotas for people who look for a fault, with the fields of Koordinator's debug API.

In: a `QuotaQuestion`, the core between two decisions. Out: a `DebugAnswer` with JSON: one quota, or all but the roots by
name, as of the last decision's quotas and nodes and of the pods folded since. `runtimeVersion` increases with every change of
what any quota has, requests or holds. Bounds: MOST_QUOTAS quotas, MOST_PODS pods of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.events.requests import DebugAnswer, QuotaQuestion
from cotenant.model.amounts import Amounts
from cotenant.model.quantities import format_amount
from cotenant_quota_tree.core import QuotaTreeCore

MOST_QUOTAS = 1000
MOST_PODS = 1000


def answer(core: QuotaTreeCore, _: datetime, body: bytes) -> Iterator[bytes | None]:
    """Yield the answer to a question; one that cannot be answered says why in `error`."""
    try:
        asked = msgspec.json.decode(body, type=QuotaQuestion)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        yield msgspec.json.encode(DebugAnswer(error=f"the question cannot be read: {error}"))
        return
    yield msgspec.json.encode(_one(core, asked) if asked.name else _all(core, asked))


def _one(core: QuotaTreeCore, asked: QuotaQuestion) -> DebugAnswer:
    forest = core.pods.demands.forest
    tree = asked.tree or DEFAULT_TREE if asked.name == ROOT else forest.tree_ids.get(asked.name, "")
    quota = forest.solved(asked.name, tree)
    if quota is None:
        return DebugAnswer(error=f"cannot find quota {asked.name}")
    return _json(_summary(core, tree, quota, asked.pods))


def _all(core: QuotaTreeCore, asked: QuotaQuestion) -> DebugAnswer:
    forest = core.pods.demands.forest
    names = ((name, tree) for name, tree in sorted(forest.tree_ids.items()) if asked.tree in (None, tree))
    found: dict[str, Any] = {}
    for name, tree in islice(names, MOST_QUOTAS):
        quota = forest.solved(name, tree)
        assert quota is not None
        found[name] = _summary(core, tree, quota, asked.pods)
    return _json(found)


def _json(document: object) -> DebugAnswer:
    return DebugAnswer(text=msgspec.json.encode(document).decode(), json=True)


def _summary(core: QuotaTreeCore, tree: str, quota: SolvedQuota, pods: bool) -> dict[str, Any]:
    demands, sums, own = core.pods.demands, quota.sums, quota.sums.own
    view = demands.known.get(quota.name)
    found: dict[str, Any] = {
        "name": quota.name,
        "parentName": quota.parent,
        "isParent": view.is_parent if view is not None else quota.name == ROOT,
        "runtimeVersion": demands.version,
        "allowLentResource": view.lends if view is not None else False,
        "tree": tree,
        "max": _shown(quota.max),
        "min": _shown(quota.min),
        "autoScaleMin": _shown(quota.scaled_min),
        "used": _shown(sums.used),
        "nonPreemptibleUsed": _shown(sums.non_preemptible_used),
        "request": _shown(sums.request),
        "nonPreemptibleRequest": _shown(sums.non_preemptible_request),
        "sharedWeight": _shown(view.shared_weight if view is not None else {}),
        "runtime": _shown(quota.runtime),
        "childRequest": _shown(sums.child_request),
        "allocated": _shown(sums.allocated),
        "guaranteed": _shown(sums.guaranteed),
        "selfUsed": _shown(own.used),
        "selfNonPreemptibleUsed": _shown(own.non_preemptible_used),
        "selfRequest": _shown(own.request),
        "selfNonPreemptibleRequest": _shown(own.non_preemptible_request),
    }
    if pods:
        found["podCache"] = {
            f"{namespace}/{name}": {"isAssigned": held, "resource": _shown(request)}
            for (namespace, name), held, request in islice(core.pods.counted(quota.name), MOST_PODS)
        }
    return found


def _shown(amounts: Amounts) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in sorted(amounts.items())}
