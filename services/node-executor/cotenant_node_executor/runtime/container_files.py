"""The files of one container attempt, which survive a restart of the executor.

    <state>/<pod uid>/<container>/<attempt>.{wait,launch,shim,pid,status,error,log}

`wait` holds the back-off before the attempt, `launch` the document for the launching step, `shim` the shim's pid, `pid` the
program's pid, `status` its exit code, `error` why it could not be started. The modification times of `pid` and `status` are
the start and end of the attempt.
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
"""Runs the program in the foreground and records its exit status. The shim stays outside the container's group, so that
killing the group does not lose the exit status; its own signals are caught, not ignored, because ignoring is inherited."""

STORED_ATTEMPTS = 2


class AttemptFiles(Struct, frozen=True):
    """The files of one attempt: `stem` is their common path without ending."""

    stem: Path
    attempt: int

    def file(self, ending: str) -> Path:
        """Return the path of one of the files."""
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
    """Return the files of an attempt by its number."""
    return AttemptFiles(container_dir / str(attempt), attempt)


def newest_attempt(container_dir: Path) -> AttemptFiles | None:
    """Return the newest attempt in this directory."""
    numbers = [int(path.stem) for path in container_dir.glob("*.launch") if path.stem.isdigit()]
    return attempt_files(container_dir, max(numbers)) if numbers else None


def drop_old_attempts(container_dir: Path, newest: int) -> None:
    """Delete the files of all but the last attempts."""
    for path in sorted(container_dir.iterdir()):
        number = path.name.partition(".")[0]
        if number.isdigit() and int(number) <= newest - STORED_ATTEMPTS:
            path.unlink(missing_ok=True)
