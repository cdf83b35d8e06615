"""The files of a simulated machine's groups: a table, with the refusals of the kernel's hierarchy.

In: the desired values. Out: what was written, and what was refused and why. On cgroup v1 the kernel refuses a
child that is wider than its parent, and a parent that is narrower than a child, in quota and CPU set; so the order of writes
matters, and it is the one of a real machine (`targets.cgroup.levels`). On v2 a child may have more than its parent. The rules
are those of the sandbox (`targets.cgroup.sandbox.rules`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping

from cotenant_node_executor.targets.cgroup.levels import FileChange, plan
from cotenant_node_executor.targets.cgroup.sandbox.rules import V1_DEFAULTS, KernelRefusal, check_write
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import (
    ROOT_GROUP,
    UNLIMITED_TEXT,
    CgroupVersion,
    Knob,
    RefusedValue,
    WriteReport,
    WrittenValue,
)

Key = tuple[str, Knob]

SIMULATED_KNOBS = (
    Knob.CPU_SHARES,
    Knob.CPU_QUOTA,
    Knob.CPU_BURST,
    Knob.CPUSET_CPUS,
    Knob.CPU_IDLE,
    Knob.MEMORY_LIMIT,
)
_UNCHANGED = WriteReport()
_START = {
    Knob.CPU_QUOTA: UNLIMITED_TEXT,
    Knob.CPU_BURST: "0",
    Knob.MEMORY_LIMIT: UNLIMITED_TEXT,
    Knob.CPU_IDLE: "0",
    Knob.CPU_SHARES: "1024",
}
_FILE_OF = {knob: knob.value for knob in SIMULATED_KNOBS}


class SimulatedFiles:
    """The value of every file. `keep` drops the files of removed groups."""

    def __init__(self, version: CgroupVersion, cpus: tuple[int, ...]) -> None:
        self._version = version
        self._inherits = version is CgroupVersion.V1
        """Whether a group inherits its parent's CPU set until it has its own, and the hierarchy is checked."""
        self._cpus = cpus
        self._all_cpus = format_cpu_list(cpus)
        """The CPU set of the root; of every group without one of its own it is its parent's."""
        self._texts: dict[str, dict[Knob, str]] = {}
        """File values by group; groups without an entry have the initial values."""

    def read(self, group: str, knob: Knob) -> str:
        """Return a file's value; unlimited for a new group."""
        text = self.of(group).get(knob)
        if text is not None:
            return text
        if knob is Knob.CPUSET_CPUS:
            return self.read(_parent(group), knob) if group else self._all_cpus
        return ""

    def of(self, group: str) -> Mapping[Knob, str]:
        """A group's values for CPU time and memory, and its CPU set where it has its own."""
        return self._texts.get(group, _START)

    def texts(self, *keys: Key) -> dict[Key, str]:
        """The values of some files."""
        return {key: self.read(*key) for key in keys}

    def write(self, values: Mapping[str, Mapping[Knob, str]], groups: Iterable[str]) -> WriteReport:
        """Write these values, by group and in the order they are listed; `groups` are all that exist."""
        changes: list[WrittenValue] = []
        inherits = self._inherits
        for group in sorted(values):
            there = self._own(group)
            for knob, text in values[group].items():
                present = there.get(knob)
                if present == text or (file := _FILE_OF.get(knob)) is None:
                    continue
                if present is None:
                    present = self.read(group, knob)
                    if present == text:
                        continue
                changes.append(WrittenValue(group, knob, file, present, text))
                if not inherits:
                    there[knob] = text
        if not changes:
            return _UNCHANGED
        return self._in_steps(changes, _Hierarchy(groups)) if inherits else WriteReport(tuple(changes))

    def _own(self, group: str) -> dict[Knob, str]:
        """A group's file values, for modification."""
        texts = self._texts.get(group)
        if texts is None:
            texts = self._texts[group] = _START.copy()
        return texts

    def keep(self, groups: Container[str]) -> None:
        """Drop the files of all other groups."""
        for group in [group for group in self._texts if group and group not in groups]:
            del self._texts[group]

    def begin(self, group: str) -> None:
        """A new group has new files; on v1 its CPU set is a copy of its parent's (cgroup.clone_children)."""
        texts = self._texts[group] = _START.copy()
        if self._inherits:
            texts[Knob.CPUSET_CPUS] = self.read(_parent(group), Knob.CPUSET_CPUS)

    def _in_steps(self, changes: list[WrittenValue], hierarchy: _Hierarchy) -> WriteReport:
        """Write in the order of a real machine's writer; a refused file keeps its value at that point."""
        refused: dict[Key, RefusedValue] = {}
        # These places are groups, and their attributes knobs: `write` has made them.
        for step in plan([FileChange(each.place, each.attribute, each.old, each.new) for each in changes]):  # type: ignore[arg-type]
            key = (step.group, step.knob)
            if key in refused:
                continue
            try:
                self._check(key, step.value, hierarchy)
            except KernelRefusal as refusal:
                refused[key] = RefusedValue(*key, step.knob.value, step.value, refusal.errno, str(refusal))
            else:
                self._own(step.group)[step.knob] = step.value
        written = (
            WrittenValue(change.place, change.attribute, change.file, change.old, present)
            for change in changes
            if (present := self.read(change.place, change.attribute)) != change.old  # type: ignore[arg-type]
        )
        return WriteReport(written=tuple(written), refused=tuple(refused.values()))

    def _check(self, key: Key, value: str, hierarchy: _Hierarchy) -> None:
        group, knob = key
        present = {**self._files(group), knob.value: value}
        parent = self._files(_parent(group)) if group else None
        children = (self._files(child) for child in hierarchy.below(group))
        check_write(self._version, knob.value, present, parent, children, self._cpus)

    def _files(self, group: str) -> dict[str, str]:
        return {**V1_DEFAULTS, **{knob.value: self.read(group, knob) for knob in SIMULATED_KNOBS}}


class _Hierarchy:
    """The direct children of each group."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._below: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            if group:
                self._below[_parent(group)].append(group)

    def below(self, group: str) -> Iterator[str]:
        return iter(self._below.get(group, ()))


def _parent(group: str) -> str:
    return group.rpartition("/")[0] if "/" in group else ROOT_GROUP
