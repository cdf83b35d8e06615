"""What the whole stack uses when nothing happens: `cotenant up` without the demonstration, all its processes summed.

Prints CPU as percent of one core over SECONDS, and memory as the sum of the proportional set sizes (shared pages counted once)
and as the plain sum of resident sizes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SETTLE_SECONDS = 20
SECONDS = 30
READY_SECONDS = 60
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> list[int]:
    """Return the process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        found.append(queue.pop())
        queue.extend(children.get(found[-1], ()))
    return found


def cpu_seconds(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / CLOCK_TICKS


def memory_kib(pids: list[int]) -> tuple[int, int]:
    """Return (proportional, resident) in KiB."""
    sums = {"Pss": 0, "Rss": 0}
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, rest = line.partition(":")
            if name in sums:
                sums[name] += int(rest.split()[0])
    return sums["Pss"], sums["Rss"]


def main() -> int:
    """Start, let it settle, measure, stop."""
    with tempfile.TemporaryDirectory(prefix="cotenant-bench-") as folder:
        command = [str(Path(sys.executable).parent / "cotenant"), "up", "--data", folder]
        stack = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            deadline = time.monotonic() + READY_SECONDS
            while not (Path(folder) / "endpoint.json").exists():
                if stack.poll() is not None or time.monotonic() > deadline:
                    print("the stack did not start", file=sys.stderr)
                    return 1
                time.sleep(0.1)
            time.sleep(SETTLE_SECONDS)
            pids = descendants(stack.pid)
            before, started = cpu_seconds(pids), time.monotonic()
            time.sleep(SECONDS)
            used = cpu_seconds(pids) - before
            print(f"stack_at_rest_cpu {100 * used / (time.monotonic() - started):.1f} percent_of_a_core")
            proportional, resident = memory_kib(pids)
            print(f"stack_at_rest_memory {proportional / 1024:.0f} MiB")
            print(f"stack_at_rest_memory_resident {resident / 1024:.0f} MiB")
            print(f"stack_at_rest_processes {len(pids)} processes")
        finally:
            stack.send_signal(signal.SIGINT)
            stack.wait(30)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
