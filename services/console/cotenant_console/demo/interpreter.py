"""The Python interpreter and the user of the demonstration's pods.

Pods run as nobody unless their manifest says otherwise, so their interpreter and script must be reachable by
everybody. In: this process's interpreter, and the system's. Out: the interpreter and, where no combination is open
to all (an environment below a private home folder), runAsUser 0, which `up` then shows on the screen.
"""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")


@dataclass(frozen=True)
class Interpreter:
    """A Python for the pods. `user` None: nobody, or the user who runs `up` where that is not root."""

    path: str
    user: int | None = None
    note: str = ""


def open_to_all(path: Path, executable: bool) -> bool:
    """Whether every user may read (and execute) a file: every folder above it, links resolved, must be searchable."""
    try:
        resolved = path.resolve(strict=True)
        mode = resolved.stat().st_mode
        above = [folder.stat().st_mode for folder in (*resolved.parents, *path.absolute().parents)]
    except OSError:
        return False
    wanted = stat.S_IROTH | (stat.S_IXOTH if executable else 0)
    return mode & wanted == wanted and all(folder & stat.S_IXOTH for folder in above)


def choose_interpreter(script: Path) -> Interpreter:
    """The interpreter with which a pod can run the script."""
    if os.geteuid() != 0:
        return Interpreter(sys.executable)
    if open_to_all(script, executable=False):
        for candidate in (sys.executable, *SYSTEM_PYTHONS):
            if open_to_all(Path(candidate), executable=True):
                return Interpreter(candidate)
    note = "the demonstration's pods run as root: no Python here is reachable by the user nobody"
    return Interpreter(sys.executable, 0, note)
