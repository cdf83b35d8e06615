"""From counters to figures, and a sampler over a tree whose counters the test writes itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_node_executor.sampling import proc, usage
from cotenant_node_executor.sampling.sampler import Sampler
from cotenant_node_executor.sampling.usage import CumulativeCounter
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.cgroup.tree import check_group
from cotenant_node_executor.targets.interface import CgroupVersion, Stat

SECOND = 1_000_000_000
MEMINFO = "MemTotal: 1000 kB\nMemFree: 200 kB\nMemAvailable: 600 kB\n"


class StillDriver(SandboxDriver):
    """Counters stay as the test writes them."""

    def refresh(self) -> None:
        return

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        return self.stat_path(check_group(directory), stat)

    def use(self, group: str, cpu_ns: int, memory: int, periods: tuple[int, int] = (0, 0)) -> None:
        usage_file, stat_file = (self.stat_path(group, stat) for stat in (Stat.CPU_USAGE, Stat.CPU_STAT))
        memory_file = self.stat_path(group, Stat.MEMORY_STAT)
        assert usage_file
        assert stat_file
        assert memory_file
        usage_file.write_text(str(cpu_ns))
        stat_file.write_text(f"nr_periods {periods[0]}\nnr_throttled {periods[1]}\nthrottled_time 7")
        keys = ("cache", "rss", "inactive_file", "active_file", "inactive_anon", "unevictable")
        zeros = "".join(f"total_{key} 0\n" for key in keys)
        memory_file.write_text(f"{zeros}total_active_anon {memory}\n")


@pytest.fixture
def driver(tmp_path: Path) -> StillDriver:
    made = StillDriver(tmp_path, "node-1", version=CgroupVersion.V1)
    made.create("besteffort/poda/main")
    return made


@pytest.fixture
def node(tmp_path: Path) -> Path:
    directory = tmp_path / "proc"
    directory.mkdir()
    (directory / "meminfo").write_text(MEMINFO)
    spend(directory, 0)
    return directory


def spend(node: Path, ticks: int) -> None:
    (node / "stat").write_text(f"cpu  {ticks} 0 0 5 5 0 0 9 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")


@pytest.fixture
def sampler(driver: StillDriver, node: Path) -> Sampler:
    return Sampler(driver, group_pressure=False, proc=node, cpu_capacity_milli=4000)


def test_a_pods_cpu_is_its_counters_growth_over_the_time_between(driver: StillDriver, sampler: Sampler, node: Path) -> None:
    driver.use("besteffort/poda", 0, 100, (10, 0))
    sampler.snapshot(SECOND)
    driver.use("besteffort/poda", SECOND, 200, (20, 5))
    spend(node, 300)

    seen = sampler.snapshot(3 * SECOND)

    pod = seen.pods["a"].usage
    assert (pod.cpu_milli, pod.memory_bytes, pod.throttled_ratio) == (500, 200, 0.5)
    assert (seen.node.cpu_milli, seen.node.memory_bytes, seen.interval_ns) == (1500, 400 * 1024, 2 * SECOND)
    assert (seen.system.cpu_milli, seen.system.memory_bytes) == (1000, 400 * 1024 - 200)


def test_a_counter_that_goes_backwards_is_a_first_observation(driver: StillDriver, sampler: Sampler) -> None:
    driver.use("besteffort/poda", 5 * SECOND, 0, (10, 5))
    sampler.snapshot(SECOND)
    driver.use("besteffort/poda", SECOND, 0, (2, 1))
    again = sampler.snapshot(2 * SECOND).pods["a"].usage
    assert (again.cpu_milli, again.throttled_ratio) == (None, None)
    driver.use("besteffort/poda", 2 * SECOND, 0, (4, 2))
    assert sampler.snapshot(3 * SECOND).pods["a"].usage.cpu_milli == 1000


def test_a_group_that_comes_back_starts_from_zero(driver: StillDriver, sampler: Sampler) -> None:
    driver.use("besteffort/poda", SECOND, 0)
    sampler.snapshot(SECOND)
    driver.remove("besteffort/poda")
    sampler.snapshot(2 * SECOND)
    driver.create("besteffort/poda")
    driver.use("besteffort/poda", 9 * SECOND, 0)
    assert sampler.snapshot(3 * SECOND).pods["a"].usage.cpu_milli is None


def test_a_malformed_file_skips_its_pod_only(driver: StillDriver, sampler: Sampler) -> None:
    driver.create("podb")
    path = driver.stat_path("podb", Stat.CPU_USAGE)
    assert path is not None
    path.write_text("nonsense")
    seen = sampler.snapshot(SECOND)
    assert set(seen.pods) == {"a"}
    assert [skipped.group for skipped in seen.skipped] == ["podb"]
    assert "cpuacct.usage" in seen.skipped[0].reason


def test_pods_of_every_tier_are_distinguished(driver: StillDriver, sampler: Sampler) -> None:
    for group in ("podg", "burstable/podb", "probe"):
        driver.create(group)
    seen = sampler.snapshot(SECOND)
    assert {uid: pod.tier for uid, pod in seen.pods.items()} == {"a": "besteffort", "b": "burstable", "g": "guaranteed"}
    assert set(seen.tiers) == {"burstable", "besteffort"}


def test_host_applications_are_no_part_of_the_system(driver: StillDriver, sampler: Sampler, node: Path) -> None:
    driver.create("host")
    sampler.snapshot(SECOND, {"nginx": "host"})
    driver.use("host", SECOND, 1024)
    spend(node, 150)
    seen = sampler.snapshot(2 * SECOND, {"nginx": "host", "absent": "none"})
    assert seen.host_applications["nginx"].usage.cpu_milli == 1000
    assert (seen.system.cpu_milli, seen.system.memory_bytes) == (500, 399 * 1024)
    assert seen.skipped == ()
    assert seen.unmeasured_applications == {"absent": "there is no control group none"}


def test_a_host_application_that_cannot_be_read_says_why_until_it_can(driver: StillDriver, sampler: Sampler) -> None:
    driver.create("host")
    path = driver.stat_path("host", Stat.CPU_USAGE)
    assert path is not None
    before = path.read_text()
    path.write_text("nonsense")
    broken = sampler.snapshot(SECOND, {"nginx": "host"})
    assert "cpuacct.usage" in broken.unmeasured_applications["nginx"]
    path.write_text(before)
    assert sampler.snapshot(2 * SECOND, {"nginx": "host"}).unmeasured_applications == {}


@pytest.mark.parametrize("directory", ["", "../etc", "host//x", "nul\0"])
def test_a_host_application_at_an_impossible_place_is_skipped_and_the_node_is_measured(
    driver: StillDriver, sampler: Sampler, directory: str
) -> None:
    driver.create("host")
    seen = sampler.snapshot(SECOND, {"nginx": "host", "odd": directory})
    assert [*seen.host_applications] == ["nginx"]
    assert [*seen.unmeasured_applications] == ["odd"]


def test_without_elapsed_time_there_is_no_rate(sampler: Sampler) -> None:
    sampler.snapshot(SECOND)
    again = sampler.snapshot(SECOND)
    assert (again.interval_ns, again.node.cpu_milli) == (None, None)


@given(st.integers(0, 2**63), st.integers(0, 2**63), st.integers(0, 10**12), st.integers(0, 10**12))
def test_a_rate_is_never_negative(before: int, after: int, then: int, now: int) -> None:
    rate = usage.group_milli(CumulativeCounter(before, then), CumulativeCounter(after, now))
    assert (rate is None) == (after < before or now <= then)
    assert rate is None or rate >= 0


def test_best_effort_gets_the_smaller_of_cpuset_and_quota() -> None:
    assert usage.best_effort_real_limit_milli(2, 150_000, 100_000) == 1500
    assert usage.best_effort_real_limit_milli(1, 150_000, 100_000) == 1000


@pytest.mark.parametrize("content", ["", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3"])
def test_a_broken_stat_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="/proc/stat"):
        proc.parse_busy_ticks(content)


def test_meminfo_lines_without_a_number_count_as_zero() -> None:
    assert proc.parse_meminfo("A: 1 kB\nB:\nC: x kB\n\nD 5") == {"A": 1, "C": 0}
    with pytest.raises(ValueError, match="MemTotal"):
        proc.parse_node_meminfo("MemFree: 1 kB")


def test_the_only_container_of_a_pod_has_its_usage_and_throttling_of_its_own(driver: StillDriver, node: Path) -> None:
    sampler = Sampler(driver, group_pressure=False, proc=node, cpu_capacity_milli=4000, lone_containers=True)
    driver.use("besteffort/poda", 0, 100, (10, 0))
    driver.use("besteffort/poda/main", 0, 1, (10, 0))
    sampler.snapshot(SECOND)
    driver.use("besteffort/poda", SECOND, 200, (20, 5))
    driver.use("besteffort/poda/main", 0, 1, (20, 8))
    (found,) = sampler.snapshot(3 * SECOND).pods["a"].containers
    assert (found.name, found.usage.group) == ("main", "besteffort/poda/main")
    assert (found.usage.cpu_milli, found.usage.memory_bytes, found.usage.throttled_ratio) == (500, 200, 0.8)

    driver.create("besteffort/poda/side")
    driver.use("besteffort/poda/main", 3 * SECOND, 150)
    driver.use("besteffort/poda/side", 5 * SECOND, 50)
    main, side = sampler.snapshot(5 * SECOND).pods["a"].containers
    assert (main.usage.cpu_milli, main.usage.memory_bytes) == (1000, 150), "each is read once there are two"
    assert (side.usage.cpu_milli, side.usage.memory_bytes) == (None, 50)


def test_a_lone_container_that_has_gone_is_skipped(driver: StillDriver, node: Path) -> None:
    sampler = Sampler(driver, group_pressure=False, proc=node, cpu_capacity_milli=4000, lone_containers=True)
    driver.use("besteffort/poda", 0, 100)
    stat = driver.stat_path("besteffort/poda/main", Stat.CPU_STAT)
    usage_file = driver.stat_path("besteffort/poda/main", Stat.CPU_USAGE)
    assert stat is not None
    assert usage_file is not None
    stat.unlink(missing_ok=True)
    usage_file.unlink(missing_ok=True)
    seen = sampler.snapshot(SECOND)
    assert seen.pods["a"].containers == ()
    assert [each.group for each in seen.skipped] == ["besteffort/poda/main"]
