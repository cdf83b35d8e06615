"""core/v1 Node = document + executor + resources + condition.

In: the node's document and the last executor report, machine, overcommitment and readiness events of that node. Out: labels and
taints, capacity and allocatable (batch and mid resources and device totals included; allocatable is what `cotenant.domain.node`
calls offered: amplified, and the reservation annotation is not taken off), the annotations of
`cotenant.domain.node_annotations`, the conditions Ready, LogUnknown, MemoryPressure and ZoneDisrupted, nodeInfo, addresses.
Without a condition event a node with an executor is ready; a node with neither executor nor condition keeps what its
document says. Validation: Kubernetes' rules of taints and quantities.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from cotenant.api.definitions import KindDefinition, node_of_subject
from cotenant.api.kinds import Kind
from cotenant.api.objects.node import Node, decode_node
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import rfc3339
from cotenant.api.validation.fields import (
    FieldError,
    duplicate,
    invalid,
    label_value,
    not_supported,
    qualified_name,
    quantity,
)
from cotenant.api.validation.pod_scheduling import TAINT_EFFECTS
from cotenant.domain.amplification import AMPLIFIED
from cotenant.domain.node import NodeSources, overcommitted_amounts
from cotenant.domain.node_annotations import derived_annotations
from cotenant.domain.reservation import ReservationError, annotated_amounts
from cotenant.domain.third_party import ThirdPartyError, parse_allocations, parse_origin
from cotenant.events.node.conditions import NodeCondition, ZoneDisruption, disruption_text
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.topology import MachineTopology
from cotenant.kinds.node_columns import ANNOTATION_UNMEASURED, CONDITION_ZONE_DISRUPTED, LAYOUT
from cotenant.model.amounts import as_texts
from cotenant.model.names import (
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE,
    ANNOTATION_THIRD_PARTY_ALLOCATIONS,
    LABEL_HOSTNAME,
)
from cotenant.model.quantities import QuantityError, Scalar, format_amount
from cotenant.model.tiers import OVERCOMMITTED

NODES = Kind("", "v1", "nodes", "Node", False, ("no",))
MAX_CAPABILITIES_SHOWN = 64


def compose_node(snapshot: Snapshot) -> Overlay:
    """Return what executor, overcommitment and readiness add to the node."""
    executor: ExecutorStatus | None = None
    resources: NodeResources | None = None
    condition: NodeCondition | None = None
    machine: MachineTopology | None = None
    reported_at: datetime | None = None
    for event in snapshot.parts.values():
        if event.tombstone:
            continue
        if isinstance(event.data, ExecutorStatus):
            executor, reported_at = event.data, event.time
        elif isinstance(event.data, NodeResources):
            resources = event.data
        elif isinstance(event.data, NodeCondition):
            condition = event.data
        elif isinstance(event.data, MachineTopology):
            machine = event.data
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    status: dict[str, msgspec.Raw] = {}
    declared = _declared(snapshot)
    capacity: dict[str, str] = {}
    conditions: list[dict[str, str]] = []
    if executor is not None:
        labels = {LABEL_HOSTNAME: snapshot.address.name, **executor.labels}
        taints += executor.taints
        capacity |= as_texts(executor.capacity)
        annotations = _annotations(executor)
        status |= _machine(executor)
    if machine is not None and machine.unavailable:
        shown = dict(sorted(machine.unavailable.items())[:MAX_CAPABILITIES_SHOWN])
        annotations[ANNOTATION_UNMEASURED] = msgspec.json.encode(shown).decode()
    sources = NodeSources(declared, executor, resources, condition)
    annotations |= derived_annotations(sources)
    if resources is not None:
        capacity |= as_texts(resources.devices)
        own = declared.metadata.labels
        labels = {**{key: text for key, text in resources.device_labels.items() if key not in own}, **labels}
    if resources is not None and not resources.withdrawn:
        overcommitted = overcommitted_amounts(resources)
        capacity |= as_texts(overcommitted)
    allocatable = _allocatable(sources)
    if condition is not None:
        taints += condition.taints
        conditions.append(_ready(condition.status, condition.since, condition.reason, condition.message))
        if condition.disruption is not None:
            conditions.append(_zone_disrupted(condition.disruption))
    elif executor is not None:
        conditions.append(_ready("True", reported_at, "ExecutorReady", executor.message or "the executor reports"))
    if executor is not None and executor.unknown_log:
        conditions.append(_log_unknown(executor.unknown_log, reported_at))
    if executor is not None and executor.memory_pressure:
        conditions.append(_memory_pressure(executor.memory_pressure, reported_at))
    merged = {name: texts for name, texts in (("capacity", capacity), ("allocatable", allocatable)) if texts}
    return Overlay(
        labels=labels,
        annotations=annotations,
        taints=tuple({"key": key, "value": value, "effect": effect} for key, value, effect in taints),
        status=status,
        merged_status=merged,
        conditions=tuple(conditions),
    )


CONDITION_LOG_UNKNOWN = "LogUnknown"
CONDITION_MEMORY_PRESSURE = "MemoryPressure"


def _declared(snapshot: Snapshot) -> Node:
    """Return the document; an empty one where there is none or it cannot be read (stored by another writer)."""
    if snapshot.stored is None:
        return Node()
    try:
        return decode_node(snapshot.stored.raw)
    except msgspec.DecodeError:
        return Node()


def _allocatable(sources: NodeSources) -> dict[str, str]:
    """Return what is laid over the document's allocatable. Amounts that the document alone decides stay as written;
    overcommitted ones that are not offered appear only if the document names them."""
    try:
        offered = sources.offered()
    except QuantityError:
        return {}
    declared = sources.node.status.allocatable if sources.node is not None else {}
    resources = sources.resources
    reported = {
        *(sources.executor.allocatable if sources.executor is not None else ()),
        *(resources.devices if resources is not None else ()),
        *(AMPLIFIED if sources.amplifies else ()),
    }
    shown: dict[str, str] = {}
    for name, amount in sorted(offered.items()):
        if resources is not None and name in OVERCOMMITTED:
            hidden = name not in declared and resources.withdrawn
        else:
            hidden = name in declared and name not in reported
        if not hidden:
            shown[name] = format_amount(name, amount)
    return shown


def _ready(status: str, since: datetime | None, reason: str, message: str) -> dict[str, str]:
    condition = {"type": "Ready", "status": status, "reason": reason or "NodeReady", "message": message}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(since)
    return condition


def _log_unknown(why: str, since: datetime | None) -> dict[str, str]:
    message = f"{why}: pods without a placement run on until `cotenant admin adopt`"
    condition = {"type": CONDITION_LOG_UNKNOWN, "status": "True", "reason": "AnotherLog", "message": message}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(since)
    return condition


def _memory_pressure(why: str, since: datetime | None) -> dict[str, str]:
    condition = {"type": CONDITION_MEMORY_PRESSURE, "status": "True", "reason": "MemoryIsShort", "message": why}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(since)
    return condition


def _zone_disrupted(disruption: ZoneDisruption) -> dict[str, str]:
    return {
        "type": CONDITION_ZONE_DISRUPTED,
        "status": "True",
        "reason": disruption.state,
        "message": disruption_text(disruption),
        "lastTransitionTime": rfc3339(disruption.since),
    }


def _annotations(executor: ExecutorStatus) -> dict[str, str]:
    annotations = {"cotenant.io/sandbox": "true" if executor.sandbox else "false"}
    if executor.capabilities:
        shown = dict(sorted(executor.capabilities.items())[:MAX_CAPABILITIES_SHOWN])
        annotations["cotenant.io/capabilities"] = msgspec.json.encode(shown).decode()
    return annotations


def _machine(executor: ExecutorStatus) -> dict[str, msgspec.Raw]:
    runtime = "simulated" if executor.simulated else "process"
    info = {
        "kernelVersion": executor.kernel,
        "osImage": executor.operating_system,
        "operatingSystem": "linux",
        "architecture": executor.labels.get("kubernetes.io/arch", ""),
        "kubeletVersion": f"cotenant-{executor.version}" if executor.version else "cotenant",
        "containerRuntimeVersion": f"{runtime}://{executor.version}" if executor.version else runtime,
        "bootID": executor.boot,
        "machineID": "",
        "systemUUID": "",
        "kubeProxyVersion": "",
    }
    addresses = [{"type": "InternalIP", "address": address} for address in executor.addresses]
    return {
        "nodeInfo": raw(info),
        "addresses": raw([*addresses, {"type": "Hostname", "address": executor.node}]),
    }


def _figure_errors(node: Node, old: Node | None) -> Iterator[FieldError]:
    """Annotations that subtract from a node: what cannot be read, is negative or absurd is refused when it is written."""
    annotations, before = node.metadata.annotations, old.metadata.annotations if old is not None else {}

    def changed(name: str) -> bool:
        return name in annotations and annotations[name] != before.get(name)

    def checked(name: str, amounts: Mapping[str, Scalar]) -> Iterator[FieldError]:
        for resource, amount in amounts.items():
            yield from quantity(f"metadata.annotations[{name}].resources[{resource}]", amount, resource=resource)

    if changed(ANNOTATION_NODE_RESERVATION):
        text = annotations[ANNOTATION_NODE_RESERVATION]
        try:
            yield from checked(ANNOTATION_NODE_RESERVATION, annotated_amounts(text))
        except ReservationError as error:
            yield invalid(f"metadata.annotations[{ANNOTATION_NODE_RESERVATION}]", text, str(error))
    for name, parse in ((ANNOTATION_THIRD_PARTY_ALLOCATIONS, _allocated), (ANNOTATION_ORIGIN_EXTENDED_ALLOCATABLE, _origin)):
        if changed(name):
            try:
                for amounts in parse(annotations):
                    yield from checked(name, amounts)
            except ThirdPartyError as error:
                yield invalid(f"metadata.annotations[{name}]", annotations[name], str(error))


def _allocated(annotations: Mapping[str, str]) -> list[Mapping[str, Scalar]]:
    return [allocation.resources or {} for allocation in parse_allocations(annotations)]


def _origin(annotations: Mapping[str, str]) -> list[Mapping[str, Scalar]]:
    return [parse_origin(annotations) or {}]


def node_errors(node: Node, old: Node | None = None) -> list[FieldError]:
    """Taints are unique by key and effect and well formed; capacities, reservations and foreign shares are not negative."""
    found: list[FieldError] = list(_figure_errors(node, old))
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
            found += quantity(f"status.{section}[{resource}]", amount, resource=resource)
    return found


DEFINITION = KindDefinition(
    NODES,
    decode=decode_node,
    compose=compose_node,
    parts={
        ExecutorStatus: node_of_subject,
        NodeResources: node_of_subject,
        NodeCondition: node_of_subject,
        MachineTopology: node_of_subject,
    },
    errors=lambda node, old: node_errors(node, old()),
    layout=LAYOUT,
    field_labels=frozenset({"spec.unschedulable"}),
    has_status=True,
    created_with_status=True,
)
