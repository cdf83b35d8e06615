"""topology.node.k8s.io/v1alpha1 NodeResourceTopology = document + topology + resources: a node's machine as measured.

In: what users or device plugins declared, the node's `node.<node>.topology` event, the batch resources by zone of its
`node.<node>.resources` event. Out: topology policies, zones with their costs, annotations of CPUs. Without a document the
topology event makes the object; resources alone do not. Measured amounts replace declared ones of the same zone and name; other
resources of it, such as `gpu`, stay, and so do a kubelet's policies where none were read. Batch amounts appear in zones that
are there. A document may be there before its node is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.definitions import KindDefinition, node_of_subject
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid
from cotenant.domain.topology import annotations_of, topology_policy, zones_of
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.topology import KubeletPolicies, MachineTopology, NumaNode
from cotenant.model.names import ANNOTATION_KUBELET_CPU_POLICY, BATCH_CPU, BATCH_MEMORY, LABEL_NUMA_RESERVATION
from cotenant.model.quantities import Scalar, format_binary, format_decimal, format_milli

TOPOLOGIES = Kind(
    "topology.node.k8s.io", "v1alpha1", "noderesourcetopologies", "NodeResourceTopology", False, ("nrt",), composed=True
)
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_BY = "Koordinator"
"""The labels that users' selectors match."""
NO_KUBELET = KubeletPolicies()
"""Of a machine whose pods no kubelet runs, or whose kubelet's policies were not read: what is declared of them counts."""
_BYTES = ("memory", "hugepages-1Gi", "hugepages-2Mi")


class _Resource(View, frozen=True, kw_only=True):
    name: str = ""
    capacity: Scalar = 0
    allocatable: Scalar = 0
    available: Scalar = 0


class _Cost(View, frozen=True, kw_only=True):
    name: str = ""
    value: int = 0


class _Zone(View, frozen=True, kw_only=True, omit_defaults=True):
    name: str = ""
    type: str = ""
    parent: str = ""
    costs: list[_Cost] = []
    attributes: list[dict[str, str]] = []
    resources: list[_Resource] = []


class _Document(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    zones: list[_Zone] = []
    topology_policies: list[str] = []


_DECODER = msgspec.json.Decoder(_Document)


def compose_topology(snapshot: Snapshot) -> Overlay:
    """Return what was measured of a node's machine, and its batch resources by zone."""
    machine: MachineTopology | None = None
    resources: NodeResources | None = None
    for event in snapshot.parts.values():
        if event.tombstone:
            continue
        if isinstance(event.data, MachineTopology):
            machine = event.data
        elif isinstance(event.data, NodeResources):
            resources = event.data
    declared = _declared(snapshot)
    zones = {zone.name: zone for zone in declared.zones}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    top: dict[str, msgspec.Raw] = {}
    if machine is not None:
        annotations = annotations_of(machine)
        kubelet_known = machine.kubelet != NO_KUBELET
        if not kubelet_known and ANNOTATION_KUBELET_CPU_POLICY in declared.metadata.annotations:
            del annotations[ANNOTATION_KUBELET_CPU_POLICY]
        labels = {LABEL_MANAGED_BY: MANAGED_BY}
        if machine.numa_reservation:
            labels[LABEL_NUMA_RESERVATION] = "true"
        if kubelet_known or not declared.topology_policies:
            policies = [topology_policy(machine.kubelet.topology_manager_policy, machine.kubelet.topology_manager_scope)]
            top["topologyPolicies"] = raw(policies)
        zones = {zone.name: zone for zone in _measured(machine, zones)}
    batch = () if resources is None or resources.withdrawn else resources.zones
    for share in batch:
        if share.name in zones:
            amounts = {BATCH_CPU: share.batch_cpu_milli, BATCH_MEMORY: share.batch_memory_bytes}
            shown = [_resource(name, format_decimal(amount), format_decimal(amount)) for name, amount in amounts.items()]
            zones[share.name] = _with_resources(zones[share.name], shown)
    if machine is not None or batch:
        top["zones"] = raw(list(zones.values()))
    name = snapshot.address.name
    uid = derived_uid("NodeResourceTopology", name) if snapshot.stored is None else ""
    return Overlay(
        top=top,
        labels=labels,
        annotations=annotations,
        head=head_of(TOPOLOGIES.api_version, TOPOLOGIES.kind),
        metadata={"name": name, "uid": uid} if uid else {},
        uid=uid,
    )


def _declared(snapshot: Snapshot) -> _Document:
    """Return the document; an empty one where there is none, or it cannot be read."""
    if snapshot.stored is None:
        return _Document()
    try:
        return _DECODER.decode(snapshot.stored.raw)
    except msgspec.DecodeError:
        return _Document()


def _measured(machine: MachineTopology, declared: Mapping[str, _Zone]) -> list[_Zone]:
    """Return one zone a NUMA node. Declared zones that are no NUMA node of the machine are dropped, as koordlet does."""
    found = []
    numa_nodes = {f"node-{numa.node}": numa for numa in machine.numa_nodes}
    for zone in zones_of(machine):
        before = declared.get(zone.name, _Zone())
        resources = [
            _resource(name, _text(name, amount), _text(name, zone.allocatable_milli[name]))
            for name, amount in zone.capacity_milli.items()
        ]
        measured = msgspec.structs.replace(
            before, name=zone.name, type="Node", costs=_costs(numa_nodes[zone.name], machine.numa_nodes)
        )
        found.append(_with_resources(measured, resources))
    return found


def _costs(numa: NumaNode, numa_nodes: Sequence[NumaNode]) -> list[_Cost]:
    """Return the distances to each NUMA node; none where the kernel does not report all."""
    others = sorted(each.node for each in numa_nodes)
    if len(numa.distances) != len(others):
        return []
    return [_Cost(name=f"node-{node}", value=distance) for node, distance in zip(others, numa.distances, strict=True)]


def _text(name: str, milli: int) -> str:
    return format_milli(milli) if name not in _BYTES or milli % 1000 else format_binary(milli // 1000)


def _resource(name: str, capacity: str, allocatable: str) -> _Resource:
    return _Resource(name=name, capacity=capacity, allocatable=allocatable, available=allocatable)


def _with_resources(zone: _Zone, resources: Iterable[_Resource]) -> _Zone:
    """Return the zone with these resources, the others kept, ordered by name."""
    merged = {each.name: each for each in zone.resources} | {each.name: each for each in resources}
    return msgspec.structs.replace(zone, resources=[merged[name] for name in sorted(merged)])


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _DECODER.decode(snapshot.document)
    resources = [resource for zone in shown.zones for resource in zone.resources]
    return (
        snapshot.address.name,
        ",".join(shown.topology_policies) or "<none>",
        len(shown.zones),
        age(shown.metadata.creation_timestamp, now),
        ",".join(str(each.allocatable) for each in resources if each.name == "cpu") or "<none>",
        ",".join(str(each.allocatable) for each in resources if each.name == "memory") or "<none>",
    )


DEFINITION = KindDefinition(
    TOPOLOGIES,
    decode=_DECODER.decode,
    compose=compose_topology,
    parts={MachineTopology: node_of_subject, NodeResources: node_of_subject},
    made_by=frozenset({MachineTopology}),
    declarable=True,
    created_with_node=True,
    layout=Layout((NAME, Column("Policies"), Column("Zones", "integer"), AGE, *wide("CPU", "Memory")), _cells),
)
