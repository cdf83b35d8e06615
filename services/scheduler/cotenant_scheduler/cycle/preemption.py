"""Preemption: the node on which a pod that fits nowhere gets room, and the pods of lower priority that leave it.

In: the results of the pod's shape, the pods on the nodes, the disruption budgets. Out: a `PreemptionCandidate`, or none. All
nodes are considered. The rules:

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
from collections.abc import Callable, Mapping, Sequence, Set

import msgspec
import numpy as np

from cotenant.events.allocations import ReservationUsed
from cotenant.events.placements import PlacementPhase, Victim
from cotenant_scheduler.cycle.what_if import Asking, RowPod, Trial, fewest, victims
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.preemptibility import FEW_ASKED
from cotenant_scheduler.state.columns import BoolArray, Changes, IntArray, distinct
from cotenant_scheduler.state.counting import RESERVE_NAMESPACE, CountedPod, PodKey
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.held_rooms import Use
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

SHAPES_CACHED = 32
SPARE_RANKS = 64
ROWS_CACHED = 1 << 16
PRIORITY_OFFSET = 1 << 31
"""Added to each priority before summing, so that every victim adds to the sum."""
_NOBODY = -PRIORITY_OFFSET - 1
_BOUND = PlacementPhase.BOUND

Rank = tuple[int, int, int, int, int, str]
"""The key by which nodes are compared; the smallest is the best."""


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """A node, the pods that leave it, and the key by which it compares with other nodes."""

    rank: Rank
    node: str
    leaving: tuple[tuple[RowPod, bool], ...]
    """By importance, each with whether its end violates a disruption budget."""
    reservation: ReservationUsed | None = None  # the one on the node that takes the pod then

    @property
    def victims(self) -> tuple[Victim, ...]:
        """The pods that leave, as events name them: made for the few choices that are taken."""
        return tuple(
            Victim(namespace=pod.key[0], name=pod.key[1], uid=pod.uid, priority=pod.shape.priority, violates_budget=violates)
            for pod, violates in self.leaving
        )


def is_ending(record: PodRecord, placed: PlacementRecord) -> bool:
    """Return whether a placed pod ends whatever this decision does."""
    facts = record.facts
    if placed.data.phase is not _BOUND:
        return True
    return not record.unreadable and (facts is None or facts.uid != placed.data.uid or facts.deleting)


class CachedChoices:
    """The cost of preemption on each node for one shape."""

    def __init__(self) -> None:
        self.stamp: tuple[int, ...] = ()
        self.positions = (0, 0, 0)
        self.choices: dict[int, PreemptionCandidate] = {}
        self.ranked: list[tuple[Rank, int]] = []
        """A heap of ranks with their rows; those that are no longer a row's are dropped when they come up."""
        self.helpless: BoolArray = np.zeros(0, dtype=np.bool_)
        """Rows on which preemption does not help."""
        self.hopeless = 0
        """The number of them that are declared nodes."""

    def put(self, row: int, choice: PreemptionCandidate) -> None:
        """Set the choice of a row that has none."""
        self.choices[row] = choice
        heapq.heappush(self.ranked, (choice.rank, row))
        if len(self.ranked) > 2 * len(self.choices) + SPARE_RANKS:
            self.ranked = sorted((known.rank, of) for of, known in self.choices.items())

    def best(self) -> PreemptionCandidate | None:
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
        """Take a change of a pod other than being counted on a row."""
        if self._choices or self._by_importance:
            for node in record.placements:
                row = self._nodes.rows.get(node)
                if row is not None:
                    self._touched.add(row)

    def may_help(self, shape: Shape) -> bool:
        """Return whether there is any pod of a lower priority."""
        return any(priority < shape.priority for priority in self._nodes.priorities)

    def choose(self, evaluation: Evaluation, rows: IntArray | None = None) -> PreemptionCandidate | None:
        """Return the best node for a pod of the shape, of some rows if given; None if preemption helps on none."""
        cached = self._refreshed(evaluation)
        if rows is None:
            return cached.best()
        choices = [cached.choices[row] for row in rows.tolist() if row in cached.choices]
        return min(choices, key=lambda choice: choice.rank, default=None)

    def best_of(self, asking: Asking, rows: Sequence[int], victims: Set[PodKey]) -> PreemptionCandidate | None:
        """Return the best of some rows, where only these pods may be victims; None if that helps on none."""
        self._forget_changed_lists()
        choices = (self._choice_among(asking, row, victims) for row in rows)
        return min((choice for choice in choices if choice is not None), key=lambda choice: choice.rank, default=None)

    def best_without(
        self, priority: int, inside: Mapping[int, Set[str]], trial: Callable[[int], Trial]
    ) -> PreemptionCandidate | None:
        """Return the best of some rows for a pod of this priority, where a trial of the row says what fits; `inside`: by row,
        the uids of the reservations whose users may leave, too. None if that helps on none."""
        choices = (self._choice_without(row, priority, uids, trial) for row, uids in inside.items())
        return min((choice for choice in choices if choice is not None), key=lambda choice: choice.rank, default=None)

    def _choice_without(
        self, row: int, priority: int, uids: Set[str], trial: Callable[[int], Trial]
    ) -> PreemptionCandidate | None:
        ending, pods = self._lower(row, priority, self._listed_pods(row, uids))
        if not (ending or pods):
            return None
        return self._choice_of(row, pods, lambda order: fewest(trial(row), ending, order))

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
            lower = self._lower(row, shape.priority)
            if not any(lower):
                continue
            if asking is None:
                asking = Asking(nodes, evaluation)
            choice = self._choice(asking, row, *lower)
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

    def _choice_among(self, asking: Asking, row: int, victims: Set[PodKey]) -> PreemptionCandidate | None:
        ending, pods = self._lower(row, asking.shape.priority)
        pods = [pod for pod in pods if pod.key in victims]
        return self._choice(asking, row, ending, pods) if ending or pods else None

    def _choice(self, asking: Asking, row: int, ending: list[RowPod], pods: list[RowPod]) -> PreemptionCandidate | None:
        return self._choice_of(row, pods, lambda order: victims(asking, row, ending, order))

    def _choice_of(
        self, row: int, pods: list[RowPod], leaving: Callable[[list[RowPod]], list[int] | None]
    ) -> PreemptionCandidate | None:
        if self._budgets:
            violating = self._budgets.violating((*pod.key, pod.labels) for pod in pods)
            order = [pod for pod, violates in zip(pods, violating, strict=True) if violates]
            costly = len(order)
            order += [pod for pod, violates in zip(pods, violating, strict=True) if not violates]
        else:
            costly, order = 0, pods
        found = leaving(order)
        if found is None:
            return None
        return _ranked(self._nodes.names[row], [(order[index], index < costly) for index in found], bool(costly))

    def _lower(self, row: int, priority: int, pods: list[RowPod] | None = None) -> tuple[list[RowPod], list[RowPod]]:
        """Return the pods of lower priority that are ending already, and the others that may be preempted, by importance;
        `pods`: of these."""
        if pods is None:
            pods = self._by_importance.get(row)
        if pods is None:
            pods = self._by_importance[row] = self._listed_pods(row)
        leaving = self._leaving.get(self._nodes.names[row], ())
        ending: list[RowPod] = []
        found: list[RowPod] = []
        for pod in pods:
            if pod.shape.priority < priority:
                if pod.ending or (leaving and pod.uid in leaving):
                    ending.append(pod)
                elif not pod.protected:
                    found.append(pod)
        return ending, found

    def _listed_pods(self, row: int, inside: Set[str] = frozenset()) -> list[RowPod]:
        """Runs for every pod of a full cluster before the first choice: calls are inlined here. `inside`: uids of reservations
        whose users are listed, too."""
        node, records = self._nodes.names[row], self._records
        held = self._nodes.held.on(row)
        found = []
        for key, counted in self._nodes.pods[row].items():
            namespace = key[0]
            if not namespace or namespace == RESERVE_NAMESPACE or (held and _uses_what_is_held(held, counted, inside)):
                continue  # nominated only, or its end would give nothing to others
            record = records[key]
            placed = record.placements.get(node)
            if placed is None:
                continue  # assumed there by the decision that is being made
            facts, data = placed.facts, placed.stored.data
            if facts is None:
                continue
            shape, bound_us, uid, traits = counted.shape, counted.assigned.assigned_us, data.uid, facts.traits
            bound = data.phase is _BOUND and record.facts is facts and facts.uid == uid and not facts.deleting
            ending = not bound and is_ending(record, placed)
            pod = RowPod(key, counted, shape, bound_us, uid, traits.labels, ending, traits.protected)
            found.append((-shape.priority, bound_us, key, pod))
        found.sort()  # no two keys are equal: pods are not compared
        return [entry[3] for entry in found]

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


