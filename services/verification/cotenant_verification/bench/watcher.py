"""The process that watches placements, as any subscriber would, and notes when each arrived.

In: URL, number of pods to wait for, where to write. Out, to files: per pod the clock at which its placement arrived (0: it
did not), and every commit's number of events; with `runs` also when its node first reported it running. It ends when all have
arrived, or when none did for IDLE_SECONDS after the first; for ANSWERED_SECONDS if the others are reported as waiting.
"""

from __future__ import annotations

import array
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from cotenant.events.commits import Commit
from cotenant.events.envelope import Event
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.log.contract import LOG
from cotenant.log.nats.log import connect
from cotenant_verification.bench.workload import pod_number

IDLE_SECONDS = 10.0
ANSWERED_SECONDS = 2.0


class Watch(msgspec.Struct, frozen=True):
    """What to watch for."""

    url: str
    pods: int
    out: str
    runs: bool = False


class Seen:
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
        if isinstance(data, Commit):
            self.batches.append(data.count)
        elif isinstance(data, Waiting):
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


async def _watch(watch: Watch, say_ready: Callable[[], None]) -> Seen:
    log = await connect(watch.url, "bench-watcher")
    runs = ("node.*.run.>",) if watch.runs else ()
    reader = await log.follow(LOG, ["node.*.placement.>", "waiting.>", "commits.scheduler.*", *runs])
    reader.loaded()
    reader.max_behind = 0
    seen = Seen(watch.pods)
    say_ready()
    while seen.awaited > 0:
        events = await reader.pull(1000, 1.0)
        clock = time.monotonic_ns()
        for event in events:
            seen.note(event, clock, watch.runs)
        answered = seen.awaited <= len(seen.waiting)
        if seen.last and time.monotonic() - seen.last > (ANSWERED_SECONDS if answered else IDLE_SECONDS):
            break
    await log.close()
    return seen


def main() -> None:
    """Run; the first argument is the file that says what to watch."""
    watch = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Watch)
    seen = uvloop.run(_watch(watch, Path(f"{watch.out}.ready").touch))
    Path(f"{watch.out}.batches").write_bytes(msgspec.json.encode(seen.batches))
    Path(f"{watch.out}.running").write_bytes(seen.running.tobytes())
    Path(watch.out).write_bytes(seen.placed.tobytes())


if __name__ == "__main__":
    main()
