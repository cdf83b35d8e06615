"""The values of kubelet's files before they were first written, for restoring them.

In: directory, inode, file, the value before the first write and each value that is written. Out: the same, also after a
restart: a line is appended to a journal before the kernel's file is written, so that an executor that is killed at any moment
restores at its next start. A directory that was removed and created again has another inode, and the entries of the former one
are dropped.

If another process writes a file after the executor (kubelet, when a pod is resized), that value is the one to be
restored.

Bound: the files that were written; the journal is rewritten once it has COMPACT_LINES lines more than entries. An unreadable
line counts as absent: its kernel file was not written yet, as the line was the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from cotenant_node_executor.targets.interface import Knob

COMPACT_LINES = 10_000
Key = tuple[str, Knob]
"""Directory and file."""


class Held(Struct, frozen=True):
    """`initial`: the value before the first write; `written`: what was written last, or was about to be; `previous`: what the
    file held before that, and still holds if the kernel refused or the executor was killed."""

    inode: int
    initial: str
    written: str
    previous: str


class _Line(Struct, frozen=True, omit_defaults=True):
    directory: str
    knob: str
    inode: int = 0
    initial: str | None = None
    """None: nothing is held any more."""
    written: str = ""
    previous: str = ""


_DECODER = msgspec.json.Decoder(_Line)
_ENCODER = msgspec.json.Encoder()


class HeldFiles:
    """Of one node. `path`: the journal, which outlives the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[Key, Held] = {}
        self._lines = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for content in path.read_bytes().split(b"\n"):
                try:
                    line = _DECODER.decode(content)
                    key = (line.directory, Knob(line.knob))
                except (msgspec.MsgspecError, ValueError):
                    continue
                if line.initial is None:
                    self._held.pop(key, None)
                else:
                    self._held[key] = Held(line.inode, line.initial, line.written, line.previous)
        self._compact()

    def __len__(self) -> int:
        return len(self._held)

    def items(self) -> Iterator[tuple[Key, Held]]:
        """Walk the held values, in the order of the first writes; they may change meanwhile."""
        yield from tuple(self._held.items())

    def of(self, directory: str, knob: Knob) -> Held | None:
        """The journal's entry of a file."""
        return self._held.get((directory, knob))

    def note(self, directory: str, inode: int, knob: Knob, present: str, value: str, *, own: bool) -> None:
        """`value` is about to replace `present`; `own`: the executor itself wrote `present`. Raises OSError
        where the journal cannot be written: the file must not be, then."""
        known = self._held.get((directory, knob))
        same = known is not None and known.inode == inode and own
        initial = known.initial if known is not None and same else present
        entry = Held(inode, initial, value, present)
        if entry != known:
            self._append(_Line(directory, knob.value, inode, initial, value, present))
            self._held[directory, knob] = entry

    def forget(self, directory: str, knob: Knob) -> None:
        """The file was restored, or is gone."""
        if self._held.pop((directory, knob), None) is not None:
            self._append(_Line(directory, knob.value))

    def _append(self, line: _Line) -> None:
        if self._lines > len(self._held) + COMPACT_LINES:
            self._compact()
        with self._path.open("ab") as file:
            file.write(_ENCODER.encode(line) + b"\n")
        self._lines += 1

    def _compact(self) -> None:
        new = self._path.with_suffix(".new")
        lines = [
            _Line(directory, knob.value, held.inode, held.initial, held.written, held.previous)
            for (directory, knob), held in self._held.items()
        ]
        new.write_bytes(b"".join(_ENCODER.encode(line) + b"\n" for line in lines))
        os.replace(new, self._path)
        self._lines = len(lines)
