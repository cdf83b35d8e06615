"""scheduling.k8s.io/v1 PriorityClass: its rules and columns. Source: Kubernetes' validation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.policies import PriorityClassObject
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, forbidden, invalid, not_supported
from cotenant.api.validation.pod_scheduling import PREEMPTION_POLICIES

PRIORITY_CLASSES = Kind("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",))
HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
decode_priority_class = msgspec.json.Decoder(PriorityClassObject).decode


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


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = decode_priority_class(snapshot.document)
    made = age(shown.metadata.creation_timestamp, now)
    return snapshot.address.name, shown.value, shown.global_default, made, shown.preemption_policy


DEFINITION = KindDefinition(
    PRIORITY_CLASSES,
    decode=decode_priority_class,
    decode_when_folded=True,
    errors=lambda new, old: priority_class_errors(new, old()),
    layout=Layout(
        (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy")), _cells
    ),
)
