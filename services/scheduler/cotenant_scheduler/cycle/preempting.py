"""A pod that no node takes, or its quota refuses: it is nominated to a node, stays nominated, or just waits.

In: the pod, the results of its shape, the current nominations. Out: the template of its class, or, for a pod that is nominated
now, its waiting event. The rules:

    a pod whose preemptionPolicy is Never does not preempt
    a nomination lasts while its node exists, a pod of lower priority is still ending on it or the victims have time left
    (BACKOFF by attempt), and no pod of a higher priority is nominated to the node; then a node is chosen again
    a nominated pod is placed like any other as soon as some node takes it, the nominated one or a better one
    a pod that its quota refuses preempts within its quota (`cycle.quota_preemption`); that nomination lasts as above, and only
    while a victim still uses the quota
    a released room goes to the first pod in queue order that fits: pods that nodes refused are tried again
descheduler-arbiter reads the waiting events and evicts the victims. Source: kube-scheduler's default preemption, with its
podInitialBackoff and podMaxBackoff.

Bounds: NOMINATIONS_PER_DECISION; further pods are nominated in the decisions that follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Nomination, Waiting
from cotenant_scheduler.cycle.nominations import Nominations, nomination_of
from cotenant_scheduler.cycle.preemption import Preemption, PreemptionCandidate, is_ending
from cotenant_scheduler.cycle.queue import EquivalenceClass, WaitingTemplate
from cotenant_scheduler.cycle.quota_preemption import QuotaPreemption
from cotenant_scheduler.cycle.reservation_preemption import ReservationPreemption
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.node_facts import NodeMessages
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.reading.shapes import Shape

NOMINATIONS_PER_DECISION = 32
BACKOFF = tuple(timedelta(seconds=seconds) for seconds in (1, 2, 4, 8, 10))
"""How long the victims have, by attempt; the last one for all further attempts."""


def patience(attempts: int) -> timedelta:
    """How long a choice is kept before a node is chosen again, unless pods are ending on the node."""
    return BACKOFF[min(attempts, len(BACKOFF)) - 1]


def nomination_to(choice: PreemptionCandidate, now: datetime, attempts: int = 1) -> Nomination:
    """Return the nomination of a pod that gets this choice."""
    return Nomination(
        node=choice.node, at=now, attempts=attempts, victims=choice.victims, reservation=choice.reservation
    )


class Preempting:
    """Answers for pods that no node takes."""

    def __init__(
        self,
        nodes: NodeTable,
        facts: Mapping[str, NodeMessages],
        pods: PodCache,
        waiting: WaitingPods,
        preemption: Preemption,
        nominations: Nominations,
        within_quota: QuotaPreemption,
        within_reservations: ReservationPreemption,
        *,
        for_reservations: bool,
    ) -> None:
        self.for_reservations = for_reservations
        """Whether room may be made for reservations, and in them."""
        self._nodes = nodes
        self._facts = facts
        self._pods = pods
        self._waiting = waiting
        self.preemption = preemption
        """Chooses nodes and victims."""
        self._within_quota = within_quota
        self._within_reservations = within_reservations
        self._nominations = nominations
        self.nominated: set[PodKey] = set()
        """Pods that the decision being made nominated, or whose nomination it ended, with an event of their own."""
        self._taken: dict[str, int] = {}
        """By node, the highest priority of a pod that the decision being made nominated to it."""

    def begin(self) -> None:
        """A decision begins."""
        self.nominated.clear()
        self._taken.clear()
        self._nominations.begin()

    def refused(self, record: PodRecord, alike: EquivalenceClass, evaluation: Evaluation, now: datetime) -> Event | None:
        """Return the waiting event of a pod that is nominated now; else its class gets a template."""
        shape = evaluation.shape
        before = nomination_of(record)
        if before is not None and self._is_kept(before, record, now):
            line = "not eligible due to a terminating pod on the nominated node." if self.ends_on(before.node, record) else ""
            alike.template = self._waiting.refused_by_nodes(alike, evaluation, line, before)
            return None
        if not shape.preempts or not self.preemption.may_help(shape):
            line = "not eligible due to preemptionPolicy=Never." if not shape.preempts else ""
            choice = None
        else:
            choice, line = self.choose(record, evaluation)
        if choice is None:
            self._nominations.end(record.key)
            alike.template = self._waiting.refused_by_nodes(alike, evaluation, line)
            return None
        if len(self.nominated) >= NOMINATIONS_PER_DECISION:
            alike.template = None
            return None
        nomination = self._nominate(record, choice, shape, before, now)
        template = self._waiting.refused_by_nodes(alike, evaluation, line, nomination)
        return self._nominated(record, alike, template, choice)

    def choose(
        self, record: PodRecord, evaluation: Evaluation, rows: IntArray | None = None
    ) -> tuple[PreemptionCandidate | None, str]:
        """Return the best node to make room on, or in a reservation there, of some rows if given; or None, and what is said of
        that."""
        choice, line = None, ""
        if self._may_preempt(record):
            choice = self.preemption.choose(evaluation, rows)
            line = "" if choice else self._nothing_found(evaluation)
        if self.for_reservations and isinstance(record.ask, Ask):
            inside = self._within_reservations.choose(evaluation, record.ask, rows)
            if inside is not None and (choice is None or inside.rank < choice.rank):
                return inside, ""
        return choice, line

    def _may_preempt(self, record: PodRecord) -> bool:
        """Return whether room for a record may be made on nodes: not for what goes into a reservation only; for reservations
        where that is enabled."""
        if is_reserve(record.key):
            return self.for_reservations
        return not (isinstance(record.ask, Ask) and record.ask.required)

    def may_preempt_in_quota(self, record: PodRecord, alike: EquivalenceClass) -> bool:
        """Return whether a pod that its quota refuses is nominated, or its quota has pods that it may preempt; a reservation
        does not preempt in a quota, of which it would hold nothing."""
        return nomination_of(record) is not None or (
            not is_reserve(record.key) and alike.charge.shape.preempts and self._within_quota.may_help(alike.charge)
        )

    def refused_by_quota(
        self,
        record: PodRecord,
        alike: EquivalenceClass,
        refusal: Waiting,
        causes: tuple[str, ...],
        evaluation: Evaluation,
        now: datetime,
    ) -> Event | None:
        """Return the waiting event of a pod that is nominated now; else its class gets a template with the refusal."""
        charge = alike.charge
        before = nomination_of(record)
        if before is not None and self._uses_quota(before, charge) and self._is_kept(before, record, now):
            alike.template = self._waiting.refused_by_quota(alike, refusal, causes, before)
            return None
        eligible = charge.shape.preempts and not is_reserve(record.key)
        choice = self._within_quota.choose(charge, evaluation) if eligible else None
        if choice is None:
            self._nominations.end(record.key)
            alike.template = self._waiting.refused_by_quota(alike, refusal, causes)
            return None
        if len(self.nominated) >= NOMINATIONS_PER_DECISION:
            alike.template = None
            return None
        nomination = self._nominate(record, choice, charge.shape, before, now)
        template = self._waiting.refused_by_quota(alike, refusal, causes, nomination)
        return self._nominated(record, alike, template, choice)

    def _nominate(
        self, record: PodRecord, choice: PreemptionCandidate, shape: Shape, before: Nomination | None, now: datetime
    ) -> Nomination:
        nomination = nomination_to(choice, now, before.attempts + 1 if before else 1)
        self.note(record, nomination, shape)
        return nomination

    def note(self, record: PodRecord, nomination: Nomination, shape: Shape) -> None:
        """The decision nominates a pod."""
        self.nominated.add(record.key)
        self._taken[nomination.node] = max(shape.priority, self._taken.get(nomination.node, shape.priority))
        self._nominations.nominate(record.key, nomination, shape)

    def end(self, record: PodRecord) -> None:
        """The decision ends a pod's nomination with an event of its own."""
        self.nominated.add(record.key)
        self._nominations.end(record.key)

    def _nominated(
        self, record: PodRecord, alike: EquivalenceClass, template: WaitingTemplate, choice: PreemptionCandidate
    ) -> Event | None:
        alike.template = template
        alike.stamp = None  # the template is this pod's alone
        return self._waiting.event(
            record, msgspec.structs.replace(template, causes=self.causes(choice)), template.waiting.nomination
        )

    def _uses_quota(self, nomination: Nomination, charge: Charge) -> bool:
        """Return whether a victim of a nomination still uses the quota."""
        for victim in nomination.victims:
            victim_record = self._pods.records.get((victim.namespace, victim.name))
            placed = victim_record.placements.get(nomination.node) if victim_record is not None else None
            held = placed.charge if placed is not None and placed.data.uid == victim.uid else None
            if held is not None and held.membership == charge.membership:
                return True
        return False

    def may_keep(self, node: str, record: PodRecord) -> bool:
        """Return whether a pod may stay nominated to a node: it exists, and no pod of a higher priority took it."""
        assert record.facts is not None
        priority = record.facts.priority
        return self._nodes.is_declared(node) and self._taken.get(node, priority) <= priority

    def _is_kept(self, nomination: Nomination, record: PodRecord, now: datetime) -> bool:
        if not self.may_keep(nomination.node, record):
            return False
        return now < nomination.at + patience(nomination.attempts) or self.ends_on(nomination.node, record)

    def ends_on(self, node: str, record: PodRecord) -> bool:
        """Return whether a pod of a lower priority is ending on a node."""
        facts = record.facts
        assert facts is not None
        for key in self._pods.on_node.get(node, ()):
            other = self._pods.records[key]
            placed = other.placements[node]
            charge = placed.charge
            if charge is not None and charge.shape.priority < facts.priority and is_ending(other, placed):
                return True
        return False

    def _nothing_found(self, evaluation: Evaluation) -> str:
        total, hopeless = self._nodes.count, self.preemption.hopeless(evaluation)
        texts = [(hopeless, "Preemption is not helpful for scheduling")]
        texts.append((total - hopeless, "No preemption victims found for incoming pod"))
        found = ", ".join(f"{count} {text}" for count, text in texts if count)
        return f"0/{total} nodes are available: {found}."

    def causes(self, choice: PreemptionCandidate) -> tuple[str, ...]:
        """The messages that describe the node, and the placements of the victims."""
        placed = [self._pods.records[victim.namespace, victim.name].placements[choice.node] for victim in choice.victims]
        return (*self._facts[choice.node].causes, *(f"LOG:{entry.sequence}" for entry in placed))
