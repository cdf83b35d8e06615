"""An executor that is killed before or after any single write outside of control groups: the next one, of which nobody asks for
the values, leaves every file as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cotenant_node_executor.targets.address import (
    Attribute,
    NonCgroup,
    ResctrlAttribute,
    ResctrlGroup,
    Sysctl,
    SysctlAttribute,
    SysFile,
    SysFileAttribute,
)
from cotenant_node_executor.targets.other.accessors import Accessor, SysctlAccessor, SysFileAccessor
from cotenant_node_executor.targets.other.held import HeldValues
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.unit.node_executor.imitated_resctrl import ImitatedResctrl

Wanted = Mapping[NonCgroup, Mapping[Attribute, str]]
POD = "besteffort/poda"
THREADS = (11, 12, 13)


class Killed(BaseException):
    """The end of the executor, which no handler of errors survives."""


def dying(accessor: Any, method: str, writes: int, *, done: bool) -> None:
    """Have the accessor's method end the executor at this write: before it, or once it is done."""
    write, left = getattr(accessor, method), count(1)

    def at_last(*args: Any) -> None:
        last = next(left) == writes
        if last and not done:
            raise Killed
        write(*args)
        if last:
            raise Killed

    setattr(accessor, method, at_last)


def resctrl(folder: Path) -> tuple[dict[type, Accessor], Wanted, str]:
    """Two groups with masks and one with threads, which are moved one by one."""
    kernel = ImitatedResctrl(folder / "resctrl", lambda group: THREADS if group == POD else ())
    kernel.alive = set(THREADS)
    (folder / "resctrl/tasks").write_text("".join(f"{thread}\n" for thread in THREADS))
    wanted: Wanted = {
        ResctrlGroup("LS"): {ResctrlAttribute.SCHEMATA: "L3:0=7ff;1=7ff;\nMB:0=100;1=100;\n"},
        ResctrlGroup("BE"): {ResctrlAttribute.SCHEMATA: "L3:0=f;1=f;\nMB:0=50;1=50;\n", ResctrlAttribute.CONTROL_GROUPS: POD},
    }
    return {ResctrlGroup: kernel}, wanted, "_write"


def settings_of_the_kernel(folder: Path) -> tuple[dict[type, Accessor], Wanted, str]:
    """Two files below /proc/sys and one below /sys."""
    for name in ("proc/vm/min_free_kbytes", "proc/kernel/sched_core", "sys/reap_background"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    wanted: Wanted = {
        Sysctl("vm/min_free_kbytes"): {SysctlAttribute.VALUE: "9"},
        Sysctl("kernel/sched_core"): {SysctlAttribute.VALUE: "0"},
        SysFile("reap_background"): {SysFileAttribute.VALUE: "0"},
    }
    return {Sysctl: SysctlAccessor(folder / "proc"), SysFile: SysFileAccessor(folder / "sys")}, wanted, "write"


Made = Callable[[Path], tuple[dict[type, Accessor], Wanted, str]]


def texts(folder: Path) -> dict[str, list[str]]:
    """Every file's words, in any order."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "held.json"]
    return {str(path.relative_to(folder)): sorted(path.read_text().split()) for path in files}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("made", [resctrl, settings_of_the_kernel])
def test_wherever_it_is_killed_the_next_one_leaves_nothing(tmp_path: Path, made: Made, done: bool) -> None:
    kills = 0
    for writes in count(1):
        folder = tmp_path / str(writes)
        folder.mkdir()
        accessors, wanted, method = made(folder)
        before = texts(folder)
        methods = {accessor: getattr(accessor, method) for accessor in accessors.values()}
        for accessor in accessors.values():
            dying(accessor, method, writes, done=done)
        killed = False
        try:
            OtherWriter(accessors, HeldValues(folder / "held.json")).apply(wanted)
        except Killed:
            killed = True
        for accessor, whole in methods.items():
            setattr(accessor, method, whole)
        restarted = OtherWriter(accessors, HeldValues(folder / "held.json"))
        assert restarted.apply({}).refused == ()
        assert texts(folder) == before, f"killed at write {writes}"
        assert not restarted.holding
        if not killed:
            break
        kills += 1
    assert kills >= 2
