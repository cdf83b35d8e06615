"""Sends a core's requests to other services' micro endpoints, and repeats them while the core still makes them.

In: the core's outstanding requests after each decision. Out: NATS requests. The outcome comes back on the log; until then a
request is repeated with a growing pause.

Bounds: MAX_REQUESTS in progress; the pauses of REQUEST_PAUSE_SECONDS, the last of them repeatedly.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from cotenant.engine.core import Request, Requesting
from cotenant.runtime.process import Host

logger = logging.getLogger(__name__)

MAX_REQUESTS = 16
REQUEST_PAUSE_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
REQUEST_TIMEOUT_SECONDS = 5.0


class Requests:
    """The requests of one incarnation of a core."""

    def __init__(self, host: Host, core: Requesting) -> None:
        self._host = host
        self._core = core
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._tries: dict[str, int] = {}

    def send(self, now: datetime) -> None:
        """Send outstanding requests that are not in progress."""
        wanted = self._core.requests(now)
        keys = {request.key for request in wanted}
        for key in [key for key in self._tries if key not in keys]:
            del self._tries[key]
        for request in wanted:
            if len(self._sending) >= MAX_REQUESTS:
                break
            if request.key not in self._sending:
                self._sending[request.key] = asyncio.ensure_future(self._send(request))

    async def _send(self, request: Request) -> None:
        tries = self._tries.get(request.key, 0)
        try:
            reply = await self._host.log.client.request(request.subject, request.body, timeout=REQUEST_TIMEOUT_SECONDS)
            refusal = (reply.headers or {}).get("Nats-Service-Error", "")
            if refusal:
                logger.warning("%s refused %s: %s", request.subject, request.key, refusal)
        except Exception as error:  # noqa: BLE001 - whatever fails is tried again while it is wanted
            logger.warning("%s did not answer %s: %s: %s", request.subject, request.key, type(error).__name__, error)
        self._tries[request.key] = tries + 1
        await asyncio.sleep(REQUEST_PAUSE_SECONDS[min(tries, len(REQUEST_PAUSE_SECONDS) - 1)])
        self._sending.pop(request.key, None)

    async def close(self) -> None:
        """Cancel requests in progress."""
        under_way = list(self._sending.values())
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._sending.clear()
