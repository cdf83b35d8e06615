"""Files that the gateway reads again when they change: tokens, keys, certificates.

In: paths. Out: whether they differ from the last check (by time of change, size and inode), and the text of files that only
their owner may read.
"""

from __future__ import annotations

import stat
from pathlib import Path

MAX_BYTES = 8 << 20
_Mark = tuple[int, int, int]
_ABSENT: _Mark = (0, 0, 0)


class AccessFileError(Exception):
    """A file of tokens or keys cannot be used; the text states where and why."""


class FileMarks:
    """Times of change, sizes and inodes of some files at the last check. Taken before the files are read."""

    def __init__(self, *paths: Path) -> None:
        self._paths = paths
        self._seen = self._marks()

    def changed(self) -> bool:
        """Return whether a file has changed, appeared or gone since the last call."""
        marks = self._marks()
        if marks == self._seen:
            return False
        self._seen = marks
        return True

    def _marks(self) -> tuple[_Mark, ...]:
        return tuple([_mark(path) for path in self._paths])


def _mark(path: Path) -> _Mark:
    try:
        found = path.stat()
    except OSError:
        return _ABSENT
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_text(path: Path, *, private: bool) -> str:
    """Return a file's text. `private`: only its owner may be able to read it. Raises AccessFileError."""
    try:
        found = path.stat()
        if private and stat.S_IMODE(found.st_mode) & 0o077:
            raise AccessFileError(f"{path}: others than its owner can read it: chmod 600 {path}")
        if found.st_size > MAX_BYTES:
            raise AccessFileError(f"{path}: {found.st_size} bytes; at most {MAX_BYTES} are read")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AccessFileError(f"{path}: {error}") from error
