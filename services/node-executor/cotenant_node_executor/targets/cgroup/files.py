"""The registry of cgroup files: for every knob and counter its controller, its file on v1 and v2, and the valid values.

A value is validated in v1's units before it is written, so that an error of the executor is not mistaken for a refusal by the
kernel. Files that only the Anolis kernel has are registered too: probing finds out whether they exist.

Over 300 lines: most of it is the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from cotenant_node_executor.targets.convert import (
    MAX_SHARES,
    MIN_QUOTA_US,
    MIN_SHARES,
    int_or_max,
    max_or_int,
    memory_limit_v1,
    memory_limit_v2,
    parse_int,
    shares_to_weight,
)
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion, InvalidValueError, Knob, Stat
from cotenant_node_executor.targets.parse import parse_cfs_period, parse_cfs_quota, parse_cpu_shares

INT64_MAX = 2**63 - 1
_V2 = CgroupVersion.V2


def _same(text: str) -> str:
    return text


class KnobFile(msgspec.Struct, frozen=True):
    controller: str  # mounted on v1, enabled in cgroup.subtree_control on v2
    v1_file: str | None
    v2_file: str | None
    valid: Callable[[str], None]  # raises InvalidValueError
    v2_text: Callable[[str], str] = _same  # v1's units -> the text for v2's file
    v2_value: Callable[[str], str] = _same  # the text of v2's file -> v1's units
    v1_value: Callable[[str], str] = _same
    v2_read_file: str | None = None  # where v2 reads from another file than it writes

    def file(self, version: CgroupVersion) -> str | None:
        return self.v1_file if version is CgroupVersion.V1 else self.v2_file


def _between(low: int, high: int, *also: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        try:
            value = parse_int(text, "value")
        except ValueError as error:
            raise InvalidValueError(f"{text!r} is not an integer between {low} and {high}") from error
        if not (low <= value <= high or value in also):
            raise InvalidValueError(f"{text!r} is outside {low}..{high}")

    return check


def _cpu_list(text: str) -> None:
    try:
        parse_cpu_list(text)
    except ValueError as error:
        raise InvalidValueError(str(error)) from error


def _uclamp(text: str) -> None:
    """Percent with at most two decimals, or max."""
    whole, _, decimals = text.partition(".")
    number = whole + decimals
    if text != "max" and not (number.isascii() and number.isdecimal() and len(decimals) <= 2 and float(text) <= 100):
        raise InvalidValueError(f"{text!r} is not a percentage 0.00..100.00 or max")


def _device_line(text: str) -> None:
    """``<major>:<minor> <value...>``; one device a line, each written by itself."""
    for line in text.split("\n"):
        device, _, value = line.partition(" ")
        major, colon, minor = device.partition(":")
        if not (colon and major.isdecimal() and minor.isdecimal() and value.strip()):
            raise InvalidValueError(f"{line!r} is not '<major>:<minor> <value>'")


def _cost_weight(text: str) -> None:
    _device_line(text)
    for line in text.split("\n"):
        _between(1, 100)(line.partition(" ")[2])


def _weight(text: str) -> None:
    """One weight for all devices, or a line for each."""
    if ":" not in text:
        _between(1, 10000)(text.removeprefix("default "))
        return
    _device_line(text)
    for line in text.split("\n"):
        if line.partition(" ")[2] != "default":
            _between(1, 10000)(line.partition(" ")[2])


def _v2_max(text: str) -> str:
    return int_or_max(int(text))


def _max_value(text: str) -> str:
    return str(max_or_int(text, "value"))


_BYTES = _between(0, INT64_MAX, -1)
_FLAG = _between(0, 1)


def _everywhere(controller: str, file: str, valid: Callable[[str], None]) -> KnobFile:
    return KnobFile(controller, file, file, valid)


def _anolis_memory(file: str) -> KnobFile:
    return KnobFile("memory", file, file, _BYTES, v2_text=_v2_max, v2_value=_max_value, v1_value=_max_value)


def _v1_only(file: str, valid: Callable[[str], None]) -> KnobFile:
    return KnobFile("blkio", file, None, valid)


KNOB_FILES: dict[Knob, KnobFile] = {
    Knob.CPU_SHARES: KnobFile(
        "cpu",
        "cpu.shares",
        "cpu.weight",
        _between(MIN_SHARES, MAX_SHARES),
        v2_text=lambda text: str(shares_to_weight(int(text))),
        v2_value=lambda text: str(parse_cpu_shares(_V2, text)),
    ),
    Knob.CPU_QUOTA: KnobFile(
        "cpu",
        "cpu.cfs_quota_us",
        "cpu.max",
        _between(MIN_QUOTA_US, INT64_MAX // 1000, -1),
        v2_text=_v2_max,  # the period is unchanged
        v2_value=lambda text: str(parse_cfs_quota(_V2, text)),
    ),
    Knob.CPU_PERIOD: KnobFile(
        "cpu",
        "cpu.cfs_period_us",
        "cpu.max",
        _between(1000, 1_000_000),
        v2_value=lambda text: str(parse_cfs_period(_V2, text)),
    ),
    Knob.CPU_BURST: KnobFile("cpu", "cpu.cfs_burst_us", "cpu.max.burst", _between(0, INT64_MAX // 1000)),
    Knob.CPU_IDLE: _everywhere("cpu", "cpu.idle", _FLAG),
    Knob.CPU_BVT: _everywhere("cpu", "cpu.bvt_warp_ns", _between(-1, 2)),
    Knob.CPU_UCLAMP_MIN: _everywhere("cpu", "cpu.uclamp.min", _uclamp),
    Knob.CPU_UCLAMP_MAX: _everywhere("cpu", "cpu.uclamp.max", _uclamp),
    Knob.CPU_RT_PERIOD: KnobFile("cpu", "cpu.rt_period_us", None, _between(1000, 100_000_000)),
    Knob.CPU_RT_RUNTIME: KnobFile("cpu", "cpu.rt_runtime_us", None, _between(0, 100_000_000, -1)),
    Knob.CPUSET_CPUS: KnobFile("cpuset", "cpuset.cpus", "cpuset.cpus", _cpu_list, v2_read_file="cpuset.cpus.effective"),
    Knob.CPUSET_MEMS: KnobFile("cpuset", "cpuset.mems", "cpuset.mems", _cpu_list, v2_read_file="cpuset.mems.effective"),
    Knob.MEMORY_LIMIT: KnobFile(
        "memory",
        "memory.limit_in_bytes",
        "memory.max",
        _BYTES,
        v2_text=_v2_max,
        v2_value=lambda text: str(memory_limit_v2(text)),
        v1_value=lambda text: str(memory_limit_v1(text)),
    ),
    Knob.MEMORY_MIN: _anolis_memory("memory.min"),
    Knob.MEMORY_LOW: _anolis_memory("memory.low"),
    Knob.MEMORY_HIGH: _anolis_memory("memory.high"),
    Knob.MEMORY_WMARK_RATIO: _everywhere("memory", "memory.wmark_ratio", _between(0, 100)),
    Knob.MEMORY_WMARK_SCALE_FACTOR: _everywhere("memory", "memory.wmark_scale_factor", _between(1, 1000)),
    Knob.MEMORY_WMARK_MIN_ADJ: _everywhere("memory", "memory.wmark_min_adj", _between(-25, 50)),
    Knob.MEMORY_PRIORITY: _everywhere("memory", "memory.priority", _between(0, 12)),
    Knob.MEMORY_USE_PRIORITY_OOM: _everywhere("memory", "memory.use_priority_oom", _FLAG),
    Knob.MEMORY_OOM_GROUP: _everywhere("memory", "memory.oom.group", _FLAG),
    Knob.MEMORY_PAGECACHE_SIZE: _everywhere("memory", "memory.pagecache_limit.size", _between(0, INT64_MAX)),
    Knob.MEMORY_PAGECACHE_SYNC: _everywhere("memory", "memory.pagecache_limit.sync", _FLAG),
    Knob.MEMORY_PAGECACHE_ENABLE: _everywhere("memory", "memory.pagecache_limit.enable", _FLAG),
    Knob.BLKIO_READ_BPS: _v1_only("blkio.throttle.read_bps_device", _device_line),
    Knob.BLKIO_WRITE_BPS: _v1_only("blkio.throttle.write_bps_device", _device_line),
    Knob.BLKIO_READ_IOPS: _v1_only("blkio.throttle.read_iops_device", _device_line),
    Knob.BLKIO_WRITE_IOPS: _v1_only("blkio.throttle.write_iops_device", _device_line),
    Knob.BLKIO_COST_WEIGHT: _v1_only("blkio.cost.weight", _cost_weight),
    Knob.BLKIO_COST_QOS: _v1_only("blkio.cost.qos", _device_line),
    Knob.BLKIO_COST_MODEL: _v1_only("blkio.cost.model", _device_line),
    Knob.IO_MAX: KnobFile("io", None, "io.max", _device_line),
    Knob.IO_WEIGHT: KnobFile("io", None, "io.weight", _weight),
    Knob.IO_LATENCY: KnobFile("io", None, "io.latency", _device_line),
    Knob.PIDS_MAX: KnobFile(
        "pids",
        "pids.max",
        "pids.max",
        _between(0, 2**22, -1),
        v2_text=_v2_max,
        v2_value=_max_value,
        v1_value=_max_value,
    ),
}

# On v1 pids.max and Anolis' memory files use "max" for unlimited; every other v1 file uses -1.
V1_WRITES_MAX = frozenset((Knob.PIDS_MAX, Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH))


class StatFile(msgspec.Struct, frozen=True):
    v1_controller: str
    v1_file: str
    v2_file: str


# Pressure per group: Anolis exposes it below cpuacct, other kernels in the v2 hierarchy, even one without controllers.
STAT_FILES: dict[Stat, StatFile] = {
    Stat.CPU_USAGE: StatFile("cpuacct", "cpuacct.usage", "cpu.stat"),
    Stat.CPU_STAT: StatFile("cpu", "cpu.stat", "cpu.stat"),
    Stat.MEMORY_USAGE: StatFile("memory", "memory.usage_in_bytes", "memory.current"),
    Stat.MEMORY_STAT: StatFile("memory", "memory.stat", "memory.stat"),
    Stat.MEMORY_NUMA: StatFile("memory", "memory.numa_stat", "memory.numa_stat"),
    Stat.CPU_PRESSURE: StatFile("cpuacct", "cpu.pressure", "cpu.pressure"),
    Stat.MEMORY_PRESSURE: StatFile("cpuacct", "memory.pressure", "memory.pressure"),
    Stat.IO_PRESSURE: StatFile("cpuacct", "io.pressure", "io.pressure"),
}
PRESSURE_STATS = (Stat.CPU_PRESSURE, Stat.MEMORY_PRESSURE, Stat.IO_PRESSURE)


def check_value(knob: Knob, value: str) -> None:
    """Validate a value. Raises InvalidValueError that names the knob."""
    try:
        KNOB_FILES[knob].valid(value)
    except InvalidValueError as error:
        raise InvalidValueError(f"{knob.value}: {error}") from error


def kernel_text(version: CgroupVersion, knob: Knob, value: str) -> str:
    """The text to write into the file for a value in v1's units."""
    if version is CgroupVersion.V2:
        return KNOB_FILES[knob].v2_text(value)
    return "max" if knob in V1_WRITES_MAX and value == "-1" else value


