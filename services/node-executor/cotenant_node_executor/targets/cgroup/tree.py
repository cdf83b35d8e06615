"""The common part of the two kernel drivers: known groups, reading and writing a knob, killing and removing.

Every path is built from the executor's root; a group outside of it ("..", a leading slash) is refused before any file
access.
"""

from __future__ import annotations

import errno
import os
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import BY_DEVICE, KNOB_FILES, check_value, kernel_text, own_value
from cotenant_node_executor.targets.interface import CgroupVersion, InvalidValueError, Knob, Stat
from cotenant_node_executor.targets.parse import parse_pids

KILL_ROUNDS = 20  # enough to kill a process that forks while its group is killed, frozen or not
READ_BYTES = 1 << 16
WHOLE_BELOW = 1 << 11  # the kernel returns a list in chunks of nearly a page: a read below half a page is complete


def read_file(path: Path | str) -> str | None:
    """None where the file, or its group, is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = piece = os.read(descriptor, READ_BYTES)
            while len(piece) >= WHOLE_BELOW:
                piece = os.read(descriptor, READ_BYTES)
                content += piece
            return content.decode()
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.EOPNOTSUPP):
            return None
        raise


def write_file(path: Path, text: str) -> None:
    """Write with one system call: the kernel applies a cgroup value as a whole or not at all."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        error.filename = str(path)  # os.write does not set it
        raise
    finally:
        os.close(descriptor)


def check_group(group: str) -> str:
    if group and any(part in ("", ".", "..") for part in group.split("/")):
        raise InvalidValueError(f"group {group!r}: expected a relative path without empty or dotted parts")
    return group


def parents(group: str) -> list[str]:
    """The group's ancestors and the group itself, top first, without the root."""
    parts = group.split("/") if group else []
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]


def directories_below(root: Path) -> list[str]:
    """Relative paths of all directories below ``root``, parents first."""
    found: list[str] = []
    for directory, names, _ in os.walk(root):
        relative = os.path.relpath(directory, root)
        found += [name if relative == "." else f"{relative}/{name}" for name in names]
    return sorted(found)


class GroupTree(ABC):
    """Bookkeeping and file access over one or several parallel directory trees."""

    version: CgroupVersion
    sandbox = False

    def __init__(self, root_group: str) -> None:
        self.root_group = root_group
        self.refused_controllers: dict[str, str] = {}
        self._groups: set[str] = set()

    @abstractmethod
    def roots(self) -> list[Path]:
        """The executor's root in each hierarchy; the first one determines which groups exist."""

    @abstractmethod
    def path(self, group: str, knob: Knob) -> Path | None: ...

    @abstractmethod
    def stat_path(self, group: str, stat: Stat) -> Path | None: ...

    @abstractmethod
    def host_stat_path(self, directory: str, stat: Stat) -> Path | None: ...

    @abstractmethod
    def _make(self, group: str) -> None:
        """Create one group whose parent exists."""

    def create(self, group: str) -> None:
        for each in parents(check_group(group)):
            if each not in self._groups or not self.exists(each):
                self._make(each)
                self._groups.add(each)

    def exists(self, group: str) -> bool:
        return (self.roots()[0] / check_group(group)).is_dir()

    def _adopt(self) -> None:
        """Adopt and complete the groups of an earlier incarnation, which may have stopped halfway through creating one."""
        for group in self.rescan():
            self._make(group)

    def groups(self) -> list[str]:
        return sorted(self._groups)

    def rescan(self) -> list[str]:
        self._groups = {group for root in self.roots() for group in directories_below(root)}
        return self.groups()

    def remove(self, group: str) -> None:
        if not check_group(group):
            raise InvalidValueError("only close() removes the executor's root")
        self._remove_directories(group)
        below = group + "/"
        self._groups = {each for each in self._groups if each != group and not each.startswith(below)}

    def _remove_directories(self, group: str) -> None:
        for root in self.roots():
            top = root / group
            for name in reversed(directories_below(top)):
                self._rmdir(top / name)
            self._rmdir(top)

    def _rmdir(self, directory: Path) -> None:
        with suppress(FileNotFoundError):
            directory.rmdir()

    def procs_paths(self, group: str) -> list[Path]:
        return [root / check_group(group) / "cgroup.procs" for root in self.roots()]

    def pids(self, group: str) -> list[int]:
        return sorted(self._pids_in(self.roots()[0] / check_group(group)))

    def threads(self, group: str) -> list[int]:
        """Threads in the group and below, sorted; none where it is missing. On v1 as the first hierarchy has them."""
        top = self.roots()[0] / check_group(group)
        file = "tasks" if self.version is CgroupVersion.V1 else "cgroup.threads"
        found: set[int] = set()
        for directory in (top, *(top / name for name in directories_below(top))):
            content = read_file(directory / file)
            found.update(parse_pids(content) if content else ())
        return sorted(found)

    def _pids_in(self, top: Path) -> set[int]:
        found: set[int] = set()
        for directory in (top, *(top / name for name in directories_below(top))):
            content = read_file(directory / "cgroup.procs")
            found.update(parse_pids(content) if content else ())
        return found

    def read(self, group: str, knob: Knob) -> str | None:
        path = self.path(group, knob)
        if path is None:
            return None
        entry = KNOB_FILES[knob]
        if self.version is CgroupVersion.V2 and entry.v2_read_file is not None:
            path = path.with_name(entry.v2_read_file)
        content = read_file(path)
        return None if content is None else own_value(self.version, knob, content)

    def write(self, group: str, knob: Knob, value: str) -> None:
        check_value(knob, value)
        path = self.path(group, knob)
        if path is None:
            raise FileNotFoundError(errno.ENOENT, f"cgroup {self.version.value} has no file for {knob.value}")
        text = kernel_text(self.version, knob, value)
        if knob is Knob.CPU_PERIOD and self.version is CgroupVersion.V2:  # one file holds both, the quota first
            text = f"{(read_file(path) or 'max').split()[0]} {text}"
        for line in text.split("\n") if knob in BY_DEVICE else (text,):
            self._write_text(path, line)

    def _write_text(self, path: Path, text: str) -> None:
        write_file(path, text)

    def kill(self, group: str) -> list[int]:
        """Send SIGKILL until a round finds no new process; a process takes a moment to exit after its signal."""
        tops = [root / check_group(group) for root in self.roots()]
        killed: set[int] = set()
        for _ in range(KILL_ROUNDS):
            found = {pid for top in tops for pid in self._pids_in(top)} - killed - {os.getpid()}
            if not found:
                break
            killed.update(self._kill_pids(found, tops))
        return sorted(killed)

    def _kill_pids(self, pids: set[int], tops: list[Path]) -> set[int]:
        """A pid may have been reused since it was read, so the process behind the pidfd must still be in the group."""
        handles: dict[int, int] = {}
        try:
            for pid in sorted(pids):
                with suppress(ProcessLookupError):
                    handles[pid] = os.pidfd_open(pid)
            still = {pid for top in tops for pid in self._pids_in(top)}
            for pid in sorted(still & handles.keys()):
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
            return still & handles.keys()
        finally:
            for handle in handles.values():
                os.close(handle)

    def refresh(self) -> None:
        return

    def _remove_root(self) -> bool:
        """Remove the executor's root, bottom-up; False, without any change, while it contains processes."""
        if self.pids(""):
            return False
        try:
            for root in self.roots():
                for name in reversed(directories_below(root)):
                    self._rmdir(root / name)
                self._rmdir(root)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            self.rescan()  # a process was just exiting or entering
            return False
        self._groups.clear()
        return True
