"""Actions of users and administrators: objects created, changed and deleted through any gateway."""

from __future__ import annotations

from datetime import datetime, timedelta

from cotenant.model.names import SLO_CONFIG_NAME, SLO_CONFIG_NAMESPACE
from cotenant_console.api.client import Document
from cotenant_verification.harness.harness import Harness
from cotenant_verification.workload.manifests import (
    budget,
    move,
    node_config,
    pod,
    pod_group,
    profile,
    quota,
    quota_patch,
    quota_profile,
    reservation,
    resized,
)
from cotenant_verification.workload.schedule import ScheduleEntry, located

RESERVATIONS = ("scheduling.koordinator.sh", "reservations")
POD_GROUPS = ("scheduling.sigs.k8s.io", "podgroups")
QUOTA_PROFILES = ("quota.koordinator.sh", "elasticquotaprofiles")
QUOTAS = ("scheduling.sigs.k8s.io", "elasticquotas")
CONFIG_MAPS = ("", "configmaps")
PODS = ("", "pods")
MOVES = ("scheduling.koordinator.sh", "podmigrationjobs")
PROFILES = ("config.koordinator.sh", "clustercolocationprofiles")


def create_pod(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user creates a pod."""
    harness.controllers.note(entry)
    harness.gateway().request_creation(now, pod(entry.target, entry.args))
    return True


def revise_pod(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user changes a pod; with `stale-update`, conditional on an old version."""
    harness.revisions += 1
    gateway = harness.gateways[entry.number("gateway")]
    gateway.request_revision(now, entry.target, harness.revisions, stale=entry.kind == "stale-update")
    harness.world.wake(gateway, now)
    return True


def resize_pod(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user resizes a pod in place."""
    harness.gateway().request_resize(now, *located(entry.target), resized(entry.args))
    return True


def delete_pod(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user deletes a pod."""
    grace = entry.number("grace")
    harness.gateway().request_deletion(now, PODS, *located(entry.target), None if grace < 0 else grace)
    return True


def create_quota(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator declares a quota."""
    harness.gateway().request_creation(now, quota(entry.target, entry.args))
    return True


def update_quota(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator changes a quota."""
    harness.gateway().request_patch(now, QUOTAS, "default", entry.target, quota_patch(entry.args))
    return True


def delete_quota(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator deletes a quota; refused while it holds pods or other quotas."""
    harness.gateway().request_deletion(now, QUOTAS, "default", entry.target, None)
    return True


def create_pod_group(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user declares a gang."""
    harness.gateway().request_creation(now, pod_group(entry.target, entry.args))
    return True


def update_pod_group(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user changes its minimum."""
    patch: Document = {"spec": {"minMember": entry.number("min")}}
    harness.gateway().request_patch(now, POD_GROUPS, "default", entry.target, patch)
    return True


def delete_pod_group(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user deletes it; its pods stay."""
    harness.gateway().request_deletion(now, POD_GROUPS, "default", entry.target, None)
    return True


def change_quota_profile(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator declares or changes a profile of a quota tree."""
    document = quota_profile(entry.target, entry.args)
    gateway = harness.gateway()
    if gateway.holds(QUOTA_PROFILES, "default", entry.target):
        gateway.request_patch(now, QUOTA_PROFILES, "default", entry.target, {"spec": document["spec"]})
    else:
        gateway.request_creation(now, document)
    return True


def delete_quota_profile(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator deletes it; its quotas stay."""
    harness.gateway().request_deletion(now, QUOTA_PROFILES, "default", entry.target, None)
    return True


def create_reservation(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user creates a reservation."""
    harness.gateway().request_creation(now, reservation(entry.target, entry.args))
    return True


def delete_reservation(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user deletes it."""
    harness.gateway().request_deletion(now, RESERVATIONS, "", entry.target, None)
    return True


def create_move(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user creates a migration job for a pod."""
    harness.gateway().request_creation(now, move(entry.target, entry.args))
    return True


def delete_move(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user withdraws that request."""
    harness.gateway().request_deletion(now, MOVES, "", entry.target, None)
    return True


def change_profile(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator declares or changes a colocation profile, sometimes to an invalid one."""
    document = profile(entry.target, entry.args)
    gateway = harness.gateway()
    if gateway.holds(PROFILES, "", entry.target):
        gateway.request_patch(now, PROFILES, "", entry.target, {"spec": document["spec"]})
    else:
        gateway.request_creation(now, document)
    return True


def delete_profile(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator deletes a profile."""
    harness.gateway().request_deletion(now, PROFILES, "", entry.target, None)
    return True


def create_budget(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """A user declares a disruption budget."""
    harness.gateway().request_creation(now, budget(entry.target, entry.text("app"), entry.number("min_available")))
    return True


def configure(harness: Harness, entry: ScheduleEntry, now: datetime) -> bool:
    """An administrator changes the node configuration, sometimes to an invalid one."""
    document = node_config(entry.args)
    gateway = harness.gateway()
    if gateway.holds(CONFIG_MAPS, SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME):
        gateway.request_patch(now, CONFIG_MAPS, SLO_CONFIG_NAMESPACE, SLO_CONFIG_NAME, {"data": document["data"]})
    else:
        gateway.request_creation(now, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SLO_CONFIG_NAMESPACE}})
        gateway.request_creation(now + timedelta(milliseconds=50), document)
    return True


ACTIONS = {
    "create-pod": create_pod,
    "update-pod": revise_pod,
    "stale-update": revise_pod,
    "resize-pod": resize_pod,
    "delete-pod": delete_pod,
    "create-quota": create_quota,
    "update-quota": update_quota,
    "delete-quota": delete_quota,
    "create-pod-group": create_pod_group,
    "update-pod-group": update_pod_group,
    "delete-pod-group": delete_pod_group,
    "quota-profile": change_quota_profile,
    "delete-quota-profile": delete_quota_profile,
    "create-reservation": create_reservation,
    "delete-reservation": delete_reservation,
    "create-move": create_move,
    "delete-move": delete_move,
    "profile": change_profile,
    "delete-profile": delete_profile,
    "create-budget": create_budget,
    "config": configure,
}
