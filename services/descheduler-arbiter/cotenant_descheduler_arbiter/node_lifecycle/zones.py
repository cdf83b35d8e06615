"""Zones of nodes: how many of their nodes are lost, and how fast further ones may get the NoExecute taint.

In: each measured node's zone and readiness. Out: for each zone its state and rate. A zone is the nodes with the same labels
`topology.kubernetes.io/region` and `zone`; nodes with neither are one zone.

    no node of the zone is ready                            -> FullDisruption, the normal rate
    more than 2 lost, lost / nodes >= unhealthy fraction    -> PartialDisruption, the secondary rate;
                                                               0 in a zone of at most `large_zone_nodes` nodes
    else                                                    -> Normal, the normal rate
    no node of any zone is ready                            -> every zone: 0. This service is probably disconnected

A rate holds for the zone as a token bucket of one: the next node may be tainted 1 / rate seconds after the last one was.

Source: Kubernetes' node lifecycle controller (ComputeZoneState, rates by state, full disruption of all zones).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum

import msgspec

from cotenant.model.names import LABEL_REGION, LABEL_ZONE
from cotenant_descheduler_arbiter.config.policy import NodeEvictionRates

UNNAMED = "(no zone)"
_FEW = 2
"""This many lost nodes are no disruption of a zone that has a ready one."""


class ZoneState(StrEnum):
    """The state of a zone."""

    NORMAL = "Normal"
    PARTIAL = "PartialDisruption"
    FULL = "FullDisruption"


class ZoneHealth(msgspec.Struct, frozen=True):
    """A zone: `lost` of its `nodes` are not ready. `nodes_per_second`: the rate in force."""

    zone: str
    nodes: int
    lost: int
    state: ZoneState
    nodes_per_second: float

    @property
    def interval(self) -> timedelta | None:
        """Time between two taintings; None: no node is tainted."""
        return timedelta(seconds=1 / self.nodes_per_second) if self.nodes_per_second > 0 else None


def zone_of(labels: Mapping[str, str]) -> str:
    """Return `<region>/<zone>`; empty where the node has neither label."""
    region, zone = labels.get(LABEL_REGION, ""), labels.get(LABEL_ZONE, "")
    return f"{region}/{zone}" if region or zone else ""


def shown(zone: str) -> str:
    """Return the zone's name for people."""
    return zone.removeprefix("/") or UNNAMED


def zone_state(nodes: int, lost: int, rates: NodeEvictionRates) -> ZoneState:
    """Return the state of a zone by its counts."""
    if lost == nodes:
        return ZoneState.FULL if nodes > 0 else ZoneState.NORMAL
    if lost > _FEW and lost / nodes >= rates.unhealthy_fraction:
        return ZoneState.PARTIAL
    return ZoneState.NORMAL


def eviction_rate(state: ZoneState, nodes: int, rates: NodeEvictionRates) -> float:
    """Return how many nodes a second are tainted in a zone, where some node of some zone is ready."""
    if state is not ZoneState.PARTIAL:
        return rates.normal
    return rates.secondary if nodes > rates.large_zone_nodes else 0.0


class Zones:
    """The counts of all zones, kept up to date node by node. Bound: one entry a node."""

    def __init__(self, rates: NodeEvictionRates) -> None:
        self._rates = rates
        self._of: dict[str, tuple[str, bool]] = {}
        """Zone of each node, and whether the node is lost."""
        self._counts: dict[str, list[int]] = {}
        """Nodes and lost nodes by zone."""
        self._lost = 0

    def set_node(self, node: str, zone: str, lost: bool) -> None:
        """Count a node; one that is counted already is replaced."""
        if self._of.get(node) == (zone, lost):
            return
        self.drop_node(node)
        self._of[node] = zone, lost
        self._add(zone, 1, int(lost))

    def drop_node(self, node: str) -> None:
        """Stop counting a node."""
        before = self._of.pop(node, None)
        if before is not None:
            self._add(before[0], -1, -int(before[1]))

    def _add(self, zone: str, nodes: int, lost: int) -> None:
        self._lost += lost
        counts = self._counts.setdefault(zone, [0, 0])
        counts[0] += nodes
        counts[1] += lost
        if not counts[0]:
            del self._counts[zone]

    @property
    def all_lost(self) -> bool:
        """Whether there are nodes and none is ready."""
        return self._lost == len(self._of) > 0

    def counted(self, node: str) -> tuple[str, bool] | None:
        """Return the zone in which the node is counted and whether it is lost there, or None."""
        return self._of.get(node)

    def health(self, zone: str) -> ZoneHealth:
        """Return the state of a zone and its rate."""
        nodes, lost = self._counts.get(zone, (0, 0))
        state = zone_state(nodes, lost, self._rates)
        rate = 0.0 if self.all_lost else eviction_rate(state, nodes, self._rates)
        return ZoneHealth(zone, nodes, lost, state, rate)

    def all_health(self) -> tuple[ZoneHealth, ...]:
        """Return the state of every zone, by name."""
        return tuple(self.health(zone) for zone in sorted(self._counts))
