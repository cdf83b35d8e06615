"""Sysctls, resctrl groups and core scheduling against imitations, threads and traffic classes against the kernel."""

from __future__ import annotations

import errno
import os
import shutil
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
    TcAttribute,
    TcClass,
    Thread,
    ThreadAttribute,
)
from cotenant_node_executor.targets.interface import InvalidValueError
from cotenant_node_executor.targets.other.accessors import Accessor, SysctlAccessor
from cotenant_node_executor.targets.other.resctrl import ResctrlAccessor
from cotenant_node_executor.targets.other.threads import SchedulingCalls, ThreadAccessor
from cotenant_node_executor.targets.other.traffic import TrafficAccessor
from cotenant_node_executor.targets.other.writer import OtherWriter
from tests.network_namespace import USABLE, network_namespace

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


SWITCHES = ("sched_core", "sched_group_identity_enabled")


@pytest.mark.parametrize(("on", "off"), [SWITCHES, SWITCHES[::-1]])
def test_of_two_switches_that_exclude_each_other_the_one_that_goes_off_is_written_first(
    tmp_path: Path, on: str, off: str
) -> None:
    class Excluding(SysctlAccessor):
        """A kernel that has one of the two switches on."""

        def write(self, place: NonCgroup, attribute: Attribute, value: str) -> None:
            if value == "1" and any(path.read_text() == "1\n" for path in (tmp_path / "kernel").iterdir()):
                raise OSError(errno.EBUSY, "the other one is on")
            super().write(place, attribute, value)

    (tmp_path / "kernel").mkdir()
    (tmp_path / "kernel" / on).write_text("0\n")
    (tmp_path / "kernel" / off).write_text("1\n")
    report = OtherWriter({Sysctl: Excluding(tmp_path)}).apply({
        Sysctl(f"kernel/{on}"): {SysctlAttribute.VALUE: "1"},
        Sysctl(f"kernel/{off}"): {SysctlAttribute.VALUE: "0"},
    })
    assert (len(report.written), report.refused) == (2, ())


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


# -- slices and cookies ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(SchedulingCalls().slice_of(0) == 0, reason="this kernel shows no slices (before 6.12)")
def test_a_slice_is_set_by_the_kernel_and_put_back(sleeper: Thread) -> None:
    writer = OtherWriter({Thread: ThreadAccessor()})
    default = ThreadAccessor().read(sleeper, ThreadAttribute.SLICE)
    (written,) = writer.apply({sleeper: {ThreadAttribute.SLICE: "500000"}}).written
    assert (written.old, written.new) == (default, "500000")
    assert writer.apply({sleeper: {ThreadAttribute.SLICE: "500000"}}).unchanged == 1
    assert ThreadAccessor().read(sleeper, ThreadAttribute.POLICY) == "other"
    ThreadAccessor().write(sleeper, ThreadAttribute.SLICE, "0")
    assert ThreadAccessor().read(sleeper, ThreadAttribute.SLICE) == default


@pytest.mark.parametrize("value", ["-1", "1e9", "", "9" * 30])
def test_a_slice_or_cookie_that_is_no_number_is_not_written(sleeper: Thread, value: str) -> None:
    for attribute in (ThreadAttribute.SLICE, ThreadAttribute.COOKIE):
        with pytest.raises(InvalidValueError, match="expected a number"):
            ThreadAccessor(Cores()).write(sleeper, attribute, value)


