"""The quotas for people who look for a fault, with the fields of Koordinator's debug API.

In: a `QuotaQuestion`, the core between two decisions. Out: a `DebugAnswer` with JSON: the topology of the quotas, one quota,
or all but the roots by name, as of the last decision's quotas and nodes and of the pods folded since. `runtimeVersion`
increases with every change of what any quota has, requests or holds. Bounds: MOST_QUOTAS quotas, MOST_PODS pods of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.events.requests import DebugAnswer, QuotaQuestion, debug_answer
from cotenant.model.amounts import as_texts
from cotenant_quota_tree.core import QuotaTreeCore

MOST_QUOTAS = 1000
MOST_PODS = 1000


def answer(core: QuotaTreeCore, _: datetime, body: bytes) -> Iterator[bytes | None]:
    """Yield the answer to a question; one that cannot be answered says why in `error`."""
    yield debug_answer(body, QuotaQuestion, lambda asked: _found(core, asked))


def _found(core: QuotaTreeCore, asked: QuotaQuestion) -> DebugAnswer:
    if asked.topology:
        return _topology(core)
    return _one(core, asked) if asked.name else _all(core, asked)


def _topology(core: QuotaTreeCore) -> DebugAnswer:
    """The quotas and, by name, the children of each and of the root, as Koordinator's webhook has them."""
    known = dict(islice(sorted(core.pods.demands.known.items()), MOST_QUOTAS))
    children: dict[str, list[str]] = {name: [] for name in (ROOT, *known)}
    for name, view in known.items():
        if name != ROOT:
            children.setdefault(view.parent, []).append(name)
    quotas = {
        name: {
            "name": name,
            "parentName": view.parent,
            "isParent": view.is_parent,
            "allowLentResource": view.lends,
            "max": as_texts(view.max),
            "min": as_texts(view.min),
        }
        for name, view in known.items()
    }
    return _json({"quotaInfoMap": quotas, "quotaHierarchyInfo": children})


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
        "max": as_texts(quota.max),
        "min": as_texts(quota.min),
        "autoScaleMin": as_texts(quota.scaled_min),
        "used": as_texts(sums.used),
        "nonPreemptibleUsed": as_texts(sums.non_preemptible_used),
        "request": as_texts(sums.request),
        "nonPreemptibleRequest": as_texts(sums.non_preemptible_request),
        "sharedWeight": as_texts(view.shared_weight if view is not None else {}),
        "runtime": as_texts(quota.runtime),
        "childRequest": as_texts(sums.child_request),
        "allocated": as_texts(sums.allocated),
        "guaranteed": as_texts(sums.guaranteed),
        "selfUsed": as_texts(own.used),
        "selfNonPreemptibleUsed": as_texts(own.non_preemptible_used),
        "selfRequest": as_texts(own.request),
        "selfNonPreemptibleRequest": as_texts(own.non_preemptible_request),
    }
    if pods:
        found["podCache"] = {
            f"{namespace}/{name}": {"isAssigned": held, "resource": as_texts(request)}
            for (namespace, name), held, request in islice(core.pods.counted(quota.name), MOST_PODS)
        }
    return found


