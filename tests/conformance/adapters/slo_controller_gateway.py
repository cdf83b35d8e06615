"""Vectors of pod admission on the slo-controller page, answered by the rules that the gateway runs."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.colocation import colocation_errors
from cotenant.objects.pod import Pod
from cotenant.qos import priority_default, priority_raw, priority_value_default, qos_raw

Json = dict[str, Any]


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
