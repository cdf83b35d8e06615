"""The connection to nats-server: made with a user's credentials, and reconnected without limit.

In: addresses, credentials. Out: a client. Permission violations are logged, once for each of
MAX_VIOLATIONS different refusals. With several addresses the client goes to the next one when its server is gone, or does not
answer MAX_PINGS pings.

Bounds: reconnection without limit, at most RECONNECT_SECONDS between tries; 16 MiB wait to be sent.
"""

from __future__ import annotations

import logging

import nats
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from cotenant.log.nats.access import Access
from cotenant.log.nats.reader import RECONNECT_SECONDS
from cotenant.log.nats.wire import BusClient

logger = logging.getLogger(__name__)

MAX_VIOLATIONS = 100
"""How many different permission violations are logged."""
PING_SECONDS, MAX_PINGS = 10, 2
CLUSTER_PING_SECONDS = 2
"""With several servers, a silent one is abandoned earlier."""


async def connected(url: str, service: str, access: Access) -> BusClient:
    """Connect, trying forever (the server may start later than the service), and reconnect forever. `url` names one server,
    or several with commas between. Raises AccessError for credentials that cannot be used."""
    # It warns whenever the peer ends a TLS connection.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    urls = [access.url(word.strip()) for word in url.split(",")]
    options, api = access.options(), access.api
    reported: set[str] = set()

    async def note(error: BaseException) -> None:
        text = f"{type(error).__name__}: {error}"
        if "violation" not in text.lower():
            logger.debug("nats: %s", text)
        elif text not in reported and len(reported) < MAX_VIOLATIONS:
            reported.add(text)
            logger.error("nats-server refuses what these credentials (%s) do not allow: %s", access.credentials or "none", text)

    async def refused(state: RetryCallState) -> None:
        if state.outcome is not None and (error := state.outcome.exception()) is not None:
            await note(error)

    async for attempt in AsyncRetrying(
        retry=retry_if_exception_type((OSError, nats.errors.Error, TimeoutError)),
        wait=wait_exponential_jitter(multiplier=0.05, max=RECONNECT_SECONDS),
        before_sleep=refused,
    ):
        with attempt:
            client = BusClient()
            client.api = api
            await client.connect(
                urls,
                name=service,
                allow_reconnect=True,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.1,
                connect_timeout=2,
                ping_interval=CLUSTER_PING_SECONDS if len(urls) > 1 else PING_SECONDS,
                max_outstanding_pings=MAX_PINGS,
                error_cb=note,
                pending_size=16 << 20,
                **options,
            )
    return client
