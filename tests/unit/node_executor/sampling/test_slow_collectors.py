"""Cold memory, counters, caches and NUMA nodes over imitated kernels; what is switched on is put back."""

from __future__ import annotations

import struct
from array import array
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.topology import MachineTopology
from cotenant_node_executor.sampling.given import GivenMachine
from cotenant_node_executor.sampling.idle_pages import IDLE_STATS, hot_bytes, parse_idle_page_stats
from cotenant_node_executor.sampling.machine import DISKS, MachineReader
from cotenant_node_executor.sampling.slow import stalls
from cotenant_node_executor.sampling.slow.cold_memory import ByPageIdle, by_group, open_cold_memory
from cotenant_node_executor.sampling.slow.collectors import SlowCollectors
from cotenant_node_executor.sampling.slow.cpi import CpuCount, by_pod, parse_count, summed
from cotenant_node_executor.sampling.slow.damon import Damon, settings
from cotenant_node_executor.sampling.slow.kidled import Kidled
from cotenant_node_executor.sampling.slow.numa import NumaReader
from cotenant_node_executor.sampling.slow.page_owners import (
    BLOCK,
    PAGE_BYTES,
    file_pages,
    frames,
    parse_iomem,
    sampled,
)
from cotenant_node_executor.sampling.slow.readings import FACTS, NUMA, Asked, CacheReading, Collected, CpiReading, Unavailable
from cotenant_node_executor.sampling.slow.resctrl import Resctrl, parse_counter
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.targets.cgroup.files import PRESSURE_STATS
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion, Stat
from tests.integration.node_kernel.waiting import until
from tests.unit.node_executor.sampling.trees import write

GIB = 1 << 30
RAM = ((4096, 4096 + GIB),)
ROWS = [f"{a}{b}{c}{d}" for d in "ia" for c in "eu" for b in "sf" for a in "cd"] + ["slab"]
FILE, ANON, TAIL = 1 << 5, 1 << 5 | 1 << 12, 1 << 16
COUNTS = st.integers(0, 1 << 40)


class Driver(SandboxDriver):
    """Directories of host applications lie beside the executor's own groups."""

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        path = self.stat_path("", stat)
        return path.parent / "host" / directory / path.name if path is not None else None


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    made = Driver(tmp_path / "groups", "n1", version=CgroupVersion.V1)
    made.create("burstable/poda")
    return made


def folder_of(driver: Driver, group: str) -> Path:
    path = driver.stat_path(group, Stat.MEMORY_STAT)
    assert path is not None
    return path.parent


def idle_stats(**rows: int) -> str:
    """A group's file: so many bytes in the sixth bucket of each named row."""
    said = ["version: 1.0", "page_scans: 24", "slab_scans: 0", "scan_period_in_seconds: 5", "use_hierarchy: 1"]
    head = [f"# {text}" for text in [*said, "buckets: 1,2,5,15,30,60,120,240", *[""] * 8]]
    return "\n".join([*head, *(f"  {row}  9 9 9 9 9 {rows.get(row, 0)} 0 0" for row in ROWS)]) + "\n"


# -- kidled ------------------------------------------------------------------------------------------------------------


def test_kidled_is_switched_on_read_and_put_back(driver: Driver, tmp_path: Path) -> None:
    sys = write(tmp_path / "sys", {"kernel/mm/kidled/scan_period_in_seconds": "120", "kernel/mm/kidled/use_hierarchy": "0"})
    write(folder_of(driver, "burstable/poda"), {IDLE_STATS: idle_stats(cfei=3, dfui=4, csei=100, cfea=100)})
    write(folder_of(driver, "") / "host", {IDLE_STATS: idle_stats(cfei=50), f"app/{IDLE_STATS}": "torn"})
    kidled = Kidled(driver, sys)
    assert (sys / "kernel/mm/kidled/scan_period_in_seconds").read_text() == "5"
    reading = kidled.read(Asked((("a", "burstable/poda"), ("gone", "podgone")), (("app", "app"),), True))
    assert reading is not None
    assert (reading.node_bytes, reading.pods, reading.applications) == (50, {"a": 7}, {})
    kidled.close()
    assert (sys / "kernel/mm/kidled/scan_period_in_seconds").read_text() == "120"
    assert (sys / "kernel/mm/kidled/use_hierarchy").read_text() == "0"


