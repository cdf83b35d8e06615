"""The write layer reaches what is wanted through states that the kernel takes, and reads back what it wrote."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from cotenant_node_executor.targets.cgroup.writer import CONFIRMED_FOR_NS, Writer
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, Knob, NodeCapabilities, WriteReport

Start = Callable[[str, str], int]
TIER, POD, CONTAINER = "besteffort", "besteffort/poda", "besteffort/poda/main"
LEVELS = (TIER, POD, CONTAINER)


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def writer(driver: CgroupDriver, capabilities: NodeCapabilities, clock: Clock) -> Writer:
    driver.create(CONTAINER)
    return Writer(driver, capabilities, clock_ns=clock)


def everywhere(knob: Knob, value: str) -> dict[tuple[str, Knob], str]:
    return {(group, knob): value for group in LEVELS}


def written(report: WriteReport) -> list[tuple[str, str]]:
    assert report.refused == ()
    return [(str(each.place), each.new) for each in report.written]


def test_a_value_is_written_once_and_confirmed(writer: Writer, driver: CgroupDriver) -> None:
    wanted = {(POD, Knob.CPU_SHARES): "2048", (POD, Knob.CPU_QUOTA): "50000"}
    report = writer.apply(wanted)
    assert {(each.attribute, each.old) for each in report.written} >= {(Knob.CPU_QUOTA, "-1")}
    assert driver.read(POD, Knob.CPU_QUOTA) == "50000"
    assert int(driver.read(POD, Knob.CPU_SHARES) or 0) == pytest.approx(2048, rel=0.05)  # v2 keeps a coarser weight

    assert writer.apply(wanted) == WriteReport(unchanged=2)


def test_a_tier_is_narrowed_from_the_leaves_and_widened_from_the_top(
    writer: Writer, driver: CgroupDriver, cpus: list[int]
) -> None:
    if len(cpus) < 2:
        pytest.skip("one CPU")
    first, last = str(cpus[0]), str(cpus[-1])
    for value in (first, format_cpu_list(cpus), last, first):
        report = writer.apply(everywhere(Knob.CPUSET_CPUS, value))
        assert report.refused == ()
        assert [driver.read(group, Knob.CPUSET_CPUS) for group in LEVELS] == [value] * 3


def test_quotas_move_together_in_both_directions(writer: Writer, driver: CgroupDriver) -> None:
    for value in ("30000", "10000", "80000", "-1", "20000"):
        report = writer.apply(everywhere(Knob.CPU_QUOTA, value))
        assert report.refused == ()
        assert [driver.read(group, Knob.CPU_QUOTA) for group in LEVELS] == [value] * 3


def test_a_pod_is_set_free_before_its_tier_is_bounded(writer: Writer, driver: CgroupDriver) -> None:
    writer.apply({(TIER, Knob.CPU_QUOTA): "-1", (POD, Knob.CPU_QUOTA): "80000", (CONTAINER, Knob.CPU_QUOTA): "80000"})
    report = writer.apply({(TIER, Knob.CPU_QUOTA): "20000", (POD, Knob.CPU_QUOTA): "-1", (CONTAINER, Knob.CPU_QUOTA): "-1"})
    assert written(report) == [(TIER, "20000"), (POD, "-1"), (CONTAINER, "-1")]


def test_burst_goes_down_before_the_quota_and_up_after_it(writer: Writer) -> None:
    def bounds(quota: str, burst: str) -> dict[tuple[str, Knob], str]:
        return {(POD, Knob.CPU_QUOTA): quota, (POD, Knob.CPU_BURST): burst}

    for quota, burst in (("50000", "50000"), ("20000", "10000"), ("90000", "90000"), ("-1", "0")):
        report = writer.apply(bounds(quota, burst))
        assert report.refused == ()
        assert {each.new for each in report.written} <= {quota, burst}


def test_a_burst_above_the_quota_is_refused_once_and_then_counted(writer: Writer, driver: CgroupDriver) -> None:
    wanted = {(POD, Knob.CPU_QUOTA): "20000", (POD, Knob.CPU_BURST): "50000"}
    report = writer.apply(wanted)
    (refused,) = report.refused
    assert (refused.attribute, refused.errno, refused.value) == (Knob.CPU_BURST, errno.EINVAL, "50000")
    assert refused.message == "Invalid argument: above the quota"
    assert driver.read(POD, Knob.CPU_QUOTA) == "20000"

    again = writer.apply(wanted)
    assert (again.refused, again.still_refused) == ((), 1)
    assert writer.apply({(POD, Knob.CPU_QUOTA): "60000", (POD, Knob.CPU_BURST): "50000"}).still_refused == 0


def test_shares_wait_while_the_pod_is_idle_and_come_back_after(writer: Writer, driver: CgroupDriver) -> None:
    def identity(idle: str) -> dict[tuple[str, Knob], str]:
        return {(POD, Knob.CPU_IDLE): idle, (POD, Knob.CPU_SHARES): "512"}

    assert writer.apply(identity("0")).refused == ()
    before = driver.read(POD, Knob.CPU_SHARES)
    for _ in range(2):
        report = writer.apply(identity("1"))
        assert report.refused == ()
        assert driver.read(POD, Knob.CPU_IDLE) == "1"
        assert writer.apply(identity("0")).refused == ()
        assert driver.read(POD, Knob.CPU_SHARES) == before


def test_memory_is_compared_by_whole_pages(writer: Writer, driver: CgroupDriver) -> None:
    wanted = {(POD, Knob.MEMORY_LIMIT): str(64 * 1024 * 1024 + 1)}
    assert writer.apply(wanted).refused == ()
    assert writer.apply(wanted).unchanged == 1
    assert writer.apply({(POD, Knob.MEMORY_LIMIT): "-1"}).refused == ()
    assert driver.read(POD, Knob.MEMORY_LIMIT) == "-1"


def test_memory_protection_moves_where_the_kernel_has_it(
    writer: Writer, driver: CgroupDriver, capabilities: NodeCapabilities
) -> None:
    wanted = everywhere(Knob.MEMORY_HIGH, str(1 << 26)) | everywhere(Knob.MEMORY_LOW, str(1 << 20))
    report = writer.apply(wanted)
    if capabilities.supports(Knob.MEMORY_HIGH):
        assert [driver.read(group, Knob.MEMORY_HIGH) for group in LEVELS] == [str(1 << 26)] * 3
        assert writer.apply(everywhere(Knob.MEMORY_HIGH, "-1")).refused == ()
    else:
        assert report == WriteReport(skipped=6)


def test_a_period_keeps_its_quota(writer: Writer, driver: CgroupDriver) -> None:
    writer.apply({(POD, Knob.CPU_QUOTA): "20000"})
    writer.apply({(POD, Knob.CPU_PERIOD): "50000"})
    assert (driver.read(POD, Knob.CPU_QUOTA), driver.read(POD, Knob.CPU_PERIOD)) == ("20000", "50000")


def test_a_group_that_has_gone_is_passed_over(writer: Writer, driver: CgroupDriver) -> None:
    driver.remove(POD)
    assert writer.apply({(POD, Knob.CPU_QUOTA): "20000"}) == WriteReport(skipped=1)


def test_nonsense_is_refused_before_the_kernel_is_asked(writer: Writer) -> None:
    report = writer.apply({(POD, Knob.CPU_SHARES): "1", (POD, Knob.CPUSET_CPUS): "3-1", (TIER, Knob.CPU_QUOTA): "30000"})
    assert [(each.attribute, each.errno) for each in report.refused] == [(Knob.CPU_SHARES, 0), (Knob.CPUSET_CPUS, 0)]
    assert [each.place for each in report.written] == [TIER]


def test_cpus_that_the_machine_lacks_are_refused(writer: Writer) -> None:
    (refused,) = writer.apply({(POD, Knob.CPUSET_CPUS): "4000"}).refused
    assert refused.errno in (errno.EINVAL, errno.ERANGE, errno.EACCES)


def test_a_change_from_outside_is_repaired_within_a_minute(writer: Writer, driver: CgroupDriver, clock: Clock) -> None:
    wanted = {(POD, Knob.CPU_QUOTA): "20000"}
    writer.apply(wanted)
    driver.write(POD, Knob.CPU_QUOTA, "70000")
    assert writer.apply(wanted).unchanged == 1
    clock.now_ns += CONFIRMED_FOR_NS
    (repaired,) = writer.apply(wanted).written
    assert (repaired.old, repaired.new) == ("70000", "20000")


def test_a_running_process_is_moved_to_the_cpus_of_its_tier(
    writer: Writer, kernel_driver: CgroupDriver, start: Start, cpus: list[int]
) -> None:
    pid = start(CONTAINER, "exec sleep 60")
    floor = cpus[-2:]  # suppression leaves a best-effort tier two CPUs at least
    report = writer.apply(everywhere(Knob.CPUSET_CPUS, format_cpu_list(floor)))
    assert report.refused == ()
    assert sorted(os.sched_getaffinity(pid)) == floor
    assert writer.apply(everywhere(Knob.CPUSET_CPUS, format_cpu_list(cpus))).refused == ()
    assert sorted(os.sched_getaffinity(pid)) == cpus


def test_a_parents_quota_below_a_childs_depends_on_the_version(writer: Writer, driver: CgroupDriver) -> None:
    writer.apply({(POD, Knob.CPU_QUOTA): "80000"})
    report = writer.apply({(TIER, Knob.CPU_QUOTA): "20000"})
    refusals = [each.errno for each in report.refused]
    assert refusals == ([errno.EINVAL] if driver.version is CgroupVersion.V1 else [])
