"""The files of a simulated machine's groups: a table, with the refusals of the kernel's hierarchy.

In: the values that the files shall have. Out: what was written, and what was refused and why. On cgroup v1 the kernel refuses a
child that is wider than its parent, and a parent that is narrower than a child, in quota and CPU set; so the order of writes
matters, and it is the one of a real machine (`kernel.levels`). On v2 a child may say more than its parent. The rules
are those of the sandbox (`kernel.sandbox_rules`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from cotenant_node_executor.kernel.cpulist import format_cpu_list
from cotenant_node_executor.kernel.interface import (
    ROOT_GROUP,
    UNLIMITED,
    CgroupVersion,
    Knob,
    Refused,
    WriteReport,
    Written,
)
from cotenant_node_executor.kernel.levels import Change, plan
from cotenant_node_executor.kernel.sandbox_rules import V1_DEFAULTS, Refusal, check_write

Key = tuple[str, Knob]

SIMULATED_KNOBS = (
    Knob.CPU_SHARES,
    Knob.CPU_QUOTA,
    Knob.CPUSET_CPUS,
    Knob.CPU_IDLE,
    Knob.MEMORY_LIMIT,
)
_START = {Knob.CPU_QUOTA: UNLIMITED, Knob.MEMORY_LIMIT: UNLIMITED, Knob.CPU_IDLE: "0", Knob.CPU_SHARES: "1024"}
_START_OF = {knob: _START.get(knob, "") for knob in Knob}


class SimulatedFiles:
    """What every file says. Files of groups that have gone are forgotten by `keep`."""

    def __init__(self, version: CgroupVersion, cpus: tuple[int, ...]) -> None:
        self._version = version
        self._cpus = cpus
        self._all_cpus = format_cpu_list(cpus) if version is CgroupVersion.V1 else ""
        """The CPU set of the root, and on v1 of every new group: a copy of its parent's."""
        self._texts: dict[Key, str] = {}

    def read(self, group: str, knob: Knob) -> str:
        """What a file says; a new group's are unlimited."""
        text = self._texts.get((group, knob))
        if text is not None:
            return text
        if knob is not Knob.CPUSET_CPUS or self._version is CgroupVersion.V2:
            return _START_OF[knob]
        return self.read(_parent(group), knob) if group else self._all_cpus

    def differing(self, values: Mapping[Key, str]) -> list[Key]:
        """The files that say something else, by group and name."""
        texts = self._texts
        differ = [key for key, value in values.items() if texts.get(key, _START_OF[key[1]]) != value]
        found = (key for key in differ if key[1] in SIMULATED_KNOBS and self.read(*key) != values[key])
        return sorted(found, key=lambda key: (key[0], key[1].value))

    def write(self, keys: Iterable[Key], values: Mapping[Key, str], groups: Iterable[str]) -> WriteReport:
        """Write these files; `groups` are all there are."""
        if self._version is CgroupVersion.V2:
            return WriteReport(written=tuple(self._put(key, values[key]) for key in keys))
        changes = [Change(*key, self.read(*key), values[key]) for key in keys]
        return self._in_steps(changes, _Hierarchy(groups))

    def keep(self, groups: set[str]) -> None:
        """Forget files of other groups."""
        for key in [key for key in self._texts if key[0] and key[0] not in groups]:
            del self._texts[key]

    def inherit(self, group: str) -> None:
        """On v1 a new group's CPU set is a copy of its parent's (cgroup.clone_children)."""
        if self._version is CgroupVersion.V1:
            self._texts.setdefault((group, Knob.CPUSET_CPUS), self.read(_parent(group), Knob.CPUSET_CPUS))

    def _put(self, key: Key, value: str) -> Written:
        old = self.read(*key)
        self._texts[key] = value
        return Written(*key, key[1].value, old, value)

    def _in_steps(self, changes: list[Change], hierarchy: _Hierarchy) -> WriteReport:
        """Take the steps of a real machine's writer; a file that was refused is left as it is by then."""
        refused: dict[Key, Refused] = {}
        for step in plan(changes):
            key = (step.group, step.knob)
            if key in refused:
                continue
            try:
                self._check(key, step.value, hierarchy)
            except Refusal as refusal:
                refused[key] = Refused(*key, step.knob.value, step.value, refusal.errno, str(refusal))
            else:
                self._texts[key] = step.value
        written = (
            Written(change.group, change.knob, change.knob.value, change.old or "", present)
            for change in changes
            if (present := self.read(change.group, change.knob)) != change.old
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
    """Which groups are right below which."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._below: dict[str, list[str]] = defaultdict(list)
        for group in groups:
            if group:
                self._below[_parent(group)].append(group)

    def below(self, group: str) -> Iterator[str]:
        return iter(self._below.get(group, ()))


def _parent(group: str) -> str:
    return group.rpartition("/")[0] if "/" in group else ROOT_GROUP
