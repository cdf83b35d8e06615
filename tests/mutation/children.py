"""Forked processes that answer with their exit status, so many at a time, each with a bound on its time."""

from __future__ import annotations

import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TypeVar

_T = TypeVar("_T")


class Outcome(Enum):
    """What became of a child."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"


def fork_each(
    jobs: Iterable[tuple[_T, Callable[[], bool], float]], at_once: int, show: bool = False
) -> Iterator[tuple[_T, Outcome]]:
    """Run each job `(name, function, seconds)` in a child and yield how it ended, in the order of ending.

    A function that returns False, raises or ends its process has failed. `show`: let children write to the terminal.
    """
    running: dict[int, tuple[_T, int, float]] = {}
    for name, function, seconds in jobs:
        while len(running) >= at_once:
            yield from _ended(running)
        child = os.fork()
        if child == 0:
            _run(function, show)
        running[child] = (name, os.pidfd_open(child), time.monotonic() + seconds)
    while running:
        yield from _ended(running)


def _ended(running: dict[int, tuple[_T, int, float]]) -> Iterator[tuple[_T, Outcome]]:
    """Wait until one child has ended or one is out of time."""
    soonest = min(deadline for _, _, deadline in running.values())
    poll = select.poll()
    for _, handle, _ in running.values():
        poll.register(handle, select.POLLIN)
    poll.poll(max(0.0, soonest - time.monotonic()) * 1000 + 1)
    for child, (name, handle, deadline) in list(running.items()):
        late = time.monotonic() >= deadline
        if late:
            os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, 0 if late else os.WNOHANG)
        if ended:
            os.close(handle)
            del running[child]
            yield name, Outcome.TIMED_OUT if late else Outcome.PASSED if status == 0 else Outcome.FAILED


def _run(function: Callable[[], bool], show: bool) -> None:
    """Run in the child and end it, whatever happens."""
    status = 1
    try:
        if not show:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        status = 0 if function() else 1
    except BaseException:  # noqa: BLE001 - the child has no caller that could catch it
        traceback.print_exc()
    finally:
        os._exit(status)
