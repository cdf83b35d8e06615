"""NUMA zones of a node, from its NodeResourceTopology object.

In: the raw object. Out: each zone's allocatable cpu (milli-CPUs) and memory (bytes) by zone name, in the order of the
zone's number (by name `node-10` would come before `node-2`). A zone with neither resource is left out.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.model.quantities import QuantityError, Scalar, parse_milli, parse_value
from cotenant_batch_resource_calculator.formulas.amounts import Amounts


class _ZoneResource(View, frozen=True, kw_only=True):
    name: str = ""
    allocatable: Scalar = 0


class _Zone(View, frozen=True, kw_only=True):
    name: str = ""
    resources: list[_ZoneResource] = []


class _Topology(View, frozen=True, kw_only=True):
    zones: list[_Zone] = []


_DECODER = msgspec.json.Decoder(_Topology)
_MOST_DIGITS = 18


def zone_capacities(raw: bytes | memoryview | msgspec.Raw) -> dict[str, Amounts]:
    """Return the zones' capacities; none for an unreadable object (the node level does not depend on it)."""
    try:
        zones = _DECODER.decode(raw).zones
        found = {zone.name: _capacity(zone) for zone in zones}
    except (msgspec.DecodeError, QuantityError):
        return {}
    return {name: figures for name in sorted(found, key=_zone_order) if (figures := found[name]) is not None}


def _capacity(zone: _Zone) -> Amounts | None:
    resources = {resource.name: resource.allocatable for resource in zone.resources}
    if "cpu" not in resources and "memory" not in resources:
        return None
    return Amounts(parse_milli(resources.get("cpu", 0)), parse_value(resources.get("memory", 0)))


def _zone_order(name: str) -> tuple[int, int, str]:
    number = name.rpartition("-")[2]
    return (0, int(number), name) if number.isdecimal() and len(number) <= _MOST_DIGITS else (1, 0, name)
