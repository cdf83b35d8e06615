"""A directory tree that imitates cgroups where they are not writable: same files, same refusals, no enforcement.

Groups, values and the order of writes are as on a kernel, so the layers above work unchanged; reports carry "sandbox". Usage
is real: it is read from /proc for the processes that entered a group.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.files import KNOB_FILES, PRESSURE_STATS, STAT_FILES
from cotenant_node_executor.targets.cgroup.sandbox.rules import KernelRefusal, check_write, defaults, effective_cpus, merge_text
from cotenant_node_executor.targets.cgroup.sandbox.usage import ProcessRow, members, memory_of, read_processes
from cotenant_node_executor.targets.cgroup.tree import GroupTree, directories_below, parents, read_file
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, Knob, Stat
from cotenant_node_executor.targets.parse import parse_pids

V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")


class SandboxDriver(GroupTree):
    sandbox = True

    def __init__(
        self,
        directory: Path,
        node: str,
        *,
        version: CgroupVersion = CgroupVersion.V2,
        why_sandbox: str = "",
        cpus: tuple[int, ...] | None = None,
        proc: Path = Path("/proc"),
    ) -> None:
        """``cpus``: the CPUs of the imitated machine; by default this process's own."""
        super().__init__(f"cotenant/{node}")
        self.version = version
        self.why_sandbox = why_sandbox
        self.controllers = V1_CONTROLLERS if version is CgroupVersion.V1 else V2_CONTROLLERS
        self._cpus = tuple(sorted(os.sched_getaffinity(0))) if cpus is None else cpus
        self._proc = proc
        self._root = directory / self.root_group
        self._cpu_ns: dict[str, int] = {}
        self._last_sum: dict[str, int] = {}
        self._root.mkdir(parents=True, exist_ok=True)
        self._fill(self._root)
        self._adopt()

    def roots(self) -> list[Path]:
        return [self._root]

    def path(self, group: str, knob: Knob) -> Path | None:
        file = KNOB_FILES[knob].file(self.version)
        return None if file is None else self._root / group / file

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        if stat in PRESSURE_STATS:
            return None  # an imitated group has no pressure figures
        entry = STAT_FILES[stat]
        return self._root / group / (entry.v1_file if self.version is CgroupVersion.V1 else entry.v2_file)

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:  # noqa: ARG002 - the protocol's shape
        return None  # an imitated machine has no applications of its own

    def _make(self, group: str) -> None:
        directory = self._root / group
        if not directory.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory.parent))
        directory.mkdir(exist_ok=True)
        self._fill(directory)

    def _fill(self, directory: Path) -> None:
        for name, text in defaults(self.version).items():
            if not (directory / name).exists():
                (directory / name).write_text(text)
        if self.version is CgroupVersion.V1 and not (directory / "cpuset.cpus").read_text():
            inherited = read_file(directory.parent / "cpuset.cpus") if directory != self._root else None
            (directory / "cpuset.cpus").write_text(inherited or format_cpu_list(self._cpus))
        self._write_effective(directory)

    def _write_effective(self, directory: Path) -> None:
        if self.version is CgroupVersion.V1:
            return
        above = self._cpus
        for part in (self._root, *(self._root / each for each in parents(self._relative(directory)))):
            above = effective_cpus((part / "cpuset.cpus").read_text(), above)
        (directory / "cpuset.cpus.effective").write_text(format_cpu_list(above))
        (directory / "cpuset.mems.effective").write_text("0")

    def _relative(self, directory: Path) -> str:
        relative = os.path.relpath(directory, self._root)
        return "" if relative == "." else relative

    def _write_text(self, path: Path, text: str) -> None:
        directory, file = path.parent, path.name
        if file not in defaults(self.version) or not directory.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        present = self._files(directory)
        after = {**present, file: merge_text(present, file, text)}
        children = [self._files(child) for child in directory.iterdir() if child.is_dir()]
        try:
            parent = None if directory == self._root else self._files(directory.parent)
            check_write(self.version, file, after, parent, children, self._cpus)
        except KernelRefusal as refusal:
            raise OSError(refusal.errno, f"{os.strerror(refusal.errno)} ({refusal})", str(path)) from refusal
        path.write_text(after[file])
        if file == "cpuset.cpus":
            for each in (directory, *(directory / name for name in directories_below(directory))):
                self._write_effective(each)
        if file == "cpu.idle" and present["cpu.idle"] != after["cpu.idle"] and self.version is CgroupVersion.V2:
            (directory / "cpu.weight").write_text("0" if after["cpu.idle"] == "1" else "100")

    def _files(self, directory: Path) -> dict[str, str]:
        return {name: (directory / name).read_text() for name in defaults(self.version)}

    def _pids_in(self, top: Path) -> set[int]:
        return self._members(top, read_processes(self._proc))

    def _members(self, top: Path, rows: dict[int, ProcessRow]) -> set[int]:
        found: set[int] = set()
        for directory in (top, *(top / name for name in directories_below(top))):
            file = directory / "cgroup.procs"
            try:
                roots, written = parse_pids(file.read_text()), file.stat().st_mtime
            except FileNotFoundError:
                continue
            if roots:
                found |= members(rows, roots, written)
        return found

    def _rmdir(self, directory: Path) -> None:
        if not directory.is_dir():
            return
        if self._pids_in(directory) or any(child.is_dir() for child in directory.iterdir()):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(directory))
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    def refresh(self) -> None:
        """Update every group's counters; a group's figures include its descendants."""
        rows = read_processes(self._proc)
        groups = ["", *self.groups()]
        for group in groups:
            pids = self._members(self._root / group, rows)
            total = sum(rows[pid].cpu_ns for pid in pids)
            grown = max(0, total - self._last_sum.get(group, 0))
            self._last_sum[group] = total
            self._cpu_ns[group] = self._cpu_ns.get(group, 0) + grown
            self._write_counters(self._root / group, group, pids)
        for gone in self._cpu_ns.keys() - set(groups):
            del self._cpu_ns[gone], self._last_sum[gone]

    def _write_counters(self, directory: Path, group: str, pids: set[int]) -> None:
        memory = memory_of(self._proc, pids)
        used, total = self._cpu_ns[group], memory.anonymous + memory.file
        with suppress(FileNotFoundError):  # the group was removed meanwhile
            if self.version is CgroupVersion.V1:
                (directory / "cpuacct.usage").write_text(str(used))
                (directory / "memory.usage_in_bytes").write_text(str(total))
                prefix, cache, rss = "total_", "cache", "rss"
            else:
                unthrottled = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0"
                (directory / "cpu.stat").write_text(f"usage_usec {used // 1000}\n{unthrottled}")
                (directory / "memory.current").write_text(str(total))
                prefix, cache, rss = "", "file", "anon"
            (directory / "memory.stat").write_text(
                f"{prefix}{cache} {memory.file}\n{prefix}{rss} {memory.anonymous}\n"
                f"{prefix}inactive_file 0\n{prefix}active_file {memory.file}\n"
                f"{prefix}inactive_anon 0\n{prefix}active_anon {memory.anonymous}\n{prefix}unevictable 0"
            )

    def close(self) -> bool:
        if not self._remove_root():
            return False
        with suppress(OSError):  # in use by another node's tree
            self._root.parent.rmdir()
        return True