def own_value(version: CgroupVersion, knob: Knob, content: str) -> str:
    """The file's content in v1's units. Raises ValueError on malformed content."""
    text = content.strip("\n")
    entry = KNOB_FILES[knob]
    return entry.v2_value(text) if version is CgroupVersion.V2 else entry.v1_value(text)


PAGE_BYTES = 4096
_PAGE_ROUNDED = frozenset((Knob.MEMORY_LIMIT, Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH))
_CPU_LISTS = frozenset((Knob.CPUSET_CPUS, Knob.CPUSET_MEMS))
_UCLAMP = frozenset((Knob.CPU_UCLAMP_MIN, Knob.CPU_UCLAMP_MAX))
UNSET_VALUES: dict[Knob, str] = {
    Knob.BLKIO_READ_BPS: "0",
    Knob.BLKIO_WRITE_BPS: "0",
    Knob.BLKIO_READ_IOPS: "0",
    Knob.BLKIO_WRITE_IOPS: "0",
    Knob.BLKIO_COST_WEIGHT: "100",
    Knob.BLKIO_COST_QOS: "enable=0",
    Knob.BLKIO_COST_MODEL: "ctrl=auto",
    Knob.IO_MAX: "rbps=max wbps=max riops=max wiops=max",
    Knob.IO_WEIGHT: "default",
    Knob.IO_LATENCY: "target=0",
}
"""What a device without a line of its own has."""
BY_DEVICE = frozenset(UNSET_VALUES)
"""Files with a line for each device, which the kernel takes one by one."""
_UNSET_WORDS = ("0", "default", "target=0", "enable=0")
"""The value of a device without a line."""


