"""The values of targets outside of control groups before they were first written, for restoring them.

In: places with an attribute and the text before the first write. Out: the same, also after a restart: they are kept in one
small file, as a kernel's settings outlive the process that made them. A place is restored when no strategy sets it any
more, and all are when the executor leaves the node for good (`other.writer`).

Bound: the targets that were written; MAX_TEXT characters each, what is longer is not restored. Without a file (None) nothing
outlives the process. An unreadable file counts as empty, and is said by `problem`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from cotenant_node_executor.targets.address import (
    Attribute,
    NonCgroup,
    ResctrlAttribute,
    ResctrlGroup,
    Sysctl,
    SysctlAttribute,
    SysFile,
    SysFileAttribute,
)

MAX_TEXT = 4096
Key = tuple[NonCgroup, Attribute]

_PLACES: dict[str, type[Sysctl] | type[SysFile] | type[ResctrlGroup]] = {
    "sysctl": Sysctl,
    "sys": SysFile,
    "resctrl": ResctrlGroup,
}
_ATTRIBUTES: dict[str, type[SysctlAttribute] | type[SysFileAttribute] | type[ResctrlAttribute]] = {
    "sysctl": SysctlAttribute,
    "sys": SysFileAttribute,
    "resctrl": ResctrlAttribute,
}
_THREADS = frozenset((ResctrlAttribute.TASKS, ResctrlAttribute.CONTROL_GROUPS))
_KINDS = {place: name for name, place in _PLACES.items()}


class _Entry(Struct, frozen=True):
    kind: str
    name: str
    attribute: str
    text: str


class HeldValues:
    """The values by target, in the order in which they were first written."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._texts: dict[Key, str] = {}
        self.problem = ""
        if path is not None and path.exists():
            try:
                for entry in msgspec.json.decode(path.read_bytes(), type=list[_Entry]):
                    self._texts[_PLACES[entry.kind](entry.name), _ATTRIBUTES[entry.kind](entry.attribute)] = entry.text
            except (OSError, ValueError, KeyError) as error:
                self.problem = f"{path}: {error}: what was set before is not restored"

    def __bool__(self) -> bool:
        return bool(self._texts)

    def items(self) -> Iterator[tuple[Key, str]]:
        """Walk the targets, the last written first."""
        yield from reversed(self._texts.copy().items())

    def note(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Keep what a target held before its first write; of threads only that their group was not there."""
        if (place, attribute) in self._texts or type(place) not in _KINDS or len(text) > MAX_TEXT:
            return
        if text and attribute in _THREADS:
            return
        self._texts[place, attribute] = text
        self._save()

    def forget(self, place: NonCgroup, attribute: Attribute) -> None:
        """The target was restored, or is gone."""
        if self._texts.pop((place, attribute), None) is not None:
            self._save()

    def _save(self) -> None:
        """Write the file as a whole, before the target: a killed executor restores at its next start."""
        if self._path is None:
            return
        entries = [
            _Entry(_KINDS[type(place)], place.name, str(attribute.value), text)
            for (place, attribute), text in self._texts.items()
            if isinstance(place, (Sysctl, SysFile, ResctrlGroup))
        ]
        new = self._path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(entries))
        os.replace(new, self._path)
