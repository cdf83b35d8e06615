"""Sysctls and resctrl groups against an imitated tree, threads against a real process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cotenant_node_executor.targets.address import (
    Attribute,
    NonCgroup,
    ResctrlAttribute,
    ResctrlGroup,
    Sysctl,
    SysctlAttribute,
    Thread,
    ThreadAttribute,
)
from cotenant_node_executor.targets.interface import InvalidValueError
from cotenant_node_executor.targets.other.accessors import Accessor, ResctrlAccessor, SysctlAccessor, ThreadAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter

Values = dict[NonCgroup, Mapping[Attribute, str]]

SYSCTL = Sysctl("kernel/numa_balancing")
GROUP = ResctrlGroup("batch")
SCHEMATA, TASKS = ResctrlAttribute.SCHEMATA, ResctrlAttribute.TASKS


@pytest.fixture
def sysctls(tmp_path: Path) -> Path:
    """A folder like /proc/sys with one value."""
    (tmp_path / "kernel").mkdir()
    (tmp_path / SYSCTL.name).write_text("1\n")
    return tmp_path


@pytest.fixture
def resctrl(tmp_path: Path) -> Path:
    """A mount with the root's schemata and one group."""
    (tmp_path / "schemata").write_text("L3:0=fff;1=fff\n")
    (tmp_path / "batch").mkdir()
    (tmp_path / "batch" / "schemata").write_text("L3:0=fff;1=fff\n")
    (tmp_path / "batch" / "tasks").write_text("12\n")
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[Thread]:
    """A process of our own that does nothing."""
    process = subprocess.Popen(["sleep", "600"])
    yield Thread(process.pid)
    process.kill()
    process.wait()


def test_a_sysctl_is_written_once_and_repaired(sysctls: Path) -> None:
    writer = OtherWriter({Sysctl: SysctlAccessor(sysctls)})
    wanted: Values = {SYSCTL: {SysctlAttribute.VALUE: "0"}}
    (written,) = writer.apply(wanted).written
    assert (written.place, written.old, written.new) == (SYSCTL, "1", "0")
    assert writer.apply(wanted).unchanged == 1
    (sysctls / SYSCTL.name).write_text("1\n")
    assert [each.new for each in writer.apply(wanted).written] == ["0"]


def test_a_sysctl_that_this_kernel_lacks_is_skipped(sysctls: Path) -> None:
    report = OtherWriter({Sysctl: SysctlAccessor(sysctls)}).apply({Sysctl("kernel/other"): {SysctlAttribute.VALUE: "0"}})
    assert (report.skipped, report.refused, report.written) == (1, (), ())
    assert not (sysctls / "kernel/other").exists()


def test_a_path_out_of_the_tree_is_refused_and_reported_once(sysctls: Path) -> None:
    writer = OtherWriter({Sysctl: SysctlAccessor(sysctls)})
    wanted: Values = {Sysctl("../outside"): {SysctlAttribute.VALUE: "0"}}
    (refused,) = writer.apply(wanted).refused
    assert (refused.errno, "not a path below" in refused.message) == (0, True)
    again = writer.apply(wanted)
    assert (again.refused, again.still_refused) == ((), 1)


class Refusing(SysctlAccessor):
    """A kernel that allows no write, as to anybody but root."""

    def write(self, place: object, _attribute: object, value: str) -> None:
        raise PermissionError(1, "not permitted")


def test_a_refusal_of_the_kernel_is_reported_with_its_errno_and_taken_back_when_it_goes(sysctls: Path) -> None:
    accessors: dict[type, Accessor] = {Sysctl: Refusing(sysctls)}
    writer = OtherWriter(accessors)
    wanted: Values = {SYSCTL: {SysctlAttribute.VALUE: "0"}}
    (refused,) = writer.apply(wanted).refused
    assert (refused.value, refused.errno, refused.message) == ("0", 1, os.strerror(1))
    accessors[Sysctl] = SysctlAccessor(sysctls)
    report = writer.apply(wanted)
    assert (len(report.written), report.still_refused) == (1, 0)


