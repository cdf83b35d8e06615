"""Keeps the read model up to date: reads LOG in order, folds, and wakes who waits for a sequence or for changes.

One consumer with one filter over everything on LOG. Too far behind (or after a load that broke off) it starts over
with a fresh core: watches end with 410 and clients list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Iterator
from datetime import datetime

from cotenant.engine.commit import Identity
from cotenant.events.commits import ServiceStarted
from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, Behind, Log, Stored, Write, store_batch
from cotenant_gateway.read_model.core import GatewayCore

logger = logging.getLogger(__name__)

FILTERS = (">",)
PULL_LIMIT = 1000
TICK_SECONDS = 1.0


class Follower:
    """The read model and the task that feeds it."""

    def __init__(self, log: Log, identity: Identity, clock: Callable[[], datetime]) -> None:
        self._log = log
        self._identity = identity
        self._clock = clock
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._tickets = 0
        self._watchers: set[asyncio.Event] = set()
        self._lives = 0
        self.core = GatewayCore()
        self.ready = asyncio.Event()
        self.folds = asyncio.Event()
        """Set after every pull that brought something; cleared by whoever acts on it."""
        self.folded_count = 0

    async def run(self) -> None:
        """Follow for ever; cancelled at the end of the process."""
        while True:
            self._lives += 1
            try:
                await self._live()
            except Behind as behind:
                logger.warning("starting over with a fresh read model: %s", behind)

    async def _live(self) -> None:
        core = GatewayCore()
        reader = await self._log.follow(LOG, FILTERS)
        try:
            marker = self._marker()
            outcome = await store_batch(self._log, [Write(event=marker)])
            if not isinstance(outcome, Stored):
                raise Behind(f"the start marker was not stored: {outcome.reason}")
            loaded = False
            while True:
                events = await reader.pull(PULL_LIMIT, TICK_SECONDS)
                for event in events:
                    core.apply(event)
                    if not loaded and isinstance(event.data, ServiceStarted) and event.id == marker.id:
                        loaded = True
                        reader.loaded()
                        self._show(core)
                self.folded_count += len(events)
                if loaded and events:
                    self._wake(core.folded)
        finally:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(2):
                    await reader.close()

    def _marker(self) -> Event:
        identity = self._identity
        now = self._clock()
        event_id = f"{identity.cell}/{identity.service}/{identity.replica}/start/{now.timestamp():.6f}/{self._lives}"
        started = ServiceStarted(
            service=identity.service,
            partition=identity.partition,
            replica=identity.replica,
            version=identity.version,
            core=identity.core,
            filters=FILTERS,
            load=self._lives,
        )
        return Event(
            subject=identity.marker_subject,
            data=started,
            time=now,
            id=event_id,
            source=identity.source,
        )

    def _show(self, core: GatewayCore) -> None:
        """The load is complete: from here on requests see this core."""
        core.loaded()
        self.core = core
        self.ready.set()
        logger.info("read model loaded, folded to LOG:%d", core.folded)

    def _wake(self, folded: int) -> None:
        while self._waiting and self._waiting[0][0] <= folded:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(True)
        for watcher in self._watchers:
            watcher.set()
        self.folds.set()

    async def folded(self, sequence: int) -> bool:
        """Wait until the read model has folded a sequence."""
        if self.ready.is_set() and self.core.folded >= sequence:
            return True
        self._tickets += 1
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (sequence, self._tickets, future))
        return await future

    @contextlib.contextmanager
    def changes(self) -> Iterator[asyncio.Event]:
        """An event that is set after every fold, for one watch."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