class Cores(SchedulingCalls):
    """Core scheduling as the kernel does it: a cookie a thread, new ones count up; threads of other users are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.cookies: dict[int, int] = {}
        self.made = 0

    def cookie_of(self, tid: int) -> int:
        if tid == 404:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return self.cookies.get(tid, 0)

    def new_cookie(self, tid: int) -> None:
        self.made += 1
        self.cookies[tid] = self.made

    def share_cookie(self, source: int, tid: int) -> None:
        if tid == 1:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        self.cookies[tid] = self.cookies.get(source, 0)


def test_threads_share_the_cookie_of_the_one_that_is_named() -> None:
    cores = Cores()
    writer = OtherWriter({Thread: ThreadAccessor(cores)})
    wanted: Values = {Thread(tid): {ThreadAttribute.COOKIE: "10"} for tid in (10, 11, 12)}
    assert len(writer.apply(wanted).written) == 3
    assert cores.cookies == {10: 1, 11: 1, 12: 1}
    assert writer.apply(wanted).unchanged == 3
    writer.apply({Thread(12): {ThreadAttribute.COOKIE: "12"}, Thread(11): {ThreadAttribute.COOKIE: "0"}})
    assert cores.cookies == {10: 1, 11: 0, 12: 1}, "it has a cookie already, which is its own to others"
    assert writer.apply({Thread(404): {ThreadAttribute.COOKIE: "10"}}).skipped == 1
    (refused,) = writer.apply({Thread(1): {ThreadAttribute.COOKIE: "10"}}).refused
    assert refused.errno == errno.EPERM


def test_the_kernels_own_core_scheduling_gives_a_cookie_or_refuses_it(sleeper: Thread) -> None:
    report = OtherWriter({Thread: ThreadAccessor()}).apply({sleeper: {ThreadAttribute.COOKIE: str(sleeper.tid)}})
    if report.refused:
        assert report.refused[0].errno in (errno.EINVAL, errno.ENODEV)
    else:
        assert ThreadAccessor().read(sleeper, ThreadAttribute.COOKIE) != "0"


# -- traffic classes -------------------------------------------------------------------------------------------------

CLASS = TcClass("lo", "1:10")


@pytest.fixture
def traffic() -> Iterator[TrafficAccessor]:
    """A network namespace of our own, whose loopback has one class."""
    if not USABLE or shutil.which("tc") is None:
        pytest.skip("needs root, ip and tc (iproute2)")
    with network_namespace("tc") as within:
        for command in (
            "tc qdisc add dev lo root handle 1: htb",
            "tc class add dev lo parent 1: classid 1:10 htb rate 10mbit ceil 20mbit",
        ):
            made = subprocess.run((*within, *command.split()), capture_output=True, text=True, check=False)
            if made.returncode:
                pytest.skip(f"this kernel has no HTB: {made.stderr.strip()}")
        yield TrafficAccessor(within)


def test_the_rates_of_a_class_are_changed_one_by_one_and_repaired(traffic: TrafficAccessor) -> None:
    writer = OtherWriter({TcClass: traffic})
    (written,) = writer.apply({CLASS: {TcAttribute.RATE: "5000000"}}).written
    assert (written.old, written.new) == ("10000000", "5000000")
    assert traffic.read(CLASS, TcAttribute.CEIL) == "20000000"
    wanted: Values = {CLASS: {TcAttribute.CEIL: "123456789", TcAttribute.RATE: "12345678"}}
    assert len(writer.apply(wanted).written) == 2
    assert writer.apply(wanted).unchanged == 2
    traffic.write(CLASS, TcAttribute.RATE, "8000000")
    assert [each.attribute for each in writer.apply(wanted).written] == [TcAttribute.RATE]


def test_classes_and_devices_that_are_not_there_are_skipped_and_bad_rates_refused(traffic: TrafficAccessor) -> None:
    writer = OtherWriter({TcClass: traffic})
    rate: Mapping[Attribute, str] = {TcAttribute.RATE: "5000000"}
    assert writer.apply({TcClass("lo", "1:99"): rate, TcClass("eth99", "1:10"): rate}).skipped == 2
    report = writer.apply({CLASS: {TcAttribute.RATE: "30000000"}, TcClass("lo; rm", "1:10"): rate, TcClass("lo", "x"): rate})
    assert len(report.refused) == 3
    for value in ("1", "-5", "1e30", "9" * 40, "fast"):
        assert len(OtherWriter({TcClass: traffic}).apply({CLASS: {TcAttribute.RATE: value}}).refused) == 1
    assert traffic.read(CLASS, TcAttribute.RATE) == "10000000"
