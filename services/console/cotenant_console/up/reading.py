"""Follows the log for the screen.

In: the server's address. Out: a journal that grows as events are stored; those that follow one another come together, once in
GATHERED: the screen is drawn less often, and each delivery by itself costs the server. A reader that is too far behind starts a
new load; the journal ignores duplicates.
"""

from __future__ import annotations

import asyncio
import logging

from cotenant.engine.definition import GATHERED
from cotenant.log.contract import EXECUTION, LOG, Behind
from cotenant.log.nats.access import Access
from cotenant.log.nats.log import NatsLog, connect
from cotenant_console.up.journal import Journal

LOG_FILTERS = ("node.>", "waiting.>", "evictions.>", "migrations.>", "services.>")
PULL_LIMIT = 500

logger = logging.getLogger(__name__)


async def keep_journal(nats_url: str, access: Access, journal: Journal) -> None:
    """Read LOG and EXECUTION into the journal until cancelled."""
    log = await connect(nats_url, "console", access)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_follow(log, LOG, LOG_FILTERS, journal))
            group.create_task(_follow(log, EXECUTION, (">",), journal))
    finally:
        await log.close()


async def _follow(log: NatsLog, stream: str, filters: tuple[str, ...], journal: Journal) -> None:
    while True:
        reader = await log.follow(stream, filters)
        reader.gather(GATHERED.total_seconds())
        loading = True
        try:
            while True:
                for event in await reader.pull(PULL_LIMIT, 1.0):
                    journal.add(event)
                if loading and reader.snapshot_over:
                    loading = False
                    reader.loaded()
        except Behind as behind:
            logger.info("the journal starts over: %s", behind)
        finally:
            await reader.close()
