"""One pass over the clusters: ask, set what differs, read back, say what is new. And the loop that makes passes.

In: the log (through a Reader) and the ResourceManagers. Out: totals in YARN and `yarn.*` events, each a single write
that expects the subject's own last sequence, so that a second copilot beside this one is refused instead of repeating
it.

Bounds: a pass sets at most MAX_SETTINGS totals, PARALLEL at a time; a pass starts every `sync_seconds`, sooner when a
node's resources change, and never more often than MIN_PASS_SECONDS. A cluster that fails does not hold up the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from cotenant.events.commits import ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.resources import NodeResources
from cotenant.log.contract import LOG, Behind, Log, Stored, Write, store_batch
from cotenant.model.subjects import marker_subject
from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.core import FILTERS, Setting, YarnCopilot
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.rm_messages import AnswerError, RmNode
from cotenant_yarn_copilot.update_call import Step, update_steps

logger = logging.getLogger(__name__)

MAX_SETTINGS = 500
PARALLEL = 8
MIN_PASS_SECONDS = 0.5
PULL_LIMIT = 1000
SERVICE = "yarn-copilot"


class YarnCluster(Protocol):
    """One YARN cluster as a pass needs it: `rm_client.ResourceManagerClient`, or a model of it. All raise
    ResourceManagerError."""

    async def find_active(self) -> str:
        """Look for the active ResourceManager again."""

    async def nodes(self) -> tuple[RmNode, ...]:
        """Return the NodeManagers that it lists."""

    async def set_total(self, node_id: str, total: YarnResource, over_commit_timeout_ms: int) -> None:
        """Ask for a new total of a node."""

    async def confirm(self, node_id: str, total: YarnResource) -> RmNode:
        """Return the node once it reports the total."""


class PassReport(msgspec.Struct, frozen=True):
    """What a pass came to: clusters that answered with their number of NodeManagers, those that did not and why, and
    figures.
    """

    nodes: dict[str, int] = {}
    failures: dict[str, str] = {}
    matched: int = 0
    unmatched: tuple[str, ...] = ()
    set_totals: int = 0
    not_set: dict[str, str] = {}
    events: int = 0

    @property
    def in_words(self) -> str:
        """One line for health."""
        if self.failures:
            return "; ".join(f"cluster {cluster}: {reason}" for cluster, reason in sorted(self.failures.items()))
        return f"{sum(self.nodes.values())} NodeManagers, {self.matched} of them ours, {len(self.unmatched)} unmatched"


class Syncing:
    """Follows the log and makes passes. One per process."""

    def __init__(
        self,
        log: Log,
        clients: Mapping[str, YarnCluster],
        config: CopilotConfig,
        *,
        now: Callable[[], datetime],
        cell: str = "cell",
        replica: str = "0",
    ) -> None:
        self.log = log
        self.clients = clients
        self.config = config
        self.copilot = YarnCopilot(config.rounding)
        self.last_pass = PassReport()
        self._now = now
        self._cell = cell
        self._replica = replica
        self._loaded = False
        self._loads = 0
        self._resources_changed = asyncio.Event()

    @property
    def source(self) -> str:
        """The mark of our own events."""
        return f"/{self._cell}/{SERVICE}/0"

    async def run(self, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]) -> None:
        """Follow and sync until stopped; too far behind the log, start over with a fresh state."""
        while not stopping.is_set():
            try:
                await self._live(stopping, on_pass)
            except Behind as behind:
                logger.warning("%s: starting over with a fresh state", behind)

    async def _live(self, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]) -> None:
        self.copilot = YarnCopilot(self.config.rounding)
        self._loaded = False
        self._loads += 1
        marker = marker_subject(SERVICE, self._replica)
        reader = await self.log.follow(LOG, (*FILTERS, marker))
        try:
            marker_id = await self._mark(marker)
            while not stopping.is_set() and not self._loaded:
                self._fold(await reader.pull(PULL_LIMIT, 1.0), marker_id)
            reader.loaded()
            passing: asyncio.Task[None] = asyncio.ensure_future(self._passes(stopping, on_pass))
            try:
                while not stopping.is_set() and not passing.done():
                    self._fold(await reader.pull(PULL_LIMIT, 1.0), marker_id)
            finally:
                passing.cancel()
                await asyncio.gather(passing, return_exceptions=True)
            if not passing.cancelled() and (error := passing.exception()) is not None:
                raise error
        finally:
            await reader.close()

    async def _mark(self, subject: str) -> str:
        """Store the start marker: its delivery says that everything before is folded."""
        now = self._now()
        event_id = f"{self._cell}/{SERVICE}/{self._replica}/start/{now.timestamp():.6f}/{self._loads}"
        marker = Event(
            subject=subject,
            data=ServiceStarted(service=SERVICE, partition="0", replica=self._replica, filters=FILTERS, load=self._loads),
            time=now,
            id=event_id,
            source=self.source,
        )
        outcome = await store_batch(self.log, [Write(event=marker)])
        if not isinstance(outcome, Stored):
            raise Behind(f"the start marker was not stored: {outcome.reason}")
        return event_id

    def _fold(self, events: Sequence[Event], marker_id: str) -> None:
        for event in events:
            if isinstance(event.data, ServiceStarted):
                self._loaded = self._loaded or event.id == marker_id
                continue
            self.copilot.apply(event)
            if isinstance(event.data, NodeResources):
                self._resources_changed.set()

    async def _passes(self, stopping: asyncio.Event, on_pass: Callable[[PassReport], None]) -> None:
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

    # -- one pass ------------------------------------------------------------------------------------------------

    async def sync(self) -> PassReport:
        """Make one pass."""
        reports: dict[str, tuple[RmNode, ...]] = {}
        silent: dict[str, str] = {}
        for cluster in sorted(self.clients):
            try:
                await self.clients[cluster].find_active()
                reports[cluster] = await self.clients[cluster].nodes()
            except (ResourceManagerError, AnswerError) as error:
                silent[cluster] = str(error)
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

    async def _give(self, setting: Setting, gate: asyncio.Semaphore) -> RmNode | str:
        """Set one total and read it back; returns the node as the ResourceManager then lists it, or why it failed."""
        async with gate:
            client = self.clients[setting.node_id.cluster]
            steps = update_steps(has_node=True, has_client=True)
            step = next(steps)
            outcome: RmNode | str = ""
            try:
                while True:
                    if step is Step.UPDATE:
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
        """Store each event as a single write on its own subject's last sequence; a refused one waits for the next pass."""
        stored = 0
        for event in events:
            expected = self.copilot.head_of(event.subject)
            event_id = f"{self._cell}/{SERVICE}/{event.subject}/{expected}"
            stamped = msgspec.structs.replace(event, id=event_id, source=self.source, time=now)
            outcome = await store_batch(self.log, [Write(event=stamped, expected=expected)])
            if isinstance(outcome, Stored):
                stored += 1
                self.copilot.apply(msgspec.structs.replace(stamped, sequence=outcome.first))
            else:
                logger.warning("%s was not stored: %s", event.subject, outcome.reason)
        return stored
