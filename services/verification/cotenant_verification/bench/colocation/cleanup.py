"""Removes a colocation benchmark's stack, processes, groups and files, however the benchmark ended.

In: on the command line the parent group and the folder; on standard input lines `up PID`. Out: nothing is left. It waits until
standard input ends, as it does when the benchmark ends, is interrupted, or is killed with SIGKILL. Then `cotenant up` gets
SIGINT and UP_SECONDS to end its services and pods; whatever is left in the group is not allowed to fork any more and is
killed; groups and folder are removed.

Bound: UP_SECONDS and KILL_SECONDS. Run as a module with GROUP and FOLDER, in a session of its own, so that Ctrl-C does
not reach it.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.cgroup.tree import directories_below

UP_SECONDS = 60.0
KILL_SECONDS = 30.0
POLL_SECONDS = 0.05
FOLDER_PREFIX = "cotenant-colocation-"
"""Of groups and folders; nothing else is ever removed."""


def group_roots(group: str) -> list[Path]:
    """The group's directory in each hierarchy where it exists."""
    hierarchies = read_hierarchies()
    mounts = dict.fromkeys([*hierarchies.v1.values(), *((hierarchies.v2,) if hierarchies.v2 is not None else ())])
    return [mount / group for mount in mounts if (mount / group).is_dir()]


def clear_group(group: str) -> bool:
    """Kill every process in the group and below, and remove it; False where that did not work within KILL_SECONDS."""
    _check(group)
    roots = group_roots(group)
    for root in roots:
        with contextlib.suppress(OSError):
            (root / "pids.max").write_text("0")
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        found = [_killed(root) for root in roots]
        if not any(found):
            for root in roots:
                _remove(root)
            roots = [root for root in roots if root.is_dir()]
            if not roots:
                return True
        time.sleep(POLL_SECONDS)
    return False


def _check(name: str) -> None:
    if not name.startswith(FOLDER_PREFIX) or "/" in name:
        raise ValueError(f"{name!r} was not made by this benchmark: its name begins with {FOLDER_PREFIX}")


def _killed(root: Path) -> bool:
    """Kill the processes below a directory; whether there were any."""
    found = False
    for directory in (root, *(root / name for name in directories_below(root))):
        with contextlib.suppress(OSError):
            (directory / "cgroup.kill").write_text("1")
        with contextlib.suppress(OSError):
            for pid in (directory / "cgroup.procs").read_text().split():
                found = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
    return found


def _remove(root: Path) -> None:
    for name in (*reversed(directories_below(root)), ""):
        with contextlib.suppress(OSError):  # a process is just exiting: the next round removes it
            (root / name).rmdir()


def _ended(handle: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def main() -> None:
    """Wait for the end of standard input, then remove everything."""
    group, folder = sys.argv[1], Path(sys.argv[2])
    _check(group)
    _check(folder.name)
    stacks: list[int] = []
    for line in sys.stdin:
        word, _, pid = line.partition(" ")
        if word == "up":
            with contextlib.suppress(ProcessLookupError):
                stacks.append(os.pidfd_open(int(pid)))
    for handle in stacks:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGINT)
    for handle in stacks:
        if not _ended(handle, UP_SECONDS):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    left = not clear_group(group)
    shutil.rmtree(folder, ignore_errors=True)
    raise SystemExit(f"{group} cannot be removed: processes are left in it" if left else 0)


if __name__ == "__main__":
    main()
