"""Vectors of pod admission on the slo-controller page, answered by the rules that the gateway runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.pod import Pod
from cotenant.domain.colocation import colocation_errors
from cotenant.domain.qos import priority_default, priority_raw, priority_value_default, qos_raw
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.pods import PODS
from cotenant.kinds.priority_classes import PRIORITY_CLASSES
from cotenant.model.names import ANNOTATION_EXTENDED_RESOURCE_SPEC
from cotenant.model.subjects import object_subject
from cotenant_gateway.admission.pods.extended_resources import write_extended_resource_spec
from cotenant_gateway.admission.profiles.applying import changed_by_profiles
from cotenant_gateway.admission.profiles.selection import draw, ready_profiles
from cotenant_gateway.admission.quotas.affinity import keep_on_nodes_of_tree
from cotenant_gateway.admission.review import Mutator, open_review
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.read_model.settings import POD_GATES, feature_gates
from tests.conformance.mended import mended

Json = dict[str, Any]

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _pod(document: Json | None) -> Pod | None:
    return None if document is None else msgspec.convert(document, Pod)


def _validate(given: Json) -> object:
    new, old = _pod(given["newPod"]), _pod(given["oldPod"])
    assert new is not None
    gates = given.get("featureGates") or {}
    errors = colocation_errors(
        new,
        old if given["operation"] == "UPDATE" else None,
        priority_label_may_change=bool(gates.get("ColocationProfileSkipValidatingPriority")),
    )
    return {"allowed": not errors, "fields": sorted({error.field for error in errors})}


def pod_validation(given: Json, *, name: str) -> object:
    """Dispatch on the operation."""
    operation = given["op"]
    if operation == "validate":
        return _validate(given)
    pod = _pod(given["pod"])
    if operation == "priority_value_default":
        return {"value": priority_value_default(pod)}
    assert pod is not None
    readers = {"priority_class_raw": priority_raw, "priority_class_default": priority_default, "qos_class_raw": qos_raw}
    return {"value": readers[operation](pod).value}


def colocation_profile(given: Json, *, name: str) -> object:
    """Dispatch on the operation: what admission makes of a pod at its creation."""
    gates = (f"{name}={on}" for name, on in (given.get("featureGates") or {}).items() if name in POD_GATES)
    core = GatewayCore(settings=feature_gates(",".join(gates)).admission)
    operation = given["op"]
    if operation == "mutate_pod":
        return _with_profiles(given, core)
    if operation == "quota_tree_affinity":
        for quota in given["quotas"]:
            _fold(core, ELASTIC_QUOTAS, quota)
        for profile in given["profiles"]:
            _fold(core, QUOTA_PROFILES, profile)
        return {"pod": _admitted(core, given["pod"], keep_on_nodes_of_tree)}
    if operation == "extended_resource_spec":
        text = _admitted(core, given["pod"], write_extended_resource_spec)["metadata"].get("annotations", {})
        written = text.get(ANNOTATION_EXTENDED_RESOURCE_SPEC)
        return {"annotation": None if written is None else json.loads(written)}
    raise NotImplementedError(operation)


def _with_profiles(given: Json, core: GatewayCore) -> object:
    for namespace in (given.get("namespaces") or {}).values():
        _fold(core, NAMESPACES, namespace)
    for class_name, members in (given.get("priorityClasses") or {}).items():
        _fold(core, PRIORITY_CLASSES, {"metadata": {"name": class_name}, **members})
    for profile in given["profiles"]:
        _fold(core, PROFILES, profile)
    random = given.get("random")

    def drawn(profile: str, namespace: str, pod: str) -> int:
        return draw(profile, namespace, pod) if random is None else int(random)

    pod = _admitted(core, given["pod"], lambda review: changed_by_profiles(review, drawn)[0])
    ready = core.derived(PROFILES, ready_profiles).profiles
    if any(profile.faults for profile in ready) or any(0 < profile.percent == random for profile in ready):
        return mended({"pod": pod}, "$.pod*", trap="T31")
    return {"pod": pod}


def _fold(core: GatewayCore, kind: Kind, document: Json) -> None:
    namespace = document["metadata"].get("namespace", "") if kind.namespaced else ""
    subject = object_subject(kind.group, kind.plural, namespace, document["metadata"]["name"])
    stored = ObjectStored(object=msgspec.Raw(json.dumps(document).encode()))
    core.apply(Event(subject=subject, data=stored, time=NOW, sequence=core.folded + 1))


def _admitted(core: GatewayCore, pod: Json, mutate: Mutator) -> Json:
    review = open_review(core.kinds.of(PODS), msgspec.Raw(json.dumps(pod).encode()), None, core)
    change = mutate(review)
    if change is not None:
        review.take(change)
    found: Json = json.loads(bytes(review.document))
    return found
