"""3,000 executors on one server: all join, a pod runs on each, and then nothing happens.

In: NODES (the first argument), and how many processes of 200 of them start together (the second). The stack is that of
`bench schedule --stack`: server, gateway, scheduler, quota-tree, calculator, arbiter, and simulated executors. Out: seconds
until all have joined and as many pods run; then, over REST_SECONDS, CPU of each service as percent of a core, and its memory.
An executor at rest stores a usage sample every 15 s, which is most of what it and the server do: `bench_readers` has the
readers of LOG alone.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from cotenant_verification.bench.over_http.deletions import filled
from cotenant_verification.bench.testbed import Testbed
from cotenant_verification.bench.workload import synthetic
from cotenant_verification.interruptible import until_told

NODES = 3_000
PROCESSES_AT_ONCE = 2
"""Executors that start at the same moment store a start marker each, and load."""
SETTLE_SECONDS = 75.0
REST_SECONDS = 60.0


async def measure(nodes: int, at_once: int) -> None:
    """Print one line a figure."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:.0f} s: {line}", file=sys.stderr, flush=True)

    async with Testbed() as testbed:
        await filled(testbed, synthetic(nodes, nodes, 1), say, at_once=at_once)
        print(f"executors_a_pod_each_runs {time.monotonic() - began:.0f} s", flush=True)
        for name, used in sorted(testbed.cpu_seconds().items()):
            print(f"executors_until_then_cpu.{name} {used:.1f} s")
        await asyncio.sleep(SETTLE_SECONDS)
        before, started = testbed.cpu_seconds(), time.monotonic()
        await asyncio.sleep(REST_SECONDS)
        passed = time.monotonic() - started
        for name, used in sorted(testbed.cpu_seconds().items()):
            print(f"executors_rest_cpu.{name} {100 * (used - before[name]) / passed:.1f} percent_of_a_core")
        for name, peak in sorted(testbed.peak_memory_mib().items()):
            print(f"executors_peak_memory.{name} {peak} MiB")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("nodes", type=int, nargs="?", default=NODES)
    parser.add_argument("at_once", type=int, nargs="?", default=PROCESSES_AT_ONCE)
    asked = parser.parse_args()
    until_told(measure(asked.nodes, asked.at_once))


if __name__ == "__main__":
    main()
