"""Waiting events of queued pods: why no node takes them, or why their quota does not.

In: the classes of the queue with a template (each decision makes one for every class that it could not place). Out: Waiting
events, in queue order of the classes. An event is stored when its pod has none yet and its object has been on the log for
FIRST_PAUSE, when its nomination or the room that it is kept changed, when the set of reason codes changed and CHANGE_PAUSE has
passed since the last, or when figures changed and WAITING_PAUSE has. So a pod that is placed within FIRST_PAUSE gets none, and
any other at most one a CHANGE_PAUSE beside its nominations and rooms, however its reasons alternate. A class all of whose pods
have their event is skipped until its template changes, a pod joins it, or the next pause ends.

Over 300 lines: all texts of why pods wait, and when they are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Hold, Nomination, RefusedMembers, Waiting, WaitingReason
from cotenant.model.subjects import waiting_subject
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue, WaitingTemplate
from cotenant_scheduler.cycle.reservations.events import waits
from cotenant_scheduler.cycle.reservations.reserving import WAKES_ON, Reserving, reasons_of
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.explanation import explain
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import PodKey, quoted_name, shown_name
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.records import ReserveRecord

FIRST_PAUSE = timedelta(milliseconds=500)
"""A pod is reported as waiting once its present object has waited this long: most refusals are over by the next cycle."""

WAITING_PAUSE = timedelta(seconds=30)
"""An event that differs only in its figures is stored again only after this time."""

CHANGE_PAUSE = timedelta(seconds=1)
"""An event with another set of reasons is stored after this time: quotas follow their nodes a moment later, and reasons
alternate."""

OF_GROUP = "group"
"""The code of reasons for which a group is not tried at all."""

OF_GANGS = ("objects.core.pods.>", "objects.scheduling%2Esigs%2Ek8s%2Eio.podgroups.>")
"""What can change whether a group has all the pods that it needs."""

OF_TOPOLOGY = (
    "node.*.placement.>",
    "objects.core.nodes._.*",
    "objects.scheduling%2Ekoordinator%2Esh.clusternetworktopologies.>",
)
"""What can change whether a domain of the network has room for a group."""

_FAR_US = 1 << 62

MembersFinder = Callable[[GroupClass, datetime], tuple[tuple[RefusedMembers, ...], int]]
"""Returns the members of a group that do not fit, and how many further ones were not tried."""


def first_due(record: PodRecord, now: datetime) -> datetime:
    """Return when a pod is first reported as waiting. The time comes with its object, so it is the same for a
    scheduler that starts meanwhile."""
    return record.object_at + FIRST_PAUSE if record.object_at is not None else now


class WaitingPods:
    """Templates, and the events made of them."""

    def __init__(
        self,
        queue: PodQueue,
        nodes: NodeTable,
        reservations: ReservationCache,
        reserving: Reserving,
        placed: Callable[[PodKey], bool],
    ) -> None:
        self._queue = queue
        self._reservations = reservations
        self._reserving = reserving
        self.now: datetime | None = None
        """The time of the decision that is being made."""
        self.holds: Mapping[PodKey, Hold] = {}
        """The room that the decision reserves for the queue's head."""
        self.members_that_do_not_fit: MembersFinder = lambda *_: ((), 0)
        """`cycle.groups.members`; asked once for each decision that stores a waiting event of a group."""
        self._holding: dict[PodKey, PodRecord] = {}
        """Pods whose waiting events name a reserved room."""
        self._nodes = nodes
        self._placed = placed
        """Whether the current decision has placed a pod that stays in its class until the placement is stored."""

    def refused_by_nodes(
        self,
        alike: EquivalenceClass,
        evaluation: Evaluation,
        preemption: str,
        nomination: Nomination | None = None,
        record: PodRecord | None = None,
    ) -> WaitingTemplate:
        """Return why the pods of a class wait that no node can take. `preemption` is kube-scheduler's message on why preemption
        does not help; it is empty if there is none. `record`: of a member of a group."""
        known = alike.template
        ask = alike.ask if record is None else record.ask
        stamp = (evaluation.stamp, preemption, nomination, self._reservations.changed.position if ask is not None else 0)
        if known is not None and alike.stamp == stamp:
            return known
        alike.stamp = stamp
        reasons, listed, wakes_on = self.refusals_of_nodes(evaluation, ask)
        texts = ", ".join(listed)
        total = self._nodes.count
        message = f"0/{total} nodes are available: {texts}." if texts else "no nodes available to schedule pods"
        waiting = Waiting(
            namespace="",
            name="",
            uid="",
            nodes=total,
            reasons=reasons,
            wakes_on=wakes_on,
            message=f"{message} preemption: {preemption}" if preemption else message,
            priority=evaluation.shape.priority,
            nomination=nomination,
        )
        return self._template(alike, waiting, ())

    def refusals_of_nodes(
        self, evaluation: Evaluation, ask: Hashable, among: IntArray | None = None, *, nearest: bool = False
    ) -> tuple[tuple[WaitingReason, ...], list[str], tuple[str, ...]]:
        """Return why nodes (`among`: only these rows) and reservations refuse a pod: reasons, texts, and the subjects whose
        events can change that. `nearest`: each reason names the node that is nearest to taking the pod."""
        explanation = explain(evaluation, among, nearest=nearest)
        reasons = tuple(
            WaitingReason(
                code=entry.refusal.code,
                count=entry.count,
                resource=entry.refusal.resource,
                detail=entry.refusal.detail,
                node=entry.node,
            )
            for entry in explanation.refusals
        )
        listed = sorted(f"{entry.count} {entry.refusal.text}" for entry in explanation.refusals)  # as kube-scheduler
        if not isinstance(ask, Ask):
            return reasons, listed, explanation.wakes_on
        refused = self._reserving.refused(evaluation, ask)
        more, lines = reasons_of(refused)
        wakes_on = tuple(sorted({*explanation.wakes_on, *WAKES_ON}))
        return (tuple(more), lines, wakes_on) if refused.required else ((*reasons, *more), [*listed, *lines], wakes_on)

    def refused_by_quota(
        self,
        alike: EquivalenceClass,
        waiting: Waiting,
        quota_causes: tuple[str, ...],
        nomination: Nomination | None = None,
    ) -> WaitingTemplate:
        """Return why the pods of a class wait whose quota refused them."""
        known, stamp = alike.template, (waiting, self._nodes.count, quota_causes, nomination)
        if known is not None and alike.stamp == stamp:
            return known
        alike.stamp = stamp
        priority, nodes = alike.charge.shape.priority, self._nodes.count
        message = f"0/{nodes} nodes are available: {waiting.message.rstrip('.')}."  # as of a plugin before the filters
        waiting = msgspec.structs.replace(
            waiting, nodes=nodes, message=message, priority=priority, nomination=nomination
        )
        return self._template(alike, waiting, quota_causes)

    def of_member(
        self, group: GroupClass, record: PodRecord, placed: int, found: WaitingTemplate, where: str = ""
    ) -> WaitingTemplate:
        """Return why the pods of a group wait: one of them cannot be placed (in a domain `where`), for the reasons found."""
        reason = found.waiting.message
        message = f'GangGroup "{group.key}" gets rejected due to member {quoted_name(record.key)} is unschedulable{where} '
        message += f'with reason "{reason}", alreadyWaitForBound: {placed}.'
        waiting = msgspec.structs.replace(found.waiting, message=message, member=shown_name(record.key))
        return self._template(group, waiting, found.causes)

    def of_preempting_group(
        self, group: GroupClass, refused: WaitingTemplate, victims: int, nodes: int
    ) -> WaitingTemplate:
        """Return why the pods of a group wait for which others leave."""
        where = f"on {nodes} node{'s'[:nodes != 1]}"
        what = f"1 pod {where} leaves" if victims == 1 else f"{victims} pods {where} leave"
        message = f"{refused.waiting.message} preemption: {what} for the group."
        return self._template(group, msgspec.structs.replace(refused.waiting, message=message), refused.causes)

    def group_too_large(self, group: GroupClass, members: int, most: int) -> WaitingTemplate:
        """Return why the pods of a group wait that is too large for one decision."""
        return self._of_group(group, f"the group has {members} pods, and one batch holds the placements of {most}")

    def of_topology(self, group: GroupClass, detail: str, slots: str) -> WaitingTemplate:
        """Return why a group waits that no domain of the network has room for. `slots`: their room in Koordinator's words."""
        text = f"no candidate topology nodes can accommodate job, {slots}" if slots else detail
        message = f"0/{self._nodes.count} nodes are available: {text}."
        return self._of_group(group, detail, "network-topology", OF_TOPOLOGY, message)

    def takes_pods_only(self, alike: EquivalenceClass) -> WaitingTemplate:
        """Return why reservations wait that take only room which pods use, and find none."""
        detail = "no node has pods that it is for, whose room it can take"
        waiting = Waiting(
            namespace="",
            name="",
            uid="",
            nodes=self._nodes.count,
            reasons=(WaitingReason(code="reservation", count=0, detail=detail),),
            wakes_on=("node.*.placement.>",),
            message=detail,
            priority=alike.charge.shape.priority,
        )
        alike.stamp = None
        return self._template(alike, waiting, ())

    def _of_group(
        self,
        group: GroupClass,
        detail: str,
        code: str = OF_GROUP,
        wakes_on: tuple[str, ...] = OF_GANGS,
        message: str = "",
    ) -> WaitingTemplate:
        group.stamp = None
        waiting = Waiting(
            namespace="",
            name="",
            uid="",
            nodes=self._nodes.count,
            reasons=(WaitingReason(code=code, count=0, detail=detail),),
            wakes_on=wakes_on,
            message=message or detail,
            priority=group.charge.shape.priority,
        )
        return self._template(group, waiting, ())

    def _template(self, alike: EquivalenceClass, waiting: Waiting, causes: tuple[str, ...]) -> WaitingTemplate:
        """Return the template; the class's own object if nothing changed, so that it compares by identity."""
        known = alike.template
        if known is not None and known.waiting == waiting and known.causes == causes:
            return known
        return WaitingTemplate(waiting, causes)

    def note_missing(self, classes: Iterable[EquivalenceClass]) -> None:
        """Note why those of some classes wait that are groups which may not be tried, and keep no rooms."""
        for alike in classes:
            if isinstance(alike, GroupClass) and (missing := alike.missing):
                alike.template = self._of_group(alike, missing)
                alike.keeps_nominations = False

    def decide(self, now: datetime, limit: int, nominated: Set[PodKey]) -> list[Event]:
        """Return at most `limit` waiting events: those of pods whose last event was built from another template than their
        class has now, except pods that this decision nominated."""
        self.note_missing(self._queue.classes.values())
        classes = [alike for alike in self._queue.classes.values() if alike.template is not None]
        if not classes:
            return []
        if self._holding:
            self._look_at_holding()
        now_us = microseconds(now)
        classes = [alike for alike in classes if alike.reported is not alike.template or now_us >= alike.next_due_us]
        events: list[Event] = []
        heads = sorted(((head[0], alike) for alike in classes if (head := next(alike.pods(), None))), key=lambda e: e[0])
        for _, alike in heads:
            next_due = _FAR_US
            complete = True
            assert alike.template is not None
            told: WaitingTemplate | None = None
            for _, record in alike.pods():
                if self._placed(record.key):
                    complete = False
                    continue
                if self._reserving.is_over(record):
                    continue  # this decision states how it ended
                if record.waiting is not None and record.waiting.hold is not None:
                    self._holding[record.key] = record
                nomination = alike.nomination(record)
                due = self.due_at(record, alike.template.waiting, nomination, now)
                if due is None or record.key in nominated:
                    continue
                if due > now:
                    next_due = min(next_due, microseconds(due))
                    continue
                complete = False
                if len(events) >= limit:
                    return events
                told = told or self._with_members(alike, alike.template, now)
                events.append(self.event(record, told, nomination))
            alike.reported, alike.next_due_us = (alike.template, next_due) if complete else (None, 0)
        return events

    def _with_members(self, alike: EquivalenceClass, template: WaitingTemplate, now: datetime) -> WaitingTemplate:
        """Return the template with the members of a group that do not fit, as of now."""
        if not isinstance(alike, GroupClass) or any(reason.code == OF_GROUP for reason in template.waiting.reasons):
            return template
        found, left = self.members_that_do_not_fit(alike, now)
        common = template.waiting.wakes_on
        members = tuple(msgspec.structs.replace(one, wakes_on=()) if one.wakes_on == common else one for one in found)
        waiting = msgspec.structs.replace(template.waiting, members=members, members_not_tried=left)
        return WaitingTemplate(waiting, template.causes)

    def _look_at_holding(self) -> None:
        """Mark the classes of pods whose waiting events name a room that is no longer reserved."""
        for key, record in list(self._holding.items()):
            hold = record.waiting.hold if record.waiting is not None else None
            if hold is None or not isinstance(record.queued_in, EquivalenceClass):
                del self._holding[key]
            elif hold != self.holds.get(key):
                record.queued_in.reported = None

    def due_at(self, record: PodRecord, template: Waiting, nomination: Nomination | None, now: datetime) -> datetime | None:
        """Return when the pod's waiting event must be stored (again); None: the stored one is the same."""
        waiting = record.waiting
        assert record.facts is not None
        if waiting is None or waiting.uid != record.facts.uid:
            return first_due(record, now)
        if waiting.nomination != nomination or waiting.hold != self.holds.get(record.key):
            return now
        if (waiting.reasons, waiting.nodes, waiting.message) == (template.reasons, template.nodes, template.message):
            return None
        if record.waiting_at is None:
            return now
        return record.waiting_at + (WAITING_PAUSE if waiting.codes == template.codes else CHANGE_PAUSE)

    def event(self, record: PodRecord, template: WaitingTemplate, nomination: Nomination | None) -> Event:
        """Return the waiting event of a pod."""
        assert record.facts is not None
        if isinstance(record, ReserveRecord):
            assert self.now is not None
            return waits(record, template.waiting, template.causes, self.now)
        namespace, name = record.key
        return Event(
            subject=waiting_subject(namespace, name),
            data=msgspec.structs.replace(
                template.waiting,
                namespace=namespace,
                name=name,
                uid=record.facts.uid,
                nomination=nomination,
                hold=self.holds.get(record.key),
            ),
            causes=(f"LOG:{record.object_sequence}", *template.causes),
        )
