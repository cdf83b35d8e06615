"""cgroup v2: one tree. Controllers are switched on from the top, and processes live in leaves only.

A group's files exist once the group above lists the controller in cgroup.subtree_control, so the way from the base down to
a new group's parent is switched on before the group is made, each controller by itself: one that is refused (EBUSY,
EINVAL) does not take the others along. The base's subtree_control is the one file above the own root that is
written: added to, never taken from, and put back at the end.

In a group that its manager handed over (systemd's Delegate=, a container's own) the processes of the unit sit where the
tree is created; they are moved aside into a leaf first, or no controller could be switched on.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.files import KNOB_FILES, STAT_FILES
from cotenant_node_executor.targets.hierarchy import V2_CONTROLLERS
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, Stat
from cotenant_node_executor.targets.parse import parse_pids
from cotenant_node_executor.targets.tree import GroupTree, check_group, parents, read_file, write_file

AGENT_LEAF = "cotenant-agent"
MOVE_ROUNDS = 20  # a process that forks while it is moved leaves a child behind for the next round


class V2Driver(GroupTree):
    version = CgroupVersion.V2
    why_sandbox = ""

    def __init__(self, mount: Path, base: str, own: str, *, delegated: bool) -> None:
        """``delegated``: the base's processes are this unit's own and may be moved aside. OSError as the kernel refuses."""
        super().__init__(f"{base}/{own}".lstrip("/"))
        self._mount = mount
        self._root = mount / self.root_group
        self._switched_on: dict[Path, tuple[str, ...]] = {}  # above the own root: to be put back
        self._created: list[Path] = []
        if delegated:
            move_aside(mount / base)
        self._make_own_root(base)
        self.controllers = tuple(_words(self._root / "cgroup.controllers"))
        self._adopt()

    def _make_own_root(self, base: str) -> None:
        above = self._mount
        for group in parents(self.root_group):
            directory = self._mount / group
            # Above a base that was there before, the tree is not ours: what it does not offer is not to be had.
            if len(group) > len(base) or not directory.is_dir():
                added = self._switch_on(above)
                if added:
                    self._switched_on[above] = added
            if not directory.is_dir():
                directory.mkdir()
                if len(group) <= len(base):
                    self._created.append(directory)
            above = directory

    def _switch_on(self, directory: Path) -> tuple[str, ...]:
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
        self._switch_on(directory.parent)
        directory.mkdir(exist_ok=True)

    def kill(self, group: str) -> list[int]:
        found = self._pids_in(self._root / check_group(group))
        try:
            write_file(self._root / group / "cgroup.kill", "1")
        except FileNotFoundError:  # before 5.14, or the group has gone
            return super().kill(group)
        return sorted(found)

    def close(self) -> bool:
        if not self._remove_root():
            return False
        with suppress(OSError):  # another node's tree beside ours
            self._root.parent.rmdir()
        for directory in reversed(self._created):
            with suppress(OSError):  # in use by someone else by now
                directory.rmdir()
        for directory, controllers in reversed(self._switched_on.items()):
            for controller in controllers:
                with suppress(OSError):  # gone with its directory, or another child uses it by now
                    write_file(directory / "cgroup.subtree_control", f"-{controller}")
        return True


def _words(path: Path) -> list[str]:
    return (read_file(path) or "").split()


def move_aside(base: Path) -> None:
    """The unit's processes into a leaf; a kernel thread or one that went meanwhile stays out of it."""
    leaf = base / AGENT_LEAF
    for _ in range(MOVE_ROUNDS):
        pids = parse_pids(read_file(base / "cgroup.procs") or "")
        if not pids:
            return
        leaf.mkdir(exist_ok=True)
        for pid in pids:
            with suppress(ProcessLookupError):
                write_file(leaf / "cgroup.procs", str(pid))