@given(st.text(max_size=300) | st.lists(st.sampled_from(["#", "cfei 1 x", "cfei", "# a: 1", ""]), max_size=31).map("\n".join))
def test_idle_pages_of_rubbish_are_an_error_or_a_number(text: str) -> None:
    with suppress(ValueError):
        assert parse_idle_page_stats(text).cold_bytes >= 0


@given(COUNTS, COUNTS)
def test_hot_memory_is_between_nothing_and_all(used: int, cold: int) -> None:
    assert 0 <= hot_bytes(used, cold) <= used


# -- DAMON -------------------------------------------------------------------------------------------------------------


def kdamonds(root: Path, number: str = "0", state: str = "off", action: str = "pageout") -> Path:
    """An imitated DAMON: every file that is written exists already, as it would once its number was written."""
    base = "kernel/mm/damon/admin/kdamonds"
    files = {f"{base}/0/{path}": "1" for path, _ in settings(RAM)}
    files |= {f"{base}/nr_kdamonds": number, f"{base}/0/state": state, f"{base}/0/contexts/0/schemes/0/action": action}
    for index, (start, end) in enumerate(((8192, 16384), (4096, 8192), (5, 5))):
        files |= {
            f"{base}/0/contexts/0/schemes/0/tried_regions/{index}/{name}": str(value)
            for name, value in (("start", start), ("end", end))
        }
    files[f"{base}/0/contexts/0/schemes/0/tried_regions/total_bytes"] = "12288"
    return write(root, files) / base


def test_damon_monitors_and_is_gone_at_the_end(tmp_path: Path) -> None:
    folder = kdamonds(tmp_path)
    damon = Damon(tmp_path, RAM)
    assert (folder / "nr_kdamonds").read_text() == "1"
    assert (folder / "0/state").read_text() == "on"
    assert (folder / "0/contexts/0/schemes/0/action").read_text() == "stat"
    assert (folder / "0/contexts/0/operations").read_text() == "paddr"
    assert damon.cold_ranges() == [(4096, 8192), (8192, 16384)]
    damon.close()
    assert (folder / "nr_kdamonds").read_text() == "0"
    damon.close()


@pytest.mark.parametrize("state", ["on", "off"])
def test_somebody_elses_kdamond_is_left_as_it_is(tmp_path: Path, state: str) -> None:
    folder = kdamonds(tmp_path, "1", state)
    before = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(Unavailable, match=f"another program: 1 kdamonds, the first is {state}"):
        Damon(tmp_path, RAM)
    assert before == {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_a_killed_executor_left_is_taken_over(tmp_path: Path) -> None:
    folder = kdamonds(tmp_path)
    Damon(tmp_path, RAM)
    again = Damon(tmp_path, RAM)
    again.close()
    assert (folder / "nr_kdamonds").read_text() == "0"


def test_a_kernel_without_damon_says_so(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no DAMON"):
        Damon(tmp_path, RAM)


# -- whose pages -------------------------------------------------------------------------------------------------------


def words(*values: int) -> bytes:
    return array("Q", values).tobytes()


def test_the_page_cache_is_counted_by_owner() -> None:
    flags = words(FILE, ANON, 0, FILE, TAIL, TAIL, FILE)
    owners = words(7, 7, 0, 8, 0, 0, 0)
    assert file_pages(flags, owners) == Counter({8: 3, 7: 1, 0: 1}), "a large page's other frames are its first one's"
    assert file_pages(flags, b"") == Counter({0: 5})
    assert file_pages(flags, owners, bytes([0b1010000])) == Counter({8: 1, 0: 1})


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=64), st.lists(st.integers(0, 9), max_size=64))
def test_any_flags_can_be_counted(flags: list[int], owners: list[int]) -> None:
    assert file_pages(words(*flags), words(*owners)).total() <= len(flags)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), max_size=4), st.integers(1, 4096), st.integers(0, 99))
