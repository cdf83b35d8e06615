"""Preemption: the node on which a pod that fits nowhere gets room, and the pods of lower priority that leave it.

In: the results of the pod's shape, the pods on the nodes, the disruption budgets. Out: a `Choice`, or none. All nodes are
considered. The rules:

    nodes      those refused only by filters that ending pods can satisfy (resources, ports, spread, affinity)
    room       all pods of a lower priority are taken away; the shape must fit then. Pods that are ending already, or leave for
               another nominated pod, stay away and cost nothing; pods that Koordinator's labels protect are never taken away
    reprieve   the others are put back one by one as long as the shape still fits, those that would violate a disruption budget
               first, each by importance: higher priority, then bound earlier, then namespace and name; the rest are victims
    choice     the node with the fewest violations, then the lowest highest priority of a victim, the smallest sum of
               priorities (each counted from the lowest possible), the fewest victims, the latest time at which the first of its
               victims of highest priority was bound; then the node whose name comes first in the alphabet
Source: kube-scheduler's default preemption; the last tie-break is this scheduler's.

The cost of each node is cached per shape, and the pods of a row by importance for all shapes; both are recomputed for rows
that changed. Bounds: SHAPES_CACHED shapes, and more while they have at most ROWS_CACHED rows together; one list per row;
ranks for twice the choices.

Over 300 lines: the rules above, in their order, over one cache.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Mapping, Sequence, Set
from operator import itemgetter

import msgspec
import numpy as np

from cotenant.domain.quota.membership import is_preemptible
from cotenant.events.placements import PlacementPhase, Victim
from cotenant_scheduler.cycle.what_if import Asking, RowPod, victims
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.preemptibility import FEW_ASKED
from cotenant_scheduler.state.columns import BoolArray, Changes, distinct
from cotenant_scheduler.state.counting import CountedPod, PodKey, is_held, is_reserve
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord
from cotenant_scheduler.state.reading.shapes import PodFacts, Shape

SHAPES_CACHED = 32
SPARE_RANKS = 64
ROWS_CACHED = 1 << 16
LABEL_DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"
PRIORITY_OFFSET = 1 << 31
"""Added to each priority before summing, so that every victim adds to the sum."""
_NOBODY = -PRIORITY_OFFSET - 1

Rank = tuple[int, int, int, int, int, str]
"""What nodes are compared by; the smallest is the best."""


class Choice(msgspec.Struct, frozen=True):
    """A node, its victims, and the key by which it compares with other nodes."""

    rank: Rank
    node: str
    victims: tuple[Victim, ...]


def is_ending(record: PodRecord, placed: PlacementRecord) -> bool:
    """Return whether a placed pod ends whatever this decision does."""
    facts = record.facts
    if placed.data.phase is not PlacementPhase.BOUND:
        return True
    return not record.unreadable and (facts is None or facts.uid != placed.data.uid or facts.deleting)


def is_protected(facts: PodFacts) -> bool:
    """Return whether a pod may never be preempted."""
    return not is_preemptible(facts.labels) or facts.labels.get(LABEL_DISABLE_PREEMPTIBLE) == "true"


class CachedChoices:
    """What preempting on each node would cost for one shape."""

    def __init__(self) -> None:
        self.stamp: tuple[int, ...] = ()
        self.positions = (0, 0, 0)
        self.choices: dict[int, Choice] = {}
        self.ranked: list[tuple[Rank, int]] = []
        """A heap of ranks with their rows; those that are no longer a row's are dropped when they come up."""
        self.helpless: BoolArray = np.zeros(0, dtype=np.bool_)
        """Rows on which preemption does not help."""
        self.hopeless = 0
        """So many of them are declared nodes."""

    def put(self, row: int, choice: Choice) -> None:
        """Set the choice of a row that has none."""
        self.choices[row] = choice
        heapq.heappush(self.ranked, (choice.rank, row))
        if len(self.ranked) > 2 * len(self.choices) + SPARE_RANKS:
            self.ranked = sorted((known.rank, of) for of, known in self.choices.items())

    def best(self) -> Choice | None:
        """Return the choice of the lowest rank."""
        ranked = self.ranked
        while ranked:
            rank, row = ranked[0]
            choice = self.choices.get(row)
            if choice is not None and choice.rank == rank:
                return choice
            heapq.heappop(ranked)
        return None


