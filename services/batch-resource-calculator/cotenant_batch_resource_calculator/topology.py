"""NUMA zones and CPUs of a node, from its NodeResourceTopology object and its executor's report of the machine.

In: the raw object; the machine's topology. Out: each zone's allocatable cpu (milli-CPUs) and memory (bytes) by zone name, in
the order of the zone's number (by name `node-10` would come before `node-2`); the object's annotations. A zone with neither
resource is left out. The object counts where it names zones, else the machine: a zone has the CPUs and the memory of its NUMA
node. With the node label `enable-numa-reservation` each zone of the machine lacks its part of what the kubelet reserves,
rounded up to a thousandth, as in Koordinator's agent.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.domain.topology import zones
from cotenant.events.node.topology import MachineTopology
from cotenant.model.names import CPU, MEMORY
from cotenant.model.quantities import QuantityError, Scalar, parse_milli, parse_value
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.formulas.amounts import THOUSANDTHS, ZERO, Amounts


class _ZoneResource(View, frozen=True, kw_only=True):
    name: str = ""
    allocatable: Scalar = 0


class _Zone(View, frozen=True, kw_only=True):
    name: str = ""
    resources: list[_ZoneResource] = []


class _Topology(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    zones: list[_Zone] = []


class DeclaredTopology(Value, frozen=True):
    """What a NodeResourceTopology object declares."""

    zones: dict[str, Amounts] = {}
    annotations: dict[str, str] = {}


_DECODER = msgspec.json.Decoder(_Topology)
_MOST_DIGITS = 18


def declared_topology(raw: bytes | memoryview | msgspec.Raw) -> DeclaredTopology:
    """Return what the object declares; nothing for an unreadable one, no zones where one of them is (the node level does not
    depend on it)."""
    try:
        topology = _DECODER.decode(raw)
    except msgspec.DecodeError:
        return DeclaredTopology()
    try:
        found = {zone.name: _capacity(zone) for zone in topology.zones}
    except QuantityError:
        found = {}
    zones = {name: figures for name in sorted(found, key=_zone_order) if (figures := found[name]) is not None}
    return DeclaredTopology(zones, topology.metadata.annotations)


def _capacity(zone: _Zone) -> Amounts | None:
    resources = {resource.name: resource.allocatable for resource in zone.resources}
    if "cpu" not in resources and "memory" not in resources:
        return None
    return Amounts(parse_milli(resources.get("cpu", 0)), parse_value(resources.get("memory", 0)))


def _zone_order(name: str) -> tuple[int, int, str]:
    number = name.rpartition("-")[2]
    return (0, int(number), name) if number.isdecimal() and len(number) <= _MOST_DIGITS else (1, 0, name)


def machine_zones(machine: MachineTopology, reserved: Amounts = ZERO) -> dict[str, Amounts]:
    """Return the machine's zones, less their parts of `reserved`, as its NodeResourceTopology shows them."""
    whole = {CPU: reserved.cpu, MEMORY: reserved.memory * THOUSANDTHS}
    found = zones(Counter(cpu.node for cpu in machine.cpus), machine.numa_nodes, whole)
    return {
        zone.name: Amounts(zone.allocatable_milli[CPU], zone.allocatable_milli[MEMORY] // THOUSANDTHS)
        for zone in found
        if zone.capacity_milli[CPU] or zone.capacity_milli[MEMORY]
    }