def test_a_sample_lies_in_its_ranges_and_within_its_budget(pairs: list[tuple[int, int]], budget: int, phase: int) -> None:
    ranges = [(first, first + length) for first, length in pairs]
    every, blocks = sampled(ranges, budget, phase)
    assert all(any(a >= first and b <= behind for first, behind in ranges) for a, b in blocks)
    assert sum(b - a for a, b in blocks) <= budget + (len(ranges) + 2) * BLOCK
    total = sum(behind - first for first, behind in ranges)
    if total <= budget:
        assert (every, sum(b - a for a, b in blocks)) == (1, total)


def test_system_ram_is_found_and_hidden_addresses_are_none() -> None:
    content = "00001000-0009ffff : System RAM\n  00002000-00003fff : Kernel code\n100000000-1ffffffff : System RAM\n"
    assert parse_iomem(content) == ((0x1000, 0xA0000), (0x100000000, 0x200000000))
    assert parse_iomem("00000000-00000000 : System RAM\n") == ()
    assert frames([(1, PAGE_BYTES * 3 - 1)]) == ((1, 2),)


def test_a_pods_pages_are_those_of_its_group_and_its_containers(driver: Driver) -> None:
    driver.create("burstable/poda/main")
    inodes = [folder_of(driver, group).stat().st_ino for group in ("burstable/poda", "burstable/poda/main")]
    counted = Counter({inodes[0]: 1, inodes[1]: 2, 999_999_999: 4})
    reading = by_group(driver, Asked((("a", "burstable/poda"), ("b", "podb"))), counted, 10)
    assert reading.node_bytes == 70 * PAGE_BYTES
    assert reading.pods == {"a": 30 * PAGE_BYTES, "b": 0}


