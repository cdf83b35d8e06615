"""Groups of the resctrl file system: cache ways and memory bandwidth of their threads.

In: groups below the mount, schemata lines, thread ids, control groups. Out: the same. The kernel accepts one schemata line and
one thread id per write; a thread that has gone meanwhile is skipped. Threads inherit the group of their parent when they
are created, so only processes that joined from outside are moved; a thread that leaves its control group stays until another
group claims it.

A group is created at its first write; if it was created here, restoring removes it: its threads are then the root's. The
kernel answers ENOSPC where it has no further group.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.address import Attribute, NonCgroup, ResctrlAttribute, ResctrlGroup
from cotenant_node_executor.targets.interface import InvalidValueError
from cotenant_node_executor.targets.other.accessors import below

_SCHEMATA, _TASKS, _CONTROL = ResctrlAttribute.SCHEMATA, ResctrlAttribute.TASKS, ResctrlAttribute.CONTROL_GROUPS
ThreadsOf = Callable[[str], Sequence[int]]
"""The thread ids of a control group and those below it."""


def no_threads(_group: str) -> Sequence[int]:
    """No control group has threads."""
    return ()


def new_tasks(ids: Iterable[int], present: Iterable[int]) -> list[int]:
    """Return the ids that are not in the group yet, sorted."""
    return sorted(set(ids).difference(present))


class ResctrlAccessor:
    """Groups below the mount of the resctrl file system."""

    def __init__(self, root: Path = Path("/sys/fs/resctrl"), threads_of: ThreadsOf = no_threads) -> None:
        self._root = root
        self._threads_of = threads_of

    def _folder(self, place: NonCgroup) -> Path:
        assert isinstance(place, ResctrlGroup)
        return below(self._root, place.name)

    def read(self, place: NonCgroup, attribute: Attribute) -> str | None:
        """The file's text; "" for a group that can be created, None without resctrl. The control groups of a group are shown by
        the threads that it has."""
        if not (self._root / "schemata").exists():
            return None
        file = _TASKS if attribute is _CONTROL else attribute
        try:
            return (self._folder(place) / str(file.value)).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return ""

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """Write line by line. Raises OSError with the kernel's last_cmd_status where it has one."""
        folder = self._folder(place)
        if not folder.exists():
            folder.mkdir()
        if attribute is _SCHEMATA:
            self._write_lines(folder / "schemata", value.splitlines())
            return
        if attribute is _CONTROL:
            ids = new_tasks(self._threads(value), _ids((folder / "tasks").read_text(encoding="ascii")))
        else:
            ids = _ids(value.replace(",", " "))
        for tid in ids:
            with suppress(ProcessLookupError):
                self._write(folder / "tasks", str(tid))

    def holds(self, attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether every wanted line or task is present; of several lines for one resource the last one counts."""
        if attribute is _SCHEMATA:
            return schemata_of(wanted).items() <= schemata_of(present).items()
        if attribute is _CONTROL:
            return not new_tasks(self._threads(wanted), _ids(present))
        return not new_tasks(_ids(wanted.replace(",", " ")), _ids(present))

    def restore(self, place: NonCgroup, attribute: Attribute, text: str) -> None:
        """Remove a group that was made here, else give it back its schemata; threads stay where they are."""
        folder = self._folder(place)
        if not folder.exists():
            return
        if not text:
            self._remove(folder)
        elif attribute is _SCHEMATA:
            self._write_lines(folder / "schemata", text.splitlines())

    def _threads(self, groups: str) -> list[int]:
        return [tid for group in groups.split(",") if group for tid in self._threads_of(group)]

    def _write_lines(self, file: Path, lines: Sequence[str]) -> None:
        for line in lines:
            self._write(file, line.strip())

    def _write(self, file: Path, line: str) -> None:
        try:
            with file.open("a", encoding="ascii") as opened:
                opened.write(f"{line}\n")
        except OSError as error:
            status = self._root / "info/last_cmd_status"
            status_text = status.read_text(encoding="ascii").strip() if status.exists() else ""
            if error.errno == errno.EINVAL and status_text not in ("", "ok"):
                raise InvalidValueError(f"{line}: {status_text}") from error
            raise

    def _remove(self, folder: Path) -> None:
        folder.rmdir()


def _ids(text: str) -> list[int]:
    return [int(word) for word in text.split() if word.isdecimal()]


def schemata_of(text: str) -> dict[tuple[str, str], str]:
    """The mask or percentage by (resource, domain id), e.g. ("L3", "0") -> "ff", without leading zeros."""
    found: dict[tuple[str, str], str] = {}
    for line in text.splitlines():
        resource, _, domains = line.strip().partition(":")
        for domain in domains.split(";"):
            number, _, value = domain.strip().partition("=")
            if number:
                found[resource.strip(), number] = value.strip().lstrip("0") or "0"
    return found
