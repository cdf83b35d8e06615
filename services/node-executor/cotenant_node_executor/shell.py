"""The executor's shell: folds a node's subjects, runs its cycle every second and on deliveries, stores its reports.

In: a log, a node. It ends when `stopping` is set. `cotenant.runtime.follower` reads, and reloads after a gap. Reading and
storing run in tasks of their own, so that cycles continue while the server is unreachable: suppression keeps working and
processes stay supervised. While LOG is loaded again, however often that fails, the incarnation that was loaded before runs its
cycles (`cycles`); the one that loads only folds, and takes over once it is loaded. A delivery that changes nothing, such as
that of an own report, causes no cycle. A message that the core cannot fold becomes a dead letter.

Bounds: QUEUE_PULLS pulls wait between reader and cycle; one round of reports in progress (`reports`); usage and execution
events wait in the `outbox`; one publication of dead letters in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from cotenant.engine.load import RELOAD_PAUSE
from cotenant.engine.quarantine import Quarantine
from cotenant.events.envelope import Event
from cotenant.events.requests import Adopted
from cotenant.log.contract import LOG, Behind, Identified, Identifying, Log, Reader
from cotenant.model.subjects import encode_token, executor_subject, executor_writer
from cotenant.runtime.figures import Figures
from cotenant.runtime.findings import publish_findings
from cotenant.runtime.follower import Follower, utc_now
from cotenant.runtime.reading import Reading
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.cycles import NodeCycles
from cotenant_node_executor.known_log import KnownLog
from cotenant_node_executor.outbox import Outbox
from cotenant_node_executor.reports import Reports
from cotenant_node_executor.tracing import NodeTracing

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

logger = logging.getLogger(__name__)

PULL_LIMIT = 500
QUEUE_PULLS = 4
MAX_PAUSE_SECONDS = 16.0
"""Between loads that fail in a row. Thousands of executors that tried every two seconds kept a slow server from answering any
of them."""
MARKER_SECONDS = 5.0
"""Between two attempts to store a start marker for which LOG has no room."""
NOTE_SECONDS = 5.0
"""How often the node notes how far it has followed LOG."""


class ExecutorShell:
    """Runs one node on a log. Every load begins with an empty core; machine and strategies' memories are kept."""

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
        loads: asyncio.Semaphore | None = None,
        tracing: Tracing | None = None,
        figures: Figures | None = None,
    ) -> None:
        self._log = log
        self._cell = cell
        self._period = period_seconds
        self._stopping = stopping
        self._on_ready = on_ready
        self._cycles = NodeCycles(node, period_seconds, self._post)
        self._loading = node
        """The newest incarnation, which LOG feeds; the one that acts (`node`) once it is loaded."""
        self._known_log = known_log or KnownLog(None)
        self._loads = loads
        self._newest = 0
        """Sequence of the last message that was folded."""
        self._why_unknown = ""
        self._adopting = False
        self._marker_at: float | None = None
        """When the start marker, for which LOG had no room, is tried again; None where it was stored."""
        self._letters: asyncio.Future[int] | None = None
        """The publication of dead letters in progress."""
        self._quarantine = Quarantine()
        self._figures = figures or Figures()
        self._figures.quarantines.append(self._quarantine)
        self._tracing = None
        if tracing is not None:
            self._tracing = NodeTracing(tracing, node.name, lambda causes: self.node.trace_of(causes))
        on_stored = self._tracing.stored if self._tracing is not None else None
        self.outbox = Outbox(log, cell, lambda: self.node, self._tracing)
        self.reports = Reports(log, cell, self._cycles.wake, on_stored)

    @property
    def node(self) -> ExecutorNode:
        """The incarnation of the node that acts."""
        return self._cycles.node

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
            loads=self._loads,
            figures=self._figures,
        )
        sender = asyncio.ensure_future(self.outbox.send())
        alone = asyncio.ensure_future(self._cycles.run_alone())
        following = asyncio.ensure_future(follower.run(self._begin))
        try:
            await asyncio.wait((following, alone), return_when=asyncio.FIRST_COMPLETED)
            if alone.done():
                alone.result()
            await following
        finally:
            for task in (following, alone):
                task.cancel()
            await asyncio.gather(following, alone, return_exceptions=True)
            await self._flush()
            self._note()
            sender.cancel()
            if self._letters is not None:
                self._letters.cancel()
            await asyncio.gather(sender, self.reports.close(), return_exceptions=True)

    def _begin(self, number: int) -> _Incarnation:
        self._marker_at = None
        if number > 1:
            self._loading = self._loading.restarted()
        self.reports.begin(self._loading)
        return _Incarnation(self, self._loading)

    async def prepare(self, reader: Reader) -> None:
        """Find out whether LOG is the one that this node followed before. If no pods run, any LOG is accepted."""
        if not isinstance(reader, Identifying) or not isinstance(self._log, Identified):
            return
        found = reader.identity
        if self._known_log.why_unknown(found):
            # The new leader of a replicated LOG may report less for a moment.
            found = await self._log.identity(executor_subject(self.node.name), self._known_log.last)
        why = self._known_log.why_unknown(found)
        self._newest = 0
        if why and not self._adopting:
            logger.error("node %s: %s: pods without a placement keep running until LOG is adopted", self.node.name, why)
        else:
            why, self._adopting = "", False
            self._known_log.remember(found)
        self._why_unknown = why
        self._loading.take_log(why)

    def adopt(self) -> Adopted:
        """Accept LOG as the node's own, by an operator's request; it is loaded again, and pods without a placement are
        stopped."""
        if not self._why_unknown:
            return Adopted(node=self.node.name, was_unknown=False)
        self._adopting = True
        self._cycles.wake()
        return Adopted(node=self.node.name, was_unknown=True, pods=len(self.node.core.orphans()))

    async def cycles(self, reading: Reading) -> None:
        """Fold deliveries into the newest incarnation, and run its cycles once it is loaded: at each sample, and on
        deliveries."""
        self._cycles.when_woken(reading.wake.set)
        loop, node, ready = asyncio.get_running_loop(), self._loading, False
        next_note = loop.time() + NOTE_SECONDS
        try:
            while not self._stopping.is_set():
                await reading.wait(self._cycles.pause() if node is self.node else self._period)
                if self._adopting:
                    raise Behind("LOG is adopted")
                delivered = False
                while (events := reading.take()) is not None:
                    delivered = True
                    self._newest = max(self._newest, events[-1].sequence)
                    self._quarantine.fold(events, node.apply)
                    if self._tracing is not None:
                        self._tracing.folded(events)
                if loop.time() >= next_note:
                    next_note = loop.time() + NOTE_SECONDS
                    self._note()
                self._report_findings()
                if self._marker_at is not None:
                    self._go_on_without_marker(reading, loop.time())
                if node.core.loaded and not ready:
                    ready = True
                    self._cycles.hand_over(node)
                    reading.loaded()
                    self._on_ready()
                    logger.info("node %s: loaded, %d pods placed here", node.name, len(node.core.placed))
                if node is self.node:
                    self._cycles.run_one(delivered=delivered)
        finally:
            self._cycles.when_woken(lambda: None)
            if not self._stopping.is_set():
                self._cycles.go_on_alone()

    def _report_findings(self) -> None:
        """Publish quarantined messages and strategies beside the cycles, which do not wait for an answer."""
        self._quarantine.decided()
        self._quarantine.findings += self.node.core.take_findings()
        if self._letters is not None and self._letters.done():
            self._letters.result()
            self._letters = None
        if self._quarantine.findings and self._letters is None:
            service, writer = f"node-executor {self.node.name}", executor_writer(self.node.name)
            letters = publish_findings(self._quarantine, self._log, service, utc_now(), writer)
            self._letters = asyncio.ensure_future(letters)

    def without_marker(self) -> None:
        """See `runtime.incarnations.Roomless`: suppression and the pods' supervision do not wait for room on a disk."""
        self._marker_at = asyncio.get_running_loop().time() + MARKER_SECONDS

    def _go_on_without_marker(self, reading: Reading, now: float) -> None:
        """Treat the load as complete when it is read to its end; store the marker when there is room."""
        core = self._loading.core
        assert self._marker_at is not None
        core.loaded = core.loaded or reading.snapshot_over
        if core.marked:
            self._marker_at = None
        elif core.loaded and now >= self._marker_at:
            self._marker_at = now + MARKER_SECONDS
            self.reports.post(self._loading, [self._loading.start_marker(utc_now())])

    def _note(self) -> None:
        if not self._why_unknown:
            self._known_log.followed(self._newest)

    def start_marker(self, now: datetime) -> Event:
        """Return the node's own report, whose delivery ends the load."""
        return self._loading.identified(self._loading.start_marker(now), self._cell)

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

    def __init__(self, shell: ExecutorShell, node: ExecutorNode) -> None:
        self._shell = shell
        self._node = node

    def marker(self, now: datetime) -> Event:
        """See `runtime.incarnations.Incarnation`."""
        return self._shell.start_marker(now)

    @property
    def pause(self) -> timedelta:
        """See `runtime.incarnations.Incarnation`."""
        return timedelta(0) if self._node.core.loaded else RELOAD_PAUSE

    def knows(self, sequence: int) -> bool:
        """See `runtime.incarnations.Incarnation`."""
        return self._shell.reports.knows(sequence)

    async def prepare(self, reader: Reader) -> None:
        """See `runtime.incarnations.Prepared`."""
        await self._shell.prepare(reader)

    def without_marker(self) -> None:
        """See `runtime.incarnations.Roomless`."""
        self._shell.without_marker()

    async def run(self, reading: Reading) -> None:
        """See `runtime.incarnations.Incarnation`."""
        await self._shell.cycles(reading)
