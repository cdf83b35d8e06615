"""The process that watches placements, as any subscriber would, and records when each arrived.

In: URL, number of pods to wait for, output paths. Out, to files: per pod the clock at which its placement arrived (0: it
did not), and every commit's number of events; with `runs` also when its node first reported it running. It ends when all have
arrived, or when none did for IDLE_SECONDS after the first, for ANSWERED_SECONDS if the others are reported as waiting; but not
before it has read all that LOG then holds: on a crowded machine the watcher itself may have been late.

Each subject has a reader of its own: one reader of several subjects takes the whole stream
(`cotenant.log.nats.reader.MANY_FILTERS`), so the watcher would also receive every pod's object.

Bound: QUEUED pulls of PULL_LIMIT wait to be noted.
"""

from __future__ import annotations

import array
import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import uvloop

from cotenant.events.commits import record_of
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.log.contract import LOG
from cotenant.log.nats.jetstream import API_ERRORS
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.reader import NatsReader
from cotenant_verification.bench.workload import pod_number

IDLE_SECONDS = 60.0
ANSWERED_SECONDS = 5.0
PULL_LIMIT = 1000
PULL_SECONDS = 1.0
LAST_SECONDS = 0.2
QUEUED = 16

Arrived = asyncio.Queue[tuple[Sequence[Event], int]]
"""Events, and the clock at which they arrived."""


class WatchTarget(msgspec.Struct, frozen=True):
    """What to watch for."""

    url: str
    pods: int
    out: str
    runs: bool = False


class WatchProgress:
    """What has arrived so far."""

    def __init__(self, pods: int) -> None:
        self.placed = array.array("q", [0]) * pods
        self.running = array.array("q", [0]) * pods
        self.batches: list[int] = []
        self.awaited = pods
        self.waiting: set[str] = set()
        self.last = 0.0

    def note(self, event: Event, clock: int, runs: bool) -> None:
        """Note one event."""
        data = event.data
        record = record_of(event)
        if record is not None and (decided := record.count + (event.commit is not None)):
            self.batches.append(decided)
        if isinstance(data, Waiting):
            self.last = time.monotonic()
            (self.waiting.discard if event.tombstone else self.waiting.add)(data.name)
        elif isinstance(data, Placement) and data.phase is PlacementPhase.BOUND:
            self._first(self.placed, data.name, clock, last=not runs)
        elif isinstance(data, RunStatus) and data.phase is RunPhase.RUNNING:
            self._first(self.running, data.name, clock, last=True)

    def _first(self, times: array.array[int], name: str, clock: int, *, last: bool) -> None:
        self.last = time.monotonic()
        number = pod_number(name)
        if not times[number]:
            times[number] = clock
            self.awaited -= last

    def is_quiet(self) -> bool:
        """Tell whether nothing has arrived for so long that nothing more may come."""
        answered = self.awaited <= len(self.waiting)
        return bool(self.last) and time.monotonic() - self.last > (ANSWERED_SECONDS if answered else IDLE_SECONDS)


async def _watch(watch: WatchTarget, say_ready: Callable[[], None]) -> WatchProgress:
    log = await connect(watch.url, "bench-watcher")
    arrived: Arrived = asyncio.Queue(QUEUED)
    seen = WatchProgress(watch.pods)
    async with asyncio.TaskGroup() as readers:
        commits = await _follow(log, "commits.scheduler.*")
        others = ("node.*.placement.>", "waiting.>", *(("node.*.run.>",) if watch.runs else ()))
        followed = [commits, *[await _follow(log, subject) for subject in others]]
        tasks = [readers.create_task(_read(reader, arrived)) for reader in followed]
        say_ready()
        end: int | None = None
        while seen.awaited > 0:
            events, clock = await arrived.get()
            for event in events:
                seen.note(event, clock, watch.runs)
            if not seen.is_quiet():
                end = None
            elif end is None:
                end = await _end_of(log)
            elif arrived.empty() and all(reader.scanned >= end for reader in followed):
                break
        for task in tasks:
            task.cancel()
    # A commit record precedes what it commits, but not on the way through another reader.
    for event in await commits.pull(PULL_LIMIT, LAST_SECONDS):
        seen.note(event, 0, watch.runs)
    await log.close()
    return seen


async def _end_of(log: NatsLog) -> int | None:
    """LOG's last sequence; None if the server does not answer in time."""
    try:
        return await log.last_sequence(LOG)
    except API_ERRORS:
        return None


async def _follow(log: NatsLog, subject: str) -> NatsReader:
    reader = await log.follow(LOG, [subject])
    reader.loaded()
    reader.max_behind = 0
    return reader


async def _read(reader: NatsReader, arrived: Arrived) -> None:
    """Pull forever; an empty pull after PULL_SECONDS is passed on too."""
    while True:
        events = await reader.pull(PULL_LIMIT, PULL_SECONDS)
        await arrived.put((events, time.monotonic_ns()))


def main() -> None:
    """Run; the first argument is the file that says what to watch."""
    watch = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=WatchTarget)
    seen = uvloop.run(_watch(watch, Path(f"{watch.out}.ready").touch))
    Path(f"{watch.out}.batches").write_bytes(msgspec.json.encode(seen.batches))
    Path(f"{watch.out}.running").write_bytes(seen.running.tobytes())
    Path(watch.out).write_bytes(seen.placed.tobytes())


if __name__ == "__main__":
    main()
