"""The audit trail: who requested what, and the outcome, as events on EXECUTION.

In: answered requests. Out: `Audited` events, once a second at most FLUSHES of RECORDS_AN_EVENT records. Writes and refused
requests are recorded, reads are not. A record has names and verbs; bodies, tokens and query strings stay out.

Bounds: MAX_WAITING records wait; beyond that they are counted as dropped, and the event says how many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime

from cotenant.engine.commit import Identity
from cotenant.events.audit import Audited, AuditRecord
from cotenant.events.envelope import Event
from cotenant.log.contract import EXECUTION, Log
from cotenant.model.subjects import execution_subject
from cotenant_gateway.access.attributes import RequestAttributes
from cotenant_gateway.access.users import User
from cotenant_gateway.statuses import encodable

logger = logging.getLogger(__name__)

MAX_WAITING = 20_000
RECORDS_AN_EVENT = 500
FLUSHES = 20
FLUSH_SECONDS = 1.0
MAX_TEXT = 256
READS = frozenset({"get", "list", "watch"})
REFUSALS = frozenset({401, 403})
TOO_MANY = 429
"""Requests above this rate are not recorded, as they would fill the log."""


class Audit:
    """Gathers records and publishes them."""

    def __init__(self, log: Log, identity: Identity, clock: Callable[[], datetime]) -> None:
        self._log = log
        self._identity = identity
        self._clock = clock
        self._waiting: deque[AuditRecord] = deque()
        self._dropped = 0
        self._events = 0
        self._sending: Event | None = None
        """Unconfirmed records: resent unchanged, so that they are stored once."""

    def note(
        self, user: User | None, by: str, asked: RequestAttributes, code: int, address: str, user_agent: str
    ) -> None:
        """Record an answered request, if it is of a kind that is recorded. `by`: the impersonating user, if any."""
        if (asked.verb in READS and code not in REFUSALS) or code == TOO_MANY:
            return
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append(
            AuditRecord(
                time=self._clock(),
                user=_text(user.name) if user is not None else "",
                groups=user.groups if user is not None else (),
                impersonated_by=_text(by),
                verb=asked.verb,
                group=_text(asked.group),
                resource=_text(asked.resource),
                subresource=_text(asked.subresource),
                namespace=_text(asked.namespace),
                name=_text(asked.name),
                path=_text(asked.path),
                code=code,
                address=address,
                user_agent=_text(user_agent),
            )
        )

    async def run(self) -> None:
        """Publish what was recorded, forever; cancelled at the end of the process."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Publish queued records. Unconfirmed ones stay queued."""
        for _ in range(FLUSHES):
            if self._sending is None and (self._waiting or self._dropped):
                self._sending = self._event()
            if self._sending is None:
                return
            if await self._log.publish(self._sending) is None:
                logger.warning("audit: the log does not confirm records; %d are waiting", len(self._waiting))
                return
            self._sending = None

    def _event(self) -> Event:
        """Take the next records out of the queue."""
        now, identity = self._clock(), self._identity
        records = tuple(self._waiting.popleft() for _ in range(min(len(self._waiting), RECORDS_AN_EVENT)))
        dropped, self._dropped = self._dropped, 0
        self._events += 1
        return Event(
            subject=execution_subject("_", "audit"),
            data=Audited(gateway=identity.replica, records=records, dropped=dropped),
            time=now,
            id=f"{identity.cell}/{identity.service}/{identity.replica}/audit/{now.timestamp():.6f}/{self._events}",
            source=identity.source,
            stream=EXECUTION,
        )


def _text(text: str) -> str:
    return text if len(text) <= MAX_TEXT and text.isascii() else encodable(text[:MAX_TEXT])
