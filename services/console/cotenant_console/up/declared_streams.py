"""The streams of a running stack: declared at its start, and again after a server lost its disk.

In: the servers' addresses, an administrator's credentials, the declaration of each stream. Out: the streams. Services wait for
them; they have no permission to create them.

Bounds: a check every LOOK_SECONDS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from cotenant.log.nats.access import Access
from cotenant.log.nats.declaring import StreamSettings, log_changes
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import NatsLog, connect

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0


class DeclaredStreams:
    """Use `declare`, then `maintain` until it is cancelled, then `close`."""

    def __init__(self, url: str, access: Access, wanted: Mapping[str, StreamSettings]) -> None:
        self._url = url
        self._access = access
        self._wanted = wanted
        self._log: NatsLog | None = None

    async def declare(self) -> None:
        """Declare all of them. Raises BusError, API_ERRORS."""
        if self._log is None:
            self._log = await connect(self._url, "streams", self._access)
        log_changes(await self._log.declare(self._wanted))
        await self._log.store_identity()

    async def maintain(self) -> None:
        """Declare streams that are missing again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if self._log is not None:
                    await self._log.check_streams()
            except BusError as error:
                logger.warning("%s", error)
                try:
                    await self.declare()
                except (BusError, *API_ERRORS) as refusal:
                    logger.warning("the streams cannot be declared: %s", refusal)
            except API_ERRORS as error:
                logger.debug("the streams cannot be read: %s", error)

    async def close(self) -> None:
        """Close the connection."""
        if self._log is not None:
            await self._log.close()
