"""What a deciding loop publishes about itself: log lines, health and metrics of its process.

In: what happened in the loop. Out: besides the report one answer, whether this machine's clock is too far ahead of the log's to
decide. Without a host (simulation, replay) only log lines are written.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence

from cotenant.log.contract import NoAnswer, Refused, Stored
from cotenant.runtime.freed_memory import GIVEN_BACK_AFTER_SECONDS, give_back
from cotenant.runtime.load_progress import LoadProgress
from cotenant.runtime.process import Host

logger = logging.getLogger(__name__)

MAX_AHEAD_SECONDS = 30.0
"""A clock that is further ahead of the log's is considered wrong."""


class LoopReport:
    """The report of one incarnation. `folded`: messages since telemetry counted them."""

    def __init__(self, service: str, host: Host | None, ready: asyncio.Event) -> None:
        self.folded = 0
        self.progress = LoadProgress(service)
        self._service = service
        self._host = host
        self._ready = ready
        self._clock_is_wrong = False

    def loaded(self, folded: int) -> None:
        """The state is complete, up to the sequence `folded`: the service is ready."""
        self._ready.set()
        logger.info("%s: loaded, folded to LOG:%d, %s", self._service, folded, self.progress)
        if self._host is not None:
            gc.enable()
            gc.freeze()
            asyncio.get_running_loop().call_later(GIVEN_BACK_AFTER_SECONDS, give_back)
            self._host.health.ready = True
            self._host.health.detail = "ok"

    def count_folded(self) -> None:
        """Add the folded messages to the metrics."""
        if self.folded and self._host is not None:
            self._host.telemetry.folded += self.folded
            self.folded = 0

    def clock_is_ahead(self, seconds: float) -> bool:
        """Return whether this machine's clock is too far ahead of the log's. Nothing is decided then: `now` of decisions never
        goes back, so one from the future would block every replica until that time."""
        wrong = seconds > MAX_AHEAD_SECONDS
        if wrong != self._clock_is_wrong:
            self._clock_is_wrong = wrong
            detail = f"this machine's clock is {seconds:.0f} s ahead of the log's: nothing is decided until it is corrected"
            if wrong:
                logger.error("%s: %s", self._service, detail)
            else:
                logger.warning("%s: the clock is right again", self._service)
            if self._host is not None:
                self._host.health.ready = not wrong and self._ready.is_set()
                self._host.health.detail = detail if wrong else "ok"
        return wrong

    def has_no_room(self, reason: str, pause: float) -> None:
        """LOG refused a batch for lack of room; the next is tried in `pause` seconds."""
        detail = f"LOG has no room for decisions ({reason})"
        logger.warning("%s: %s: trying again in %.0f s", self._service, detail, pause)
        if self._host is not None:
            self._host.health.warning = detail

    def has_room(self) -> None:
        """A batch was stored again."""
        logger.warning("%s: LOG has room again", self._service)
        if self._host is not None:
            self._host.health.warning = ""

    def warn(self, lines: Sequence[str]) -> None:
        """Log what the core warns of."""
        for line in lines:
            logger.warning("%s: %s", self._service, line)

    def answered(self, outcome: Stored | Refused | NoAnswer, events: int, decide_seconds: float, store_seconds: float) -> None:
        """Count a batch with the decided events that it stored."""
        if self._host is None:
            return
        telemetry = self._host.telemetry
        telemetry.batches[_outcome_label(outcome)] += 1
        telemetry.decided += events
        telemetry.decide_seconds.record(decide_seconds)
        telemetry.store_seconds.record(store_seconds)


def _outcome_label(outcome: Stored | Refused | NoAnswer) -> str:
    """Return the outcome as the metrics name it (`telemetry.OUTCOMES`)."""
    match outcome:
        case Stored():
            return "stored"
        case NoAnswer():
            return "unanswered"
        case _:
            return "no_space" if outcome.no_space else "refused"
