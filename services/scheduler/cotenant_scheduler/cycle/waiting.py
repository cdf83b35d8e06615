"""Waiting events of queued pods: why no node takes them, or why their quota does not.

In: the groups of the queue with a verdict (each decision gives one to every group that it could not place). Out:
Waiting events, in queue order of the groups. An event is stored when its pod was not told yet or its nomination changed,
when the set of reason codes changed and CHANGE_PAUSE has passed since the last, or when figures changed and WAITING_PAUSE
has. So a pod is told at most once a CHANGE_PAUSE beside its nominations, however its reasons go to and fro. A group all of
whose pods have been told is passed over until its verdict changes, a pod joins it, or the next pause ends.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Nomination, Waiting, WaitingReason
from cotenant.model.subjects import waiting_subject
from cotenant_scheduler.cycle.queue import Group, PodQueue, Verdict
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.explanation import explain
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load_estimate import microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pods import PodRecord

WAITING_PAUSE = timedelta(seconds=30)
"""Figures alone are said again only after this time."""

CHANGE_PAUSE = timedelta(seconds=1)
"""Another set of reasons is said after this time: quotas follow their nodes a moment later, and answers go to and fro."""

_FAR_US = 1 << 62


class WaitingPods:
    """Verdicts and what is said of them."""

    def __init__(self, queue: PodQueue, nodes: NodeTable, placed: Callable[[PodKey], bool]) -> None:
        self._queue = queue
        self._nodes = nodes
        self._placed = placed
        """Whether the present decision has placed a pod, which is in its group until that is stored."""

    def node_verdict(
        self, group: Group, evaluation: Evaluation, preemption: str, nomination: Nomination | None = None
    ) -> Verdict:
        """Return why the pods of a group wait that no node can take. `preemption`: why no pod makes room, in kube-scheduler's
        words; empty where there is nothing to say."""
        known = group.verdict
        stamp = (evaluation.stamp, preemption, nomination)
        if known is not None and group.stamp == stamp:
            return known
        group.stamp = stamp
        explanation = explain(evaluation)
        found = explanation.refusals
        reasons = tuple(
            WaitingReason(
                code=entry.refusal.code,
                count=entry.count,
                resource=entry.refusal.resource,
                detail=entry.refusal.detail,
            )
            for entry in found
        )
        texts = ", ".join(f"{entry.count} {entry.refusal.text}" for entry in found)
        total = self._nodes.count
        message = f"0/{total} nodes are available: {texts}." if texts else "no nodes available to schedule pods"
        waiting = Waiting(
            namespace="",
            name="",
            uid="",
            nodes=total,
            reasons=reasons,
            wakes_on=explanation.wakes_on,
            message=f"{message} preemption: {preemption}" if preemption else message,
            priority=evaluation.shape.priority,
            nomination=nomination,
        )
        return self._verdict(group, waiting, ())

    def quota_verdict(self, group: Group, waiting: Waiting, quota_causes: tuple[str, ...]) -> Verdict:
        """Return why the pods of a group wait whose quota refused them."""
        group.stamp = None
        waiting = msgspec.structs.replace(waiting, nodes=self._nodes.count, priority=group.counted.shape.priority)
        return self._verdict(group, waiting, quota_causes)

    def _verdict(self, group: Group, waiting: Waiting, causes: tuple[str, ...]) -> Verdict:
        """Return the verdict; the group's own object where nothing changed, so that it is known again."""
        known = group.verdict
        if known is not None and known.waiting == waiting and known.causes == causes:
            return known
        return Verdict(waiting, causes)

    def decide(self, now: datetime, limit: int, told: Set[PodKey]) -> list[Event]:
        """Return at most `limit` waiting events: those of groups with a verdict that is news to their pods, without those who
        were told something else by this decision."""
        groups = [group for group in self._queue.groups.values() if group.verdict is not None]
        if not groups:
            return []
        now_us = microseconds(now)
        groups = [group for group in groups if group.said is not group.verdict or now_us >= group.quiet_until_us]
        events: list[Event] = []
        heads = sorted(((head[0], group) for group in groups if (head := next(group.pods(), None))), key=lambda e: e[0])
        for _, group in heads:
            quiet_until = _FAR_US
            complete = True
            assert group.verdict is not None
            for _, record in group.pods():
                if self._placed(record.key):
                    complete = False
                    continue
                due = self._due(record, group.verdict.waiting, now)
                if due is None or record.key in told:
                    continue
                if due > now:
                    quiet_until = min(quiet_until, microseconds(due))
                    continue
                complete = False
                if len(events) >= limit:
                    return events
                events.append(self.event(record, group.verdict))
            group.said, group.quiet_until_us = (group.verdict, quiet_until) if complete else (None, 0)
        return events

    def _due(self, record: PodRecord, verdict: Waiting, now: datetime) -> datetime | None:
        """When the pod's waiting event must be stored (again); None: what is stored says it already."""
        said = record.waiting
        assert record.facts is not None
        if said is None or said.uid != record.facts.uid or said.nomination != verdict.nomination:
            return now
        if (said.reasons, said.nodes, said.message) == (verdict.reasons, verdict.nodes, verdict.message):
            return None
        if record.waiting_at is None:
            return now
        return record.waiting_at + (WAITING_PAUSE if said.codes == verdict.codes else CHANGE_PAUSE)

    def event(self, record: PodRecord, verdict: Verdict) -> Event:
        """Return the waiting event of a pod."""
        assert record.facts is not None
        namespace, name = record.key
        return Event(
            subject=waiting_subject(namespace, name),
            data=msgspec.structs.replace(
                verdict.waiting, namespace=namespace, name=name, uid=record.facts.uid
            ),
            causes=(f"LOG:{record.object_sequence}", *verdict.causes),
        )
