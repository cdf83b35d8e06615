"""Preemption: which node a pod that fits nowhere gets room on, and which pods of lower priority leave it.

In: the results of the pod's shape, the pods on the nodes, the disruption budgets. Out: a `Choice`, or none. Every node is
asked. The rules:

    nodes      those that only filters refuse which the end of pods can satisfy (resources, ports, spread, affinity)
    room       all pods of a lower priority are taken away; the shape must fit then. Those that end already, or leave for
               another nominated pod, stay away and cost nothing; those that Koordinator's labels protect are never taken away
    reprieve   the others are put back one by one as far as the shape still fits, those that would violate a disruption budget
               first, each by importance: higher priority, then bound earlier, then namespace and name; who is left is a victim
    choice     the node with the fewest violations, then the lowest highest priority of a victim, the smallest sum of
               priorities (each counted from the lowest possible), the fewest victims, the latest time at which the first of its
               victims of highest priority was bound; then the node whose name comes first in the alphabet
Source: kube-scheduler's default preemption; the last tie-break is this scheduler's.

What a node would cost is kept per shape and computed again for rows that changed. Bounds: KEPT_SHAPES shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Set

import msgspec
import numpy as np

from cotenant.events.placements import PlacementPhase, Victim
from cotenant.names import PODS
from cotenant.quota.membership import is_preemptible
from cotenant_scheduler.columns import Changes, IntArray, distinct
from cotenant_scheduler.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.evaluation import Evaluation
from cotenant_scheduler.nodes import NodeTable, PodKey, is_held
from cotenant_scheduler.plugins.host_ports import conflicts
from cotenant_scheduler.pods import Placed, PodRecord
from cotenant_scheduler.shapes import PodFacts, Shape

KEPT_SHAPES = 32
LABEL_DISABLE_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"
PRIORITY_OFFSET = 1 << 31
"""Added to each priority of a sum, so that every victim counts."""
_NOBODY = -PRIORITY_OFFSET - 1

Rank = tuple[int, int, int, int, int, str]
"""What nodes are compared by; the smallest is the best."""


class Choice(msgspec.Struct, frozen=True):
    """A node, who leaves it, and how it compares with others."""

    rank: Rank
    node: str
    victims: tuple[Victim, ...]


class _Pod(msgspec.Struct, frozen=True):
    """A pod of lower priority on a row."""

    key: PodKey
    shape: Shape
    bound_us: int
    uid: str
    labels: Mapping[str, str]

    @property
    def importance(self) -> tuple[int, int, PodKey]:
        return -self.shape.priority, self.bound_us, self.key


def is_ending(record: PodRecord, placed: Placed) -> bool:
    """Tell whether a placed pod ends whatever is decided."""
    facts = record.facts
    if placed.data.phase is not PlacementPhase.BOUND:
        return True
    return not record.unreadable and (facts is None or facts.uid != placed.data.uid or facts.deleting)


def is_protected(facts: PodFacts) -> bool:
    """Tell whether a pod never makes room for others."""
    return not is_preemptible(facts.labels) or facts.labels.get(LABEL_DISABLE_PREEMPTIBLE) == "true"


class _Row:
    """A row without some of its pods: does the shape fit? Changes the relations that are counted while it is asked."""

    def __init__(self, nodes: NodeTable, evaluation: Evaluation, row: int, amounts: dict[Shape, tuple[int, ...]]) -> None:
        shape = evaluation.shape
        self._relations = nodes.relations if shape.relational else None
        self._shape = shape
        self._row = row
        self._amounts = amounts
        self._left = [
            (int(nodes.allocatable[dim, row] - nodes.requested[dim, row]) if dim >= 0 else 0) - amount
            for dim, (_, amount) in zip(nodes.dims_of(shape), shape.needs, strict=True)
        ]
        self._ports = dict(nodes.ports[row]) if shape.host_ports else {}
        self._refusals = evaluation.relational_row_filters()

    def take(self, other: Shape, sign: int) -> None:
        """Take a pod away (1), or put it back (-1)."""
        amounts = self._amounts.get(other)
        if amounts is None:
            wanted = ((name, 1 if name == PODS else other.requests.get(name, 0)) for name, _ in self._shape.needs)
            amounts = self._amounts[other] = tuple(amount for _, amount in wanted)
        left = self._left
        for index, amount in enumerate(amounts):
            left[index] += amount * sign
        if self._shape.host_ports:
            for port in other.host_ports:
                self._ports[port] = self._ports.get(port, 0) - sign
        if self._relations is not None and other.relational:
            self._relations.count(self._row, other, -sign)

    def fits(self) -> bool:
        """Tell whether the shape fits now."""
        if min(self._left) < 0:
            return False
        taken = [port for port, count in self._ports.items() if count > 0]
        if any(conflicts(wanted, port) for wanted in self._shape.host_ports for port in taken):
            return False
        return not any(refuses(self._row) for refuses in self._refusals)


class _Kept:
    """What the nodes cost one shape."""

    def __init__(self) -> None:
        self.stamp: tuple[int, ...] = ()
        self.positions = (0, 0, 0)
        self.choices: dict[int, Choice] = {}
        self.hopeless = 0
        """Declared nodes where no pod's end helps."""


