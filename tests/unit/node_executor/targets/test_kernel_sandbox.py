"""The imitating tree: the kernel's refusals, and that the write layer never runs into one."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.cgroup.sandbox.usage import members, parse_process, read_processes
from cotenant_node_executor.targets.cgroup.writer import Writer
from cotenant_node_executor.targets.cpulist import format_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, Knob

V1, V2 = CgroupVersion.V1, CgroupVersion.V2
TIER, POD, CONTAINER = "besteffort", "besteffort/poda", "besteffort/poda/main"
LEVELS = (TIER, POD, CONTAINER)
CPUS = tuple(range(8))


def sandbox(directory: Path, version: CgroupVersion = V2) -> SandboxDriver:
    driver = SandboxDriver(directory, "node-1", version=version, cpus=CPUS)
    driver.create(CONTAINER)
    return driver


@contextmanager
def refusal(number: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is checked below
        yield
    assert caught.value.errno == number, caught.value


@pytest.mark.parametrize("version", [V1, V2])
def test_a_burst_above_the_quota_is_refused(tmp_path: Path, version: CgroupVersion) -> None:
    driver = sandbox(tmp_path, version)
    driver.write(POD, Knob.CPU_QUOTA, "20000")
    with refusal(errno.EINVAL):
        driver.write(POD, Knob.CPU_BURST, "30000")
    driver.write(POD, Knob.CPU_BURST, "20000")
    with refusal(errno.EINVAL):
        driver.write(POD, Knob.CPU_QUOTA, "10000")


@pytest.mark.parametrize("version", [V1, V2])
def test_shares_are_locked_while_idle(tmp_path: Path, version: CgroupVersion) -> None:
    driver = sandbox(tmp_path, version)
    driver.write(POD, Knob.CPU_IDLE, "1")
    with refusal(errno.EINVAL):
        driver.write(POD, Knob.CPU_SHARES, "1024")


def test_v1_refuses_a_child_outside_its_parent_and_a_parent_without_its_child(tmp_path: Path) -> None:
    driver = sandbox(tmp_path, V1)
    with refusal(errno.EBUSY):
        driver.write(TIER, Knob.CPUSET_CPUS, "0")
    for group in reversed(LEVELS):
        driver.write(group, Knob.CPUSET_CPUS, "0")
    with refusal(errno.EACCES):
        driver.write(POD, Knob.CPUSET_CPUS, "0-1")
    with refusal(errno.EINVAL):
        driver.write(TIER, Knob.CPUSET_CPUS, "0-8")


def test_v2_leaves_out_what_the_parent_lacks(tmp_path: Path) -> None:
    driver = sandbox(tmp_path)
    driver.write(TIER, Knob.CPUSET_CPUS, "0-1")
    assert driver.read(CONTAINER, Knob.CPUSET_CPUS) == "0-1"
    driver.write(POD, Knob.CPUSET_CPUS, "1-3")
    assert driver.read(CONTAINER, Knob.CPUSET_CPUS) == "1"


def test_v1_refuses_a_quota_above_the_parents(tmp_path: Path) -> None:
    driver = sandbox(tmp_path, V1)
    driver.write(TIER, Knob.CPU_QUOTA, "20000")
    with refusal(errno.EINVAL):
        driver.write(POD, Knob.CPU_QUOTA, "30000")
    driver.write(POD, Knob.CPU_QUOTA, "20000")
    with refusal(errno.EINVAL):
        driver.write(TIER, Knob.CPU_PERIOD, "200000")


def test_files_that_the_version_lacks_are_missing(tmp_path: Path) -> None:
    driver = sandbox(tmp_path, V1)
    assert driver.read(POD, Knob.MEMORY_HIGH) is None
    with refusal(errno.ENOENT):
        driver.write(POD, Knob.MEMORY_HIGH, "4096")
    with refusal(errno.ENOENT):
        driver.write("besteffort/podz", Knob.CPU_QUOTA, "20000")


def test_capabilities_say_that_it_is_a_sandbox_and_why(tmp_path: Path) -> None:
    driver = SandboxDriver(tmp_path, "node-1", why_sandbox="/sys/fs/cgroup/cpu: Permission denied")
    found = probe(driver)
    assert (found.sandbox, found.why_sandbox) == (True, "/sys/fs/cgroup/cpu: Permission denied")
    assert found.supports(Knob.CPU_QUOTA)
    assert not found.supports("psi.group")


values = st.fixed_dictionaries(
    {},
    optional={
        Knob.CPU_QUOTA: st.sampled_from(["-1", "2000", "20000", "50000"]),
        Knob.CPUSET_CPUS: st.sets(st.sampled_from(CPUS), min_size=1).map(format_cpu_list),
        Knob.CPU_IDLE: st.sampled_from(["0", "1"]),
        Knob.CPU_SHARES: st.sampled_from(["2", "512", "2048"]),
        Knob.MEMORY_LIMIT: st.sampled_from(["-1", "4096000"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(values, min_size=2, max_size=4), st.sampled_from([V1, V2]))
def test_the_writer_reaches_every_allowed_state_from_every_other(cycles: list[dict[Knob, str]], version: CgroupVersion) -> None:
    """The same value on all levels is always allowed, so nothing may be refused on the way."""
    with tempfile.TemporaryDirectory() as directory:
        driver = sandbox(Path(directory), version)
        writer = Writer(driver, probe(driver), clock_ns=lambda: 0)
        for cycle in cycles:
            wanted = {(group, knob): value for group in LEVELS for knob, value in cycle.items()}
            report = writer.apply(wanted)
            assert report.refused == ()
            assert report.still_refused == 0
            idle = {group: driver.read(group, Knob.CPU_IDLE) for group in LEVELS}
            for (group, knob), value in wanted.items():
                if knob is Knob.CPU_SHARES and idle[group] == "1":
                    continue
                shown = driver.read(group, knob)
                assert shown == value or (knob is Knob.CPU_SHARES and version is V2), (group, knob)


def test_members_are_found_by_descent_and_by_session(tmp_path: Path) -> None:
    driver = sandbox(tmp_path)
    file = driver.procs_paths(CONTAINER)[0]
    script = f"echo $$ > {file}; (sleep 60 & echo in; wait) "
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        found = driver.pids("besteffort")
        assert process.pid in found
        assert len(found) >= 2
        with refusal(errno.EBUSY):
            driver.remove(POD)
        assert set(driver.kill("")) >= set(found)
        process.wait()
    assert os.getpid() not in found


def test_a_reused_pid_is_not_a_member() -> None:
    rows = read_processes(Path("/proc"))
    mine = os.getpid()
    assert mine in members(rows, [mine], rows[mine].started)
    assert members(rows, [mine], rows[mine].started - 60) == set()


def test_a_command_with_parentheses_and_blanks_is_parsed() -> None:
    tail = "S 1 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 500 1000 200"
    row = parse_process(42, f"42 (a) b (c)) {tail}", boot_time=1000.0)
    assert (row.parent, row.session, row.cpu_ns, row.started) == (1, 7, 1_000_000_000, 1005.0)
