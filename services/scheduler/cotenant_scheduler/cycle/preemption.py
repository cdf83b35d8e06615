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

What a node would cost is cached per shape, and the pods of a row by importance for all shapes; both are made again for rows
that changed. Bounds: SHAPES_CACHED shapes; one list a row that was ever asked about.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Set
from itertools import groupby
from operator import itemgetter

import msgspec
import numpy as np

from cotenant.domain.quota.membership import is_preemptible
from cotenant.events.placements import PlacementPhase, Victim
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.state.columns import Changes, IntArray, distinct
from cotenant_scheduler.state.counting import CountedPod, PodKey, is_held
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord
from cotenant_scheduler.state.shapes import PodFacts, Shape

SHAPES_CACHED = 32
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
    """A pod on a row, as far as others may want its room."""

    key: PodKey
    counted: CountedPod
    shape: Shape
    bound_us: int
    uid: str
    labels: Mapping[str, str]
    ending: bool
    protected: bool


def is_ending(record: PodRecord, placed: PlacementRecord) -> bool:
    """Tell whether a placed pod ends whatever is decided."""
    facts = record.facts
    if placed.data.phase is not PlacementPhase.BOUND:
        return True
    return not record.unreadable and (facts is None or facts.uid != placed.data.uid or facts.deleting)


def is_protected(facts: PodFacts) -> bool:
    """Tell whether a pod never makes room for others."""
    return not is_preemptible(facts.labels) or facts.labels.get(LABEL_DISABLE_PREEMPTIBLE) == "true"


class _Asking:
    """Who asks for room: the shape, and the filters whose refusals the end of pods can lift."""

    def __init__(self, nodes: NodeTable, evaluation: Evaluation) -> None:
        self.nodes = nodes
        self.shape = evaluation.shape
        self._sums, self.others = evaluation.liftable()
        self._gives_back: dict[Shape, tuple[int, ...]] = {}

    def room(self, row: int) -> list[int]:
        """Return what is left of each limit on a row with the shape there; below 0 it does not fit."""
        return [left for plugin in self._sums for left in plugin.room(self.nodes, self.shape, row)]

    def gives_back(self, pod: _Pod) -> tuple[int, ...]:
        """Return what the end of a pod adds to each limit's room."""
        found = self._gives_back.get(pod.shape)
        if found is None:
            found = self._gives_back[pod.shape] = tuple(
                amount for plugin in self._sums for amount in plugin.gives_back(self.shape, pod.shape)
            )
        return found


class _WhatIf:
    """A row without some of its pods: does the shape fit? What counters count is changed while it is asked, and put back by
    `close`: nobody can tell afterwards."""

    def __init__(self, asking: _Asking, row: int) -> None:
        self._asking = asking
        self._row = row
        self._left = asking.room(row)
        self._versions = [(counter, counter.version) for counter in asking.nodes.counters]
        self._gone: dict[PodKey, _Pod] = {}
        self._refused: bool | None = None
        """What the other filters answered last; None where what they look at changed since."""

    def take(self, pod: _Pod) -> None:
        """Take a pod away."""
        self._gone[pod.key] = pod
        self._add(pod, 1)
        for counter in self._asking.nodes.counters_of(pod.shape):
            counter.uncount(self._row, pod.key, pod.counted)
            self._refused = None

    def put_back(self, pod: _Pod) -> None:
        """Put a pod back that was taken away."""
        del self._gone[pod.key]
        self._add(pod, -1)
        for counter in self._asking.nodes.counters_of(pod.shape):
            counter.count(self._row, pod.key, pod.counted)
            self._refused = None

    def _add(self, pod: _Pod, sign: int) -> None:
        left = self._left
        for index, amount in enumerate(self._asking.gives_back(pod)):
            left[index] += amount * sign

    def fits(self) -> bool:
        """Tell whether the shape fits now."""
        if min(self._left, default=0) < 0:
            return False
        if self._refused is None:
            self._refused = any(refuses(self._row) for refuses in self._asking.others)
        return not self._refused

    def close(self) -> None:
        """Put all pods back."""
        for pod in list(self._gone.values()):
            self.put_back(pod)
        for counter, version in self._versions:
            counter.version = version