class Preemption:
    """Chooses; a function of the state, with caches."""

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
        """By node, uids of the pods that leave it for others; a change of it changes the row too."""
        self._kept: OrderedDict[Shape, _Kept] = OrderedDict()
        self._touched = Changes()
        """Rows on which a pod began to end."""

    def pod_changed(self, record: PodRecord) -> None:
        """What is known of a pod changed otherwise than by being counted on a row."""
        if self._kept:
            for node in record.placements:
                row = self._nodes.rows.get(node)
                if row is not None:
                    self._touched.add(row)

    def may_help(self, shape: Shape) -> bool:
        """Tell whether there are pods of a lower priority at all."""
        return any(priority < shape.priority for priority in self._nodes.priorities)

    def choose(self, evaluation: Evaluation) -> Choice | None:
        """Return the best node for a pod of the shape, None where no pod's end makes room."""
        choices = self._refreshed(evaluation).choices.values()
        return min(choices, key=lambda choice: choice.rank, default=None)

    def hopeless(self, evaluation: Evaluation) -> int:
        """How many nodes refuse the shape for a reason that the end of pods does not change."""
        return self._refreshed(evaluation).hopeless

    def _refreshed(self, evaluation: Evaluation) -> _Kept:
        nodes, shape = self._nodes, evaluation.shape
        kept = self._kept.get(shape)
        if kept is None:
            kept = self._kept[shape] = _Kept()
            if len(self._kept) > KEPT_SHAPES:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(shape)
        relations = nodes.relations.version + nodes.held_relations.version if shape.relational else 0
        stamp = (nodes.version, relations, self._budgets.version)
        positions = (nodes.changes.position, nodes.static_changes.position, self._touched.position)
        if kept.stamp == stamp and kept.positions == positions:
            return kept
        logs = (nodes.changes, nodes.static_changes, self._touched)
        changed = [log.since(position) for log, position in zip(logs, kept.positions, strict=True)]
        known = [rows for rows in changed if rows is not None]
        if kept.stamp != stamp or len(known) < len(changed):
            kept.choices.clear()
            rows: IntArray = np.arange(nodes.size)
        else:
            rows = distinct(np.concatenate(known), nodes.size)
            for row in rows.tolist():
                kept.choices.pop(row, None)
        helpless = evaluation.beyond_preemption(slice(0, nodes.size))
        kept.hopeless = int(np.count_nonzero(helpless & (nodes.declared[: nodes.size] > 0)))
        amounts: dict[Shape, tuple[int, ...]] = {}
        for row in rows[~helpless[rows]].tolist():
            choice = self._choice(evaluation, row, amounts)
            if choice is not None:
                kept.choices[row] = choice
        kept.stamp, kept.positions = stamp, positions
        return kept

    def _choice(self, evaluation: Evaluation, row: int, amounts: dict[Shape, tuple[int, ...]]) -> Choice | None:
        ending, pods = self._lower(row, evaluation.shape.priority)
        if not ending and not pods:
            return None
        nodes = self._nodes
        versions = nodes.relations.version
        left = _Row(nodes, evaluation, row, amounts)
        for other in (*ending, *(pod.shape for pod in pods)):
            left.take(other, 1)
        victims: list[tuple[_Pod, bool]] = []
        found = left.fits()
        if found:
            violating = self._budgets.violating((*pod.key, pod.labels) for pod in pods)
            for pod, violates in sorted(zip(pods, violating, strict=True), key=lambda entry: not entry[1]):
                left.take(pod.shape, -1)
                if not left.fits():
                    left.take(pod.shape, 1)
                    victims.append((pod, violates))
        for other in (*ending, *(pod.shape for pod, _ in victims)) if found else (*ending, *(pod.shape for pod in pods)):
            left.take(other, -1)
        nodes.relations.version = versions
        return _ranked(nodes.names[row], victims) if found else None

    def _lower(self, row: int, priority: int) -> tuple[list[Shape], list[_Pod]]:
        """Return the shapes of the pods of lower priority that end already, and the others that may, by importance."""
        node = self._nodes.names[row]
        leaving = self._leaving.get(node, ())
        ending: list[Shape] = []
        found: list[_Pod] = []
        for key, (shape, assigned) in self._nodes.pods[row].items():
            if shape.priority >= priority or is_held(key):
                continue
            record = self._records[key]
            placed = record.placements.get(node)
            if placed is None or placed.facts is None:
                continue  # assumed there by the decision that is being made
            if placed.data.uid in leaving or is_ending(record, placed):
                ending.append(shape)
            elif not is_protected(placed.facts):
                found.append(_Pod(key, shape, assigned.assigned_us, placed.data.uid, placed.facts.labels))
        found.sort(key=lambda pod: pod.importance)
        return ending, found


def _ranked(node: str, victims: list[tuple[_Pod, bool]]) -> Choice:
    ordered = sorted(victims, key=lambda entry: entry[0].importance)
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
