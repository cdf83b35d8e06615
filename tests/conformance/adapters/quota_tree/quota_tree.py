"""quota-tree vectors: from `given` to what the quota rules return; no rule stands here, only the translation."""

from datetime import timedelta
from typing import Any

import msgspec

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.api.objects.policies import ElasticQuota
from cotenant.domain.quota.admission import QuotaLevel, admit
from cotenant.domain.quota.membership import QuotaIdentity, QuotaIndex, is_preemptible
from cotenant.domain.quota.names import DEFAULT, ROOT, SYSTEM
from cotenant.domain.quota.sums import OwnPods
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.demands import counted_request
from cotenant.domain.quota.trees.hierarchy import build_trees
from cotenant.domain.quota.trees.node_totals import counted_node
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins
from cotenant.domain.quota.trees.terminating import Terminating, ignored_after
from cotenant.domain.quota.trees.totals import available, tree_totals
from cotenant.domain.quota.trees.tree import QuotaTree
from cotenant.domain.quota.view import ElasticQuotaView, built_in_quota, quota_view
from cotenant.model.amounts import Amounts, masked, minus, parse_amounts, plus, total
from cotenant.model.quantities import format_amount
from cotenant.model.times import EPOCH
from tests.conformance.mended import mended
from tests.sharing import Shared, Sibling, share

Json = dict[str, Any]

def quota_runtime(given: Json, *, name: str) -> object:
    whole = parse_amounts(given["total"])
    runtime: dict[str, dict[str, int]] = {quota["name"]: {} for quota in given["quotas"]}
    mins = {quota["name"]: parse_amounts(quota.get("min") or {}) for quota in given["quotas"]}
    resources = sorted(
        {resource for quota in given["quotas"] for field in ("request", "min") for resource in quota.get(field) or {}}
    )
    for resource in resources:
        for quota_name, amount in _share_one(whole.get(resource, 0), resource, given["quotas"]).runtime.items():
            runtime[quota_name][resource] = amount
    return {
        "runtime": {quota_name: _shown(amounts) for quota_name, amounts in runtime.items()},
        "sum": _shown(total(runtime.values())),
        "atLeastMin": [
            quota_name
            for quota_name, amounts in runtime.items()
            if all(amounts[resource] >= amount for resource, amount in mins[quota_name].items())
        ],
    }


def _share_one(whole: int, resource: str, quotas: list[Json]) -> Shared:
    siblings = []
    for quota in quotas:
        request = parse_amounts(quota.get("request") or {})
        minimum, guaranteed = parse_amounts(quota.get("min") or {}), parse_amounts(quota.get("guaranteed") or {})
        most = parse_amounts(quota.get("max") or {})
        siblings.append(
            Sibling(
                name=quota["name"],
                weight=parse_amounts(quota.get("sharedWeight") or quota.get("max") or {}).get(resource, 0),
                request=min(request.get(resource, 0), most.get(resource, request.get(resource, 0))),
                floor=max(minimum.get(resource, 0), guaranteed.get(resource, 0)),
                lends=quota.get("allowLentResource", True),
            )
        )
    return share(whole, siblings)


def quota_scale_min(given: Json, *, name: str) -> object:
    siblings = [
        MinOf(name=sibling["name"], min=parse_amounts(sibling["min"]), scalable=sibling["enableScale"])
        for sibling in given["siblings"]
    ]
    parent_total = None if given.get("parentTotal") is None else parse_amounts(given["parentTotal"])
    scaled = scale_mins(parent_total, siblings).get(given["target"])
    return {"applies": False} if scaled is None else {"applies": True, "min": _shown(scaled)}


