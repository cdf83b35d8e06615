"""The demonstration's batch job: a real process that burns CPU and touches memory until its work is done.

In: `--cpu-seconds`, `--memory` (bytes). Out: when its own CPU clock shows that the work is done, one line with the
CPU seconds and the wall seconds, and exit status 0. Standard library only and one file, so that any Python 3.8 can
run it as any user.
"""

from __future__ import annotations

import argparse
import hashlib
import time

PAGE_BYTES = 4096
ROUNDS = 20_000


def work(cpu_seconds: float, memory: bytearray) -> float:
    """Burn CPU and touch every page in turn until the process has used this many CPU seconds; return those used."""
    page = 0
    while time.process_time() < cpu_seconds:
        digest = hashlib.pbkdf2_hmac("sha256", b"batch", b"salt", ROUNDS)
        for byte in digest:
            memory[page] = byte
            page = (page + PAGE_BYTES) % len(memory)
    return time.process_time()


def main() -> None:
    """Do the work and report it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu-seconds", type=float, required=True)
    parser.add_argument("--memory", type=int, default=32 * 1024 * 1024)
    arguments = parser.parse_args()
    began = time.monotonic()
    used = work(arguments.cpu_seconds, bytearray(max(PAGE_BYTES, arguments.memory)))
    print(f"done: {used:.1f} CPU seconds in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
