"""The values of targets outside of control groups before they were first written, for restoring them.

In: places with an attribute and the text before the first write. Out: the same, also after a restart: they are kept in one
small file, as kernel settings outlive the process that wrote them. A place is restored when no strategy sets it any
more, and all are when the executor leaves the node for good (`other.writer`).

Kept are sysctls, files, resctrl groups, affinities and slices of threads, HTB trees, traffic classes, terway-qos' files,
core-scheduling groups and OOM scores. A thread is identified by its number and the time of its start: one with a reused
number is left alone.

Bound: the targets that were written; MAX_TEXT characters each, longer values are not restored. Without a file (None) nothing
outlives the process. An unreadable file counts as empty, and is reported by `problem`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from cotenant_node_executor.targets.address import (
    ATTRIBUTES,
    Attribute,
    EgressClass,
    NonCgroup,
    OomScore,
    Processes,
    ResctrlAttribute,
    ResctrlGroup,
    Sysctl,
    SysFile,
    TcTree,
    TerwayFile,
    Thread,
    ThreadAttribute,
)

MAX_TEXT = 4096
Key = tuple[NonCgroup, Attribute]

_PLACES: dict[str, Callable[[str], NonCgroup]] = {
    "sysctl": Sysctl,
    "sys": SysFile,
    "resctrl": ResctrlGroup,
    "thread": lambda tid: Thread(int(tid)),
    "tc": TcTree,
    "egress": EgressClass,
    "terway": TerwayFile,
    "processes": Processes,
    "oom": OomScore,
}
_THREADS = frozenset((ResctrlAttribute.TASKS, ResctrlAttribute.CONTROL_GROUPS))
_OF_THREADS = frozenset((ThreadAttribute.AFFINITY, ThreadAttribute.SLICE))
_KINDS: dict[type, str] = {
    Sysctl: "sysctl",
    SysFile: "sys",
    ResctrlGroup: "resctrl",
    Thread: "thread",
    TcTree: "tc",
    EgressClass: "egress",
    TerwayFile: "terway",
    Processes: "processes",
    OomScore: "oom",
}


class _Entry(Struct, frozen=True, omit_defaults=True):
    """`born`: when a thread was started, in the kernel's ticks since the boot."""

    kind: str
    name: str
    attribute: str
    text: str
    born: str = ""


class HeldValues:
    """The values by target, in the order in which they were first written."""

    def __init__(self, path: Path | None = None, proc: Path = Path("/proc")) -> None:
        self._path = path
        self._proc = proc
        self._texts: dict[Key, str] = {}
        self._born: dict[int, str] = {}
        """Of threads, by number."""
        self._together = False
        self.problem = ""
        if path is not None and path.exists():
            try:
                self._load(msgspec.json.decode(path.read_bytes(), type=list[_Entry]))
            except (OSError, ValueError, KeyError) as error:
                self.problem = f"{path}: {error}: former values are not restored"

    def _load(self, entries: list[_Entry]) -> None:
        for entry in entries:
            place = _PLACES[entry.kind](entry.name)
            if isinstance(place, Thread):
                if not entry.born or born_at(self._proc, place.tid) != entry.born:
                    continue
                self._born[place.tid] = entry.born
            self._texts[place, ATTRIBUTES[type(place)](entry.attribute)] = entry.text

    def __bool__(self) -> bool:
        return bool(self._texts)

    def __contains__(self, key: Key) -> bool:
        return key in self._texts

    def items(self) -> Iterator[tuple[Key, str]]:
        """Walk the targets, the last written first."""
        yield from reversed(self._texts.copy().items())

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Write the file once for all changes within."""
        before, self._together = self._texts.copy(), True
        try:
            yield
        finally:
            self._together = False
            if before != self._texts:
                self._save()

    def note(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Record a target's value before its first write; for threads of a resctrl group only that the group did not exist."""
        if (place, attribute) in self._texts or type(place) not in _KINDS or len(text) > MAX_TEXT:
            return
        if text and attribute in _THREADS:
            return
        if isinstance(place, Thread):
            born = born_at(self._proc, place.tid) if attribute in _OF_THREADS else ""
            if not born:
                return
            self._born[place.tid] = born
        self._texts[place, attribute] = text
        self._save()

    def forget(self, place: NonCgroup, attribute: Attribute) -> None:
        """The target was restored, or is gone."""
        if self._texts.pop((place, attribute), None) is not None:
            if isinstance(place, Thread) and not any((place, each) in self._texts for each in _OF_THREADS):
                self._born.pop(place.tid, None)
            self._save()

    def _save(self) -> None:
        """Write the file as a whole, before the target: a killed executor restores at its next start."""
        if self._path is None or self._together:
            return
        entries = [
            _Entry(
                _KINDS[type(place)],
                _name(place),
                str(attribute.value),
                text,
                self._born.get(place.tid, "") if isinstance(place, Thread) else "",
            )
            for (place, attribute), text in self._texts.items()
        ]
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(entries))
        os.replace(new, self._path)


def _name(place: NonCgroup) -> str:
    """The name of a place within its kind."""
    return str(next(iter(msgspec.structs.astuple(place))))


def born_at(proc: Path, tid: int) -> str:
    """When a thread was started, in ticks since the boot; "" where it has ended. Source: proc(5), field 22 of stat."""
    try:
        return (proc / str(tid) / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
