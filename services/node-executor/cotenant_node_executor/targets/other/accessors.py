"""Reading and writing targets outside of control groups: the protocol, sysctls and resctrl groups.

In: typed places (`address`) and texts. Out: the same. OSError carries the kernel's refusal; InvalidValueError names a value
that was not written. Each accessor works below a root folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from cotenant_node_executor.targets.address import Attribute, NonCgroup, ResctrlAttribute, ResctrlGroup, Sysctl
from cotenant_node_executor.targets.interface import InvalidValueError


class Accessor(Protocol):
    """Reads and writes one kind of place."""

    def read(self, place: NonCgroup, attribute: Attribute, /) -> str | None:
        """The present value; None where the place does not exist."""
        ...

    def write(self, place: NonCgroup, attribute: Attribute, value: str, /) -> None:
        """Write a value. Raises InvalidValueError before any write, OSError if the kernel refuses."""
        ...

    def holds(self, attribute: Attribute, wanted: str, present: str, /) -> bool:
        """Whether the present value equals the wanted one."""
        ...


class SysctlAccessor:
    """Files below /proc/sys."""

    def __init__(self, root: Path = Path("/proc/sys")) -> None:
        self._root = root

    def _path(self, place: NonCgroup) -> Path:
        assert isinstance(place, Sysctl)
        return _below(self._root, place.name)

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The file's text without the trailing newline."""
        try:
            return self._path(place).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Write the text to the file, which must exist."""
        _overwrite(self._path(place), value)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Sysctls of several numbers separate them by any white space."""
        return wanted.split() == present.split()


class ResctrlAccessor:
    """Groups below the mount of the resctrl file system; a group is created at its first write."""

    def __init__(self, root: Path = Path("/sys/fs/resctrl")) -> None:
        self._root = root

    def _folder(self, place: NonCgroup) -> Path:
        assert isinstance(place, ResctrlGroup)
        return _below(self._root, place.name)

    def read(self, place: NonCgroup, attribute: Attribute) -> str | None:
        """The file's text; "" for a group that can be created, None without resctrl."""
        if not (self._root / "schemata").exists():
            return None
        try:
            return (self._folder(place) / str(attribute.value)).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """Write line by line: the kernel accepts one task id per write, and one bad line fails a whole schemata write."""
        folder = self._folder(place)
        if not folder.exists():
            folder.mkdir()
        lines = value.split(",") if attribute is ResctrlAttribute.TASKS else value.splitlines()
        for line in lines:
            with (folder / attribute.value).open("a", encoding="ascii") as file:
                file.write(f"{line.strip()}\n")

    def holds(self, attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether every wanted line or task is present; of several lines for one resource the last one counts."""
        if attribute is ResctrlAttribute.TASKS:
            return set(wanted.replace(",", " ").split()) <= set(present.split())
        return _schemata(wanted).items() <= _schemata(present).items()


def _schemata(text: str) -> dict[tuple[str, str], str]:
    """The mask or percentage by (resource, domain id), e.g. ("L3", "0") -> "ff", without leading zeros."""
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        resource, _, domains = line.strip().partition(":")
        for domain in domains.split(";"):
            number, _, value = domain.strip().partition("=")
            found[resource.strip(), number] = value.strip().lstrip("0") or "0"
    return found


def _below(root: Path, name: str) -> Path:
    """Return the path below the root. Raises InvalidValueError for a name outside of it."""
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise InvalidValueError(f"{name!r} is not a path below {root}")
    return root / name


def _overwrite(path: Path, value: str) -> None:
    """Overwrite an existing file, unbuffered, so that the kernel's error is raised by this call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode("ascii"))
    finally:
        os.close(descriptor)