def test_a_value_that_reads_back_differently_is_refused(sysctls: Path) -> None:
    class Clamping(SysctlAccessor):
        def write(self, place: object, _attribute: object, value: str) -> None:
            (sysctls / SYSCTL.name).write_text("7")

    report = OtherWriter({Sysctl: Clamping(sysctls)}).apply({SYSCTL: {SysctlAttribute.VALUE: "9"}})
    assert [each.new for each in report.written] == ["7"]
    assert [each.message for each in report.refused] == ["written, but the kernel shows '7'"]


def test_schemata_are_compared_by_domain_and_written_by_line(resctrl: Path) -> None:
    accessor = ResctrlAccessor(resctrl)
    assert accessor.holds(SCHEMATA, "L3:0=0fff", "    L3:0=fff;1=fff")
    assert not accessor.holds(SCHEMATA, "L3:0=ff", "    L3:0=fff;1=fff")
    assert not accessor.holds(SCHEMATA, "MB:0=50", "    L3:0=fff;1=fff")
    report = OtherWriter({ResctrlGroup: accessor}).apply({GROUP: {SCHEMATA: "L3:0=f;1=f"}})
    assert [each.attribute for each in report.written] == [SCHEMATA]
    assert (resctrl / "batch/schemata").read_text().endswith("L3:0=f;1=f\n")


def test_tasks_are_added_one_by_one_and_others_stay(resctrl: Path) -> None:
    writer = OtherWriter({ResctrlGroup: ResctrlAccessor(resctrl)})
    (written,) = writer.apply({GROUP: {TASKS: "13,14"}}).written
    assert written.new.split() == ["12", "13", "14"]
    assert writer.apply({GROUP: {TASKS: "12,14"}}).unchanged == 1


def test_a_resctrl_group_is_made_when_it_is_first_written(resctrl: Path) -> None:
    report = OtherWriter({ResctrlGroup: ResctrlAccessor(resctrl)}).apply({ResctrlGroup("new"): {TASKS: "9"}})
    assert len(report.written) == 1
    assert (resctrl / "new/tasks").read_text() == "9\n"


def test_without_a_resctrl_mount_nothing_is_made(tmp_path: Path) -> None:
    report = OtherWriter({ResctrlGroup: ResctrlAccessor(tmp_path)}).apply({GROUP: {TASKS: "9"}})
    assert report.skipped == 1
    assert not (tmp_path / "batch").exists()


def test_the_policy_and_affinity_of_a_real_thread_are_set(sleeper: Thread) -> None:
    cpu = min(os.sched_getaffinity(0))
    wanted: Values = {sleeper: {ThreadAttribute.POLICY: "batch", ThreadAttribute.AFFINITY: str(cpu)}}
    writer = OtherWriter({Thread: ThreadAccessor()})
    assert writer.apply(wanted).refused == ()
    assert os.sched_getscheduler(sleeper.tid) == os.SCHED_BATCH
    assert os.sched_getaffinity(sleeper.tid) == {cpu}
    assert writer.apply(wanted).unchanged == 2


def test_a_thread_that_has_gone_is_skipped_and_an_unknown_policy_refused(sleeper: Thread) -> None:
    writer = OtherWriter({Thread: ThreadAccessor()})
    assert writer.apply({Thread(2**22 + 1): {ThreadAttribute.POLICY: "idle"}}).skipped == 1
    (refused,) = writer.apply({sleeper: {ThreadAttribute.POLICY: "deadline"}}).refused
    assert "expected one of other, batch, idle" in refused.message


def test_cpus_that_the_machine_lacks_are_refused_by_the_kernel(sleeper: Thread) -> None:
    (refused,) = OtherWriter({Thread: ThreadAccessor()}).apply({sleeper: {ThreadAttribute.AFFINITY: "8000"}}).refused
    assert refused.errno == 22


def test_a_negative_or_unreadable_cpu_list_is_not_sent_to_the_kernel(sleeper: Thread) -> None:
    with pytest.raises(InvalidValueError):
        ThreadAccessor().write(sleeper, ThreadAttribute.AFFINITY, "4-2")
