"""The recorded history of a data folder, whether its stack runs or not.

In: an address, or a data folder. Out: the events of LOG in order, as HISTORY holds them. Where no stack runs, the
folder's own nats-server is started for as long as the reading takes; the folder is locked meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from cotenant.events.envelope import Event
from cotenant.log.contract import HISTORY
from cotenant.log.nats.log import NatsLog, connect
from cotenant_console.up.folder_lock import FolderLock
from cotenant_console.up.nats_server import LOOPBACK, answers, free_port, nats_process
from cotenant_console.up.supervisor import Supervisor

PULL_LIMIT = 1000
MAX_EVENTS = 2_000_000
START_SECONDS = 60.0
SILENT_SECONDS = 30.0
"""Beyond this time the end of the stream is assumed: on a busy machine a reader waits for seconds."""


class NothingRecordedError(Exception):
    """The data folder holds no history."""


@asynccontextmanager
async def opened(nats_url: str, folder: Path) -> AsyncIterator[NatsLog]:
    """The log at an address; without one, that of the folder's own server."""
    if nats_url:
        log = await connect(nats_url, "console")
        try:
            yield log
        finally:
            await log.close()
        return
    if not (folder / "nats" / "store").is_dir():
        raise NothingRecordedError(f"{folder} holds no history: run `cotenant up` on it first, or name another with --data")
    with FolderLock(folder):
        supervisor = Supervisor(folder / "logs")
        port = free_port()
        supervisor.start(nats_process(folder, port)[0])
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await answers(port):  # noqa: ASYNC110 - a process of its own announces nothing
                    await asyncio.sleep(0.05)
            log = await connect(f"nats://{LOOPBACK}:{port}", "console")
            try:
                yield log
            finally:
                await log.close()
        finally:
            await supervisor.stop()


async def history(log: NatsLog) -> list[Event]:
    """All of HISTORY up to its present end, by LOG sequence, each event once."""
    end = await log.last_sequence(HISTORY)
    found: dict[int, Event] = {}
    if end == 0:
        return []
    reader = await log.follow(HISTORY, (">",), after=0)
    reader.loaded()
    reader.max_behind = 0
    try:
        while True:
            events = await reader.pull(PULL_LIMIT, SILENT_SECONDS)
            for event in events:
                found[event.sequence] = event
            if not events or reader.position >= end or len(found) >= MAX_EVENTS:
                break
    finally:
        await reader.close()
    return [found[sequence] for sequence in sorted(found)]
