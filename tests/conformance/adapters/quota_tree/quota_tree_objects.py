"""quota-tree vectors of quotas as objects: what may be stored, and what the API shows of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from cotenant.api.objects.policies import ElasticQuota
from cotenant.api.validation.fields import FieldError, FieldReason
from cotenant.domain.quota.gates import QUOTA_GATES, QuotaGates, quota_gates
from cotenant.domain.quota.names import ANNOTATION_SHARED_WEIGHT, LABEL_PARENT, LABEL_TREE, ROOT
from cotenant.domain.quota.place import (
    Place,
    guarantee_errors,
    key_errors,
    min_sum_errors,
    parent_errors,
    tree_id_errors,
)
from cotenant.domain.quota.trees.totals import tree_totals
from cotenant.domain.quota.validation import binds, own_field_errors, validate_quota, validate_quota_deletion
from cotenant.domain.quota.view import ElasticQuotaView, decode_quota, quota_view
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.quotas import QuotaRuntime
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.pods import PODS
from cotenant.model.amounts import parse_amounts
from cotenant.model.quantities import format_amount
from cotenant.model.subjects import object_subject
from cotenant_gateway.admission.quotas.of_pods import preemptible_label_stays, quota_of_pod_is_a_leaf
from cotenant_gateway.admission.quotas.tree import complete_weight, inherit_tree
from cotenant_gateway.admission.review import open_review
from cotenant_gateway.read_model.core import GatewayCore
from tests.conformance.mended import mended

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_RULES = {
    "quotaKeys": key_errors,
    "treeID": tree_id_errors,
    "minSum": min_sum_errors,
    "parentInfo": parent_errors,
    "guaranteedForMin": guarantee_errors,
}
"""The rules that vectors ask one by one."""


def _view(document: Json) -> ElasticQuotaView:
    return quota_view(msgspec.convert(document, ElasticQuota))


def _detail(error: FieldError) -> str:
    """The rule's text, without the words that say what kind of error it is and with which value."""
    return error.message.split(": ", 1 if error.reason is FieldReason.FORBIDDEN else 2)[-1]


def _answer(errors: list[FieldError]) -> object:
    return {"allowed": not errors, "message": _detail(errors[0]) if errors else ""}


def quota_validation(given: Json, *, name: str) -> object:
    document, operation = given["object"], given["operation"]
    if document["kind"] == "Pod":
        return _of_pod(given)
    if operation == "MUTATE":
        return _mutated(document, given.get("existing") or [])
    gates = _gates(given)
    quota = _view(document)
    others = [_view(existing) for existing in given.get("existing") or []]
    known = any(other.name == quota.name for other in others)
    if given.get("check") == "selfItem":
        return _answer(own_field_errors(quota))
    if given.get("check") is not None:
        # One rule of the tree, asked as for a new quota.
        if given["check"] == "guaranteedForMin":
            gates = QuotaGates(guarantee_usage=True)
        place = Place(quota, [other for other in others if other.name != quota.name], None, gates)
        return _answer(_RULES[given["check"]](place))
    pods = given.get("pods") or []
    if operation == "DELETE":
        why = validate_quota_deletion(quota, others, [pod["metadata"]["name"] for pod in pods])
        return {"allowed": not why, "message": why} if known or why else _of_the_api("404")
    if known == (operation == "CREATE"):
        return _of_the_api("409" if known else "404")
    places = [(pod["metadata"].get("namespace", ""), pod["metadata"].get("labels") or {}) for pod in pods]
    answer = _answer(validate_quota(quota, others, lambda old: any(binds(old, *place) for place in places), gates))
    if name == "namespace of another quota on update":
        return mended(answer, "$.message", trap="the upstream text says UpdadteQuota")
    return answer


def _gates(given: Json) -> QuotaGates:
    features = {name: on for name, on in (given.get("features") or {}).items() if name in QUOTA_GATES}
    return quota_gates(",".join(f"{name}={str(on).lower()}" for name, on in features.items()))


def _of_pod(given: Json) -> object:
    core = GatewayCore(quota_gates=_gates(given))
    for sequence, quota in enumerate(given.get("existing") or [], start=1):
        _fold(core, quota, sequence)
    if given.get("oldObject"):
        subject = object_subject("", "pods", "default", given["object"]["metadata"]["name"])
        stored = ObjectStored(object=_raw(given["oldObject"]))
        core.apply(Event(subject=subject, data=stored, time=NOW, sequence=core.folded + 1))
    old = core.get(PODS, "default", given["object"]["metadata"]["name"])
    review = open_review(core.kinds.of(PODS), _raw(given["object"]), old, core)
    return _answer([*preemptible_label_stays(review), *quota_of_pod_is_a_leaf(review)])


