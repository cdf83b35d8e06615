"""One sync over the clusters (list nodes, set differing totals, read back, publish changes), and the loop that runs it.

In: the log (through a Reader) and the ResourceManagers. Out: totals in YARN and `yarn.*` events, each a single write
that expects the subject's last sequence, so that the writes of a second copilot are refused instead of repeated.

Bounds: a sync sets at most MAX_SETTINGS totals, PARALLEL at a time; it runs every `sync_seconds`, sooner if a node's resources
change, and never more often than MIN_PASS_SECONDS. All clusters are asked at once, the configured ones and at most
MAX_NAMED_CLUSTERS others that NodeManager pods name; a failing one delays no other by more than its timeout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from cotenant.engine.commit import Identity
from cotenant.engine.load import Load
from cotenant.engine.quarantine import Quarantine
from cotenant.events.commits import ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant.log.contract import Log, Refused, Stored, Write
from cotenant.log.storing import store_batch
from cotenant.log.traces import Traces, about
from cotenant.runtime.figures import Figures
from cotenant.runtime.findings import publish_findings
from cotenant.runtime.follower import Follower
from cotenant.runtime.incarnations import LoadingIncarnation
from cotenant.runtime.reading import Reading
from cotenant_yarn_copilot.cluster_clients import ClusterClients, YarnCluster
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.core import FILTERS, Setting, YarnCopilot
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.rm_messages import AnswerError, RmNode
from cotenant_yarn_copilot.update_call import UpdateCall, update_steps

logger = logging.getLogger(__name__)

MAX_SETTINGS = 500
MAX_NAMED_CLUSTERS = 64
PARALLEL = 8
MIN_PASS_SECONDS = 0.5
TICK_SECONDS = 1.0
SERVICE = "yarn-copilot"
TRACED = ("node.", "objects.", "yarn.")
"""Beginnings of subjects that its events name as their first causes."""


class PassReport(msgspec.Struct, frozen=True):
    """The result of a sync: the number of NodeManagers by reachable cluster, the failure by unreachable cluster, counts."""

    nodes: dict[str, int] = {}
    failures: dict[str, str] = {}
    matched: int = 0
    unmatched: tuple[str, ...] = ()
    set_totals: int = 0
    not_set: dict[str, str] = {}
    events: int = 0

    @property
    def in_words(self) -> str:
        """One line for the health status."""
        if self.failures:
            return "; ".join(f"cluster {cluster}: {reason}" for cluster, reason in sorted(self.failures.items()))
        return f"{sum(self.nodes.values())} NodeManagers, {self.matched} of them ours, {len(self.unmatched)} unmatched"


class Syncing:
    """Follows the log and runs syncs. One per process."""

    def __init__(
        self,
        log: Log,
        clients: ClusterClients[YarnCluster],
        config: CopilotConfig,
        *,
        now: Callable[[], datetime],
        cell: str = "cell",
        replica: str = "0",
        figures: Figures | None = None,
    ) -> None:
        self.log = log
        self.clients = clients
        self.config = config
        self.copilot = YarnCopilot(config.rounding)
        self.last_pass = PassReport()
        self._now = now
        self._cell = cell
        self._identity = Identity(service=SERVICE, cell=cell, replica=replica)
        self._resources_changed = asyncio.Event()
        self._traces = Traces(TRACED)
        self.figures = figures or Figures()

    @property
    def source(self) -> str:
        """The source of the service's own events."""
        return self._identity.source

    async def run(self, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]) -> None:
        """Follow and sync until stopped."""
        filters = (*FILTERS, self._identity.marker_subject)

        def begin(number: int) -> _Incarnation:
            self.copilot = YarnCopilot(self.config.rounding)
            self._traces = Traces(TRACED)
            return _Incarnation(self, Load(self._identity, filters, number), stopping, on_pass)

        await Follower(
            self.log, filters, stopping, service=SERVICE, clock=self._now, figures=self.figures
        ).run(begin)

    def fold(self, event: Event) -> None:
        """Fold one event; changed resources trigger a sync."""
        self._traces.note((event,))
        self.copilot.apply(event)
        if isinstance(event.data, NodeResources):
            self._resources_changed.set()

    async def publish_findings(self, quarantine: Quarantine) -> None:
        """Publish new dead letters."""
        await publish_findings(quarantine, self.log, SERVICE, self._now())

    async def passes(self, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]) -> None:
        """Run syncs until stopped."""
        while not stopping.is_set():
            self._resources_changed.clear()
            self.last_pass = await self.sync()
            on_pass(self.last_pass)
            await asyncio.sleep(MIN_PASS_SECONDS)
            try:
                async with asyncio.timeout(max(self.config.sync_seconds - MIN_PASS_SECONDS, 0.01)):
                    await self._resources_changed.wait()
            except TimeoutError:
                continue

    # -- one sync ------------------------------------------------------------------------------------------------

    async def sync(self) -> PassReport:
        """Run one sync."""
        reports: dict[str, tuple[RmNode, ...]] = {}
        silent: dict[str, str] = {}
        configured = self.clients.configured
        clusters = [*sorted(configured), *sorted(self.copilot.clusters() - configured)[:MAX_NAMED_CLUSTERS]]
        for cluster, answer in zip(clusters, await asyncio.gather(*map(self._listed, clusters)), strict=True):
            if isinstance(answer, str):
                silent[cluster] = answer
            else:
                reports[cluster] = answer
        settings = self.copilot.settings(self.copilot.match(reports, self._now()))[:MAX_SETTINGS]
        gate = asyncio.Semaphore(PARALLEL)
        results = await asyncio.gather(*(self._give(setting, gate) for setting in settings))
        not_set: dict[str, str] = {}
        for setting, result in zip(settings, results, strict=True):
            if isinstance(result, str):
                not_set[setting.node] = result
            else:
                cluster = setting.node_id.cluster
                reports[cluster] = tuple(result if node.id == result.id else node for node in reports[cluster])
        now = self._now()
        matches = self.copilot.match(reports, now)
        stored = await self._store(self.copilot.facts(matches, reports, not_set, now), now)
        owned = {(match.node_id.cluster, match.node_id.text) for match in matches if match.node_id is not None}
        strangers = (node.id for cluster in sorted(reports) for node in reports[cluster] if (cluster, node.id) not in owned)
        return PassReport(
            nodes={cluster: len(nodes) for cluster, nodes in reports.items()},
            failures=silent,
            matched=sum(match.manager is not None for match in matches),
            unmatched=tuple(strangers),
            set_totals=len(settings) - len(not_set),
            not_set=not_set,
            events=stored,
        )

    async def _listed(self, cluster: str) -> tuple[RmNode, ...] | str:
        """Return the NodeManagers that a cluster lists, or why they are not known."""
        try:
            client = self.clients.of(cluster)
            await client.find_active()
            return await client.nodes()
        except (ResourceManagerError, AnswerError) as error:
            return str(error)

    async def _give(self, setting: Setting, gate: asyncio.Semaphore) -> RmNode | str:
        """Set one total and read it back; return the node as the ResourceManager then lists it, or the reason of failure."""
        async with gate:
            client = self.clients.of(setting.node_id.cluster)
            steps = update_steps(has_node=True, has_client=True)
            step = next(steps)
            outcome: RmNode | str = ""
            try:
                while True:
                    if step is UpdateCall.UPDATE:
                        outcome = await self._update(client, setting)
                        step = steps.send(isinstance(outcome, RmNode))
                    else:
                        step = steps.send(await self._reinitialize(client))
            except StopIteration:
                return outcome

    async def _update(self, client: YarnCluster, setting: Setting) -> RmNode | str:
        node_id, total = setting.node_id.text, setting.total
        try:
            await client.set_total(node_id, total, self.config.over_commit_timeout_ms)
            confirmed = await client.confirm(node_id, total)
        except (ResourceManagerError, AnswerError) as error:
            logger.warning("node %s: %s", setting.node, error)
            return str(error)
        logger.info("node %s: %s was given %d vcores and %d MB", setting.node, node_id, total.vcores, total.memory_mb)
        return confirmed

    async def _reinitialize(self, client: YarnCluster) -> bool:
        try:
            await client.find_active()
        except ResourceManagerError as error:
            logger.warning("%s", error)
            return False
        return True

    async def _store(self, events: Sequence[Event], now: datetime) -> int:
        """Store each event as a single write that expects its subject's last sequence; the next sync retries a refused one."""
        stored = 0
        for event in events:
            expected = self.copilot.head_of(event.subject)
            event_id = f"{self._cell}/{SERVICE}/{event.subject}/{expected}"
            trace = self._traces.continued(event.causes, event_id)
            stamped = msgspec.structs.replace(event, id=event_id, source=self.source, time=now, traceparent=trace)
            outcome = await store_batch(self.log, [Write(event=stamped, expected=expected)])
            if isinstance(outcome, Stored):
                stored += 1
                self.copilot.apply(msgspec.structs.replace(stamped, sequence=outcome.first))
                continue
            logger.warning("%s was not stored: %s", event.subject, outcome.reason, extra=about(stamped))
            if isinstance(outcome, Refused) and outcome.wrong_sequence:
                head = await self.log.head(event.subject)
                # Another copilot's write is folded before the next sync; the sequence of a subject that ended long ago is read
                # from LOG.
                if head is None or head.tombstone:
                    self.copilot.correct_head(event.subject, head.sequence if head is not None else 0)
        return stored


