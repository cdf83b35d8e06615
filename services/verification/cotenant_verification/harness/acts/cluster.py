"""What administrators and users do around pods: namespaces, priority classes, taints, cordons and labels of nodes, gates."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from cotenant_console.api.client import Document, Json
from cotenant_verification.workload.pod_constraints import DEDICATED, TIER, ZONE
from cotenant_verification.workload.schedule import Entry, located

if TYPE_CHECKING:
    from cotenant_verification.harness.harness import Stage

NAMESPACES = ("", "namespaces")
NODES = ("", "nodes")
PODS = ("", "pods")


def label_namespace(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A namespace of a tier is declared, or gets another one."""
    labels: Document = {TIER: entry.text("tier")}
    gateway = stage.gateway()
    if gateway.holds(NAMESPACES, "", entry.target):
        gateway.request_patch(now, NAMESPACES, "", entry.target, {"metadata": {"labels": labels}})
    else:
        metadata: Document = {"name": entry.target, "labels": labels}
        gateway.request_creation(now, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return True


def end_namespace(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A namespace is deleted, and with it all that is in it."""
    stage.gateway().request_deletion(now, NAMESPACES, "", entry.target, None)
    return True


def declare_priority(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A priority class, whose pods may have others end, or wait."""
    document: Document = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": entry.target},
        "value": entry.number("value"),
        "preemptionPolicy": entry.text("policy"),
    }
    stage.gateway().request_creation(now, document)
    return True


def taint(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A node is dedicated to those who tolerate it; an empty value: to nobody any more."""
    value = entry.text("value")
    taints: list[Json] = [{"key": DEDICATED, "value": value, "effect": entry.text("effect")}] if value else []
    stage.gateway().request_patch(now, NODES, "", entry.target, {"spec": {"taints": taints}})
    return True


def cordon(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A node takes nobody any more, or again."""
    stage.gateway().request_patch(now, NODES, "", entry.target, {"spec": {"unschedulable": bool(entry.number("on"))}})
    return True


def relabel(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A node is said to stand in another zone; an empty one: in its own again."""
    stage.gateway().request_patch(now, NODES, "", entry.target, {"metadata": {"labels": {ZONE: entry.text("zone") or None}}})
    return True


def open_gate(stage: Stage, entry: Entry, now: datetime) -> bool:
    """A pod's scheduling gates are taken away."""
    stage.gateway().request_patch(now, PODS, *located(entry.target), {"spec": {"schedulingGates": []}})
    return True


ACTS = {
    "namespace": label_namespace,
    "end-namespace": end_namespace,
    "priority-class": declare_priority,
    "taint": taint,
    "cordon": cordon,
    "relabel": relabel,
    "open-gate": open_gate,
}