def _raw(document: Json) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(document).encode())


def _mutated(document: Json, existing: list[Json]) -> object:
    """Tree and shared weight are written into the object; the parent's default is how a quota is read."""
    core = GatewayCore()
    for sequence, other in enumerate(existing, start=1):
        _fold(core, other, sequence)
    review = open_review(core.kinds.of(ELASTIC_QUOTAS), msgspec.Raw(json.dumps(document).encode()), None, core)
    for mutate in (inherit_tree, complete_weight):
        mutation = mutate(review)
        if mutation is not None:
            review.take(mutation)
    view, stored = decode_quota(review.document), review.view
    assert isinstance(stored, ElasticQuota)
    others = [_view(other) for other in existing]
    if view.parent != ROOT and all(other.name != view.parent for other in others):
        return mended(_answer(validate_quota(view, others)), "$.message", trap="one text for a parent that does not exist")
    return {
        "allowed": True,
        "labels": {LABEL_PARENT: view.parent, LABEL_TREE: view.tree},
        "sharedWeight": json.loads(stored.metadata.annotations.get(ANNOTATION_SHARED_WEIGHT, "{}")),
    }


def _fold(core: GatewayCore, quota: Json, sequence: int) -> None:
    meta = quota["metadata"] | {"namespace": "default"}
    stored = ObjectStored(object=msgspec.Raw(json.dumps({**quota, "metadata": meta}).encode()))
    subject = object_subject(ELASTIC_QUOTAS.group, ELASTIC_QUOTAS.plural, "default", meta["name"])
    core.apply(Event(subject=subject, data=stored, time=NOW, sequence=sequence))


def _of_the_api(code: str) -> object:
    trap = f"{code} in the words that every kind has, before any rule of quotas"
    return mended({"allowed": False, "message": ""}, "$.message", trap=trap)


def quota_status(given: Json, *, name: str) -> object:
    """What the API shows follows from the quota's event at each read: there is nothing to write, so nothing to leave out."""
    quota, summary = given["quota"], given["summary"]
    core = GatewayCore()
    meta = quota["metadata"]
    _fold(core, {**quota, "metadata": meta | {"annotations": {}}}, 1)
    amounts: dict[str, Any] = {
        field: {resource: amount for resource, amount in parse_amounts(summary[spelled]).items() if amount}
        for field, spelled in (
            ("used", "used"),
            ("non_preemptible_used", "nonPreemptibleUsed"),
            ("non_preemptible_request", "nonPreemptibleRequest"),
            ("request", "request"),
            ("runtime", "runtime"),
            ("child_request", "childRequest"),
            ("allocated", "allocated"),
            ("guaranteed", "guaranteed"),
        )
    }
    told = QuotaRuntime(tree="", quota=meta["name"], namespace="default", **amounts)
    core.apply(Event(subject=f"quotas._.{meta['name']}", data=told, time=NOW, sequence=2))
    snapshot = core.get(ELASTIC_QUOTAS, "default", meta["name"])
    assert snapshot is not None
    shown = json.loads(snapshot.document)
    annotations = {key: json.loads(text) for key, text in shown["metadata"]["annotations"].items()}
    before = {key: json.loads(text) for key, text in (quota["metadata"].get("annotations") or {}).items()}
    used = shown["status"]["used"]
    same = used == ((quota.get("status") or {}).get("used") or {}) and _numbers(annotations) == _numbers(before)
    return {"annotations": annotations, "used": used, "noPatch": same}


def _numbers(texts: Json) -> Json:
    return {key: {resource: str(amount) for resource, amount in amounts.items()} for key, amounts in texts.items()}


def quota_multi_tree(given: Json, *, name: str) -> object:
    nodes = [parse_amounts(node["status"]["allocatable"]) for node in given["nodes"]]
    whole = {resource: sum(node.get(resource, 0) for node in nodes) for node in nodes for resource in node}
    quotas: dict[str, ElasticQuotaView] = {}
    seen: Json = {}
    for step in given["steps"]:
        if step["op"] == "check":
            seen[step["id"]] = {
                tree: {resource: format_amount(resource, amount) for resource, amount in amounts.items()}
                for tree, amounts in tree_totals(whole, quotas).items()
            }
        else:
            view = _view(step["quota"])
            quotas.pop(view.name, None)
            if step["op"] == "quota":
                quotas[view.name] = view
    return seen
