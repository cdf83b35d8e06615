"""Batch resources shared with a foreign scheduler: the two node annotations that Kubernetes users see.

    node.koordinator.sh/originExtendedAllocatable  {"resources": {...}}   batch resources before the foreign share
    node.koordinator.sh/thirdPartyAllocations      {"allocations": [{name, priority, resources}]}   the foreign share

In: the annotations of a node. Out: exact amounts (batch-cpu in milli-CPUs, memory in bytes), or new annotation texts
in the canonical form that Koordinator writes (Go's JSON: declared field order, resource names sorted). Source:
Koordinator's node annotations.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.model.names import ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE, ANNOTATION_THIRD_PARTY_ALLOCATIONS
from cotenant.model.quantities import QuantityError, Scalar, parse_value
from cotenant.model.tiers import PriorityClass

KOORD_BATCH = PriorityClass.BATCH.value
HADOOP_YARN = "hadoop-yarn"


class ThirdPartyError(ValueError):
    """One of the annotations cannot be read; the message names it."""


class ThirdPartyAllocation(msgspec.Struct, frozen=True):
    """A foreign scheduler's usage of a node: its name, a priority tier, resource name to quantity as written."""

    name: str = ""
    priority: str = ""
    resources: dict[str, Scalar] | None = None


class _Allocations(msgspec.Struct, frozen=True):
    allocations: list[ThirdPartyAllocation] | None = None


class _Origin(msgspec.Struct, frozen=True):
    resources: dict[str, Scalar] | None = None


_ALLOCATIONS = msgspec.json.Decoder(_Allocations)
_ORIGIN = msgspec.json.Decoder(_Origin)


def parse_allocations(annotations: Mapping[str, str]) -> tuple[ThirdPartyAllocation, ...]:
    """Return the foreign allocations in the order written; none where the annotation is absent. Raises
    ThirdPartyError.
    """
    text = annotations.get(ANNOTATION_THIRD_PARTY_ALLOCATIONS)
    if text is None:
        return ()
    try:
        allocations = _ALLOCATIONS.decode(text).allocations or []
        for allocation in allocations:
            amounts_of(allocation.resources or {})
    except (msgspec.DecodeError, QuantityError) as error:
        raise ThirdPartyError(f"annotation {ANNOTATION_THIRD_PARTY_ALLOCATIONS}: {error}") from error
    return tuple(allocations)


def batch_total(allocations: tuple[ThirdPartyAllocation, ...], *, replaced: str = "") -> dict[str, int]:
    """Return the sum of all koord-batch entries (of any name), without those of the name `replaced`."""
    total: dict[str, int] = {}
    for allocation in allocations:
        if allocation.priority == KOORD_BATCH and (not replaced or allocation.name != replaced):
            for name, amount in amounts_of(allocation.resources or {}).items():
                total[name] = total.get(name, 0) + amount
    return total


def write_allocation(annotations: Mapping[str, str], allocation: ThirdPartyAllocation) -> dict[str, str]:
    """Return the annotations with this allocation in the place of the entry of its name, or added. Raises
    ThirdPartyError.
    """
    entries = list(parse_allocations(annotations))
    index = next((at for at, entry in enumerate(entries) if entry.name == allocation.name), None)
    if index is None:
        entries.append(allocation)
    else:
        entries[index] = allocation
    document = {
        "allocations": [
            {"name": entry.name, "priority": entry.priority, "resources": dict(sorted((entry.resources or {}).items()))}
            for entry in entries
        ]
    }
    return {**annotations, ANNOTATION_THIRD_PARTY_ALLOCATIONS: msgspec.json.encode(document).decode()}


def parse_origin(annotations: Mapping[str, str]) -> dict[str, Scalar] | None:
    """Return the batch resources before the foreign share; None where absent or without `resources`. Raises
    ThirdPartyError.
    """
    text = annotations.get(ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE)
    if text is None:
        return None
    try:
        resources = _ORIGIN.decode(text).resources
        amounts_of(resources or {})
    except (msgspec.DecodeError, QuantityError) as error:
        raise ThirdPartyError(f"annotation {ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE}: {error}") from error
    return resources


def write_origin(annotations: Mapping[str, str], resources: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations with these origin resources laid over those present; an unreadable old value is
    replaced.
    """
    try:
        old = {name: str(quantity) for name, quantity in (parse_origin(annotations) or {}).items()}
    except ThirdPartyError:
        old = {}
    document = {"resources": dict(sorted({**old, **resources}.items()))}
    return {**annotations, ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE: msgspec.json.encode(document).decode()}


def amounts_of(resources: Mapping[str, Scalar]) -> dict[str, int]:
    """Return whole units, rounded up (batch-cpu counts milli-CPUs in units). Raises QuantityError."""
    return {name: parse_value(quantity) for name, quantity in resources.items()}
