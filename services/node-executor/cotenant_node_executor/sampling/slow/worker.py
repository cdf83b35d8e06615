"""The thread that the slow collectors run in.

In: the requested readings, replaced by the main thread as a whole. Out: the newest readings, taken as a whole. The thread
sleeps until a collector is due or the request changes.
"""

from __future__ import annotations

import logging
import threading
import time

from cotenant_node_executor.sampling.slow.collectors import SlowCollectors
from cotenant_node_executor.sampling.slow.readings import Asked, MachineFacts, SlowReadings

logger = logging.getLogger(__name__)

LONGEST_SLEEP_SECONDS = 60.0
END_SECONDS = 10.0
"""DAMON answers within five."""


class SlowWorker:
    """Runs the collectors from `start` to `close`."""

    def __init__(self, collectors: SlowCollectors) -> None:
        self._collectors = collectors
        self._asked = Asked()
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="slow-sampling", daemon=True)

    @property
    def readings(self) -> SlowReadings:
        """The newest readings."""
        return self._collectors.readings

    @property
    def facts(self) -> MachineFacts | None:
        """The machine's facts; None before they are read."""
        return self._collectors.facts

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def ask(self, asked: Asked) -> None:
        """Set what to measure from now on."""
        before, self._asked = self._asked, asked
        if asked.cold_memory != before.cold_memory:
            self._wake.set()

    def close(self) -> None:
        """End the thread within END_SECONDS; the collectors restore the kernel's settings."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            logger.error("slow collectors did not end in %.0f s: their settings in the kernel stay", END_SECONDS)
        else:
            self._collectors.close()

    def _run(self) -> None:
        while not self._ending:
            self._wake.clear()
            pause = LONGEST_SLEEP_SECONDS
            try:
                self._collectors.round(self._asked, time.monotonic())
                pause = min(max(self._collectors.next_due - time.monotonic(), 0.0), pause)
            except Exception:  # on any error of a collector the node keeps its last readings
                logger.exception("slow collectors")
            if not self._ending:
                self._wake.wait(pause)
