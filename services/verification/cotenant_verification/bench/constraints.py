"""Pods with constraints: `--mix` puts them among the equal ones, one kind after the other.

In: the index of such a pod. Out: its kind with labels, parts of its spec and requests, so that every plugin has work:
spread (hard and soft), affinity and anti-affinity (required and preferred), host ports, tolerations, node affinity, batch and
mid resources, a quota that half of its pods do not fit, an image that a third of the nodes has.

Pods of one kind are in GROUPS groups; affinity and spread are among the pods of a group.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
RACK = "rack"
DEDICATED = "dedicated"
GROUP = "group"
GROUPS = 8
PLAIN_IMAGE = "registry.example/bench:1"
LARGE_IMAGE = "registry.example/bench-large:1"
QUOTA = "bench"
TIGHT_QUOTA = "bench-tight"


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """The parts in which it differs from a plain pod."""

    spec: dict[str, Any] = {}
    requests: dict[str, str] | None = None
    """Replaces the workload's requests."""
    labels: dict[str, str] = {}
    priority: int = 9500
    qos: str = "LS"
    quota: str = QUOTA
    image: str = PLAIN_IMAGE
    host_port: int = 0


def _members(group: str) -> dict[str, Any]:
    return {"matchLabels": {GROUP: group}}


def _spread(group: str, topology: str, skew: int, otherwise: str) -> Constraints:
    constraint = {
        "maxSkew": skew,
        "topologyKey": topology,
        "whenUnsatisfiable": otherwise,
        "labelSelector": _members(group),
    }
    return Constraints(spec={"topologySpreadConstraints": [constraint]})


def _near(group: str, side: str, topology: str) -> Constraints:
    term = {"topologyKey": topology, "labelSelector": _members(group)}
    return Constraints(spec={"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})


def _preferences(group: str) -> Constraints:
    near = {"topologyKey": RACK, "labelSelector": _members(group)}
    zone = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-1"]}]}
    affinity = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": near}]},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 20, "preference": zone}]},
    }
    return Constraints(spec={"affinity": affinity})


def _nodes_with(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _dedicated() -> Constraints:
    toleration = {"key": DEDICATED, "operator": "Equal", "value": "bench", "effect": "NoSchedule"}
    return Constraints(spec={"tolerations": [toleration], "affinity": _nodes_with({"key": DEDICATED, "operator": "Exists"})})


def _some_zones() -> Constraints:
    zones = {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-2"]}
    racks = {"key": RACK, "operator": "NotIn", "values": ["rack-0"]}
    return Constraints(spec={"affinity": _nodes_with(zones, racks)})


KINDS = (
    "spread-zone",
    "spread-host",
    "anti-affinity",
    "affinity",
    "preferences",
    "host-port",
    "dedicated",
    "node-affinity",
    "batch",
    "mid",
    "tight-quota",
    "image",
)
"""In the order in which they are used."""


def constraints(number: int) -> Constraints:
    """Return the constraints of the `number`-th constrained pod."""
    kind = KINDS[number % len(KINDS)]
    place = number // len(KINDS) % GROUPS
    group = f"{kind}-{place}"
    match kind:
        case "spread-zone":
            found = _spread(group, ZONE, 1, "DoNotSchedule")
        case "spread-host":
            found = _spread(group, HOSTNAME, 1, "ScheduleAnyway")
        case "anti-affinity":
            found = _near(group, "podAntiAffinity", HOSTNAME)
        case "affinity":
            found = _near(group, "podAffinity", ZONE)
        case "preferences":
            found = _preferences(group)
        case "host-port":
            found = Constraints(host_port=20_000 + place)
        case "dedicated":
            found = _dedicated()
        case "node-affinity":
            found = _some_zones()
        case "batch":
            found = Constraints(requests={BATCH_CPU: "500", BATCH_MEMORY: "256Mi"}, priority=5500, qos="BE")
        case "mid":
            found = Constraints(requests={MID_CPU: "500", MID_MEMORY: "256Mi"}, priority=7500)
        case "tight-quota":
            found = Constraints(quota=TIGHT_QUOTA)
        case _:
            found = Constraints(image=LARGE_IMAGE)
    return msgspec.structs.replace(found, labels={GROUP: group})


def how_many(kind: str, constrained: int) -> int:
    """Return how many pods of a kind are among this many constrained ones."""
    return (constrained - KINDS.index(kind) + len(KINDS) - 1) // len(KINDS)