class _CachedChoices:
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
        self._cached: OrderedDict[Shape, _CachedChoices] = OrderedDict()
        self._touched = Changes()
        """Rows on which a pod began to end."""
        self._by_importance: dict[int, list[_Pod]] = {}
        self._listed = (-1, 0, 0)
        """Version of the table, positions of its changes and of `_touched` that the lists are right for."""

    @property
    def state(self) -> tuple[int, int]:
        """Versions of what a choice depends on beside the node table."""
        return self._touched.position, self._budgets.version

    def pod_changed(self, record: PodRecord) -> None:
        """What is known of a pod changed otherwise than by being counted on a row."""
        if self._cached:
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

    def _refreshed(self, evaluation: Evaluation) -> _CachedChoices:
        nodes, shape = self._nodes, evaluation.shape
        cached = self._cached.get(shape)
        if cached is None:
            cached = self._cached[shape] = _CachedChoices()
            if len(self._cached) > SHAPES_CACHED:
                self._cached.popitem(last=False)
        else:
            self._cached.move_to_end(shape)
        stamp = (nodes.version, evaluation.counted_version(), self._budgets.version)
        positions = (nodes.changes.position, nodes.static_changes.position, self._touched.position)
        if cached.stamp == stamp and cached.positions == positions:
            return cached
        logs = (nodes.changes, nodes.static_changes, self._touched)
        changed = [log.since(position) for log, position in zip(logs, cached.positions, strict=True)]
        known = [rows for rows in changed if rows is not None]
        if cached.stamp != stamp or len(known) < len(changed):
            cached.choices.clear()
            rows: IntArray = np.arange(nodes.size)
        else:
            rows = distinct(np.concatenate(known), nodes.size)
            for row in rows.tolist():
                cached.choices.pop(row, None)
        self._forget_changed_lists()
        helpless = evaluation.beyond_preemption(slice(0, nodes.size))
        cached.hopeless = int(np.count_nonzero(helpless & (nodes.declared[: nodes.size] > 0)))
        asking = _Asking(nodes, evaluation)
        for row in rows[~helpless[rows]].tolist():
            choice = self._choice(asking, row)
            if choice is not None:
                cached.choices[row] = choice
        cached.stamp, cached.positions = stamp, positions
        return cached

    def _choice(self, asking: _Asking, row: int) -> Choice | None:
        ending, pods = self._lower(row, asking.shape.priority)
        if not ending and not pods:
            return None
        if self._budgets:
            violating = self._budgets.violating((*pod.key, pod.labels) for pod in pods)
            order = [pod for pod, violates in zip(pods, violating, strict=True) if violates]
            costly = len(order)
            order += [pod for pod, violates in zip(pods, violating, strict=True) if not violates]
        else:
            costly, order = 0, pods
        if asking.others:
            victims = _victims(_WhatIf(asking, row), ending, order)
        else:
            taken = [asking.gives_back(pod) for pod in (*order, *ending)]
            victims = _victims_by_amount(asking.room(row), taken, len(order))
        if victims is None:
            return None
        return _ranked(self._nodes.names[row], [(order[index], index < costly) for index in victims])

    def _lower(self, row: int, priority: int) -> tuple[list[_Pod], list[_Pod]]:
        """Return the pods of lower priority that end already, and the others that may, by importance."""
        pods = self._by_importance.get(row)
        if pods is None:
            pods = self._by_importance[row] = self._listed_pods(row)
        leaving = self._leaving.get(self._nodes.names[row], ())
        ending: list[_Pod] = []
        found: list[_Pod] = []
        for pod in pods:
            if pod.shape.priority < priority:
                if pod.ending or pod.uid in leaving:
                    ending.append(pod)
                elif not pod.protected:
                    found.append(pod)
        return ending, found

    def _listed_pods(self, row: int) -> list[_Pod]:
        node, records = self._nodes.names[row], self._records
        found = []
        for key, counted in self._nodes.pods[row].items():
            if is_held(key):
                continue
            record = records[key]
            placed = record.placements.get(node)
            if placed is None or placed.facts is None:
                continue  # assumed there by the decision that is being made
            ending, protected = is_ending(record, placed), is_protected(placed.facts)
            shape, bound_us = counted.shape, counted.assigned.assigned_us
            pod = _Pod(key, counted, shape, bound_us, placed.data.uid, placed.facts.labels, ending, protected)
            found.append((-shape.priority, bound_us, key, pod))
        return [entry[3] for entry in sorted(found, key=_IMPORTANCE)]

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


def _victims(what_if: _WhatIf, ending: list[_Pod], order: list[_Pod]) -> list[int] | None:
    """Return which pods of an order cannot be put back, None if the shape does not fit without all of them."""
    try:
        for pod in (*ending, *order):
            what_if.take(pod)
        if not what_if.fits():
            return None
        victims = []
        for index, pod in enumerate(order):
            what_if.put_back(pod)
            if not what_if.fits():
                what_if.take(pod)
                victims.append(index)
        return victims
    finally:
        what_if.close()


def _victims_by_amount(left: list[int], amounts: list[tuple[int, ...]], count: int) -> list[int] | None:
    """Return which of the first `count` pods cannot be put back, where only amounts matter; None if it does not fit without
    all of them."""
    if not amounts:
        return None
    free = [room + sum(freed) for room, freed in zip(left, zip(*amounts, strict=True), strict=True)]
    if min(free) < 0:
        return None
    victims: list[int] = []
    index = 0
    for wanted, run in groupby(amounts[:count]):
        # Of pods that take the same, the first ones stay as far as there is room; the others cannot.
        size = len(list(run))
        stay = min((room // amount for room, amount in zip(free, wanted, strict=True) if amount > 0), default=size)
        if stay < size:
            victims.extend(range(index + stay, index + size))
        stay = min(stay, size)
        free = [room - amount * stay for room, amount in zip(free, wanted, strict=True)]
        index += size
    return victims


def _ranked(node: str, victims: list[tuple[_Pod, bool]]) -> Choice:
    ordered = sorted(victims, key=lambda entry: (-entry[0].shape.priority, entry[0].bound_us, entry[0].key))
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
