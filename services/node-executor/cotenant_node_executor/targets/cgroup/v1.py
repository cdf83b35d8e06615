"""cgroup v1: one directory tree per controller, and the v2 tree without controllers on a hybrid machine.

A group is a directory in every tree; a process belongs to it once it is in all of them. A new cpuset directory has no CPUs
and no memory nodes and refuses processes (ENOSPC), so both are copied from the parent. The v2 tree of a hybrid machine
enforces nothing, but offers what v1 lacks: pressure per group and cgroup.kill.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import KNOB_FILES, PRESSURE_STATS, STAT_FILES
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies
from cotenant_node_executor.targets.cgroup.tree import GroupTree, check_group, parents, read_file, write_file
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, Stat

_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")


class V1Driver(GroupTree):
    version = CgroupVersion.V1
    why_sandbox = ""

    def __init__(self, hierarchies: Hierarchies, base: str, own: str) -> None:
        """``own`` (e.g. "cotenant/node-1") is created below ``base`` in every tree. Raises OSError if the kernel refuses."""
        super().__init__(f"{base}/{own}".lstrip("/"))
        mounts = self._mounts = hierarchies.v1
        self.controllers = tuple(mounts)
        self._roots = {controller: mount / self.root_group for controller, mount in mounts.items()}
        # Controllers mounted together share one tree.
        self._trees = list(dict.fromkeys((mounts["cpu"], *mounts.values())))
        self._created: list[Path] = []
        for tree in self._trees:
            self._make_own_root(tree, base)
        self._bare_v2 = self._open_bare_v2(hierarchies.v2, base)
        self._adopt()

    def _open_bare_v2(self, mount: Path | None, base: str) -> Path | None:
        """None where the tree does not exist or is not writable; only pressure and cgroup.kill need it."""
        if mount is None:
            return None
        try:
            self._make_own_root(mount, base)
        except OSError:
            return None
        self._trees.append(mount)
        return mount / self.root_group

    def _make_own_root(self, tree: Path, base: str) -> None:
        for group in parents(self.root_group):
            directory = tree / group
            if not directory.is_dir():
                directory.mkdir()
                if len(group) <= len(base):
                    self._created.append(directory)
            _inherit_cpuset(directory)

    def roots(self) -> list[Path]:
        return [tree / self.root_group for tree in self._trees]

    def path(self, group: str, knob: Knob) -> Path | None:
        entry = KNOB_FILES[knob]
        root = self._roots.get(entry.controller)
        return None if root is None or entry.v1_file is None else root / group / entry.v1_file

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        entry = STAT_FILES[stat]
        if stat in PRESSURE_STATS and self._bare_v2 is not None:
            return self._bare_v2 / group / entry.v2_file
        root = self._roots.get(entry.v1_controller)
        return None if root is None else root / group / entry.v1_file

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        entry = STAT_FILES[stat]
        mount = self._mounts.get(entry.v1_controller)
        return None if mount is None else mount / check_group(directory) / entry.v1_file

    def _make(self, group: str) -> None:
        for root in self.roots():
            directory = root / group
            directory.mkdir(exist_ok=True)
            _inherit_cpuset(directory)

    def kill(self, group: str) -> list[int]:
        if self._bare_v2 is None:
            return super().kill(group)
        atomically = self._pids_in(self._bare_v2 / group)
        if atomically:
            with suppress(FileNotFoundError):
                write_file(self._bare_v2 / group / "cgroup.kill", "1")
        return sorted(atomically.union(super().kill(group)))

    def close(self) -> bool:
        if not self._remove_root():
            return False
        for tree in self._trees:
            with suppress(OSError):  # in use by another node's tree
                (tree / self.root_group).parent.rmdir()
        for directory in reversed(self._created):
            with suppress(OSError):  # in use by another process by now
                directory.rmdir()
        return True


def _inherit_cpuset(directory: Path) -> None:
    for name in _CPUSET_FILES:
        present = read_file(directory / name)
        if present is not None and not present.strip():
            write_file(directory / name, (read_file(directory.parent / name) or "").strip())
