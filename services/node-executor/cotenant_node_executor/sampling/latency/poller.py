"""Polls services for their own latency, in a separate thread, so that no cycle waits for a hanging one.

In: the services to poll, replaced by the main thread as a whole. Out: the newest answers, which it takes as a whole. Every
service is polled once in PERIOD_SECONDS; one that fails is retried after twice as long each time, up to LONGEST_SECONDS.
There is a thread only while there are services to poll.

Bounds: MOST_SERVICES, the first by group; AT_ONCE requests in progress.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

from msgspec import Struct

from cotenant_node_executor.sampling.latency.readings import NO_SERVICES, AskedService, ServiceReading, Services
from cotenant_node_executor.sampling.latency.request import RequestFailedError, ask

logger = logging.getLogger(__name__)

PERIOD_SECONDS, LONGEST_SECONDS = 1.0, 32.0
MOST_SERVICES, AT_ONCE = 110, 8
END_SECONDS = 5.0


class _Failing(Struct, frozen=True):
    """A service that failed: its back-off, and until when."""

    seconds: float
    until: float


class LatencyPoller:
    """`pids_of`: the processes of a group and below, read in the poller's thread."""

    def __init__(self, pids_of: Callable[[str], Sequence[int]], period_seconds: float = PERIOD_SECONDS) -> None:
        self._pids_of = pids_of
        self._period = period_seconds
        self._asked: tuple[AskedService, ...] = ()
        self._readings = NO_SERVICES
        self._failing: dict[AskedService, _Failing] = {}
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        """Of the present thread."""

    @property
    def readings(self) -> Services:
        """The newest answers; the same object until they change."""
        return self._readings

    def ask(self, asked: Sequence[AskedService]) -> None:
        """Poll these from now on."""
        self._asked = tuple(asked[:MOST_SERVICES])
        if self._asked and (self._thread is None or self._ending.is_set()):
            self._ending = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(self._ending,), name="service-latency", daemon=True)
            self._thread.start()
        elif not self._asked:
            self._ending.set()
            self._readings = NO_SERVICES

    def close(self) -> None:
        """End the thread."""
        self.ask(())
        if self._thread is not None:
            self._thread.join(END_SECONDS)

    def _run(self, ending: threading.Event) -> None:
        asyncio.run(self._rounds(ending))

    async def _rounds(self, ending: threading.Event) -> None:
        while not ending.is_set():
            asked = self._asked
            try:
                found = await self._round(asked)
                if asked is self._asked and not ending.is_set() and found != self._readings:
                    self._readings = found
            except Exception:  # on any error the node keeps its last readings
                logger.exception("latency of services")
            await asyncio.sleep(self._period)

    async def _round(self, asked: Sequence[AskedService]) -> Services:
        loop, before, slots = asyncio.get_running_loop(), self._readings, asyncio.Semaphore(AT_ONCE)
        self._failing = {each: found for each, found in self._failing.items() if each in set(asked)}

        async def one(service: AskedService) -> ServiceReading | None:
            failing = self._failing.get(service)
            if failing is not None and loop.time() < failing.until:
                return before.get(service.group)
            pids = frozenset(self._pids_of(service.group))
            if not pids:
                return None
            async with slots:
                try:
                    found = ServiceReading(await ask(service.endpoint, pids))
                except RequestFailedError as error:
                    seconds = min(2 * failing.seconds if failing is not None else self._period, LONGEST_SECONDS)
                    self._failing[service] = _Failing(seconds, loop.time() + seconds)
                    return ServiceReading(problem=str(error))
            self._failing.pop(service, None)
            return found

        answers = await asyncio.gather(*(one(service) for service in asked))
        return {service.group: found for service, found in zip(asked, answers, strict=True) if found is not None}
