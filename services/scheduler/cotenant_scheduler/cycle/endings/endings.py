"""The consequences of a changed pod, besides finding it a node.

In: the records of pods that changed, the state of the nodes. Out: events. The rules:

    a placement ends when its pod's object is deleted, being deleted, or of another uid, or when its node's object is
    deleted and the pod has not finished there: it is stored again as terminating, so that the executor ends the pod,
    and is gone (a tombstone) when
      - the run reports that the pod has ended or, with its tombstone, that it was stopped, or
      - no executor ever reported from the node, nor of the pod, so the pod runs nowhere (not decided for a node whose object
        is deleted: the executor's report has ended with it), or
      - the node's object is deleted, or no run was ever reported, and the grace period and 60 s have passed since
        terminating
    until then it holds its room on the node, even if the node is declared again; the end of one whose room or name another
    pod waits for says so, and is stored at once
    a finished pod keeps its placement even if its node is deleted: its report would end with the placement, and the pod would
    run once more
    a placement is stored again when the pod's object changed (the executor sees only its node's subjects), and when the node
    reports what became of a resize
    a pod whose spec names a node is placed there without filters (its executor admits it), whatever its scheduler
    a pod waits that is scheduling-gated or malformed, whose predecessor has not ended, or that names a missing node
    a waiting event ends when its pod has a placement, is gone, or belongs to another scheduler
A pod whose node's object was deleted is placed again once its old placement is gone.

Over 300 lines: the rules share one record and depend on each other's results.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.reservations.operating import with_itself
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase, Waiting, WaitingReason
from cotenant.log.contract import ending, replaces
from cotenant.model.names import SCHEDULER_NAMES
from cotenant.model.subjects import placement_subject, waiting_subject
from cotenant.model.times import EPOCH
from cotenant_scheduler.cycle.endings.blocked import blocked_by, blocked_due, blocked_event
from cotenant_scheduler.cycle.endings.resizes import resize_of, resized_requests
from cotenant_scheduler.cycle.endings.unreported import UnreportedEnds, counts_as_gone_at
from cotenant_scheduler.cycle.other_schedulers import BELONGS_ELSEWHERE, came_too_late
from cotenant_scheduler.cycle.reservations.endings import ReservationEndings
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.node_facts import NodeMessages
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord, StopReports
from cotenant_scheduler.state.reading.shapes import ParsedPod
from cotenant_scheduler.state.reservations.records import ReserveRecord

_BOUND = PlacementPhase.BOUND
NAMED_BY_POD = "the pod names its node"


class Endings:
    """Pods to inspect, and the events that follow. A pod is inspected until no event follows."""

    def __init__(
        self, nodes: Mapping[str, NodeMessages], quotas: QuotaLedger, reservations: ReservationEndings,
        acting: Container[PodKey], stops: StopReports, *, checks_scheduler: bool,
    ) -> None:
        """`acting`: pods that act as reservations."""
        self._stops = stops
        self._acting = acting
        self._checks_scheduler = checks_scheduler
        self._nodes = nodes
        self._quotas = quotas
        self._reservations = reservations
        self.attention: dict[PodKey, PodRecord] = {}
        self._unreported = UnreportedEnds()

    def pod_changed(self, record: PodRecord) -> None:
        """Queue a pod for inspection, unless nothing can follow: it waits for a node, or runs where it was placed."""
        self._unreported.forget(record)
        facts = record.facts
        if facts is None or isinstance(record, ReserveRecord):
            settled = False
        elif record.placements:
            settled = self._only_runs(record, facts)
        else:
            settled = not facts.error and (record.queued_in is not None or self.wants_node(record))
        if not settled:
            self.attention[record.key] = record

    def _only_runs(self, record: PodRecord, facts: ParsedPod) -> bool:
        if record.waiting is not None or len(record.placements) != 1 or facts.deleting:
            return False
        [(node, placed)] = record.placements.items()
        data = placed.data
        return (
            data.uid == facts.uid
            and data.phase is _BOUND
            and data.object_sequence == record.object_sequence
            and (data.resize is None or resize_of(record, node, placed) == data.resize)
            and self._declared(node)
        )

    def look_at(self, records: Sequence[PodRecord]) -> None:
        """Queue pods for inspection."""
        for record in records:
            self.attention[record.key] = record

    def wants_node(self, record: PodRecord) -> bool:
        """Return whether the scheduler must find a node for the pod."""
        facts = record.facts
        return (
            facts is not None
            and not record.placements
            and not facts.deleting
            and not facts.gated
            and not facts.node_name
            and facts.scheduler_name in SCHEDULER_NAMES
            and not record.finished
        )

    def decide(self, now: datetime, limit: int) -> list[Event]:
        """Return at most `limit` events, for the pods in the order of their names."""
        events: list[Event] = []
        self.look_at(self._reservations.due(now))
        self.look_at(self._unreported.due(now))
        for key in sorted(self.attention) if self.attention else ():
            found, settled = self._look(self.attention[key], now)
            if settled and not found:
                del self.attention[key]
            if len(events) + len(found) > limit:
                break
            events.extend(found)
        return events

    def waiting_over(self, record: PodRecord) -> Event:
        """Return the tombstone of a pod's waiting event."""
        assert record.waiting is not None
        return ending(
            waiting_subject(*record.key),
            Waiting(namespace=record.key[0], name=record.key[1], uid=record.waiting.uid),
            (f"LOG:{record.object_sequence}",) if record.object_sequence else (),
        )

    def given(self, record: PodRecord, node: str, reservation: ReservationUsed, causes: tuple[str, ...]) -> Event:
        """Return the placement of a pod that becomes an owner of a reservation where it is."""
        placed = record.placements[node]
        again = self._again(record, node, placed, placed.data.phase, placed.data.reason, None)
        assert isinstance(again.data, Placement)
        allocation = msgspec.structs.replace(again.data.allocation or Allocation(), reservation=reservation)
        data = msgspec.structs.replace(again.data, allocation=allocation)
        return msgspec.structs.replace(again, data=data, causes=(*again.causes, *causes))

    def _look(self, record: PodRecord, now: datetime) -> tuple[list[Event], bool]:
        """Return the event that follows from a record, and whether it depends only on changes of the record."""
        if isinstance(record, ReserveRecord):
            return self._reservations.look(record, now)
        events: list[Event] = []
        settled = True
        for node in sorted(record.placements):
            placed = record.placements[node]
            reason = self._reason_to_end(record, node, placed)
            if reason is None:
                if self._is_of(record, placed) and self._says_otherwise(record, node, placed):
                    events.append(self._again(record, node, placed, placed.data.phase, placed.data.reason, None))
                continue
            gone_at = self._gone_at(record, node, placed)
            if gone_at is not None and gone_at <= now:
                events.append(self._gone(record, node, placed, reason))
            elif placed.data.phase is not PlacementPhase.TERMINATING:
                again = self._again(record, node, placed, PlacementPhase.TERMINATING, reason, now)
                events.append(msgspec.structs.replace(again, replaces=replaces(placed.data.bound_at, now)))
            elif self._is_of(record, placed) and placed.data.object_sequence != record.object_sequence:
                at = placed.data.terminating_at
                events.append(self._again(record, node, placed, PlacementPhase.TERMINATING, reason, at))
            elif gone_at is not None:
                self._unreported.wait(record, gone_at)
        if record.facts is not None and record.facts.node_name and not record.placements:
            settled = False
            if (bound := self._named(record, now)) is not None:
                events.append(bound)
        blocked = self._blocked(record)
        if blocked is not None:
            due = blocked_due(record, blocked, now)
            if due is not None and due <= now:
                events.append(blocked_event(record, blocked))
            settled = settled and (due is None or due <= now)
        elif record.waiting is not None and not self.wants_node(record):
            events.append(self.waiting_over(record))
        return events, settled

    # -- placements ----------------------------------------------------------------------------------------------

    def _is_of(self, record: PodRecord, placed: PlacementRecord) -> bool:
        return record.facts is not None and record.facts.uid == placed.data.uid

    def _says_otherwise(self, record: PodRecord, node: str, placed: PlacementRecord) -> bool:
        """Whether a placement is to be stored again: the object changed, the users of a pod that acts as a reservation, or what
        became of a resize."""
        data = placed.data
        if data.object_sequence != record.object_sequence or resize_of(record, node, placed) != data.resize:
            return True
        return record.key in self._acting and data.used_by != self._reservations.used_by(record.key, node, data.uid)

    def _reason_to_end(self, record: PodRecord, node: str, placed: PlacementRecord) -> str | None:
        facts = record.facts
        if record.unreadable:
            return None
        if facts is None:
            return "the pod was deleted"
        if facts.uid != placed.data.uid:
            return "the pod was deleted and created again"
        if facts.deleting:
            return "the pod is being deleted"
        if self._checks_scheduler and came_too_late(record, node, placed):
            return BELONGS_ELSEWHERE
        if not self._declared(node):
            run = record.run_of(node, facts.uid)
            if run is None or not run[0].phase.final:
                return "the node was deleted"
        # A terminating pod ends, even if its node came back meanwhile.
        return placed.data.reason if placed.data.phase is PlacementPhase.TERMINATING else None

    def _declared(self, node: str) -> bool:
        return (facts := self._nodes.get(node)) is not None and "object" in facts.sequences

    def _gone_at(self, record: PodRecord, node: str, placed: PlacementRecord) -> datetime | None:
        """Return when a placement that has to end is gone: long ago if the pod is known to have ended; None: not known yet."""
        run = record.run_of(node, placed.data.uid)
        if (run is not None and run[0].phase.terminal) or self._stops.of(node, record.key, placed):
            return EPOCH
        facts, declared = self._nodes.get(node), self._declared(node)
        if declared and run is None and (facts is None or facts.executor is None):
            return EPOCH
        if placed.data.phase is not PlacementPhase.TERMINATING:
            return None
        return counts_as_gone_at(placed, declared=declared, reported=run is not None)

    def _again(
        self,
        record: PodRecord,
        node: str,
        placed: PlacementRecord,
        phase: PlacementPhase,
        reason: str,
        terminating_at: datetime | None,
    ) -> Event:
        """Return the placement to store again, with the object's current document if that is of this pod. A terminating one has
        no figures: its cause has them."""
        data = placed.stored.whole() if phase is _BOUND else msgspec.structs.replace(placed.data, figures=())
        facts, document = record.facts, record.document
        if facts is not None and document is not None and facts.uid == data.uid:
            membership = self._quotas.member(record.key[0], facts.traits.quota_label)
            resize = resize_of(record, node, placed)
            requests = facts.shape.requests if facts.shape is not None else data.requests
            data = msgspec.structs.replace(
                data,
                pod=document,
                requests=requests if resize is None else resized_requests(document, resize, requests),
                resize=resize,
                grace_period_seconds=facts.grace_seconds,
                quota=membership.quota if membership else "",
                quota_tree=membership.tree if membership else "",
                object_sequence=record.object_sequence,
                allocation=with_itself(data.allocation, record.key, data.uid, acts=facts.traits.acts),
                used_by=self._reservations.used_by(record.key, node, data.uid) if facts.traits.acts else None,
            )
        return Event(
            subject=placement_subject(node, *record.key),
            data=msgspec.structs.replace(data, phase=phase, reason=reason, terminating_at=terminating_at),
            causes=self._ending_causes(record, node, placed),
        )

    def _gone(self, record: PodRecord, node: str, placed: PlacementRecord, reason: str) -> Event:
        data = placed.data
        run = record.run_of(node, data.uid)
        report = run[1] if run is not None else self._stops.of(node, record.key, placed)
        return ending(
            placement_subject(node, *record.key),
            Placement(
                node=node,
                namespace=data.namespace,
                name=data.name,
                uid=data.uid,
                phase=PlacementPhase.GONE,
                bound_at=data.bound_at,
                terminating_at=data.terminating_at,
                reason=reason,
            ),
            (*self._ending_causes(record, node, placed), *((f"LOG:{report}",) if report else ())),
        )

    def _ending_causes(self, record: PodRecord, node: str, placed: PlacementRecord) -> tuple[str, ...]:
        object_ref = (f"LOG:{record.object_sequence}",) if record.object_sequence else ()
        facts = self._nodes.get(node)
        node_ref = (f"LOG:{facts.sequences['object']}",) if facts is not None and "object" in facts.sequences else ()
        return (*object_ref, f"LOG:{placed.sequence}", *node_ref)

    def _named(self, record: PodRecord, now: datetime) -> Event | None:
        """Return the placement on the node that the pod's spec names; None if it has to wait or is over."""
        facts, document = record.facts, record.document
        assert facts is not None
        assert document is not None
        if facts.deleting or facts.shape is None or record.finished or not self._declared(facts.node_name):
            return None
        membership = self._quotas.member(facts.namespace, facts.traits.quota_label)
        return Event(
            subject=placement_subject(facts.node_name, *record.key),
            data=Placement(
                node=facts.node_name,
                namespace=facts.namespace,
                name=facts.name,
                uid=facts.uid,
                pod=document,
                requests=facts.shape.requests,
                quota=membership.quota if membership else "",
                quota_tree=membership.tree if membership else "",
                bound_at=now,
                grace_period_seconds=facts.grace_seconds,
                reason=NAMED_BY_POD,
                object_sequence=record.object_sequence,
                allocation=with_itself(None, record.key, facts.uid, acts=facts.traits.acts),
            ),
            causes=(f"LOG:{record.object_sequence}", *self._nodes[facts.node_name].causes),
        )

    # -- waiting -------------------------------------------------------------------------------------------------

    def _blocked(self, record: PodRecord) -> WaitingReason | None:
        """Return why the pod waits whatever state the nodes are in; None if nothing of the kind holds it back."""
        facts = record.facts
        if facts is None or facts.deleting or record.finished:
            return None
        if record.placements:
            if any(self._is_of(record, placed) for placed in record.placements.values()):
                return None
            node = min(record.placements)
            return blocked_by("predecessor", f"its predecessor of the same name is still ending on node {node}")
        if facts.error:
            return blocked_by("malformed", facts.error)
        if facts.node_name:
            if self._declared(facts.node_name):
                return None
            return blocked_by("node-missing", f"the pod names node {facts.node_name}, which is not there")
        if facts.scheduler_name not in SCHEDULER_NAMES:
            return None
        if facts.gated:
            return blocked_by("gated", f"scheduling gates are not removed: {', '.join(facts.gated)}")
        return None
