"""Where the tests' groups lie, which disk they may use, and waiting for the kernel with a bound."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from cotenant_node_executor.targets.cgroup.hierarchy import delegated_group, read_hierarchies

LOOK_SECONDS = 0.02
WAIT_SECONDS = 120
"""Long enough for a crowded machine or an emulated one; nobody waits for it where all is well."""

EMULATED = "COTENANT_GUEST_LAYOUT" in os.environ
"""Whether this is the guest, whose CPUs share one of the host's: nothing there takes the time that it takes on a real one."""
GUEST_DISK = Path("/dev/vda") if EMULATED else None
"""A disk without a file system that may be overwritten; on any other machine that name may be the system's own."""


def own_base() -> str | None:
    """Where systemd handed a group over to this unit, that one is found by itself; else a group of this test run."""
    found = read_hierarchies()
    if found.v2 is not None and delegated_group(found.v2, found.own.get("", "")) is not None:
        return None
    return f"cotenant-test-{os.getpid()}"


def until(condition: Callable[[], bool]) -> bool:
    """Ask again every LOOK_SECONDS until the condition holds or WAIT_SECONDS are over: the kernel announces nothing."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
