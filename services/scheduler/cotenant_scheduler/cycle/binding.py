"""Binding a pod to a node: the events, and the assumed changes.

In: a pod of the queue, its charge, the row that takes it. Out: its placement and the end of its waiting event; the
pod is counted on the node and charged to its quota until the decision is stored or undone (`cycle.assumed`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import repeat

from cotenant.domain.reservations.operating import with_itself
from cotenant.events.allocations import Allocation, merged
from cotenant.events.envelope import Event
from cotenant.events.placements import Figure, Placement
from cotenant.model.subjects import placement_subject, reservation_subject
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.endings.endings import Endings
from cotenant_scheduler.cycle.reservations.events import share_of, status_ends
from cotenant_scheduler.cycle.reservations.reserving import Reserving, SelectedNode
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.figures import FigureCache
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.series import RowSeries
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.quotas.cache import Quotas
from cotenant_scheduler.state.reservations.cache import placement_of
from cotenant_scheduler.state.reservations.records import ReserveRecord


class Binding:
    """Binds pods to rows."""

    def __init__(
        self,
        profile: Profile,
        nodes: NodeTable,
        node_cache: NodeCache,
        pods: PodCache,
        quotas: Quotas,
        assumed: Assumed,
        endings: Endings,
        reserving: Reserving,
    ) -> None:
        self._profile = profile
        self._nodes = nodes
        self._node_cache = node_cache
        self._pods = pods
        self._quotas = quotas
        self._assumed = assumed
        self._endings = endings
        self._reserving = reserving
        self._figures = FigureCache(profile, nodes.load.resources)
        self.ends_waiting = True
        """Whether a pod's waiting event ends in the batch of its placement."""

    def place(
        self,
        bound: list[Event],
        record: PodRecord,
        row: int,
        evaluation: Evaluation,
        charge: Charge,
        now: datetime,
        gang: Allocation | None = None,
        reserved: SelectedNode | None = None,
    ) -> None:
        """Place a pod on a row. `gang`: its gang, and where it is together; `reserved`: the reservation there that it uses."""
        assert record.facts is not None
        if isinstance(record, ReserveRecord):
            self._place_reservation(bound, record, row, charge, now)
            return
        if reserved is None:
            figures = self._figures.of_row(evaluation, row)
        else:
            figures = self._figures.of_reserved(evaluation, row, reserved.scores, reserved.weighted)
        allocation = self._profile.allocate(self._nodes, charge.shape, row)
        used = reserved.allocation if reserved is not None else None
        if used is not None:
            allocation = merged([fragment for fragment in (allocation, used) if fragment is not None])
        if record.facts.traits.acts:
            allocation = with_itself(allocation, record.key, record.facts.uid, acts=True)
        if gang is not None:
            allocation = gang if allocation is None else merged((allocation, gang))
        data = self._bind(bound, record, row, figures, charge, now, allocation, (*_causes(reserved), *self._of_quota(charge)))
        assigned = self._pods.assigned.of(record.facts, charge.shape, microseconds(now))
        self._assumed.place(row, record.key, charge, assigned, data)
        if reserved is not None and self.ends_waiting:
            bound.extend(self._reserving.used_up(reserved, record, charge.shape, now))

    def _place_reservation(
        self, bound: list[Event], record: ReserveRecord, row: int, charge: Charge, now: datetime
    ) -> None:
        """Give a reservation its share of a node."""
        assert record.facts is not None
        node = self._nodes.names[row]
        share = share_of(record, node, now)
        causes = (f"LOG:{record.object_sequence}", *self._node_cache.facts[node].causes)
        bound.append(Event(subject=reservation_subject(node, record.name), data=share, causes=causes))
        if record.status is not None:
            bound.append(status_ends(record))
        held = self._pods.reserve_charge(charge.shape)
        assigned = self._pods.assigned.of(record.facts, held.shape, microseconds(now))
        self._assumed.place(row, record.key, held, assigned, placement_of(share))

    def place_series(
        self,
        run: list[PodRecord],
        charges: list[Charge],
        evaluation: Evaluation,
        now: datetime,
        bound: list[Event],
        gangs: Sequence[str] = (),
    ) -> int:
        """Place consecutive pods of one shape as far as one evaluation is valid; return how many. `charges` and `gangs`:
        of each; no `gangs`: none has one."""
        known, allocation = "", None
        series = RowSeries(evaluation, len(run))
        reports, assigned_as = self._nodes.load.reports, self._pods.assigned.of
        keys: list[PodKey] = []
        placements: list[Placement] = []
        facts = run[0].facts
        assert facts is not None
        now_us, shape = microseconds(now), evaluation.shape
        assigned = assigned_as(facts, shape, now_us)
        alike = self._pods.assigned.by_shape
        charged: Charge | None = None
        of_quota: tuple[str, ...] = ()
        chosen = zip(run, charges, gangs or repeat(""), series.rows, series.figures(self._figures), strict=False)
        for record, charge, gang, row, figures in chosen:
            key = record.key
            assert record.facts is not None
            if reports(row, key) or not (alike or assigned_as(record.facts, shape, now_us) == assigned):
                break
            if charge is not charged:
                charged, of_quota = charge, self._of_quota(charge)
            if gang is not known:
                known, allocation = gang, Allocation(gang=gang) if gang else None
            placements.append(self._bind(bound, record, row, figures, charge, now, allocation, of_quota))
            keys.append(key)
        if keys:
            count = len(keys)
            self._assumed.place_series(series.rows[:count], keys, charges[:count], assigned, placements)
        return len(keys)

    def place_with_owners(
        self, run: list[PodRecord], charges: list[Charge], evaluation: Evaluation, now: datetime, bound: list[Event]
    ) -> int:
        """Place consecutive pods of one shape, of which some may use reservations, as `place_series` does; return how many. It
        ends where a place depends on pods that the same evaluation places before it: where a pod would use a reservation of a
        row that has become one of theirs, or a row on which an owner was placed is as good as the next."""
        if evaluation.spanning:
            return 0
        series = RowSeries(evaluation, sum(record.ask is None for record in run))
        reports, assigned_as = self._nodes.load.reports, self._pods.assigned.of
        facts = run[0].facts
        assert facts is not None
        now_us, shape, highest, most = microseconds(now), evaluation.shape, evaluation.highest, evaluation.most()
        assigned = assigned_as(facts, shape, now_us)
        alike = self._pods.assigned.by_shape
        rows: list[int] = []
        keys: list[PodKey] = []
        charged: list[Charge] = []
        placements: list[Placement] = []
        pending: set[int] = set()
        owned: set[int] = set()
        best_owned = -1
        count = 0
        picks = zip(series.rows, series.worths, series.figures(self._figures), strict=True)
        pick = next(picks, None)
        for record, charge in zip(run, charges, strict=True):
            if pick is None or evaluation.highest != highest:
                break
            if isinstance(record.ask, Ask):
                apart, choice = self._reserving.apart_from(evaluation, record.ask, pending, most)
                if not apart:
                    break
                if choice is not None:
                    self.place(bound, record, choice.row, evaluation, charge, now, reserved=choice)
                    evaluation.look_again(choice.row)
                    owned.add(choice.row)
                    best_owned = max(best_owned, evaluation.key(choice.row))
                    count += 1
                    continue
            row, worth, figures = pick
            assert record.facts is not None
            other = reports(row, record.key) or not (alike or assigned_as(record.facts, shape, now_us) == assigned)
            if other or row in owned or worth < best_owned:
                break
            placements.append(self._bind(bound, record, row, figures, charge, now, None, self._of_quota(charge)))
            rows.append(row)
            keys.append(record.key)
            charged.append(charge)
            pending.add(row)
            pick = next(picks, None)
            count += 1
        if keys:
            self._assumed.place_series(rows, keys, charged, assigned, placements)
        return count

    def _of_quota(self, charge: Charge) -> tuple[str, ...]:
        """The messages about the quota that a pod is charged to."""
        return self._quotas.causes(charge.membership) if charge.membership is not None else ()

    def _bind(
        self,
        bound: list[Event],
        record: PodRecord,
        row: int,
        figures: tuple[Figure, ...],
        charge: Charge,
        now: datetime,
        allocation: Allocation | None,
        causes: tuple[str, ...],
    ) -> Placement:
        """Add the events that give a pod its node; return the placement. `causes`: besides the pod's and the node's."""
        facts, document, membership = record.facts, record.document, charge.membership
        assert facts is not None
        assert document is not None
        node = self._nodes.names[row]
        causes = (f"LOG:{record.object_sequence}", *self._node_cache.facts[node].causes, *causes)
        data = Placement(
            node=node,
            namespace=facts.namespace,
            name=facts.name,
            uid=facts.uid,
            pod=document,
            requests=charge.shape.requests,
            quota=membership.quota if membership else "",
            quota_tree=membership.tree if membership else "",
            bound_at=now,
            grace_period_seconds=facts.grace_seconds,
            figures=figures,
            object_sequence=record.object_sequence,
            allocation=allocation,
        )
        namespace, name = record.key
        bound.append(Event(subject=placement_subject(node, namespace, name), data=data, causes=causes))
        if record.waiting is not None and self.ends_waiting:
            bound.append(self._endings.waiting_over(record))
        return data


def _causes(reserved: SelectedNode | None) -> tuple[str, ...]:
    """The share of the reservation that a placement uses."""
    record = reserved.record if reserved is not None else None
    share = record.share() if record is not None else None
    return (f"LOG:{record.placements[share.node].sequence}",) if record is not None and share is not None else ()
