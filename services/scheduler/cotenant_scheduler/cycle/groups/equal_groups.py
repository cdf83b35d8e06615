"""Placing equal groups of pods that follow each other in the queue at once.

In: the open entries of a pass, the first of which is a group. Out: the placements of as many whole groups as can be found
together, which is exactly what placing them one after the other gives (`framework.series`): a gang of eight costs little more
than eight single pods. All pods of these groups are charged alike and ask for no reservation, and no pod is nominated.
A group of which one pod cannot be placed, and those behind it, are left to `cycle.groups.placing_groups`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cotenant.events.envelope import Event
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.ordering.walk import Walk
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, QueueEntry, events_of
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.counting import is_reserve
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord


class EqualGroups:
    """Places groups; see the module. `head`: the class for which room is kept now; `usual`: events that a decision has for a
    group together with the ends of its waiting events."""

    def __init__(
        self,
        nodes: NodeTable,
        results: CachedResults,
        binding: Binding,
        admission: QuotaAdmission,
        assumed: Assumed,
        nominations: Nominations,
        head: Callable[[], EquivalenceClass | None],
        gathers: Callable[[QueueEntry], bool],
        usual: int,
    ) -> None:
        self._nodes = nodes
        self._results = results
        self._binding = binding
        self._admission = admission
        self._assumed = assumed
        self._nominations = nominations
        self._head = head
        self._gathers = gathers
        self._usual = usual
        self._one_by_one = 0
        """The number of next groups in a run that is too short to be placed at once."""

    def begin(self) -> None:
        """Start a decision."""
        self._one_by_one = 0

    def place(self, walk: Walk, left: int, now: datetime, bound: list[Event]) -> bool:
        """Place the groups at the top, in at most `left` events; return whether any was placed."""
        if self._one_by_one:
            self._one_by_one -= 1
            return False
        if walk.passes_over or self._nominations:
            return False
        run, charge = self._run(walk, left)
        if charge is None:
            return False
        if sum(len(entry.records) for entry, _ in run) < WORTHWHILE:
            self._one_by_one = len(run) - 1
            return False
        placed = self._place(run, charge, now, bound)
        if placed:
            walk.wake()
            walk.pass_groups(placed)
        return placed > 0

    def _run(self, walk: Walk, left: int) -> tuple[list[tuple[QueueEntry, GroupClass]], Charge | None]:
        """The groups at the top whose pods are all charged alike, in at most `left` events, and that charge."""
        run: list[tuple[QueueEntry, GroupClass]] = []
        charge: Charge | None = None
        head = self._head()
        for entry, group in walk.groups():
            if group is head or self._gathers(entry):
                break  # its own room does not count for it; or its pods shall be near to one another in the network
            first = group.charge_of(entry.records[0]) if charge is None else charge
            left -= entry.event_count
            if left < 0 or entry.event_count > self._usual or not _is_plain(entry, group, first):
                break
            charge = first
            run.append((entry, group))
        return run, charge

    def _place(
        self, run: list[tuple[QueueEntry, GroupClass]], charge: Charge, now: datetime, bound: list[Event]
    ) -> int:
        """Place the pods of as many whole groups as nodes and quotas admit; return how many groups."""
        if charge.shape.selected_by:
            return 0
        records = [record for entry, _ in run for record in entry.records]
        gangs = [group.together.gang_of(record.key) for entry, group in run for record in entry.records]
        savepoint, begun = self._assumed.savepoint(), len(bound)
        pods = self.place_pods(records, charge, gangs, now, bound, WORTHWHILE)
        groups = whole = events = 0
        for entry, group in run:
            members = [record.key for record in entry.records]
            if whole + len(members) > pods or not group.together.enough(members, members):
                break
            group.stamp = group.template = None
            groups += 1
            whole += len(members)
            events += sum(map(events_of, entry.records))
        if whole < pods:
            self._assumed.rollback(savepoint + whole)
            del bound[begun + events :]
        return groups

    def place_pods(
        self, records: list[PodRecord], charge: Charge, gangs: list[str], now: datetime, bound: list[Event], least: int
    ) -> int:
        """Place the first of these pods, all charged alike, as far as nodes and quotas admit them; return how many. None if
        fewer than `least` are admitted. `gangs`: that of each."""
        evaluation = self._results.evaluation(charge.shape)
        if not evaluation.in_columns or self._nodes.counters_of(charge.shape) or evaluation.best() < 0:
            return 0
        if charge.membership is not None:
            records = records[: self._admission.one_after_the_other(charge.shape).count(charge, len(records))]
        if len(records) < least:
            return 0
        return self._binding.place_series(records, [charge] * len(records), evaluation, now, bound, gangs)


def _is_plain(entry: QueueEntry, group: EquivalenceClass, charge: Charge) -> bool:
    """Whether each pod of a group is charged so and is placed by nothing but its shape."""
    return all(
        record.ask is None and not is_reserve(record.key) and group.charge_of(record) == charge for record in entry.records
    )
