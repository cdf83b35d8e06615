"""Keeps the read model up to date: folds LOG in order, and wakes waiters for a sequence or for changes.

One reader with one filter over everything on LOG (`cotenant.runtime.follower` runs it). If that starts over, the read model
is a new one: watches end with 410 and clients list again.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Callable, Iterator
from datetime import datetime

from cotenant.engine.commit import Identity
from cotenant.engine.load import Load
from cotenant.engine.quarantine import Quarantine
from cotenant.events.envelope import Event
from cotenant.log.contract import Log
from cotenant.log.traces import Traces
from cotenant.runtime.figures import Figures
from cotenant.runtime.findings import publish_findings
from cotenant.runtime.follower import Follower
from cotenant.runtime.incarnations import LoadingIncarnation
from cotenant.runtime.reading import Reading
from cotenant_gateway.read_model.core import GatewayCore

logger = logging.getLogger(__name__)

FILTERS = (">",)
PULL_LIMIT = 250
"""Messages that are folded before requests get their turn: 15 ms."""
QUEUE_PULLS = 64
TICK_SECONDS = 1.0
TRACED = ("objects.core.pods.", "migrations.")
"""Beginnings of subjects that the gateway's own writes name as their first cause."""


class ReadModel:
    """The read model and the task that feeds it."""

    def __init__(
        self,
        log: Log,
        identity: Identity,
        clock: Callable[[], datetime],
        figures: Figures | None = None,
        new_core: Callable[[], GatewayCore] = GatewayCore,
    ) -> None:
        """`new_core` makes the empty core of each load."""
        self.log = log
        self.identity = identity
        self.clock = clock
        self.quarantine = Quarantine()
        if figures is not None:
            figures.quarantines.append(self.quarantine)
        self._follower = Follower(
            log,
            FILTERS,
            asyncio.Event(),
            service=identity.service,
            pull_limit=PULL_LIMIT,
            queue_pulls=QUEUE_PULLS,
            clock=clock,
            figures=figures,
        )
        self._waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._tickets = 0
        self._watchers: set[asyncio.Event] = set()
        self.new_core = new_core
        self.core = new_core()
        self.ready = asyncio.Event()
        self.folds = asyncio.Event()
        """Set after every pull with messages; cleared by the consumer of the event."""
        self.traces = Traces(TRACED)
        self.loading = True
        """The core that requests see is not, or no longer, the one that is kept up to date."""
        self.on_load: Callable[[], None] = lambda: None
        """Called before every load."""

    async def run(self) -> None:
        """Follow forever; cancelled at the end of the process."""
        await self._follower.run(self._begin)

    def _begin(self, number: int) -> _Folding:
        self.on_load()
        self.loading = True
        self.traces = Traces(TRACED)
        return _Folding(self, Load(self.identity, FILTERS, number))

    def show(self, core: GatewayCore) -> None:
        """The load is over: from here on requests see this core."""
        core.loaded()
        self.core = core
        self.loading = False
        self.ready.set()
        logger.info("read model loaded, folded to LOG:%d", core.folded)

    def wake(self, folded: int) -> None:
        """Wake waiters for sequences up to `folded`, and all watches."""
        while self._waiting and self._waiting[0][0] <= folded:
            future = heapq.heappop(self._waiting)[2]
            if not future.done():
                future.set_result(True)
        for watcher in self._watchers:
            watcher.set()
        self.folds.set()

    @property
    def waiting(self) -> int:
        """How many wait for a sequence."""
        return len(self._waiting)

    async def folded(self, sequence: int) -> bool:
        """Wait until the read model has folded a sequence."""
        if self.ready.is_set() and self.core.folded >= sequence:
            return True
        self._tickets += 1
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (sequence, self._tickets, future)
        heapq.heappush(self._waiting, entry)
        try:
            return await future
        finally:
            # After a timeout the waiter is removed: an invented sequence may never be reached.
            if not future.done() or future.cancelled():
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)

    @contextlib.contextmanager
    def changes(self, watcher: asyncio.Event) -> Iterator[asyncio.Event]:
        """Have an event set after every fold, for one watch."""
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)


class _Folding(LoadingIncarnation):
    """One incarnation: a core that is shown once it is loaded."""

    def __init__(self, model: ReadModel, load: Load) -> None:
        super().__init__(load)
        self._model = model
        self._core = model.new_core()
        self._quarantine = model.quarantine
        self._clock = model.clock

    async def run(self, reading: Reading) -> None:
        """Fold what is delivered."""
        model, core, load = self._model, self._core, self.load

        def fold(event: Event) -> None:
            core.apply(event)
            if not load.over and load.ends_with(event):
                reading.loaded()
                model.show(core)

        while True:
            await reading.wait(TICK_SECONDS)
            while (events := reading.take()) is not None:
                model.traces.note(events)
                self._quarantine.fold(events, fold)
                self._quarantine.decided()
                self._quarantine.findings += core.unreadable.take()
                if self._quarantine.findings:
                    await publish_findings(self._quarantine, model.log, model.identity.service, self._clock())
                if load.over:
                    model.wake(core.folded)
                await asyncio.sleep(0)
