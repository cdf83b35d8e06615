"""Leftovers of ended pods, and finished pods: indexes of what the gateway has to end.

In: slots of pods and of nodes as they change, the answers to evictions. Out, as indexes:

    finished    pods whose processes have ended for good (their run says so, or the status that their object holds)
    deserted    run reports of nodes that have no object: no executor may be left to end them
    left        run reports whose placement has ended: an executor ends its own, but later, so that the gateway can end many
                together
    outcomes    the gateway's answers to eviction requests

Bounds: the pods that exist, the reports and the answers on LOG.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from cotenant.api.objects.pod import Pod
from cotenant.api.times import whole_seconds
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunStatus
from cotenant.model.names import ANNOTATION_TTL_AFTER_FINISHED
from cotenant.model.values import Value
from cotenant_gateway.read_model.slots import Slot

_FINISHED_PHASES = frozenset({"Succeeded", "Failed"})


class Finished(Value, frozen=True):
    """A pod that has finished."""

    slot: Slot
    at: datetime | None
    """When; None if unknown."""
    node: str
    """Where it ran; empty if unknown."""
    report: int
    """Sequence of the run report with its end; 0: the object states it."""
    ttl: timedelta | None
    """How long after its end it is to be deleted; None: not stated."""


class PodEnds:
    """The indexes. Mutable; kept by the read model."""

    def __init__(self) -> None:
        self.finished: dict[tuple[str, str], Finished] = {}
        self._expiring: set[tuple[str, str]] = set()
        """Those that state how long they are kept."""
        self.deserted: dict[str, Slot] = {}
        """By the report's subject, the pod's slot."""
        self.left: dict[str, Slot] = {}
        """Likewise."""
        self.outcomes: dict[str, Event] = {}
        """By subject."""

    def pod_changed(self, slot: Slot) -> None:
        """A pod's object or run report changed."""
        key = (slot.address.namespace, slot.address.name)
        found = _finished(slot)
        if found is not None:
            self.finished[key] = found
            (self._expiring.discard if found.ttl is None else self._expiring.add)(key)
        elif self.finished:
            self.finished.pop(key, None)
            self._expiring.discard(key)

    @property
    def wait_for_time(self) -> bool:
        """Whether anything may become due with time alone."""
        return bool(self._expiring or self.deserted or self.outcomes)

    def reported(self, slot: Slot, event: Event, *, on_node: bool) -> None:
        """A run report came; `on_node`: its node has an object."""
        if event.tombstone:
            self.left.pop(event.subject, None)
        if event.tombstone or on_node:
            self.deserted.pop(event.subject, None)
        else:
            self.deserted[event.subject] = slot
        run = event.data
        if self.finished or event.tombstone or (isinstance(run, RunStatus) and run.phase.final):
            self.pod_changed(slot)

    def node_ended(self, node: str, pods: Iterable[Slot]) -> None:
        """A node's object ended: the reports of its executor are deserted."""
        for slot in pods:
            for subject, event in slot.parts.items():
                if isinstance(event.data, RunStatus) and event.data.node == node and not event.tombstone:
                    self.deserted[subject] = slot

    def placement_ended(self, slot: Slot, node: str) -> None:
        """A pod's placement on a node has ended."""
        for subject, event in slot.parts.items():
            if isinstance(event.data, RunStatus) and event.data.node == node and not event.tombstone:
                self.left[subject] = slot

    def answered(self, event: Event) -> None:
        """An eviction was answered, or the answer has ended."""
        known = self.outcomes.get(event.subject)
        if known is not None and known.sequence >= event.sequence:
            return
        if event.tombstone or not isinstance(event.data, EvictionOutcome):
            self.outcomes.pop(event.subject, None)
        else:
            self.outcomes[event.subject] = event


def _finished(slot: Slot) -> Finished | None:
    stored = slot.stored
    if stored is None or not isinstance(stored.view, Pod):
        return None
    pod = stored.view
    if slot.parts:
        newest: tuple[Event, RunStatus] | None = None
        for event in slot.parts.values():
            run = event.data
            if isinstance(run, RunStatus) and not event.tombstone and run.uid == stored.meta.uid:
                newest = (event, run) if newest is None or event.sequence > newest[0].sequence else newest
        if newest is not None:
            report, run = newest
            if not run.phase.final:
                return None
            return Finished(slot, run.finished_at or report.time, run.node, report.sequence, _kept(pod))
    if pod.status.phase in _FINISHED_PHASES:
        return Finished(slot, stored.time, pod.spec.node_name, 0, _kept(pod))
    return None


def _kept(pod: Pod) -> timedelta | None:
    seconds = whole_seconds(pod.metadata.annotations.get(ANNOTATION_TTL_AFTER_FINISHED, ""))
    return timedelta(seconds=seconds) if seconds is not None else None