class Preemption:
    """Chooses a node and its victims. A function of the state, with caches."""

    def __init__(
        self,
        nodes: NodeTable,
        records: Mapping[PodKey, PodRecord],
        budgets: DisruptionBudgets,
        leaving: Mapping[str, Set[str]],
    ) -> None:
        self._nodes = nodes
        self._records = records
        self._budgets = budgets
        self._leaving = leaving
        """By node, uids of the pods that leave it for others. A change here also counts as a change of the row."""
        self._choices: OrderedDict[Shape, CachedChoices] = OrderedDict()
        self._touched = Changes()
        """Rows on which a pod began to end."""
        self._by_importance: dict[int, list[RowPod]] = {}
        self._listed = (-1, 0, 0)
        """The version of the table and the positions in its changes and in `_touched` for which the lists are current."""

    @property
    def state(self) -> tuple[int, int]:
        """Versions of what a choice depends on beside the node table."""
        return self._touched.position, self._budgets.version

    def pod_changed(self, record: PodRecord) -> None:
        """Take over a change of a pod other than being counted on a row."""
        if self._choices or self._by_importance:
            for node in record.placements:
                row = self._nodes.rows.get(node)
                if row is not None:
                    self._touched.add(row)

    def may_help(self, shape: Shape) -> bool:
        """Return whether there is any pod of a lower priority."""
        return any(priority < shape.priority for priority in self._nodes.priorities)

    def choose(self, evaluation: Evaluation) -> Choice | None:
        """Return the best node for a pod of the shape; None if preemption helps on none."""
        return self._refreshed(evaluation).best()

    def best_of(self, asking: Asking, rows: Sequence[int], victims: Set[PodKey]) -> Choice | None:
        """Return the best of some rows, where only these pods may be victims; None if that helps on none."""
        self._forget_changed_lists()
        choices = (self._choice(asking, row, victims) for row in rows)
        return min((choice for choice in choices if choice is not None), key=lambda choice: choice.rank, default=None)

    def hopeless(self, evaluation: Evaluation) -> int:
        """How many nodes refuse the shape for a reason that preemption cannot lift."""
        return self._refreshed(evaluation).hopeless

    def _refreshed(self, evaluation: Evaluation) -> CachedChoices:
        nodes, shape = self._nodes, evaluation.shape
        cached = self._choices.get(shape)
        if cached is None:
            cached = self._choices[shape] = CachedChoices()
            if len(self._choices) > max(SHAPES_CACHED, ROWS_CACHED // max(nodes.size, 1)):
                self._choices.popitem(last=False)
        else:
            self._choices.move_to_end(shape)
        stamp = (nodes.version, evaluation.counted_version(), self._budgets.version)
        positions = (nodes.changes.position, nodes.static_changes.position, self._touched.position)
        if cached.stamp == stamp and cached.positions == positions:
            return cached
        changed = self._changed_rows(cached)
        rows: Sequence[int] = range(nodes.size)
        if changed is not None and cached.stamp == stamp:
            rows = changed
            for row in rows:
                cached.choices.pop(row, None)
        else:
            cached.choices.clear()
        self._forget_changed_lists()
        helpless = cached.helpless
        same_rows = helpless.shape[0] == nodes.size and cached.stamp[:1] == stamp[:1]
        if changed is not None and same_rows and len(changed) <= FEW_ASKED:
            for row in changed:
                helpless[row] = evaluation.preemptibility.is_beyond(row)
        else:
            helpless = cached.helpless = evaluation.preemptibility.beyond(slice(0, nodes.size))
        cached.hopeless = int(np.count_nonzero(helpless & (nodes.declared[: nodes.size] > 0)))
        asking: Asking | None = None
        asked = np.asarray(rows, dtype=np.intp)
        for row in asked[~helpless[asked]].tolist():
            if not any(self._lower(row, shape.priority)):
                continue
            if asking is None:
                asking = Asking(nodes, evaluation)
            choice = self._choice(asking, row)
            if choice is not None:
                cached.put(row, choice)
        cached.stamp, cached.positions = stamp, positions
        return cached

    def _changed_rows(self, cached: CachedChoices) -> Sequence[int] | None:
        """Return the rows, ascending, that changed since the choices were made; None where that is not known."""
        logs = (self._nodes.changes, self._nodes.static_changes, self._touched)
        few = [log.few_since(position, FEW_ASKED) for log, position in zip(logs, cached.positions, strict=True)]
        found = {row for rows in few if rows is not None for row in rows}
        if None not in few:
            return sorted(found)
        changed = [log.since(position) for log, position in zip(logs, cached.positions, strict=True)]
        known = [rows for rows in changed if rows is not None]
        if len(known) < len(changed):
            return None
        rows: list[int] = distinct(np.concatenate(known), self._nodes.size).tolist()
        return rows

    def _choice(self, asking: Asking, row: int, only: Set[PodKey] | None = None) -> Choice | None:
        ending, pods = self._lower(row, asking.shape.priority)
        if only is not None:
            pods = [pod for pod in pods if pod.key in only]
        if not ending and not pods:
            return None
        if self._budgets:
            violating = self._budgets.violating((*pod.key, pod.labels) for pod in pods)
            order = [pod for pod, violates in zip(pods, violating, strict=True) if violates]
            costly = len(order)
            order += [pod for pod, violates in zip(pods, violating, strict=True) if not violates]
        else:
            costly, order = 0, pods
        found = victims(asking, row, ending, order)
        if found is None:
            return None
        return _ranked(self._nodes.names[row], [(order[index], index < costly) for index in found])

    def _lower(self, row: int, priority: int) -> tuple[list[RowPod], list[RowPod]]:
        """Return the pods of lower priority that are ending already, and the others that may be preempted, by importance."""
        pods = self._by_importance.get(row)
        if pods is None:
            pods = self._by_importance[row] = self._listed_pods(row)
        leaving = self._leaving.get(self._nodes.names[row], ())
        ending: list[RowPod] = []
        found: list[RowPod] = []
        for pod in pods:
            if pod.shape.priority < priority:
                if pod.ending or pod.uid in leaving:
                    ending.append(pod)
                elif not pod.protected:
                    found.append(pod)
        return ending, found

    def _listed_pods(self, row: int) -> list[RowPod]:
        node, records = self._nodes.names[row], self._records
        found = []
        for key, counted in self._nodes.pods[row].items():
            if is_held(key) or is_reserve(key) or self._uses_what_is_held(row, counted):
                continue  # its end would give nothing to others
            record = records[key]
            placed = record.placements.get(node)
            if placed is None or placed.facts is None:
                continue  # assumed there by the decision that is being made
            ending, protected = is_ending(record, placed), is_protected(placed.facts)
            shape, bound_us = counted.shape, counted.assigned.assigned_us
            pod = RowPod(key, counted, shape, bound_us, placed.data.uid, placed.facts.labels, ending, protected)
            found.append((-shape.priority, bound_us, key, pod))
        return [entry[3] for entry in sorted(found, key=_IMPORTANCE)]

    def _uses_what_is_held(self, row: int, counted: CountedPod) -> bool:
        """Return whether a pod uses a reservation that still holds room, to which its end gives it back. Or whether it acts
        as a reservation that is used: its end gives only what its user does not take."""
        used = counted.allocation.reservation if counted.allocation is not None else None
        use = self._nodes.held.on(row).get(used.uid) if used is not None else None
        return use is not None and use.reserve is not None and (use.reserve is not counted or bool(use.owners))

    def _forget_changed_lists(self) -> None:
        nodes = self._nodes
        version, at_changes, at_touched = self._listed
        changed = (nodes.changes.since(at_changes), self._touched.since(at_touched))
        self._listed = (nodes.version, nodes.changes.position, self._touched.position)
        if version != nodes.version or any(rows is None for rows in changed):
            self._by_importance.clear()
            return
        for rows in changed:
            for row in rows.tolist() if rows is not None else ():
                self._by_importance.pop(row, None)


_IMPORTANCE = itemgetter(0, 1, 2)


def _ranked(node: str, leaving: list[tuple[RowPod, bool]]) -> Choice:
    ordered = sorted(leaving, key=lambda entry: (-entry[0].shape.priority, entry[0].bound_us, entry[0].key))
    highest = ordered[0][0].shape.priority if ordered else _NOBODY
    first = min((pod.bound_us for pod, _ in ordered if pod.shape.priority == highest), default=0)
    rank = (
        sum(violates for _, violates in ordered),
        highest,
        sum(pod.shape.priority + PRIORITY_OFFSET for pod, _ in ordered),
        len(ordered),
        -first,
        node,
    )
    return Choice(
        rank,
        node,
        tuple(
            Victim(namespace=pod.key[0], name=pod.key[1], uid=pod.uid, priority=pod.shape.priority, violates_budget=violates)
            for pod, violates in ordered
        ),
    )
