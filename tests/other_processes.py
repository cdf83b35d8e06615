"""Other processes, for tests that start some: what runs, and waiting with a bound for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

LOOK_SECONDS = 0.1
T = TypeVar("T")


class NotInTimeError(AssertionError):
    """A bounded wait is over."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float) -> T:
    """Return what `look` finds as soon as it is true. Other processes announce nothing: their state is looked at."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise NotInTimeError(f"not within {seconds} s: {what}")
        time.sleep(LOOK_SECONDS)


def command_lines() -> Iterator[tuple[Path, str]]:
    """Walk living processes: where /proc shows them, and their command lines."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        yield entry, line.replace(b"\0", b" ").decode(errors="replace")


def processes_naming(text: str) -> list[str]:
    """Command lines of living processes in which a text occurs."""
    return [line for _, line in command_lines() if text in line]


def child_pid(parent: int, word: str, *, without: str = "") -> int:
    """The process id of a child, or of a child's child, whose command line has the word, and not the other one; 0 while there
    is none."""
    parents, found = {}, []
    for entry, line in command_lines():
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if word in line and not (without and without in line):
            found.append(int(entry.name))
    return next((pid for pid in found if parent in (parents[pid], parents.get(parents[pid]))), 0)