class _Incarnation(LoadingIncarnation):
    """One load, and the syncs after it."""

    def __init__(
        self, syncing: Syncing, load: Load, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]
    ) -> None:
        super().__init__(load)
        self._syncing = syncing
        self._stopping = stopping
        self._on_pass = on_pass
        self._quarantine = Quarantine()
        syncing.figures.quarantines[:] = [self._quarantine]

    async def run(self, reading: Reading) -> None:
        """Fold deliveries; once the load is complete, run syncs."""
        passing: asyncio.Task[None] | None = None
        try:
            while not self._stopping.is_set() and (passing is None or not passing.done()):
                await reading.wait(TICK_SECONDS)
                while (events := reading.take()) is not None:
                    self._quarantine.fold(events, self._fold)
                self._quarantine.decided()
                if self._quarantine.findings:
                    await self._syncing.publish_findings(self._quarantine)
                if self.load.over and passing is None:
                    reading.loaded()
                    passing = asyncio.ensure_future(self._syncing.passes(self._stopping, self._on_pass))
                    passing.add_done_callback(lambda _: reading.wake.set())
            if passing is not None and passing.done():
                passing.result()
        finally:
            if passing is not None:
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)

    def _fold(self, event: Event) -> None:
        if isinstance(event.data, ServiceStarted):
            self.load.ends_with(event)
        else:
            self._syncing.fold(event)
