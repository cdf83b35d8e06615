"""The cases of the colocation benchmark: which service, under which load, beside which neighbours.

A request takes REQUEST_MS of CPU on average. Rates are of each thread. Everything runs in one parent group of MEMORY_BYTES and
MOST_PROCESSES, so that no neighbour can harm the machine.
"""

from __future__ import annotations

from msgspec import Struct

REQUEST_MS = 2.0
MEMORY_BYTES = 4 << 30
MOST_PROCESSES = 2000
STEP_SECONDS = 1.0
"""How long a step of a changing load lasts."""

Plan = tuple[tuple[float, float], ...]
"""(seconds, requests a second of each thread), one after the other."""


class Case(Struct, frozen=True):
    """One case. `rates`: the load steps through them, a second each. `replaced`: a neighbour that ended is replaced, as a
    controller of jobs would do. `files`: service and neighbours write to files."""

    name: str
    summary: str
    services: int
    threads: int
    rates: tuple[float, ...]
    neighbours: tuple[tuple[str, int], ...]
    replaced: bool = False
    files: bool = False

    def plan(self, seconds: float) -> Plan:
        """The load of a window."""
        if len(self.rates) == 1:
            return ((seconds, self.rates[0]),)
        steps = max(int(seconds / STEP_SECONDS), 1)
        return tuple((seconds / steps, self.rates[step % len(self.rates)]) for step in range(steps))


CASES = {
    case.name: case
    for case in (
        Case("cpu", "two services of 100 requests/s, 4 CPU burners", 2, 1, (100,), (("burn", 4),)),
        Case("step", "their load steps between 50 and 250/s every second", 2, 1, (50, 250), (("burn", 4),)),
        Case("threads", "one service of 4 threads, 100/s each", 1, 4, (100,), (("burn", 4),)),
        Case("load60", "two services of 300/s: 60 % of a CPU each", 2, 1, (300,), (("burn", 4),)),
        Case("pods50", "50 best-effort pods, a burner each", 2, 1, (100,), (("burn", 50),)),
        Case("fork", "two fork bombs", 2, 1, (100,), (("fork", 2),), replaced=True),
        Case("mem", "two memory hogs, up to the edge of 4 GiB", 2, 1, (100,), (("hog", 2),), replaced=True),
        Case("bandwidth", "four streams of writes to memory", 2, 1, (100,), (("stream", 4),)),
        Case("io", "two buffered and two direct writers of files", 2, 1, (100,), (("buffered", 2), ("direct", 2)), files=True),
    )
}
