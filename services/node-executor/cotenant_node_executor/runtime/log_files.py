"""Container logs: bounded files, and reading their end.

A program writes to its log through a descriptor of its own, opened for appending. Once the log is larger than its bound
it is copied to `<log>.1` and truncated; lines written between the two steps are lost. The newest two attempts of a container
use at most four times the bound. While the executor is down logs are not bounded.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MAX_LOG_BYTES = 10 * 1024 * 1024
MAX_READ_BYTES = 512 * 1024


def rotated(log: Path) -> Path:
    """Return the path of the older part."""
    return log.with_name(f"{log.name}.1")


def bound_log(log: Path, limit: int = MAX_LOG_BYTES) -> bool:
    """Rotate the log if it exceeds its bound; return whether it was rotated."""
    try:
        if log.stat().st_size <= limit:
            return False
    except FileNotFoundError:
        return False
    shutil.copyfile(log, rotated(log))
    os.truncate(log, 0)
    return True


def read_tail(log: Path, tail_lines: int | None, limit_bytes: int) -> str:
    """Return the last lines of a log and its older part, at most `limit_bytes`, beginning at the start of a line."""
    limit = max(0, min(limit_bytes, MAX_READ_BYTES))
    parts: list[bytes] = []
    room = limit
    cut = False
    for path in (log, rotated(log)):
        if room <= 0 or not path.exists():
            continue
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - room, 0))
            part = file.read(room)
            cut = cut or size > room
        parts.insert(0, part)
        room -= len(part)
    data = b"".join(parts)
    if cut and b"\n" in data:
        data = data.partition(b"\n")[2]
    if tail_lines is not None:
        lines = data.splitlines(keepends=True)
        data = b"".join(lines[-tail_lines:] if tail_lines > 0 else [])
    return data.decode("utf-8", errors="replace")