def quota_bench(given: Json, *, name: str) -> object:
    numbers = range(given["quotaCount"])
    asked = {
        "cpu": [(7919 * j + 13) % 2000 * 1000 for j in numbers],
        "memory": [(104729 * j + 17) % 2000 for j in numbers],
    }
    whole = {"cpu": int(sum(asked["cpu"]) // 1000 / 1.5) * 1000, "memory": int(sum(asked["memory"]) / 1.5)}
    maximum, weight = parse_amounts(given["max"]), parse_amounts(given["sharedWeight"])
    shared = {
        resource: share(
            whole[resource],
            [
                Sibling(name=str(j), weight=weight[resource], request=min(request, maximum[resource]))
                for j, request in enumerate(asked[resource])
            ],
        )
        for resource in ("cpu", "memory")
    }
    return {
        "total": _shown(whole),
        "sharingRounds": {resource: outcome.rounds for resource, outcome in shared.items()},
        "sumRuntime": _shown({resource: sum(outcome.runtime.values()) for resource, outcome in shared.items()}),
        "runtime": {
            str(j): _shown({resource: outcome.runtime[str(j)] for resource, outcome in shared.items()})
            for j in (0, given["quotaCount"] - 1)
        },
    }


def quota_admission(given: Json, *, name: str) -> object:
    if not given["quotaName"]:
        return {"code": "Skip", "message": ""}
    levels = [{**given["quota"], "name": given["quotaName"]}, *(given.get("ancestors") or [])]
    chain = [
        QuotaLevel(
            name=level["name"],
            max=parse_amounts(level.get("max") or {}),
            min=parse_amounts(level.get("min") or {}),
            runtime=parse_amounts(level.get("runtime") or {}),
            used=parse_amounts(level.get("used") or {}),
            non_preemptible_used=parse_amounts(level.get("nonPreemptibleUsed") or {}),
        )
        for level in levels
    ]
    args = given.get("args") or {}
    refusal = admit(
        parse_amounts(given["podRequests"]),
        chain,
        preemptible=is_preemptible(given["pod"]["metadata"].get("labels") or {}),
        runtime_limits=args.get("enableRuntimeQuota", True),
        check_ancestors=args.get("enableCheckParentQuota", False),
    )
    return (
        {"code": "Success", "message": ""}
        if refusal is None
        else {
            "code": "Unschedulable",
            "message": refusal.message,
        }
    )


def quota_binding(given: Json, *, name: str) -> object:
    pod = msgspec.convert(given["pod"]["metadata"], ObjectMeta)
    views = [_view(quota) for quota in given["quotas"]]
    index = QuotaIndex(
        [QuotaIdentity(view.name, view.namespace, view.tree, view.namespaces) for view in views],
        default_quota=not (given.get("features") or {}).get("DisableDefaultQuota", False),
    )
    membership = index.associate(pod.namespace, pod.labels)
    return {
        "lookup": index.lookup(pod.namespace, pod.labels),
        "associated": "" if membership is None else membership.quota,
    }


def quota_tree(given: Json, *, name: str) -> object:
    world = _World(given)
    for step in given["steps"]:
        world.do(step)
    if name == "pod seen before its quota exists":
        # Membership is a fold: the pod counts as soon as its quota is there, not with the pod's next event.
        return mended(world.seen, "$.*.podCount", "$.*.request", trap="T9")
    return world.seen


class _World:
    """The facts that a vector's steps make; every check solves the tree from them."""

    def __init__(self, given: Json) -> None:
        features = given.get("features") or {}
        self.tree = given.get("treeID") or ""
        self.now = given.get("now") or 0
        self.rules = QuotaRules(
            scale_min=given["scaleMinEnabled"],
            guarantee_usage=features.get("ElasticQuotaGuaranteeUsage", False),
        )
        self.ignore_overhead = features.get("ElasticQuotaIgnorePodOverhead", False)
        self.terminating = Terminating.COUNT
        if features.get("ElasticQuotaIgnoreTerminatingPod"):
            self.terminating = Terminating.IGNORE_EXPIRED
        if features.get("ElasticQuotaImmediateIgnoreTerminatingPod"):
            self.terminating = Terminating.IGNORE
        self.declared: dict[str, int] = {}
        self.nodes: dict[str, dict[str, int]] = {}
        self.quotas: dict[str, ElasticQuotaView] = {}
        self.pods: dict[tuple[str, str, str], tuple[str, Json]] = {}
        self.extra: dict[str, OwnPods] = {}
        self.seen: dict[str, object] = {}

    def do(self, step: Json) -> None:
        steps = {
            "totalDelta": self._total_delta,
            "nodeAdd": self._node_add,
            "nodeUpdate": self._node_add,
            "nodeDelete": self._node_delete,
            "quota": self._quota,
            "deleteQuota": self._delete_quota,
            "requestDelta": self._request_delta,
            "usedDelta": self._used_delta,
            "podAdd": self._pod_add,
            "podUpdate": self._pod_update,
            "podDelete": self._pod_delete,
            "reserve": self._reserve,
            "unreserve": self._unreserve,
            "check": self._check,
        }
        if step["op"] not in ("refresh", "rebuild"):  # everything is recomputed at each check
            steps[step["op"]](step)

    def _total_delta(self, step: Json) -> None:
        self.declared = plus(self.declared, parse_amounts(step["delta"]))

    def _node_add(self, step: Json) -> None:
        node = counted_node(msgspec.json.encode(step["node"]))
        if node is not None:
            self.nodes[node.metadata.name] = parse_amounts(node.status.allocatable)

    def _node_delete(self, step: Json) -> None:
        self.nodes.pop(step["node"]["metadata"]["name"], None)

    def _quota(self, step: Json) -> None:
        view = _view(step["quota"])
        self.quotas[view.name] = view

    def _delete_quota(self, step: Json) -> None:
        self.quotas.pop(step["name"], None)
        self.extra.pop(step["name"], None)

    def _request_delta(self, step: Json) -> None:
        own = self.extra.get(step["quota"], OwnPods())
        self.extra[step["quota"]] = msgspec.structs.replace(
            own,
            request=_grown(own.request, step["delta"]),
            non_preemptible_request=_grown(own.non_preemptible_request, step["nonPreemptibleDelta"]),
        )

    def _used_delta(self, step: Json) -> None:
        own = self.extra.get(step["quota"], OwnPods())
        self.extra[step["quota"]] = msgspec.structs.replace(
            own,
            used=_grown(own.used, step["delta"]),
            non_preemptible_used=_grown(own.non_preemptible_used, step["nonPreemptibleDelta"]),
        )

    def _pod_add(self, step: Json) -> None:
        meta = step["pod"]["metadata"]
        self.pods[(meta.get("namespace", ""), meta["name"], step["quota"])] = (step["quota"], step["pod"])

    def _pod_update(self, step: Json) -> None:
        self._pod_delete({"pod": step["oldPod"], "quota": step["oldQuota"]})
        if step["quota"]:
            self._pod_add(step)

    def _pod_delete(self, step: Json) -> None:
        meta = step["pod"]["metadata"]
        self.pods.pop((meta.get("namespace", ""), meta["name"], step["quota"]), None)

    def _reserve(self, step: Json) -> None:
        self._pod_add({**step, "pod": {**step["pod"], "spec": {**step["pod"]["spec"], "nodeName": "reserved"}}})

    def _unreserve(self, step: Json) -> None:
        self._pod_add({**step, "pod": {**step["pod"], "spec": {**step["pod"]["spec"], "nodeName": ""}}})

    def _ignored(self, pod: Pod) -> bool:
        meta = pod.metadata
        deletion = None if meta.deletion_timestamp is None else EPOCH + timedelta(seconds=int(meta.deletion_timestamp))
        after = ignored_after(deletion, meta.deletion_grace_period_seconds, self.terminating)
        return after is not None and EPOCH + timedelta(seconds=self.now) > after

    def _check(self, step: Json) -> None:
        quotas = {name: view for name, view in self.quotas.items() if name not in (ROOT, SYSTEM, DEFAULT)}
        built_in = {} if self.tree else {name: self.quotas.get(name) or built_in_quota(name) for name in (SYSTEM, DEFAULT)}
        tree = QuotaTree(build_trees(quotas)[self.tree], built_in, self.rules)
        for quota, own in self.extra.items():
            if quota in quotas or quota in built_in:
                _count(tree, quota, own)
        counts = Json.fromkeys((*quotas, *built_in), 0)
        for quota, document in self.pods.values():
            document = {**document, "metadata": dict(document["metadata"])}
            if (ends := document["metadata"].get("deletionTimestamp")) is not None:
                document["metadata"]["deletionTimestamp"] = str(ends)
            pod = msgspec.convert(document, Pod)
            known = quotas.get(quota) or built_in.get(quota)
            if known is None or self._ignored(pod):
                continue
            counts[quota] += 1
            request = counted_request(pod.spec, ignore_overhead=self.ignore_overhead)
            request, preemptible = masked(request, known.max), is_preemptible(pod.metadata.labels)
            tree.ask(quota, request, preemptible, 1)
            if pod.spec.node_name and pod.status.phase not in ("Succeeded", "Failed"):
                tree.hold(quota, request, preemptible, 1)
        whole = total([self.declared, *self.nodes.values()])
        if not self.tree:
            whole = tree_totals(whole, quotas)[""]
        tree.set_total(whole)
        tree.changed()
        solved = {name: tree.solved(name) for name in tree.names()}
        checks: dict[str, object] = {
            name: _fields(quota, self.quotas.get(name), counts.get(name, 0)) for name, quota in solved.items()
        }
        used = total(solved[name].sums.used for name in built_in)
        checks["@manager"] = {
            "total": _shown(whole),
            "totalExceptSystemAndDefaultUsed": _shown(available(whole, used)),
        }
        self.seen[step["id"]] = _Checked(checks)


def _count(tree: QuotaTree, quota: str, own: OwnPods) -> None:
    tree.ask(quota, minus(own.request, own.non_preemptible_request), True, 1)
    tree.ask(quota, own.non_preemptible_request, False, 1)
    tree.hold(quota, minus(own.used, own.non_preemptible_used), True, 1)
    tree.hold(quota, own.non_preemptible_used, False, 1)


class _Checked(Json):
    """A quota that does not exist reads as null."""

    def __missing__(self, key: str) -> None:
        return None

    def get(self, key: str, default: object = None) -> object:
        return super().get(key, default)


def _fields(quota: SolvedQuota, view: ElasticQuotaView | None, pods: int) -> dict[str, object]:
    sums = quota.sums
    amounts: dict[str, Amounts] = {
        "max": quota.max,
        "min": quota.min,
        "autoScaleMin": quota.scaled_min,
        "sharedWeight": view.shared_weight if view else {},
        "request": sums.request,
        "childRequest": sums.child_request,
        "limitRequest": sums.limit_request,
        "used": sums.used,
        "selfRequest": sums.own.request,
        "selfUsed": sums.own.used,
        "selfNonPreemptibleRequest": sums.own.non_preemptible_request,
        "selfNonPreemptibleUsed": sums.own.non_preemptible_used,
        "nonPreemptibleRequest": sums.non_preemptible_request,
        "nonPreemptibleUsed": sums.non_preemptible_used,
        "allocated": sums.allocated,
        "guaranteed": sums.guaranteed,
        "runtime": quota.runtime,
        "storedRuntime": quota.runtime,
    }
    return {
        **{field: _shown(value) for field, value in amounts.items()},
        "parentName": quota.parent,
        "isParent": view.is_parent if view else False,
        "allowLentResource": view.lends if view else True,
        "podCount": pods,
    }


def _grown(amounts: dict[str, int], delta: Json) -> dict[str, int]:
    return {resource: max(amount, 0) for resource, amount in plus(amounts, parse_amounts(delta)).items()}


def _view(document: Json) -> ElasticQuotaView:
    return quota_view(msgspec.convert(document, ElasticQuota))


def _shown(amounts: Amounts) -> dict[str, str]:
    return {resource: format_amount(resource, amount) for resource, amount in sorted(amounts.items())}
