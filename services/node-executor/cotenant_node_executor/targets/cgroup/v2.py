"""cgroup v2: one tree. Controllers are enabled from the top, and only leaf groups hold processes.

A group's files exist once its parent lists the controller in cgroup.subtree_control. Before a group is created, controllers
are therefore enabled from the base down to its parent, each by its own write, so that a refusal (EBUSY, EINVAL) affects one
controller only. The base's subtree_control is the only file written above the executor's root: controllers are added, never
removed, and the file is restored at the end.

A delegated group (systemd's Delegate=, a container's own) holds the unit's processes itself; they are moved to a leaf first,
as controllers cannot be enabled in a group with processes.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import KNOB_FILES, STAT_FILES
from cotenant_node_executor.targets.cgroup.hierarchy import V2_CONTROLLERS
from cotenant_node_executor.targets.cgroup.tree import GroupTree, check_group, parents, read_file, write_file
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, Stat
from cotenant_node_executor.targets.parse import parse_pids

AGENT_LEAF = "cotenant-agent"
MOVE_ROUNDS = 20  # a process that forks while it is moved leaves a child for the next round


class V2Driver(GroupTree):
    version = CgroupVersion.V2
    why_sandbox = ""

    def __init__(self, mount: Path, base: str, own: str, *, delegated: bool) -> None:
        """``delegated``: the base's processes are this unit's own and may be moved. Raises OSError if the kernel refuses."""
        super().__init__(f"{base}/{own}".lstrip("/"))
        self._mount = mount
        self._root = mount / self.root_group
        self._enabled: dict[Path, tuple[str, ...]] = {}  # by directory above the executor's root: restored at the end
        self._created: list[Path] = []
        if delegated:
            move_to_leaf(mount / base)
        self._make_own_root(base)
        self.controllers = tuple(_words(self._root / "cgroup.controllers"))
        self._adopt()

    def _make_own_root(self, base: str) -> None:
        above = self._mount
        for group in parents(self.root_group):
            directory = self._mount / group
            # The tree above an existing base is not the executor's: controllers that it does not offer stay unavailable.
            if len(group) > len(base) or not directory.is_dir():
                added = self._enable(above)
                if added:
                    self._enabled[above] = added
            if not directory.is_dir():
                directory.mkdir()
                if len(group) <= len(base):
                    self._created.append(directory)
            above = directory

    def _enable(self, directory: Path) -> tuple[str, ...]:
        offered, present = _words(directory / "cgroup.controllers"), _words(directory / "cgroup.subtree_control")
        added: list[str] = []
        for controller in V2_CONTROLLERS:
            if controller in offered and controller not in present:
                try:
                    write_file(directory / "cgroup.subtree_control", f"+{controller}")
                    added.append(controller)
                except OSError as error:
                    self.refused_controllers[controller] = f"{directory}/cgroup.subtree_control: {error.strerror}"
        return tuple(added)

    def roots(self) -> list[Path]:
        return [self._root]

    def path(self, group: str, knob: Knob) -> Path | None:
        entry = KNOB_FILES[knob]
        return None if entry.v2_file is None else self._root / group / entry.v2_file

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        return self._root / group / STAT_FILES[stat].v2_file

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        return self._mount / check_group(directory) / STAT_FILES[stat].v2_file

    def _make(self, group: str) -> None:
        directory = self._root / group
        self._enable(directory.parent)
        directory.mkdir(exist_ok=True)

    def kill(self, group: str) -> list[int]:
        found = self._pids_in(self._root / check_group(group))
        try:
            write_file(self._root / group / "cgroup.kill", "1")
        except FileNotFoundError:  # before 5.14, or the group is gone
            return super().kill(group)
        return sorted(found)

    def close(self) -> bool:
        if not self._remove_root():
            return False
        with suppress(OSError):  # in use by another node's tree
            self._root.parent.rmdir()
        for directory in reversed(self._created):
            with suppress(OSError):  # in use by another process by now
                directory.rmdir()
        for directory, controllers in reversed(self._enabled.items()):
            for controller in controllers:
                with suppress(OSError):  # removed with its directory, or used by another child
                    write_file(directory / "cgroup.subtree_control", f"-{controller}")
        return True


def _words(path: Path) -> list[str]:
    return (read_file(path) or "").split()


def move_to_leaf(base: Path) -> None:
    """Move the unit's processes into a leaf; kernel threads and processes that exited meanwhile are skipped."""
    leaf = base / AGENT_LEAF
    for _ in range(MOVE_ROUNDS):
        pids = parse_pids(read_file(base / "cgroup.procs") or "")
        if not pids:
            return
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            with suppress(ProcessLookupError):
                write_file(leaf / "cgroup.procs", str(pid))
