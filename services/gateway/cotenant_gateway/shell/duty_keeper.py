"""Runs the gateway's duties: after every fold and once a tick, storing the plans that each yields.

In: the duties' plans, made from the read model as it is folded. Out: writes, at most one in progress for each subject; the
event `ready` once every built-in object exists. While LOG has no room duties pause, longer each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from cotenant.log.contract import NoAnswer, Refused
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.log.room_pause import RoomPause
from cotenant.log.waits import set_within
from cotenant_gateway.loop.duties import Duties
from cotenant_gateway.shell.following import ReadModel
from cotenant_gateway.statuses import ApiError

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0
LOADING_TICK_SECONDS = 0.05


class DutyKeeper:
    """One gateway's duties on the real log."""

    def __init__(
        self,
        duties: Duties,
        follower: ReadModel,
        clock: Callable[[], datetime],
        store: Callable[[Plan, int], Awaitable[Outcome]],
    ) -> None:
        """`store`: stores a plan that was made when LOG was folded up to a sequence. Raises ApiError."""
        self._duties = duties
        self._follower = follower
        self._clock = clock
        self._store = store
        self.ready = asyncio.Event()
        """Set once every built-in object exists."""
        self._under_way: set[str] = set()
        """Subjects of plans that are being stored."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._room_pause = RoomPause()

    async def run(self) -> None:
        """Run passes until cancelled; writes in progress are cancelled too."""
        try:
            await self._keep_duties()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_duties(self) -> None:
        """Run a pass after every fold, and once a tick."""
        await self._follower.ready.wait()
        while True:
            now = self._clock()
            for plans in self._duties.due(now):
                self._take_on(plans)
            for plans in self._duties.built_ins(now):
                self._take_on(plans)
            for plans in self._duties.default_accounts(now):
                self._take_on(plans)
            for plans in self._duties.profiled_quotas(now):
                self._take_on(plans)
            if self._duties.complete:
                self.ready.set()
            self._follower.folds.clear()
            pause = TICK_SECONDS if self.ready.is_set() else LOADING_TICK_SECONDS
            waits = self._duties.wait(self._clock())
            if waits is not None:
                pause = min(pause, max(waits.total_seconds(), 0.0))
            await set_within(self._follower.folds, pause)

    def _take_on(self, plans: Sequence[Plan]) -> None:
        if self._room_pause.waits(asyncio.get_running_loop().time()):
            return
        for plan in plans:
            subject = plan.writes[0].subject
            if subject in self._under_way:
                continue
            self._under_way.add(subject)
            task = asyncio.ensure_future(self._do(plan, subject, self._follower.core.folded))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _do(self, plan: Plan, subject: str, folded: int) -> None:
        """Store a duty's plan, made when LOG was folded up to a sequence. An outdated plan is made again later."""
        trace = {"traceparent": self._follower.traces.of(plan.writes[0].causes)}
        try:
            match await self._store(plan, folded):
                case Written():
                    self._room_pause.stored()
                case Refused(reason=reason, no_space=True):
                    now = asyncio.get_running_loop().time()
                    if not self._room_pause.waits(now):
                        pause = self._room_pause.refused(now)
                        text = f"LOG has no room: {reason}; duties wait for {pause:.0f} s"
                        logger.warning("%s: %s", subject, text, extra=trace)
                case Refused(reason=reason):
                    logger.debug("%s: overtaken: %s", subject, reason, extra=trace)
                case NoAnswer(reason=reason):
                    logger.warning("%s: the log does not answer: %s", subject, reason, extra=trace)
        except ApiError as error:
            logger.warning("%s: %s", subject, error, extra=trace)
        except Exception:
            logger.exception("%s cannot be stored; the next pass retries", subject, extra=trace)
        finally:
            self._under_way.discard(subject)
