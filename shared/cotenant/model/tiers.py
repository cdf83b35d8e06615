"""The table of tiers: which pods are prod, mid, batch or free, what they request, and which need they count towards.

    tier    spec.priority   class value   default   requests                   need on the node
    prod    9000-9999       9000          9500      cpu, memory                prod and high priority
    mid     7000-7999       7000          7500      mid-cpu, mid-memory        high priority
    batch   5000-5999       5000          5500      batch-cpu, batch-memory    none: runs on what is reclaimed
    free    3000-3999       3000          3500      cpu, memory                none; its load is not estimated
    none    everything else               0         cpu, memory                prod and high priority

Amounts are integers: batch-cpu and mid-cpu in milli-CPUs, memory in bytes. Sources: Koordinator `apis/extension` (priority
ranges and default values, resource names by priority class); the batch and mid resource formulas (who counts where).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY


class PriorityClass(StrEnum):
    """Koordinator's priority classes (tiers); NONE outside their ranges."""

    NONE = ""
    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


class Tier(msgspec.Struct, frozen=True):
    """One row of the table. `lowest` to `highest` is the inclusive range of `spec.priority`, whose lowest value is that of the
    PriorityClass object; `default` stands for pods that name no value. `resources` maps cpu and memory to the resources that
    pods of the tier request instead; empty where they request cpu and memory themselves."""

    lowest: int
    highest: int
    default: int
    resources: dict[str, str] = {}


TIERS: dict[PriorityClass, Tier] = {
    PriorityClass.PROD: Tier(9000, 9999, 9500),
    PriorityClass.MID: Tier(7000, 7999, 7500, {CPU: MID_CPU, MEMORY: MID_MEMORY}),
    PriorityClass.BATCH: Tier(5000, 5999, 5500, {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}),
    PriorityClass.FREE: Tier(3000, 3999, 3500),
}

TIER_RESOURCES: dict[PriorityClass, dict[str, str]] = {
    tier: row.resources for tier, row in TIERS.items() if row.resources
}
"""The translation of cpu and memory, for the tiers that have resources of their own."""

PRIORITY_VALUES: dict[PriorityClass, int] = {tier: row.lowest for tier, row in TIERS.items()}
"""Values of the PriorityClass objects that an installation holds."""

NOT_PROD = frozenset({PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE})
"""Tiers whose pods do not count as prod; those of no tier do."""

RECLAIMING = frozenset({PriorityClass.BATCH, PriorityClass.FREE})
"""Tiers that run on what prod and mid pods leave: their need is not subtracted when batch resources are computed."""

OVERCOMMITTED = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
"""The resources that batch-resource-calculator offers on a node beside what the machine has."""

RENAMED_RESOURCES = {
    "koordinator.sh/batch-cpu": BATCH_CPU,
    "koordinator.sh/batch-memory": BATCH_MEMORY,
}
"""Deprecated resource names, read as the new ones where the new name is not there already."""

_RANGES = tuple((tier, row.lowest, row.highest) for tier, row in TIERS.items())
_BY_LABEL: dict[str, PriorityClass] = {tier.value: tier for tier in PriorityClass}
_NONE, _FREE = PriorityClass.NONE, PriorityClass.FREE


def priority_of_value(value: int | None) -> PriorityClass:
    """Return the tier of a `spec.priority` value; NONE in the gaps, and where there is none."""
    if value is None:
        return _NONE
    for tier, low, high in _RANGES:
        if low <= value <= high:
            return tier
    return _NONE


def priority_of_label(label: str) -> PriorityClass:
    """Return the tier of that name; NONE if it is not one of the four."""
    return _BY_LABEL.get(label, _NONE)


def priority_default_value(tier: PriorityClass) -> int:
    """Return the priority of pods of the tier that name none; 0 for NONE."""
    return TIERS[tier].default if tier else 0


def tier_resource(tier: PriorityClass, resource: str) -> str:
    """Return the resource whose request estimates the load of a pod of this tier in `resource`; empty where nothing does (free
    pods, and whatever is neither cpu nor memory of a translated tier)."""
    if tier is _FREE:
        return ""
    table = TIER_RESOURCES.get(tier)
    return resource if table is None else table.get(resource, "")
