"""kubelet's control groups as those of the executor: read and written where kubelet made them, never made, emptied or removed.

In: groups as the rest of the executor names them, bound to directories (`binding`). A group without a directory has no files.
Before a file is first written its value is kept (`held`); `due` gives what must be restored. A directory that no group is bound
to any more is addressed by its path after "@", for restoring alone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import (
    BY_DEVICE,
    KNOB_FILES,
    PRESSURE_STATS,
    STAT_FILES,
    UNSET_VALUES,
    check_value,
    devices_of,
    holds,
)
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies
from cotenant_node_executor.targets.cgroup.tree import GroupTree, check_group, read_file, write_file
from cotenant_node_executor.targets.convert import exact_shares
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, Stat
from cotenant_node_executor.targets.kubelet.binding import NOTHING_BOUND, Bound
from cotenant_node_executor.targets.kubelet.held import Held, HeldFiles

UNBOUND = "@"
_CPU_SETS = (Knob.CPUSET_CPUS, Knob.CPUSET_MEMS)

Key = tuple[str, Knob]


class KubeletDriver(GroupTree):
    """`CgroupDriver` for a node whose pods kubelet runs."""

    why_sandbox = ""

    def __init__(self, hierarchies: Hierarchies, root: str, held: HeldFiles) -> None:
        """`root`: the directory below the mount that holds kubelet's root, "" for the mount. Raises FileNotFoundError where no
        hierarchy has the cpu controller, or the directory is missing."""
        super().__init__(check_group(root))
        version = hierarchies.version
        if version is None:
            raise FileNotFoundError(errno.ENOENT, "no mounted cgroup hierarchy has the cpu controller")
        self.version = version
        self._v2 = hierarchies.v2
        self._v1 = hierarchies.v1 if version is CgroupVersion.V1 else {}
        self.controllers = tuple(self._v1) if version is CgroupVersion.V1 else hierarchies.v2_controllers
        self.held = held
        self.bound: Bound = NOTHING_BOUND
        mounts = dict.fromkeys((self._v1["cpu"], *self._v1.values())) if self._v1 else [self._v2]
        self._roots = [mount / self.root_group for mount in mounts if mount is not None]
        self._paths: dict[str, dict[tuple[Path, str], Path]] = {}
        """Of the files in bound directories, by directory: joining paths costs more than reading most of the files."""
        if not self.top.is_dir():
            raise FileNotFoundError(errno.ENOENT, "no such control group", str(self.top))

    @property
    def top(self) -> Path:
        """The directory that holds kubelet's root, in the hierarchy that says which groups there are."""
        return self._roots[0]

    def roots(self) -> list[Path]:
        """See `GroupTree`."""
        return self._roots

    def take(self, bound: Bound) -> None:
        """Bind groups to these directories from now on."""
        self.bound = bound
        self._groups = set(bound.directories) - {""}
        for gone in self._paths.keys() - set(bound.directories.values()):
            del self._paths[gone]

    def directory(self, group: str) -> str | None:
        """A group's directory below kubelet's top; None where it is bound to none."""
        return group.removeprefix(UNBOUND) if group.startswith(UNBOUND) else self.bound.directories.get(group)

    def _in(self, mount: Path | None, group: str, file: str) -> Path | None:
        directory = self.directory(group)
        if mount is None or directory is None:
            return None
        if group.startswith(UNBOUND):
            return mount / self.root_group / directory / file
        known = self._paths.setdefault(directory, {})
        path = known.get((mount, file))
        if path is None:
            path = known[mount, file] = mount / self.root_group / directory / file
        return path

    def path(self, group: str, knob: Knob) -> Path | None:
        """See `CgroupDriver`."""
        entry = KNOB_FILES[knob]
        file = entry.file(self.version)
        mount = self._v1.get(entry.controller) if self._v1 else self._v2
        return None if file is None else self._in(mount, group, file)

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        """See `CgroupDriver`. On a hybrid machine pressure is read in the v2 tree, where systemd and runc make the same
        directories."""
        entry = STAT_FILES[stat]
        if not self._v1 or (stat in PRESSURE_STATS and self._v2 is not None):
            return self._in(self._v2, group, entry.v2_file)
        return self._in(self._v1.get(entry.v1_controller), group, entry.v1_file)

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        """See `CgroupDriver`."""
        entry = STAT_FILES[stat]
        mount = self._v1.get(entry.v1_controller) if self._v1 else self._v2
        return None if mount is None else mount / check_group(directory) / (entry.v1_file if self._v1 else entry.v2_file)

    def create(self, group: str) -> None:
        """No effect: kubelet and the runtime create groups."""
        del group

    def _make(self, group: str) -> None:
        """See `create`."""
        del group

    def remove(self, group: str) -> None:
        """No effect: kubelet and the runtime remove groups."""
        del group

    def kill(self, group: str) -> list[int]:
        """No effect: kubelet ends its pods."""
        del group
        return []

    def exists(self, group: str) -> bool:
        """See `CgroupDriver`."""
        directory = self.directory(group)
        return directory is not None and (self.top / directory).is_dir()

    def rescan(self) -> list[str]:
        """See `CgroupDriver`."""
        return self.groups()

    def procs_paths(self, group: str) -> list[Path]:
        """Empty: no process is started here."""
        del group
        return []

    def pids(self, group: str) -> list[int]:
        """See `CgroupDriver`."""
        directory = self.directory(group)
        return [] if directory is None else super().pids(directory)

    def threads(self, group: str) -> list[int]:
        """See `CgroupDriver`."""
        directory = self.directory(group)
        return [] if directory is None else super().threads(directory)

    def write(self, group: str, knob: Knob, value: str) -> None:
        """Record the file's value, then write. Raises as `CgroupDriver`, and OSError if it cannot be recorded."""
        check_value(knob, value)
        directory, present = self.directory(group), self._stated(group, knob)
        inode = self._inode(directory) if directory is not None else None
        if directory is None or inode is None or present is None:
            raise FileNotFoundError(errno.ENOENT, f"kubelet has no {knob.value} for {group or '/'}")
        known = self.held.of(directory, knob)
        own = known is not None and self._left_by(knob, known, present)
        self.held.note(directory, inode, knob, self._restorable(knob, present), value, own=own)
        super().write(group, knob, value)

    def _stated(self, group: str, knob: Knob) -> str | None:
        """A file's value: for a CPU set on v2 the configured one, "" if inherited, not the effective one."""
        if self._v1 or knob not in _CPU_SETS:
            return self.read(group, knob)
        path = self.path(group, knob)
        content = read_file(path) if path is not None else None
        return None if content is None else content.strip()

    def _restorable(self, knob: Knob, present: str) -> str:
        """A value that makes the file what it is now."""
        if self._v1 or knob is not Knob.CPU_SHARES:
            return present
        try:
            return str(exact_shares(int(present)))
        except ValueError:
            return present

    def _inode(self, directory: str) -> int | None:
        try:
            return os.stat(self.top / directory).st_ino
        except OSError:
            return None

    def _holds(self, knob: Knob, value: str, present: str) -> bool:
        try:
            return holds(self.version, knob, value, present)
        except ValueError:
            return False

    def _left_by(self, knob: Knob, held: Held, present: str) -> bool:
        """Whether a file holds what the executor wrote, or could not replace; else another process has written it."""
        return self._holds(knob, held.written, present) or self._holds(knob, held.previous, present)

    def due(self, desired: Collection[Key]) -> dict[Key, str]:
        """Values to restore, given the desired targets. Those that are restored already, or were written by another
        process since, or whose file is gone, are dropped. CPU sets that were inherited before are inherited again at once:
        no other value depends on them."""
        if not len(self.held):
            return {}
        groups = {directory: group for group, directory in self.bound.directories.items()}
        wanted = {(self.directory(group), knob) for group, knob in desired}
        found: dict[Key, str] = {}
        for (directory, knob), held in self.held.items():
            if (directory, knob) in wanted:
                continue
            group = groups.get(directory, f"{UNBOUND}{directory}")
            try:
                present = self._stated(group, knob) if self._inode(directory) == held.inode else None
            except (OSError, ValueError):
                continue
            text = _with_unset_devices(knob, held)
            if present is None or self._holds(knob, text, present) or not self._left_by(knob, held, present):
                self.held.forget(directory, knob)
            elif knob in _CPU_SETS and not text:
                self._inherit(group, knob)
            else:
                found[group, knob] = text
        return found

    def _inherit(self, group: str, knob: Knob) -> None:
        """Empty a CPU set; a refusal is tried again."""
        path = self.path(group, knob)
        with suppress(OSError):
            if path is not None:
                write_file(path, "\n")

    def refresh(self) -> None:
        """See `CgroupDriver`."""

    def close(self) -> bool:
        """The tree is kubelet's: nothing is removed."""
        return True


def _with_unset_devices(knob: Knob, held: Held) -> str:
    """The initial text of a file; where it has a line a device, also lines that unset the devices which were added."""
    if knob not in BY_DEVICE or ":" not in held.written:
        return held.initial
    initial = [line for line in held.initial.split("\n") if line]
    there = {line.split()[0] for line in initial}
    added = (device for device in devices_of(held.written) if device not in there)
    return "\n".join((*initial, *(f"{device} {UNSET_VALUES[knob]}" for device in added)))