def test_idle_pages_are_those_marked_before_and_not_touched_since(driver: Driver, tmp_path: Path) -> None:
    first, pages = 512, 64
    start, end = first * PAGE_BYTES, (first + pages) * PAGE_BYTES
    proc = write(tmp_path / "proc", {"iomem": f"{start:x}-{end - 1:x} : System RAM\n"})
    inode = folder_of(driver, "burstable/poda").stat().st_ino
    (proc / "kpageflags").write_bytes(words(*[0] * first, *[FILE] * pages))
    (proc / "kpagecgroup").write_bytes(words(*[0] * first, *[inode] * pages))
    bitmap = write(tmp_path / "sys", {"kernel/mm/page_idle/bitmap": ""}) / "kernel/mm/page_idle/bitmap"
    bitmap.write_bytes(bytes(first // 8 + pages // 8))
    idle = ByPageIdle(driver, proc, tmp_path / "sys")
    asked = Asked((("a", "burstable/poda"),), (), True)
    assert idle.read(asked) is None, "nothing was marked before"
    assert bitmap.read_bytes()[first // 8 :] == b"\xff" * (pages // 8)
    bitmap.write_bytes(bytes(first // 8) + b"\x0f" + bytes(pages // 8 - 1))
    reading = idle.read(asked)
    idle.close()
    assert reading is not None
    assert (reading.node_bytes, reading.pods) == (4 * PAGE_BYTES, {"a": 4 * PAGE_BYTES})


def test_a_kernel_with_none_of_the_three_says_why(driver: Driver, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no kidled; no page_idle; kpageflags"):
        open_cold_memory(driver, tmp_path, tmp_path)


# -- counters ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(COUNTS, COUNTS, COUNTS, COUNTS), max_size=4))
def test_a_shared_counter_never_shrinks(rows: list[tuple[int, int, int, int]]) -> None:
    counts = [CpuCount(max(a, b), min(a, b), c, d) for a, b, c, d in rows]
    reading = summed(counts)
    assert reading.cycles >= sum(count.cycles for count in counts) * (1 - 1e-9)
    assert (reading.cpi is None) == (reading.instructions == 0)


@given(st.binary(max_size=48))
def test_only_two_counters_are_a_count(content: bytes) -> None:
    try:
        found = parse_count(content)
    except ValueError:
        return
    assert struct.unpack_from("=Q", content)[0] == 2
    assert found.cycles >= 0


def test_a_pods_cycles_are_those_of_its_containers() -> None:
    pods = (("a", "burstable/poda"), ("b", "podb"), ("c", "podc"))
    asked = Asked(pods, containers=("burstable/poda/main", "burstable/poda/side", "podc/main"))
    counted = {group: CpiReading(10.0, 5.0) for group in ("burstable/poda/main", "burstable/poda/side", "podb")}
    assert by_pod(asked, counted) == {"a": CpiReading(20.0, 10.0), "b": CpiReading(10.0, 5.0)}


# -- stalls ------------------------------------------------------------------------------------------------------------


class Stalling(Driver):
    """Its groups have pressure files."""

    def stat_path(self, group: str, stat: Stat) -> Path | None:
        beside = super().stat_path(group, Stat.MEMORY_STAT)
        return beside.parent / stat.value if beside is not None and stat in PRESSURE_STATS else super().stat_path(group, stat)


def test_stalls_of_containers_are_read_where_the_kernel_says_them(tmp_path: Path) -> None:
    driver = Stalling(tmp_path, "n1", version=CgroupVersion.V2)
    line = "avg10=1.50 avg60=0.00 avg300=0.00 total=9"
    for name, content in (("main", f"some {line}\nfull {line}\n"), ("torn", "some avg10=\n"), ("none", "")):
        driver.create(f"burstable/poda/{name}")
        if content:
            write(folder_of(driver, f"burstable/poda/{name}"), {"cpu.pressure": content})
    found = stalls.read(driver, Asked(containers=tuple(f"burstable/poda/{name}" for name in ("main", "torn", "none", "gone"))))
    assert list(found) == ["burstable/poda/main"]
    cpu = found["burstable/poda/main"].cpu
    assert cpu is not None
    assert (cpu.some.avg10, cpu.full_supported) == (1.5, True)


# -- resctrl -----------------------------------------------------------------------------------------------------------


def caches(root: Path, group: str, *values: tuple[str, str]) -> None:
    for cache, (occupancy, total) in enumerate(values):
        place = f"fs/resctrl/{group}mon_data/mon_L3_0{cache}"
        write(root, {f"{place}/llc_occupancy": occupancy, f"{place}/mbm_total_bytes": total})
    write(root, {"fs/resctrl/schemata": "L3:0=ff\n"})


def test_occupancy_is_a_sum_and_bandwidth_a_difference(tmp_path: Path) -> None:
    caches(tmp_path, "", ("100\n", "1000\n"), ("50\n", "Unavailable\n"))
    caches(tmp_path, "BE/", ("7\n", "500\n"))
    write(tmp_path, {"fs/resctrl/info/L3/cbm_mask": "ff\n", "fs/resctrl/empty/schemata": ""})
    resctrl = Resctrl(tmp_path)
    assert [(each.group, each.llc_bytes, each.bandwidth_bytes_per_second) for each in resctrl.read(10.0)] == [
        ("/", 150, 0),
        ("BE", 7, 0),
    ]
    assert resctrl.read(10.0)[0].caches == (CacheReading(0, 100, 1000), CacheReading(1, 50))
    caches(tmp_path, "", ("100\n", "3000\n"), ("50\n", "Unavailable\n"))
    caches(tmp_path, "BE/", ("7\n", "400\n"))
    assert [each.bandwidth_bytes_per_second for each in resctrl.read(20.0)] == [200, 0], "a counter that went back is no rate"


@given(st.text(max_size=12))
def test_a_cache_may_answer_anything(text: str) -> None:
    assert parse_counter(text) is None or text.strip().isdecimal()


# -- together ----------------------------------------------------------------------------------------------------------


def test_collectors_run_on_their_own_intervals_and_say_once_what_is_missing(driver: Driver, tmp_path: Path) -> None:
    proc = write(
        tmp_path / "proc",
        {"stat": "cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0\n", "cpuinfo": "", "self/mountinfo": ""},
    )
    sys = write(
        tmp_path / "sys",
        {
            "devices/system/cpu/online": "0",
            "devices/system/cpu/cpu0/topology/core_id": "0",
            "devices/system/node/node0/meminfo": "Node 0 MemTotal: 100 kB\nNode 0 MemFree: 40 kB\n",
        },
    )
    whole = GivenMachine(cpus=(0,), capacity_milli=1000, memory_bytes=GIB)
    reader = MachineReader("n1", whole, proc=proc, sys=sys, kubelet=tmp_path)
    collectors = SlowCollectors(driver, reader, proc=proc, sys=sys)
    collectors.round(Asked(), 100.0)
    collectors.round(Asked(), 100.0)
    facts = collectors.facts
    assert facts is not None
    assert sorted(facts.topology.unavailable) == ["cold-memory", "cpi", "resctrl"]
    assert collectors.next_due == 110.0
    (proc / "stat").write_text("cpu  0 0 0 0 0 0 0 0\ncpu0 750 0 0 0 0 0 0 0\n")
    collectors.round(Asked(cold_memory=True), 115.0)
    assert [(each.node, each.cpu_milli, each.memory_bytes) for each in collectors.readings.numa] == [(0, 500, 60 * 1024)]
    assert collectors.facts is facts, "what does not change stays the same object"
    assert collectors.readings.collected == {FACTS: Collected(2), DISKS: Collected(2), NUMA: Collected(2)}
    collectors.close()


@pytest.mark.parametrize(
    ("version", "content", "found"),
    [
        (CgroupVersion.V1, "total=30 N0=10 N1=20\nfile=1 N0=1 N1=0\n", [10 * 4096, 20 * 4096]),
        (CgroupVersion.V2, "anon N0=8192 N1=0\nfile N0=4096 N1=4096\n", [3 * 4096, 4096]),
        (CgroupVersion.V2, "anon N0\n", [None, None]),
        (CgroupVersion.V2, None, [None, None]),
    ],
)
def test_memory_of_the_best_effort_group_is_read_by_numa_node_where_the_kernel_says_it(
    tmp_path: Path, version: CgroupVersion, content: str | None, found: list[int | None]
) -> None:
    driver = SandboxDriver(tmp_path / "cgroup", "node", version=version)
    driver.create("besteffort")
    path = driver.stat_path("besteffort", Stat.MEMORY_NUMA)
    assert path is not None
    if content is not None:
        path.write_text(content)
    proc = write(tmp_path / "proc", {"stat": "cpu0 0 0 0 0 0 0 0 0\n"})
    meminfo = {f"devices/system/node/node{node}/meminfo": f"Node {node} MemTotal: 100 kB\n" for node in range(2)}
    usage = NumaReader(driver, proc, write(tmp_path / "sys", meminfo), {0: 0})
    assert usage.read(0) == ()
    assert [each.best_effort_bytes for each in usage.read(1_000_000_000)] == found


@pytest.mark.parametrize(
    ("version", "content"),
    [
        (CgroupVersion.V1, "total=1 N0=1\nhierarchical_total=3 N0=3\n"),
        (CgroupVersion.V2, f"anon N0={2 * 4096}\nfile N0=4096\n"),
    ],
)
def test_a_pods_pages_by_numa_node_are_those_of_its_group_and_the_groups_below(
    tmp_path: Path, version: CgroupVersion, content: str
) -> None:
    driver = SandboxDriver(tmp_path / "cgroup", "node", version=version)
    for group in ("poda", "podb"):
        driver.create(group)
        path = driver.stat_path(group, Stat.MEMORY_NUMA)
        assert path is not None
        path.write_text(content)
    proc = write(tmp_path / "proc", {"stat": "cpu0 0 0 0 0 0 0 0 0\n"})
    sys = write(tmp_path / "sys", {"devices/system/node/node0/meminfo": "Node 0 MemTotal: 100 kB\n"})
    usage = NumaReader(driver, proc, sys, {0: 0})
    asked = Asked((("a", "poda"), ("b", "podb"), ("gone", "podgone")))
    assert usage.read(0, asked) == ()
    assert [each.pods_bytes for each in usage.read(1_000_000_000, asked)] == [6 * 4096]


def test_a_failing_collector_is_named_and_the_others_go_on(driver: Driver, tmp_path: Path) -> None:
    class Broken(MachineReader):
        def read(self, rows: object = None) -> tuple[MachineTopology, str]:
            raise OSError("no such machine")

    whole = GivenMachine(cpus=(0,), capacity_milli=1000, memory_bytes=GIB)
    reader = Broken("n1", whole, proc=tmp_path, sys=tmp_path, kubelet=tmp_path)
    collectors = SlowCollectors(driver, reader, proc=tmp_path, sys=tmp_path)
    collectors.round(Asked(), 0.0)
    assert collectors.readings.unavailable["facts"] == "no such machine"
    assert collectors.readings.collected == {FACTS: Collected(failed=1)}


def test_cold_memory_that_somebody_else_took_over_is_tried_again(driver: Driver, tmp_path: Path) -> None:
    start, end = RAM[0]
    proc = write(tmp_path / "proc", {"iomem": f"{start:x}-{end - 1:x} : System RAM\n", "self/mountinfo": "", "cpuinfo": ""})
    (proc / "kpageflags").write_bytes(words(*[0, FILE, FILE, FILE, 0]))
    (proc / "kpagecgroup").write_bytes(words(*[0] * 5))
    sys = tmp_path / "sys"
    folder = kdamonds(sys)
    whole = GivenMachine(cpus=(0,), capacity_milli=1000, memory_bytes=GIB)
    reader = MachineReader("n1", whole, proc=proc, sys=sys, kubelet=tmp_path)
    collectors = SlowCollectors(driver, reader, proc=proc, sys=sys)
    collectors.round(Asked(), 0.0)
    assert (folder / "nr_kdamonds").read_text() == "0", "nobody asks"
    collectors.round(Asked(cold_memory=True), 1.0)
    assert collectors.readings.cold is not None
    assert collectors.readings.cold.node_bytes == 3 * PAGE_BYTES
    (folder / "0/state").unlink()
    (folder / "0/state").mkdir()
    collectors.round(Asked(cold_memory=True), 100.0)
    assert collectors.readings.cold is None
    assert "cold-memory" in collectors.readings.unavailable
    (folder / "0/state").rmdir()
    (folder / "0/state").write_text("off")
    (folder / "nr_kdamonds").write_text("0")
    collectors.round(Asked(cold_memory=True), 200.0)
    assert collectors.readings.cold is not None
    assert "cold-memory" not in collectors.readings.unavailable
    collectors.round(Asked(), 201.0)
    assert (folder / "nr_kdamonds").read_text() == "0"
    assert collectors.readings.cold is None


def test_the_worker_reads_beside_the_main_thread_and_puts_everything_back(driver: Driver, tmp_path: Path) -> None:
    sys = write(tmp_path / "sys", {"kernel/mm/kidled/scan_period_in_seconds": "120", "kernel/mm/kidled/use_hierarchy": "0"})
    write(folder_of(driver, "") / "host", {IDLE_STATS: idle_stats(cfei=50)})
    proc = write(tmp_path / "proc", {"self/mountinfo": "", "cpuinfo": "", "stat": "cpu0 0 0 0 0 0 0 0 0\n"})
    whole = GivenMachine(cpus=(0,), capacity_milli=1000, memory_bytes=GIB)
    reader = MachineReader("n1", whole, proc=proc, sys=sys, kubelet=tmp_path)
    worker = SlowWorker(SlowCollectors(driver, reader, proc=proc, sys=sys))
    worker.start()
    assert until(lambda: worker.facts is not None)
    worker.ask(Asked(cold_memory=True))
    assert until(lambda: worker.readings.cold is not None)
    assert (sys / "kernel/mm/kidled/scan_period_in_seconds").read_text() == "5"
    worker.close()
    assert (sys / "kernel/mm/kidled/scan_period_in_seconds").read_text() == "120"
