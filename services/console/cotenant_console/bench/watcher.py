"""The process that watches placements, as any subscriber would, and notes when each arrived.

In: URL, number of pods to wait for, where to write. Out, to files: per pod the clock at which its placement arrived (0: it
did not), and every commit's number of events. It ends when all have arrived, or when none did for QUIET_SECONDS after
the first.
"""

from __future__ import annotations

import array
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from cotenant.bus import connect
from cotenant.events.commits import Commit
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log import LOG
from cotenant_console.bench.workload import pod_number

QUIET_SECONDS = 10.0


class Watch(msgspec.Struct, frozen=True):
    """What to watch for."""

    url: str
    pods: int
    out: str
    quiet_seconds: float = QUIET_SECONDS


async def _watch(watch: Watch, say_ready: Callable[[], None]) -> tuple[array.array[int], list[int]]:
    log = await connect(watch.url, "bench-watcher")
    reader = await log.follow(LOG, ["node.*.placement.>", "commits.scheduler.*"])
    reader.loaded()
    reader.max_behind = 0
    times = array.array("q", [0]) * watch.pods
    sizes = []
    seen = 0
    say_ready()
    last = 0.0
    while seen < watch.pods:
        events = await reader.pull(1000, 1.0)
        clock = time.monotonic_ns()
        for event in events:
            data = event.data
            if isinstance(data, Placement) and data.phase is PlacementPhase.BOUND:
                number = pod_number(data.name)
                if not times[number]:
                    times[number] = clock
                    seen += 1
                last = time.monotonic()
            elif isinstance(data, Commit):
                sizes.append(data.count)
        if last and time.monotonic() - last > watch.quiet_seconds:
            break
    await log.close()
    return times, sizes


def main() -> None:
    """Run; the first argument is the file that says what to watch."""
    watch = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Watch)
    times, sizes = uvloop.run(_watch(watch, Path(f"{watch.out}.ready").touch))
    Path(f"{watch.out}.batches").write_bytes(msgspec.json.encode(sizes))
    Path(watch.out).write_bytes(times.tobytes())


if __name__ == "__main__":
    main()
