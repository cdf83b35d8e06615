"""Actions of administrators and users around pods: namespaces, priority classes, taints, cordons and labels of nodes, gates."""

from __future__ import annotations

from datetime import datetime

from cotenant_console.api.client import Document, Json
from cotenant_verification.harness.harness import Harness
from cotenant_verification.workload.pod_constraints import DEDICATED, TIER, ZONE
from cotenant_verification.workload.schedule import ScheduleEntry, located

NAMESPACES = ("", "namespaces")
NODES = ("", "nodes")
PODS = ("", "pods")


def label_namespace(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Declare a namespace of a tier, or change its tier."""
    labels: Document = {TIER: entry.text("tier")}
    gateway = harness.gateway()
    if gateway.holds(NAMESPACES, "", entry.target):
        gateway.request_patch(now, NAMESPACES, "", entry.target, {"metadata": {"labels": labels}})
    else:
        metadata: Document = {"name": entry.target, "labels": labels}
        gateway.request_creation(now, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    return True


def end_namespace(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Delete a namespace with everything in it."""
    harness.gateway().request_deletion(now, NAMESPACES, "", entry.target, None)
    return True


def declare_priority(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Declare a priority class whose pods preempt, or do not."""
    document: Document = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": entry.target},
        "value": entry.number("value"),
        "preemptionPolicy": entry.text("policy"),
    }
    harness.gateway().request_creation(now, document)
    return True


def taint(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Dedicate a node to pods that tolerate the taint; an empty value removes the taint."""
    value = entry.text("value")
    taints: list[Json] = [{"key": DEDICATED, "value": value, "effect": entry.text("effect")}] if value else []
    harness.gateway().request_patch(now, NODES, "", entry.target, {"spec": {"taints": taints}})
    return True


def cordon(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Cordon or uncordon a node."""
    harness.gateway().request_patch(now, NODES, "", entry.target, {"spec": {"unschedulable": bool(entry.number("on"))}})
    return True


def relabel(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Change a node's zone label; an empty value restores its own zone."""
    harness.gateway().request_patch(now, NODES, "", entry.target, {"metadata": {"labels": {ZONE: entry.text("zone") or None}}})
    return True


def open_gate(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """Remove a pod's scheduling gates."""
    harness.gateway().request_patch(now, PODS, *located(entry.target), {"spec": {"schedulingGates": []}})
    return True


ACTIONS = {
    "namespace": label_namespace,
    "end-namespace": end_namespace,
    "priority-class": declare_priority,
    "taint": taint,
    "cordon": cordon,
    "relabel": relabel,
    "open-gate": open_gate,
}
