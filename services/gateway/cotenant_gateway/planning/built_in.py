"""Objects that every installation has: namespaces, priority classes, roles. The gateway stores those that never existed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Address
from cotenant.api.splices import raw
from cotenant.events.objects import ObjectStored
from cotenant.kinds.namespaces import BUILT_IN_NAMESPACES, NAMESPACES
from cotenant.kinds.priority_classes import PRIORITY_CLASSES, SYSTEM_PRIORITIES
from cotenant.log.plans import Plan, object_write
from cotenant.model.tiers import PRIORITY_VALUES
from cotenant_gateway.access import built_in_roles
from cotenant_gateway.read_model.core import GatewayCore


def _namespace(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _priority_class(name: str, value: int) -> dict[str, object]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _documents() -> Iterator[tuple[Kind, str, msgspec.Raw]]:
    for name in BUILT_IN_NAMESPACES:
        yield NAMESPACES, name, raw(_namespace(name))
    values = {tier.value: value for tier, value in PRIORITY_VALUES.items()} | SYSTEM_PRIORITIES
    for name, value in values.items():
        yield PRIORITY_CLASSES, name, raw(_priority_class(name, value))
    yield from built_in_roles.documents()


BUILT_IN_OBJECTS: tuple[tuple[Kind, str, msgspec.Raw], ...] = tuple(_documents())


def missing_built_ins(core: GatewayCore) -> Iterator[Plan]:
    """Yield the objects to create; an object that was deleted stays deleted."""
    for kind, name, document in BUILT_IN_OBJECTS:
        if core.own_sequence(kind, "", name) == 0:
            yield Plan((object_write(Address(kind, "", name), ObjectStored(object=document), 0),), creates=True)