def _uses_what_is_held(held: Mapping[str, Use], counted: CountedPod, inside: Set[str]) -> bool:
    """Return whether a pod uses a reservation, none of these, that still holds room on its row: its end gives the room back to
    that. Or whether it acts as a reservation that is used, or as one of these: its end does not give what that is to give."""
    used = counted.allocation.reservation if counted.allocation is not None else None
    use = held.get(used.uid) if used is not None else None
    if used is not None and used.uid in inside:
        return use is not None and use.reserve is counted
    return use is not None and use.reserve is not None and (use.reserve is not counted or bool(use.owners))


def _ranked(node: str, leaving: list[tuple[RowPod, bool]], mixed: bool) -> PreemptionCandidate:
    """`mixed`: those that violate budgets come first; else they come by importance."""
    if mixed:
        leaving = sorted(leaving, key=_importance)
    violations, highest, total, first = 0, _NOBODY, 0, 0
    if leaving:
        violations = sum(violates for _, violates in leaving) if mixed else 0
        highest, first = leaving[0][0].shape.priority, leaving[0][0].bound_us
        total = sum([pod.shape.priority for pod, _ in leaving]) + PRIORITY_OFFSET * len(leaving)
    return PreemptionCandidate((violations, highest, total, len(leaving), -first, node), node, tuple(leaving))


def _importance(entry: tuple[RowPod, bool]) -> tuple[int, int, PodKey]:
    pod = entry[0]
    return -pod.shape.priority, pod.bound_us, pod.key
