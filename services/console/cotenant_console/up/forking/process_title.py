"""The command line of a process as `ps` and /proc/<pid>/cmdline show it.

In: a command line. Out: the process shows it instead of the one that it was started with, as far as there is room: the kernel
reads it from where the arguments lie in the process' memory, so that memory is overwritten. A process that is to show
longer ones is started with an argument that is long enough (`ROOM`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

ROOM = "-" * 4096
"""An argument that leaves room for longer command lines."""
_ARG_START, _ARG_END = 47, 48
"""Fields of /proc/<pid>/stat (proc(5): 48 and 49), counted from 0."""


def show_command_line(argv: Sequence[str]) -> None:
    """Show this command line from now on, cut to the room there is. Does nothing where /proc does not say where it lies."""
    # The second field is the program's name in parentheses, which may hold blanks.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = (int(fields[index - 2]) for index in (_ARG_START, _ARG_END))
    room = end - start
    if start == 0 or room <= 0:
        return
    text = b"\0".join(argument.encode(errors="surrogateescape") for argument in argv)[: room - 1]
    ctypes.memmove(start, text + bytes(room - len(text)), room)
