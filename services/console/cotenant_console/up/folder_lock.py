"""One `cotenant up` per data folder.

In: the folder. Out: a lock that the kernel releases when the process ends, however it ends; a second `up` on the
same folder is refused with the process that holds it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

LOCK_FILE = "up.lock"


class FolderInUseError(Exception):
    """Another `cotenant up` runs on this data folder."""


class FolderLock:
    """Holds the data folder for as long as the process runs, or until the block ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._descriptor = -1

    def __enter__(self) -> FolderLock:
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise FolderInUseError(
                f"{self._folder} is in use by another `cotenant up` (process {holder}). "
                "End that one with Ctrl-C, or choose another folder with --data."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
