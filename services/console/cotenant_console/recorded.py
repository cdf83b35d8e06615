"""The recorded history of a data folder, whether its stack runs or not.

In: an address, or a data folder. Out: the events of LOG in order, as HISTORY holds them. Where no stack runs, the
folder's own nats-server is started during the reading; the folder is locked meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from cotenant.events.commits import LogDeclared
from cotenant.events.envelope import Event
from cotenant.log.contract import HISTORY
from cotenant.log.nats.jetstream import API_ERRORS, PassingError
from cotenant.log.nats.log import NatsLog, connect, read_up_to
from cotenant.log.nats.lookups import is_of
from cotenant.log.nats.reader import NatsReader
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import prepared_keys
from cotenant_console.nats_access.roles import READER
from cotenant_console.up.folder_lock import FolderLock
from cotenant_console.up.nats_server import (
    Secured,
    answers,
    free_port,
    members,
    nats_processes,
    nats_urls,
    replicas_in,
)
from cotenant_console.up.supervisor import Supervisor

MAX_EVENTS = 2_000_000
START_SECONDS = 60.0
ANSWER_SECONDS = 1.0


class NothingRecordedError(Exception):
    """The data folder holds no history."""


@asynccontextmanager
async def opened(nats_url: str, folder: Path) -> AsyncIterator[NatsLog]:
    """The log at an address; without one, that of the folder's own server."""
    if nats_url:
        log = await connect(nats_url, "console", access_of(folder, READER, nats_url))
        try:
            yield log
        finally:
            await log.close()
        return
    if not any(folder.glob("nats*/store")):  # noqa: ASYNC240 - a look at a local folder
        raise NothingRecordedError(f"{folder} holds no history: run `cotenant up` on it first, or name another with --data")
    with FolderLock(folder):
        supervisor = Supervisor(folder / "logs")
        ports: list[int] = []
        for _ in range(replicas_in(folder)):
            ports.append(free_port(ports))
        for spec in nats_processes(folder, members(ports), _secured(folder))[0]:
            supervisor.start(spec)
        try:
            async with asyncio.timeout(START_SECONDS):
                for port in ports:
                    while not await answers(port):  # noqa: ASYNC110 - a process of its own announces nothing
                        await asyncio.sleep(0.05)
            log = await connect(nats_urls(ports), "console", access_of(folder, READER))
            try:
                yield log
            finally:
                await log.close()
        finally:
            await supervisor.stop()


def _secured(folder: Path) -> Secured | None:
    """The servers' access configuration; none on a folder of an older version."""
    folder = keys_folder(folder)
    return Secured(prepared_keys(folder).accounts_file) if folder.is_dir() else None


@retry(
    retry=retry_if_exception_type((PassingError, *API_ERRORS)),
    wait=wait_fixed(0.1),
    stop=stop_after_delay(START_SECONDS),
    reraise=True,
)
async def _from_start(log: NatsLog) -> tuple[NatsReader, int] | None:
    """A reader of HISTORY and its end, None where it is empty. Servers that have just started elect a leader first."""
    async with asyncio.timeout(ANSWER_SECONDS):
        end = await log.last_sequence(HISTORY)
    return None if end == 0 else (await log.follow(HISTORY, (">",), after=0), end)


async def history(log: NatsLog) -> list[Event]:
    """All of HISTORY up to its present end, by LOG sequence, each event once. Where LOG's identity follows a message with a
    higher sequence, HISTORY copied LOG again from its start: what is older than that LOG belongs to another one.
    Raises BusError if the server stops answering."""
    opened_reader = await _from_start(log)
    if opened_reader is None:
        return []
    reader, end = opened_reader
    found: dict[int, Event] = {}
    last = 0
    try:
        async for events in read_up_to(reader, end):
            for event in events:
                if event.sequence <= last and isinstance(event.data, LogDeclared):
                    found = {key: each for key, each in found.items() if is_of(each, event.data.created)}
                last = event.sequence
                found[last] = event
            if len(found) >= MAX_EVENTS:
                break
    finally:
        await reader.close()
    return [found[sequence] for sequence in sorted(found)]
