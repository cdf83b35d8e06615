"""The domains of the network in which a gang is tried, the best first.

In: a gang group with rules (`cotenant.domain.network_topology`), the domains, the nodes as they are. Out: plans, one a domain;
or why no domain comes into question. The rules:

    domains    those that are, or are within, a domain of the nearest layer with MustGather; without one, those of the cluster
    room       for all pods of the group that wait, inside the reservations that they may use, too; where no domain has it, for
               as many as possible, if the group needs no more
    nearest    first the domains of the layer nearest to the nodes, then those of the layer above, and so on: a rule
               PreferGather asks for no more
    of a layer the domain with the most pods of the same job (of the group, or in any gang with the same value of the annotation
               `scheduling.koordinator.sh/network-topology-selector`), then the one with the least room, each compared in the
               domain, then in those above; then by name
    late       a pod that joins or replaces another of the group goes to the domains in which those that run are
Source: Koordinator's network topology solver. Different from it: nodes without the labels of the layers belong to the cluster,
which takes gangs that only prefer to be together; a gang with more pods than its minimum is placed with fewer if that is all
that fits; without a ClusterNetworkTopology only MustGather makes a gang wait.

Bounds: TRIED domains of a layer are tried, and in as many is room made or kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
import numpy as np

from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_SELECTOR, index_of, must_layer
from cotenant.events.allocations import Gathered
from cotenant_scheduler.cycle.gathering.confined import Confined, NetworkDomain
from cotenant_scheduler.cycle.gathering.plans import DomainSlots, GatheringPlan, distributed
from cotenant_scheduler.cycle.gathering.reserved_slots import ReservedSlots
from cotenant_scheduler.cycle.gathering.slots import slots_of
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.queue import GroupClass, QueueEntry
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.gangs import GangCache, GangGroup
from cotenant_scheduler.state.network_domains import Levels, NetworkTopology
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

TRIED = 16
SHOWN = 5
"""Domains that a reason names."""


class Attempt(msgspec.Struct, frozen=True):
    """Where a group is tried. `members`: its pods in the order of their index; `must`: the layer in one domain of which it must
    be, empty for none; `reason`: why there is no plan that all of it fits into, and `slots` the room that there is, as
    Koordinator words it."""

    members: tuple[PodRecord, ...]
    must: str
    plans: Iterable[GatheringPlan]
    reason: str = ""
    slots: str = ""
    confined: Confined | None = None
    """With `must`, the domains that it may be in."""


class Gathering:
    """Finds the domains."""

    def __init__(
        self,
        nodes: NodeTable,
        topology: NetworkTopology,
        gangs: GangCache,
        records: Mapping[PodKey, PodRecord],
        results: CachedResults,
        nominations: Nominations,
        reserved_slots: ReservedSlots,
    ) -> None:
        self._nodes = nodes
        self._topology = topology
        self._gangs = gangs
        self._records = records
        self._results = results
        self._nominations = nominations
        self._reserved_slots = reserved_slots

    def gathers(self, entry: QueueEntry) -> bool:
        """Return whether the pods of a group shall be near to one another."""
        gang = self._gangs.of_pod.get(entry.records[0].key)
        return gang is not None and any(one.spec is not None and one.spec.gather for one in self._gangs.group(gang))

    def attempt(self, entry: QueueEntry, group: GroupClass, now: datetime) -> Attempt | None:
        """Return where a group is tried; None where it may be anywhere."""
        if not isinstance(group.together, GangGroup):
            return None
        gang = self._gangs.of_pod[entry.records[0].key]
        specs = [one.spec for one in self._gangs.group(gang) if one.spec is not None]
        rules = tuple(dict.fromkeys(rule for spec in specs for rule in spec.gather))
        if not rules:
            return None
        members = tuple(sorted(entry.records, key=_by_index))
        levels = self._topology.levels()
        must = must_layer(rules, self._topology.layers or ())
        if levels is None:
            if not must:
                return None
            return Attempt(members, must, (), f"it must be in one {must}, and there is no ClusterNetworkTopology named default")
        if must and must not in levels.names:
            layers = ", ".join(levels.names)
            return Attempt(members, must, (), f"the ClusterNetworkTopology default has no layer {must}, only {layers}")
        multiples = {rule.layer: rule.pod_count_multiple for rule in rules if rule.pod_count_multiple > 1}
        facts = members[0].facts
        selector = facts.annotations.get(ANNOTATION_TOPOLOGY_SELECTOR, "") if facts is not None else ""
        own = {key for one in self._gangs.group(gang) for key in one.members}
        of_group = self._rows_of(own)
        present = self._rows_of(own | self._near(selector)) if selector else of_group
        room = DomainSlots(levels.sums(self._slots(members, group, now), multiples), levels.sums(present, {}))
        return self._within(levels, room, multiples, members, must, of_group)

    def _slots(self, members: tuple[PodRecord, ...], group: GroupClass, now: datetime) -> IntArray:
        """Return how many of the members each row has room for, with the reservations that they may use."""
        alike: dict[tuple[Shape, Ask | None], list[PodRecord]] = {}
        for record in members:
            ask = record.ask if isinstance(record.ask, Ask) else None
            alike.setdefault((group.charge_of(record).shape, ask), []).append(record)
        found: IntArray = np.zeros(self._nodes.size, dtype=np.int64)
        for (shape, ask), records in alike.items():
            self._nominations.hold(shape.priority, group.own_rooms)
            evaluation = self._results.evaluation(shape)
            slots = slots_of(evaluation, len(records))
            found += slots if ask is None else self._reserved_slots.counted(evaluation, ask, records, slots, now)
        return found

    def _within(
        self,
        levels: Levels,
        room: DomainSlots,
        multiples: Mapping[str, int],
        members: tuple[PodRecord, ...],
        must: str,
        of_group: IntArray,
    ) -> Attempt:
        top = levels.names.index(must) if must else 0
        allowed = levels.named[top].copy()
        running = levels.sums(of_group, {})[top]
        if must and np.count_nonzero(running[allowed]):
            allowed &= running > 0
        wanted = len(members)
        plans = self._plans(levels, room, multiples, top, allowed, wanted)
        if not must:
            return Attempt(members, must, plans)
        slots = room.slots[top]
        found = sorted(np.flatnonzero(allowed).tolist(), key=lambda domain: (-slots.item(domain), levels.paths[top][domain]))
        domains = tuple(
            NetworkDomain(domain, levels.paths[top][domain], slots.item(domain), np.flatnonzero(levels.ids[top] == domain))
            for domain in found[:TRIED]
        )
        confined = Confined(domains, levels, top, multiples, room)
        if slots[allowed].max(initial=0) >= wanted:
            return Attempt(members, must, plans, confined=confined)
        return Attempt(members, must, plans, *_short_of_room(levels, slots, top, found, wanted), confined)

    def _plans(
        self, levels: Levels, room: DomainSlots, multiples: Mapping[str, int], top: int, allowed: BoolArray, wanted: int
    ) -> Iterator[GatheringPlan]:
        """Make the plans, each when it is asked for."""
        most = min(int(room.slots[top][allowed].max(initial=0)), wanted)
        if not most:
            return
        inside = [allowed]
        for level in range(top + 1, len(levels.names)):
            inside.append(inside[-1][levels.parents[level]] & levels.named[level])
        for level in range(len(levels.names) - 1, top - 1, -1):
            fits: IntArray = np.flatnonzero(inside[level - top] & (room.slots[level] >= most))
            for domain in sorted(fits.tolist(), key=lambda found: _order(levels, room, level, found))[:TRIED]:
                rows, counts = distributed(levels, room, multiples, level, domain, most)
                gathered = Gathered(
                    layer=levels.names[level],
                    domain=levels.paths[level][domain],
                    pods=most,
                    slots=room.slots[level].item(domain),
                    domains=int(fits.shape[0]),
                )
                yield GatheringPlan(rows, counts, gathered, exact=bool(multiples))

    def _near(self, selector: str) -> set[PodKey]:
        """The pods of any gang that state a selector. O(pods of gangs), for gangs that state one only."""
        return {
            key
            for gang in self._gangs.gangs.values()
            for key, pod in gang.members.items()
            if pod.annotations.get(ANNOTATION_TOPOLOGY_SELECTOR) == selector
        }

    def _rows_of(self, pods: Iterable[PodKey]) -> IntArray:
        """Return how many of these pods each row has."""
        found = np.zeros(self._nodes.size, dtype=np.int64)
        for key in pods:
            for node in self._records[key].placements if key in self._records else ():
                row = self._nodes.rows.get(node)
                if row is not None:
                    found[row] += 1
        return found


def _by_index(record: PodRecord) -> tuple[bool, int, PodKey]:
    """Members without an index come last, by name."""
    assert record.facts is not None
    index = index_of(record.facts.annotations)
    return index is None, index or 0, record.key


def _order(levels: Levels, room: DomainSlots, level: int, domain: int) -> tuple[list[int], list[int], str]:
    """The most pods of the job, then the least room, each from the domain up; then the name."""
    present, slots, path = [], [], levels.paths[level][domain]
    while True:
        present.append(-room.present[level].item(domain))
        slots.append(room.slots[level].item(domain))
        if not level:
            return present, slots, path
        domain = levels.parents[level].item(domain)
        level -= 1


def _short_of_room(levels: Levels, slots: IntArray, level: int, domains: Sequence[int], wanted: int) -> tuple[str, str]:
    """Say how much room the domains have, those with the most first: in a sentence, and in Koordinator's words."""
    layer, paths = levels.names[level], levels.paths[level]
    if not domains:
        return f"no node is in a {layer}: the labels that name it are missing", ""
    rooms = [(paths[domain] or "cluster", slots.item(domain)) for domain in domains[:SHOWN]]
    left = len(domains) - SHOWN
    pods = "its pod" if wanted == 1 else f"its {wanted} pods together"
    sentence = f"no {layer} has room for {pods}: {', '.join(f'{name} has room for {count}' for name, count in rooms)}"
    listed = ";".join(f"topology topologyNode {layer}/{name}: {count}" for name, count in rooms)
    if left > 0:
        sentence, listed = f"{sentence} and {left} more with no more room", f"{listed};{left} more with no more"
    return sentence, f"desiredOfferSlot: {wanted}, {listed}"
