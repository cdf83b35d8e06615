"""The files of one container attempt, which outlive the executor, and what they record.

    <state>/<pod uid>/<container>/<attempt>.{wait,launch,shim,pid,status,error,log}

`wait` is the back-off before it, `launch` the document for the launching step, `shim` the shim's pid, `pid` the
program's, `status` its exit code, `error` why it could not be started. The times at which `pid` and `status` were
written are when it started and when it ended.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

SHIM = """
trap : TERM HUP INT
attempt=$1; shift
echo $$ > "$attempt.shim"
while [ "$1" != -- ]; do echo $$ >> "$1"; shift; done
shift
"$@" 2>&1
code=$?
echo $code > "$attempt.status.new" && mv "$attempt.status.new" "$attempt.status"
"""
"""Runs the program in the foreground and writes down how it ended. The shim stays outside the container's group, so that
killing the group cannot take away the answer; its own signals are caught, not ignored, because ignoring is inherited."""

STORED_ATTEMPTS = 2


class AttemptFiles(Struct, frozen=True):
    """The files of one attempt: `stem` is their common path without ending."""

    stem: Path
    attempt: int

    def file(self, ending: str) -> Path:
        """One of them."""
        return self.stem.with_name(f"{self.stem.name}.{ending}")

    def number(self, ending: str) -> int | None:
        """The number that the file holds, None while there is none."""
        try:
            text = self.file(ending).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    def text(self, ending: str) -> str:
        """The file's text, empty while there is none."""
        try:
            return self.file(ending).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def changed_at(self, ending: str) -> datetime | None:
        """When the file was last written, None while there is none."""
        try:
            return datetime.fromtimestamp(self.file(ending).stat().st_mtime, UTC)
        except FileNotFoundError:
            return None


def attempt_files(container_dir: Path, attempt: int) -> AttemptFiles:
    """The files of a numbered attempt."""
    return AttemptFiles(container_dir / str(attempt), attempt)


def newest_attempt(container_dir: Path) -> AttemptFiles | None:
    """The newest attempt that was begun in this directory."""
    numbers = [int(path.stem) for path in container_dir.glob("*.launch") if path.stem.isdigit()]
    return attempt_files(container_dir, max(numbers)) if numbers else None


def drop_old_attempts(container_dir: Path, newest: int) -> None:
    """Keep the files of the last attempts only."""
    for path in sorted(container_dir.iterdir()):
        number = path.name.partition(".")[0]
        if number.isdigit() and int(number) <= newest - STORED_ATTEMPTS:
            path.unlink(missing_ok=True)
