"""Forked processes that answer with their exit status, so many at a time; each ends itself when an alarm of its own rings."""

from __future__ import annotations

import os
import resource
import select
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import TypeVar

_T = TypeVar("_T")
_MEMORY_BYTES = 8 << 30
_WAITING = 10
_ALARMS = (signal.SIGALRM, signal.SIGPROF)


class Outcome(Enum):
    """What became of a child."""

    PASSED = "passed"
    FAILED = "failed"
    TIMED_OUT = "timed out"


def alarm_in(seconds: float) -> None:
    """End this process when it has used so many seconds of CPU, or waited ten times as long; 0 takes the alarm back."""
    for alarm, timer, after in (
        (signal.SIGPROF, signal.ITIMER_PROF, seconds),
        (signal.SIGALRM, signal.ITIMER_REAL, _WAITING * seconds),
    ):
        signal.signal(alarm, signal.SIG_DFL)
        signal.setitimer(timer, after)


def fork_each(
    jobs: Iterable[tuple[_T, Callable[[], bool]]], at_once: int = 1, show: bool = False
) -> Iterator[tuple[_T, Outcome]]:
    """Run each job `(name, function)` in a child and yield how it ended, in the order of ending.

    A function that returns False, raises or ends its process has failed. `show`: let children write to the terminal.
    """
    running: dict[int, _T] = {}
    for name, function in jobs:
        while len(running) >= at_once:
            yield _ended(running)
        child = os.fork()
        if child == 0:
            _run(function, show)
        running[child] = name
    while running:
        yield _ended(running)


def _ended(running: dict[int, _T]) -> tuple[_T, Outcome]:
    """Wait until one of these children has ended; other children of this process are for others to wait for."""
    handles = {os.pidfd_open(child): child for child in running}
    child = handles[select.select(list(handles), [], [])[0][0]]
    for handle in handles:
        os.close(handle)
    _, status = os.waitpid(child, 0)
    if status == 0:
        return running.pop(child), Outcome.PASSED
    rang = os.WIFSIGNALED(status) and os.WTERMSIG(status) in _ALARMS
    return running.pop(child), Outcome.TIMED_OUT if rang else Outcome.FAILED


def _run(function: Callable[[], bool], show: bool) -> None:
    """Run in the child and end it, whatever happens."""
    status = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        if not show:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        status = 0 if function() else 1
    except BaseException:  # noqa: BLE001 - the child has no caller that could catch it
        traceback.print_exc()
    finally:
        os._exit(status)