def _number_or_text(text: str) -> float | str:
    """The kernel shows some numbers with decimals."""
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else text


def _words(words: Iterable[str]) -> set[tuple[str, float | str]]:
    split = (word.rpartition("=") for word in words)
    return {(name, _number_or_text(value)) for name, _, value in split}


def _device_holds(line: str, present: str) -> bool:
    """Whether a device's line shows these words among others; a device without a line has no bounds."""
    device, *wanted = line.split()
    lines = (each.split() for each in present.split("\n"))
    found = [each[1:] for each in lines if each and each[0] == device]
    if not found:
        return all(word in _UNSET_WORDS or word.endswith("=max") for word in wanted)
    return _words(wanted) <= _words(word for each in found for word in each)


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices that a text has lines for, each once."""
    return tuple(dict.fromkeys(line.split()[0] for line in text.split("\n") if ":" in line.partition(" ")[0]))


def unset_text(knob: Knob, text: str) -> str:
    """Return the lines that take back a text with lines for devices; "" where there are none."""
    return "\n".join([f"{device} {UNSET_VALUES[knob]}" for device in devices_of(text)])


def holds(version: CgroupVersion, knob: Knob, wanted: str, present: str) -> bool:
    """Whether ``present``, as read and in v1's units, is what the kernel shows after ``wanted`` was written.

    CPU lists compare as sets, memory by whole pages, shares on v2 through their weight, device limits line by line.
    """
    if wanted == present:
        return True
    if knob in _CPU_LISTS:
        return parse_cpu_list(wanted) == parse_cpu_list(present)
    if knob in _PAGE_ROUNDED:
        return -1 not in (int(wanted), int(present)) and int(wanted) // PAGE_BYTES == int(present) // PAGE_BYTES
    if knob in _UCLAMP:
        return "max" not in (wanted, present) and float(wanted) == float(present)
    if knob is Knob.IO_WEIGHT and ":" not in wanted:
        return present.removeprefix("default ").split("\n")[0] == wanted.removeprefix("default ")
    if knob in BY_DEVICE:
        return all(_device_holds(line, present) for line in wanted.split("\n"))
    return knob is Knob.CPU_SHARES and own_value(version, knob, kernel_text(version, knob, wanted)) == present
