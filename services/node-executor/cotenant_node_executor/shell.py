"""The executor's shell: folds a node's subjects, runs its cycle every second and on deliveries, stores its reports.

In: a log, a node. It ends when `stopping` is set. `cotenant.runtime.follower` reads, and reloads after a gap. Reading and
storing run in tasks of their own, so that cycles continue while the server is unreachable: suppression keeps working and
processes stay supervised. A delivery that changes nothing, such as that of an own report, causes no cycle. A message that the
core cannot fold becomes a dead letter.

Bounds: QUEUE_PULLS pulls wait between reader and cycle; one round of reports in progress (`reports`); usage and execution
events wait in the `outbox`.

Over 300 lines: load, cycles and pauses share the node's state and timers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from cotenant.engine.load import RELOAD_PAUSE
from cotenant.engine.quarantine import Quarantine
from cotenant.events.envelope import Event
from cotenant.events.requests import Adopted
from cotenant.log.contract import LOG, Behind, Identified, Log, LogIdentity
from cotenant.model.subjects import encode_token, executor_subject, executor_writer
from cotenant.runtime.figures import Figures
from cotenant.runtime.findings import publish_findings
from cotenant.runtime.follower import Follower, utc_now
from cotenant.runtime.reading import Reading
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.joint_stops import JointStops
from cotenant_node_executor.known_log import KnownLog
from cotenant_node_executor.outbox import Outbox
from cotenant_node_executor.reports import Reports
from cotenant_node_executor.runtime.interface import Collect, Forget, Order
from cotenant_node_executor.tracing import NodeTracing
from cotenant_node_executor.wakes import Wakes

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

logger = logging.getLogger(__name__)

PULL_LIMIT = 500
QUEUE_PULLS = 4
MAX_PAUSE_SECONDS = 16.0
"""Between loads that fail in a row; no cycle runs meanwhile. Thousands of executors that tried every two seconds kept a slow
server from answering any of them."""
FOLLOW_UP_SECONDS = 0.1
"""Most programs end within it when they are asked to."""
MARKER_SECONDS = 5.0
"""Between two attempts to store a start marker for which LOG has no room."""
NOTE_SECONDS = 5.0
"""How often the node notes how far it has followed LOG."""


class ExecutorShell:
    """Runs one node on a log. Every load begins with an empty core; the machine is kept."""

    def __init__(
        self,
        log: Log,
        node: ExecutorNode,
        *,
        cell: str,
        period_seconds: float,
        stopping: asyncio.Event,
        on_ready: Callable[[], None] = lambda: None,
        known_log: KnownLog | None = None,
        tracing: Tracing | None = None,
        figures: Figures | None = None,
        stops: JointStops | None = None,
    ) -> None:
        """`stops`: see `reports.Reports`."""
        self._log = log
        self._cell = cell
        self._period = period_seconds
        self._stopping = stopping
        self._on_ready = on_ready
        self.node = node
        self._written_before = self._refused_before = 0
        """By this node before it was loaded again."""
        self._known_log = known_log or KnownLog(None)
        self._found: LogIdentity | None = None
        """LOG as this incarnation found it."""
        self._newest = 0
        """Sequence of the last message that was folded."""
        self._why_unknown = ""
        self._adopting = False
        self._marker_at: float | None = None
        """When the start marker, for which LOG had no room, is tried again; None where it was stored."""
        self._wake_cycles: Callable[[], None] = lambda: None
        self._awoken = True
        """The next cycle runs whatever was delivered."""
        self._ordered: Sequence[Order] = ()
        self._follow_up = FOLLOW_UP_SECONDS
        self._quarantine = Quarantine()
        self._figures = figures or Figures()
        self._figures.quarantines.append(self._quarantine)
        self._tracing = None
        if tracing is not None:
            self._tracing = NodeTracing(tracing, node.name, lambda causes: self.node.trace_of(causes))
        on_stored = self._tracing.stored if self._tracing is not None else None
        self.outbox = Outbox(log, cell, lambda: self.node, self._tracing)
        self.reports = Reports(log, cell, lambda: self._wake_cycles(), on_stored, stops)

    async def run(self) -> None:
        """Run until stopped."""
        token = encode_token(self.node.name)
        follower = Follower(
            self._log,
            [f"node.{token}.>"],
            self._stopping,
            service=f"node {self.node.name}",
            republished=True,
            pull_limit=PULL_LIMIT,
            queue_pulls=QUEUE_PULLS,
            max_pause_seconds=MAX_PAUSE_SECONDS,
            figures=self._figures,
        )
        sender = asyncio.ensure_future(self.outbox.send())
        try:
            await follower.run(self._begin)
        finally:
            await self._flush()
            self._note()
            sender.cancel()
            await asyncio.gather(sender, self.reports.close(), return_exceptions=True)

    @property
    def written_values(self) -> int:
        """Values that were written since the process began."""
        return self._written_before + self.node.written_values

    @property
    def refused_values(self) -> int:
        """Values that were refused since the process began."""
        return self._refused_before + self.node.refused_values

    def _begin(self, number: int) -> _Incarnation:
        self._marker_at = None
        if number > 1:
            self._written_before, self._refused_before = self.written_values, self.refused_values
            self.node = self.node.restarted()
        self.reports.begin(self.node)
        return _Incarnation(self)

    async def prepare(self) -> None:
        """Find out whether LOG is the one that this node followed before. If no pods run, any LOG is accepted."""
        if not isinstance(self._log, Identified):
            return
        self._found = await self._log.identity(executor_subject(self.node.name), self._known_log.last)
        why = self._known_log.why_unknown(self._found)
        self._newest = 0
        if why and not self._adopting:
            logger.error("node %s: %s: pods without a placement keep running until LOG is adopted", self.node.name, why)
        else:
            why, self._adopting = "", False
            self._known_log.remember(self._found)
        self._why_unknown = why
        self.node.take_log(why)

    def adopt(self) -> Adopted:
        """Accept LOG as the node's own, by an operator's request; it is loaded again, and pods without a placement are
        stopped."""
        if not self._why_unknown:
            return Adopted(node=self.node.name, was_unknown=False)
        self._adopting = True
        self._wake_cycles()
        return Adopted(node=self.node.name, was_unknown=True, pods=len(self.node.core.orphans()))

    async def cycles(self, reading: Reading) -> None:
        """Run the node's cycles: at each sample, and on deliveries."""

        def wake() -> None:
            self._awoken = True
            reading.wake.set()

        self._wake_cycles = wake
        with Wakes(wake) as wakes:
            await self._cycle_on(reading, wakes)

    async def _cycle_on(self, reading: Reading, wakes: Wakes) -> None:
        loop = asyncio.get_running_loop()
        next_sample = loop.time()
        next_note = loop.time() + NOTE_SECONDS
        ready = False
        while not self._stopping.is_set():
            await reading.wait(self._pause(next_sample - loop.time()))
            if self._adopting:
                raise Behind("LOG is adopted")
            delivered = False
            while (events := reading.take()) is not None:
                delivered = True
                self._newest = max(self._newest, events[-1].sequence)
                self._quarantine.fold(events, self.node.apply)
                if self._tracing is not None:
                    self._tracing.folded(events)
            if loop.time() >= next_note:
                next_note = loop.time() + NOTE_SECONDS
                self._note()
            self._quarantine.decided()
            self._quarantine.findings += self.node.core.take_findings()
            if self._quarantine.findings:
                service, writer = f"node-executor {self.node.name}", executor_writer(self.node.name)
                await publish_findings(self._quarantine, self._log, service, utc_now(), writer)
            sample = loop.time() >= next_sample or (self.node.core.loaded and self.node.machine.wants_sample)
            if sample:
                next_sample = max(min(next_sample, loop.time()) + self._period, loop.time())
            if self._marker_at is not None:
                self._go_on_without_marker(reading, loop.time())
            if self.node.core.loaded and not ready:
                ready = True
                reading.loaded()
                self._on_ready()
                logger.info("node %s: loaded, %d pods placed here", self.node.name, len(self.node.core.placed))
            if delivered and not (sample or self._awoken or self.node.due(utc_now())):
                continue
            self._awoken = False
            began_ns = time.time_ns()
            self._post(self.node.step(utc_now(), sample=sample), began_ns)
            if self.node.core.loaded:
                wakes.arm(self.node.machine)

    def _pause(self, until_sample: float) -> float:
        """Return how long to wait for deliveries before the next cycle. The effect of orders is checked before the next
        sample: after FOLLOW_UP_SECONDS, then twice as long each time, as long as the orders stay the same. Orders that
        only remove what ended pods have left can wait for the sample."""
        if self.node.core.holds_reports:
            return 0.0
        ordered = self.node.ordered
        if all(isinstance(order, Collect | Forget) for order in ordered):
            return max(0.0, until_sample)
        self._follow_up = FOLLOW_UP_SECONDS if ordered != self._ordered else self._follow_up * 2
        self._ordered = ordered
        return max(0.0, min(until_sample, self._follow_up))

    def without_marker(self) -> None:
        """See `runtime.incarnations.Roomless`: suppression and the pods' supervision do not wait for room on a disk."""
        self._marker_at = asyncio.get_running_loop().time() + MARKER_SECONDS

    def _go_on_without_marker(self, reading: Reading, now: float) -> None:
        """Treat the load as complete when it is read to its end; store the marker when there is room."""
        core = self.node.core
        assert self._marker_at is not None
        core.loaded = core.loaded or reading.snapshot_over
        if core.marked:
            self._marker_at = None
        elif core.loaded and now >= self._marker_at:
            self._marker_at = now + MARKER_SECONDS
            self._post([self.node.start_marker(utc_now())], time.time_ns())

    def _note(self) -> None:
        if not self._why_unknown:
            self._known_log.followed(self._newest)

    def start_marker(self, now: datetime) -> Event:
        """Return the node's own report, whose delivery ends the load."""
        return self.node.identified(self.node.start_marker(now), self._cell)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _post(self, events: Sequence[Event], began_ns: int) -> None:
        self.reports.post(self.node, [event for event in events if event.stream == LOG])
        self.outbox.post([event for event in events if event.stream != LOG], began_ns)

    async def _flush(self) -> None:
        """Wait at most two seconds for events in flight."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while self.outbox.waiting or self.reports.under_way:  # noqa: ASYNC110 - bounded by the timeout above
                    await asyncio.sleep(0.02)


def adopt_handler(shell: ExecutorShell) -> Callable[[bytes], Awaitable[bytes]]:
    """Return the endpoint by which an operator makes one node adopt LOG."""

    async def answer(_: bytes) -> bytes:
        return msgspec.json.encode(shell.adopt())

    return answer


class _Incarnation:
    """One load of the node's subjects and the cycles behind it."""

    def __init__(self, shell: ExecutorShell) -> None:
        self._shell = shell

    def marker(self, now: datetime) -> Event:
        """See `runtime.incarnations.Incarnation`."""
        return self._shell.start_marker(now)

    @property
    def pause(self) -> timedelta:
        """See `runtime.incarnations.Incarnation`."""
        return timedelta(0) if self._shell.node.core.loaded else RELOAD_PAUSE

    def knows(self, sequence: int) -> bool:
        """See `runtime.incarnations.Incarnation`."""
        return self._shell.reports.knows(sequence)

    async def prepare(self) -> None:
        """See `runtime.incarnations.Prepared`."""
        await self._shell.prepare()

    def without_marker(self) -> None:
        """See `runtime.incarnations.Roomless`."""
        self._shell.without_marker()

    async def run(self, reading: Reading) -> None:
        """See `runtime.incarnations.Incarnation`."""
        await self._shell.cycles(reading)
