"""A node in the simulation: the executor's cycle driven by the virtual clock.

In: the world's clock and the node's messages. Out: reports on LOG with their expected sequences, usage and execution events.
With `periodic` off (traces over months) there are no samples: only messages and the end of a pod wake the node.
With `idle_period`, a node is sampled every `period` within BUSY of a change (a placement, a node SLO, a report of its own), and
otherwise when its usage is due, every `idle_period` at least; always on the same grid of periods.

`offset` is the skew of the node's clock against the log's: the node reads its own clock, as a real one does, but its samples
keep the pace of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.placements import Placement
from cotenant.log.contract import LOG, USAGE, Refused, Stored, Write
from cotenant.model.subjects import encode_token
from cotenant.model.times import EPOCH
from cotenant.simulation import World
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.simulated.containers import SimulatedRuntime

AGAIN = timedelta(milliseconds=1)
EARLY = timedelta(microseconds=1)
"""Usage due at the time of a sample is published with that sample."""
MARKER_PAUSE = timedelta(seconds=0.5)
BUSY = timedelta(seconds=60)
CHANGES = (Placement, NodeSLORendered)
"""Events that change a node's work; its own reports and its resources do not."""


class NodeParticipant:
    """Adds one simulated node to a world; see `cotenant.simulation.Participant`."""

    def __init__(
        self,
        node: ExecutorNode,
        *,
        cell: str = "cell",
        period: timedelta = timedelta(seconds=1),
        periodic: bool = True,
        idle_period: timedelta | None = None,
    ) -> None:
        self.name = f"node-{node.name}"
        self.node = node
        self.filters: tuple[str, ...] = (f"node.{encode_token(node.name)}.>",)
        self.usage_filters: tuple[str, ...] = ()
        self._cell = cell
        self._period = period
        self._periodic = periodic
        self._idle_period = idle_period or period
        self._busy_until = EPOCH
        self._sampled = EPOCH
        self.offset = timedelta(0)
        self._next_sample = EPOCH
        self._mark_at = EPOCH
        assert isinstance(node.machine.runtime, SimulatedRuntime)
        self._runtime = node.machine.runtime

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold, run one cycle, store its reports."""
        local = now + self.offset if self.offset else now
        changed = self._next_sample is EPOCH
        if changed:
            self._next_sample = self._sampled = now
        core = self.node.core
        for event in inbox:
            core.apply(event)
            changed = changed or isinstance(event.data, CHANGES)
        if not core.loaded and now >= self._mark_at:
            # As in the shell, the start marker is stored again until it is delivered.
            self._mark_at = now + MARKER_PAUSE
            self._store(self.node.start_marker(local), world)
        sample = self._periodic and now >= self._next_sample
        if sample:
            self._sampled = now
        stored = self._cycle(local, sample, world) if sample or self._due(local) else False
        if stored or changed:
            self._busy_until = now + BUSY
        self._plan_sample(now)
        return self._wake_at(now, local, stored)

    def _due(self, local: datetime) -> bool:
        """Whether a cycle without a sample has work; the delivery of an own report, for example, causes none."""
        return self.node.due(local) or ((ends := self._runtime.next_exit) is not None and ends <= local)

    def _cycle(self, local: datetime, sample: bool, world: World) -> bool:
        """Run a cycle and store its events; returns whether a report is on the log."""
        stored = False
        for event in self.node.step(local, sample=sample):
            if event.stream == LOG:
                stored = self._store(event, world) or stored
            else:
                sent = world.publish(self.node.identified(self.node.refer(event), self._cell))
                if sent is not None and sent.stream == USAGE:
                    self.node.usage_stored(sent.ref)
                elif sent is not None:
                    self.node.execution_stored(sent)
        return stored

    def _plan_sample(self, now: datetime) -> None:
        """Schedule the next sample a whole number of periods after the last, so that pauses do not shift reports."""
        until, following = now, self._sampled + self._period
        if now >= self._busy_until and (due := self.node.report_due) is not None:
            until = max(min(due - self.offset - self._period / 2, self._sampled + self._idle_period) - EARLY, now)
        if following <= until:
            following += ((until - following) // self._period + 1) * self._period
        self._next_sample = following

    def _store(self, event: Event, world: World) -> bool:
        write = Write(event=self.node.identified(event, self._cell), expected=self.node.core.last_sequence(event.subject))
        outcome = world.append([write], wakes_writer=False)
        if isinstance(outcome, Stored):
            stored = world.streams.log.event(outcome.first)
            if stored is not None:
                self.node.core.apply(stored)
            return True
        if isinstance(outcome, Refused):
            self.node.core.correct_sequence(event.subject, world.streams.log.last_of(event.subject))
        return False

    def _wake_at(self, now: datetime, local: datetime, stored: bool) -> datetime | None:
        """When the next work is due without a message; at once after a stored report."""
        if (stored or self.node.core.holds_reports) and self.node.due(local):
            return now + AGAIN
        first = self._next_sample if self._periodic else None
        if not self.node.core.loaded:
            first = _earlier(first, self._mark_at)
        if (ends := self._runtime.next_exit) is not None:
            first = _earlier(first, ends - self.offset)
        if (starts := self.node.core.next_start(local)) is not None:
            first = _earlier(first, starts - self.offset)
        return first if first is None or first > now + AGAIN else now + AGAIN


def _earlier(known: datetime | None, other: datetime) -> datetime:
    return other if known is None or other < known else known
