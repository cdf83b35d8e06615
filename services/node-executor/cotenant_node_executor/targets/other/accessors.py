"""Reading and writing targets outside of control groups: the protocol, sysctls and files below /sys.

In: typed places (`address`) and texts. Out: the same. OSError carries the kernel's refusal; InvalidValueError names a value
that was not written. Each accessor works below a root folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

from cotenant_node_executor.targets.address import Attribute, NonCgroup, Sysctl, SysFile, SysFileAttribute
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


@runtime_checkable
class Restoring(Protocol):
    """An accessor whose places are restored when no strategy sets them any more."""

    def restore(self, place: NonCgroup, attribute: Attribute, text: str, /) -> None:
        """Restore a place's value before its first write. Raises OSError if the kernel refuses."""
        ...


@runtime_checkable
class Used(Protocol):
    """An accessor whose places contain what places of another kind name: it is added before these are written, removed after
    them, and they are left alone while it is refused."""

    users: type
    """The other kind."""

    def together(self, attribute: Attribute, wanted: str, present: str, /) -> str:
        """The wanted value with everything that is present."""
        ...


class SysctlAccessor:
    """Files below /proc/sys."""

    def __init__(self, root: Path = Path("/proc/sys")) -> None:
        self._root = root

    def _path(self, place: NonCgroup) -> Path:
        assert isinstance(place, Sysctl)
        return below(self._root, place.name)

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The file's text without the trailing newline."""
        return _text(self._path(place))

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Write the text to the file, which must exist."""
        _overwrite(self._path(place), value)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Sysctls of several numbers separate them by any white space."""
        return wanted.split() == present.split()

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Write the file's former value."""
        self.write(place, attribute, text)


class SysFileAccessor:
    """Files below /sys. Words are written one by one, as the kernel's list of scheduler features takes them."""

    def __init__(self, root: Path = Path("/sys")) -> None:
        self._root = root

    def _path(self, place: NonCgroup) -> Path:
        assert isinstance(place, SysFile)
        return below(self._root, place.name)

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The file's text without the trailing newline."""
        return _text(self._path(place))

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """Write the text, or word by word, to the file, which must exist."""
        for text in value.split() if attribute is SysFileAttribute.WORDS else (value,):
            _overwrite(self._path(place), text)

    def holds(self, attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether the texts are equal, or the words are among the present ones."""
        if attribute is SysFileAttribute.WORDS:
            return set(wanted.split()) <= set(present.split())
        return wanted.split() == present.split()

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Write the file's former value; of words those that differ."""
        if attribute is SysFileAttribute.WORDS:
            present = set((self.read(place, attribute) or "").split())
            text = " ".join(word for word in text.split() if word not in present)
        self.write(place, attribute, text)


def below(root: Path, name: str) -> Path:
    """Return the path below the root. Raises InvalidValueError for a name outside of it."""
    if not name or name.startswith("/") or ".." in name.split("/"):
        raise InvalidValueError(f"{name!r} is not a path below {root}")
    return root / name


def _text(path: Path) -> str | None:
    """Return the file's text without the trailing newline, None where there is no such file."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None


def _overwrite(path: Path, value: str) -> None:
    """Overwrite an existing file, unbuffered, so that the kernel's error is raised by this call."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode("ascii"))
    finally:
        os.close(descriptor)
