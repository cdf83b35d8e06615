"""Logical CPUs, and the caches that they share: the text of `lscpu`, and the same rows from sysfs.

In: the output of `lscpu -e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE`, or the folder /sys/devices/system/cpu. Out: one row a CPU,
ordered by (node, socket, core, cpu). Source: koordlet's nodeinfo collector.

Only lines of lscpu with six words of which CPU, SOCKET and CORE are numbers count; an invalid node counts as 0.
CACHE is `L1d:L1i:L2[:L3]`. Cores are numbered across the machine, as lscpu does: sysfs numbers them within their socket.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cotenant.events.node.topology import LogicalCPU
from cotenant.model.cpu_lists import parse_cpu_list
from cotenant_node_executor.targets.cgroup.tree import read_file

LSCPU = ("lscpu", "-e=CPU,NODE,SOCKET,CORE,CACHE,ONLINE")
_WORDS, _LEAST_CACHES = 6, 3


class CpuRow(msgspec.Struct, frozen=True):
    """One logical CPU. `l1l2`: which L1 cache it uses, `l3`: which L3 cache. `online`: lscpu's text, in any language."""

    cpu: int
    core: int
    socket: int
    node: int
    l1l2: str = ""
    l3: int = 0
    online: str = "yes"


class Totals(msgspec.Struct, frozen=True):
    """The CPUs of each core, NUMA node, socket and L3 cache, in the order of the rows."""

    number_cpus: int
    core: dict[int, list[int]]
    node: dict[int, list[int]]
    socket: dict[int, list[int]]
    l3: dict[int, list[int]]


def _number(word: str) -> int | None:
    return int(word) if word.isascii() and word.isdecimal() else None


def _row(words: list[str]) -> CpuRow | None:
    if len(words) < _WORDS:
        return None
    cpu, socket, core = (_number(words[index]) for index in (0, 2, 3))
    caches = words[4].split(":")
    if cpu is None or socket is None or core is None or len(caches) < _LEAST_CACHES:
        return None
    l3 = _number(caches[3]) if len(caches) > _LEAST_CACHES else 0
    if l3 is None:
        return None
    return CpuRow(cpu, core, socket, _number(words[1]) or 0, caches[0], l3, words[5])


def _ordered(rows: Iterable[CpuRow]) -> tuple[CpuRow, ...]:
    return tuple(sorted(rows, key=lambda row: (row.node, row.socket, row.core, row.cpu)))


def parse_lscpu(content: str) -> tuple[CpuRow, ...]:
    """Return the CPUs that lscpu prints. Raises ValueError where none of its lines is one."""
    rows = [row for line in content.split("\n") if (row := _row(line.split())) is not None]
    if not rows:
        raise ValueError("lscpu: no line has a CPU with its socket and core")
    return _ordered(rows)


def totals(rows: Iterable[CpuRow]) -> Totals:
    """Group the CPUs of a machine."""
    listed = tuple(rows)
    found: tuple[defaultdict[int, list[int]], ...] = tuple(defaultdict(list) for _ in range(4))
    for row in listed:
        for group, key in zip(found, (row.core, row.node, row.socket, row.l3), strict=True):
            group[key].append(row.cpu)
    return Totals(len(listed), *(dict(group) for group in found))


def logical_cpus(rows: Iterable[CpuRow]) -> tuple[LogicalCPU, ...]:
    """Return the CPUs as the machine's topology lists them, by number."""
    cpus = [LogicalCPU(cpu=row.cpu, core=row.core, socket=row.socket, node=row.node) for row in rows]
    return tuple(sorted(cpus, key=lambda cpu: cpu.cpu))


def read_cpus(folder: Path) -> tuple[CpuRow, ...]:
    """Return the online CPUs that sysfs lists; none where it does not state their place (some virtual machines)."""
    found: list[tuple[int, int, int, int, int]] = []
    try:
        online = parse_cpu_list(read_file(folder / "online") or "")
    except ValueError:
        online = ()
    for cpu in online:
        place = folder / f"cpu{cpu}"
        core, socket = _read_number(place / "topology/core_id"), _read_number(place / "topology/physical_package_id")
        if core is None:
            continue
        nodes = sorted(path.name.removeprefix("node") for path in place.glob("node[0-9]*"))
        node = _number(nodes[0]) if nodes else None
        found.append((cpu, core, socket or 0, node or 0, _read_number(place / "cache/index3/id") or 0))
    cores = {key: number for number, key in enumerate(sorted({(socket, core) for _, core, socket, _, _ in found}))}
    return _ordered(
        CpuRow(cpu, cores[socket, core], socket, node, str(cores[socket, core]), l3) for cpu, core, socket, node, l3 in found
    )


def _read_number(path: Path) -> int | None:
    return _number((read_file(path) or "").strip())


def cpu_model(cpuinfo: str) -> tuple[str, str]:
    """Return the model and the vendor of a machine's first CPU, from /proc/cpuinfo; `unknown` for a model that is not named."""
    model, vendor = "", ""
    for line in cpuinfo.split("\n"):
        key, colon, value = line.partition(":")
        name = key.strip()
        if not colon:
            continue
        if not model and name in ("model name", "Model Name"):
            model = value.strip()
        elif not vendor and name in ("vendor_id", "CPU implementer"):
            vendor = value.strip()
    return model or "unknown", vendor
