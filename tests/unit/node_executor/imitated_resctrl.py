"""A tree that refuses as the kernel's resctrl file system does.

In: the machine's masks, its number of groups. Out: an accessor below a folder: groups get the whole schemata, a mask must be
contiguous and within the machine's, a bandwidth a multiple of ten percent from ten on; tasks move one by one; ENOSPC beyond the
last group; removing a group gives its tasks to the root.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from cotenant_node_executor.targets.address import Attribute, NonCgroup, ResctrlGroup
from cotenant_node_executor.targets.other.resctrl import ResctrlAccessor, schemata_of

WHOLE = "L3:0=7ff;1=7ff\nMB:0=100;1=100"


class ImitatedResctrl(ResctrlAccessor):
    """See the module."""

    def __init__(self, root: Path, threads_of: Callable[[str], Sequence[int]], *, groups: int = 4) -> None:
        super().__init__(root, threads_of)
        self.root = root
        self._groups = groups
        self.alive: set[int] = set()
        """Threads that there are."""
        (root / "info").mkdir(parents=True)
        (root / "info/last_cmd_status").write_text("ok\n")
        (root / "schemata").write_text(WHOLE + "\n")
        (root / "tasks").write_text("")

    def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
        """A new group has the whole schemata."""
        assert isinstance(place, ResctrlGroup)
        folder = self.root / place.name
        if not folder.exists():
            if len([each for each in self.root.iterdir() if each.is_dir() and each.name != "info"]) >= self._groups:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            folder.mkdir()
            (folder / "schemata").write_text(WHOLE + "\n")
            (folder / "tasks").write_text("")
        super().write(place, attribute, value)

    def _write(self, file: Path, line: str) -> None:
        if file.name == "tasks":
            self._move(file, int(line))
            return
        present, wanted = schemata_of(file.read_text()), schemata_of(line)
        for (resource, domain), value in wanted.items():
            if (resource, domain) not in present or not _valid(resource, value):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        merged: dict[str, list[str]] = {}
        for (resource, domain), value in (present | wanted).items():
            merged.setdefault(resource, []).append(f"{domain}={value}")
        file.write_text("".join(f"    {resource}:{';'.join(parts)}\n" for resource, parts in merged.items()))

    def _move(self, file: Path, tid: int) -> None:
        if tid not in self.alive:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        for tasks in self.root.rglob("tasks"):
            left = [word for word in tasks.read_text().split() if word != str(tid)]
            tasks.write_text("".join(f"{word}\n" for word in [*left, *([str(tid)] if tasks == file else [])]))

    def _remove(self, folder: Path) -> None:
        with (self.root / "tasks").open("a") as tasks:
            tasks.write((folder / "tasks").read_text())
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def _valid(resource: str, value: str) -> bool:
    if resource == "MB":
        return value.isdecimal() and int(value) in range(10, 101, 10)
    mask = int(value, 16)
    low = mask & -mask
    return 0 < mask <= 0x7FF and (mask + low) & mask == 0
