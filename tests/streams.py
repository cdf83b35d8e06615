"""Streams for tests that start services on a server of their own: services only check them."""

from __future__ import annotations

import asyncio
import threading

from cotenant.log.nats.log import connect
from cotenant.log.nats.streams import StreamSizes


def declare_streams(url: str, store_bytes: int = 0) -> None:
    """Declare the streams as an administrator does, from a test with or without an event loop of its own."""

    async def declare() -> None:
        log = await connect(url, "streams")
        await log.declare(sizes=StreamSizes.within(store_bytes) if store_bytes else None)
        await log.close()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(declare())
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
