"""Rules for nodes, config maps, budgets, priority classes, runtime classes and migration jobs.

In: the typed view as it would be stored, and for an update as it is. Out: field errors. Source: Kubernetes'
validation of the same kinds; for PodMigrationJob the enums of Koordinator's custom resource.
"""

from __future__ import annotations

import re

from cotenant.api.objects.node import Node
from cotenant.api.objects.pod import Resources
from cotenant.api.objects.policies import (
    ConfigMap,
    PodDisruptionBudget,
    PodMigrationJob,
    PriorityClassObject,
    RuntimeClass,
)
from cotenant.api.validation.fields import (
    FieldError,
    dns_label,
    duplicate,
    forbidden,
    invalid,
    label_value,
    labels,
    not_supported,
    qualified_name,
    quantity,
    required,
)
from cotenant.api.validation.metadata import selector_errors
from cotenant.api.validation.pod import PREEMPTION_POLICIES, TAINT_EFFECTS, toleration_errors
from cotenant.api.validation.resources import resource_errors

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_PERCENT = re.compile(r"[0-9]{1,9}%")


def node_errors(node: Node) -> list[FieldError]:
    """Taints are unique by key and effect and well formed; capacities are not negative."""
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(node.spec.taints):
        path = f"spec.taints[{index}]"
        found += qualified_name(f"{path}.key", taint.key)
        found += label_value(f"{path}.value", taint.value)
        if taint.effect not in TAINT_EFFECTS:
            found.append(not_supported(f"{path}.effect", taint.effect, TAINT_EFFECTS))
        if (taint.key, taint.effect) in seen:
            found.append(duplicate(path, f"{taint.key}:{taint.effect}"))
        seen.add((taint.key, taint.effect))
    for section, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        for resource, amount in amounts.items():
            found += quantity(f"status.{section}[{resource}]", amount)
    return found


def config_map_errors(config: ConfigMap) -> list[FieldError]:
    """Keys are file names."""
    found: list[FieldError] = []
    for key in config.data:
        if not _DATA_KEY.fullmatch(key) or key in (".", "..") or len(key) > 253:
            detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.', at most 253 of them"
            found.append(invalid(f"data[{key}]", key, detail))
    return found


def budget_errors(budget: PodDisruptionBudget) -> list[FieldError]:
    """At most one of minAvailable and maxUnavailable, each a count or a percentage."""
    spec = budget.spec
    found = selector_errors("spec.selector", spec.selector)
    if spec.min_available is not None and spec.max_unavailable is not None:
        found.append(invalid("spec", "both", "minAvailable and maxUnavailable cannot be both set"))
    for field, bound in (("spec.minAvailable", spec.min_available), ("spec.maxUnavailable", spec.max_unavailable)):
        if isinstance(bound, int):
            if bound < 0:
                found.append(invalid(field, bound, "must be greater than or equal to 0"))
        elif bound is not None and not _PERCENT.fullmatch(bound):
            found.append(invalid(field, bound, "must be an integer or a percentage such as '50%'"))
        elif bound is not None and int(bound[:-1]) > 100:
            found.append(invalid(field, bound, "must not be greater than 100%"))
    return found


def priority_class_errors(priority: PriorityClassObject, old: PriorityClassObject | None = None) -> list[FieldError]:
    """Users' values are at most 10^9; `system-` names are the system's; value and policy never change."""
    found: list[FieldError] = []
    name = priority.metadata.name
    if name.startswith(SYSTEM_PREFIX):
        if SYSTEM_PRIORITIES.get(name) != priority.value:
            found.append(
                forbidden("metadata.name", "priority class names with 'system-' prefix are reserved for system use only")
            )
    elif priority.value > HIGHEST_USER_PRIORITY:
        found.append(forbidden("value", f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"))
    if priority.value < -(2**31):
        found.append(invalid("value", priority.value, "must be a 32-bit integer"))
    if priority.preemption_policy not in PREEMPTION_POLICIES:
        found.append(not_supported("preemptionPolicy", priority.preemption_policy, PREEMPTION_POLICIES))
    if old is not None:
        if old.value != priority.value:
            found.append(forbidden("value", "may not be changed in an update."))
        if old.preemption_policy != priority.preemption_policy:
            found.append(invalid("preemptionPolicy", priority.preemption_policy, "field is immutable"))
    return found


def runtime_class_errors(runtime: RuntimeClass, old: RuntimeClass | None = None) -> list[FieldError]:
    """The handler is a DNS label and never changes."""
    found = [required("handler")] if not runtime.handler else dns_label("handler", runtime.handler)
    if old is not None and old.handler != runtime.handler:
        found.append(invalid("handler", runtime.handler, "field is immutable"))
    if runtime.scheduling is not None:
        found += labels("scheduling.nodeSelector", runtime.scheduling.node_selector)
        for index, toleration in enumerate(runtime.scheduling.tolerations):
            found += toleration_errors(f"scheduling.tolerations[{index}]", toleration)
    if runtime.overhead is not None:
        found += resource_errors("overhead.podFixed", Resources(requests=runtime.overhead.pod_fixed))
    return found


MIGRATION_MODES = ("ReservationFirst", "EvictDirectly")


def migration_job_errors(job: PodMigrationJob) -> list[FieldError]:
    """A job names a pod, and one of the modes."""
    found: list[FieldError] = []
    if not job.spec.pod_ref.name:
        found.append(required("spec.podRef.name"))
    if not job.spec.pod_ref.namespace:
        found.append(required("spec.podRef.namespace"))
    if job.spec.mode and job.spec.mode not in MIGRATION_MODES:
        found.append(not_supported("spec.mode", job.spec.mode, MIGRATION_MODES))
    return found
