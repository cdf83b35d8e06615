"""The machine's hardware, read from /proc, /sys and the kubelet's files: CPUs, NUMA nodes, disks, policies.

In: the CPUs and memory that the node may use. Out: ``MachineFacts``. CPUs come from sysfs, from `lscpu` if it has
none. Contents of disks come from `lsblk`, `findmnt` and LVM's tools, which run only when the list of disks or mounts has
changed. NUMA nodes of other devices are left out. If memory is limited, each NUMA node has its share of the limit.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from cotenant.domain.cpu_pools import KubeletConfig, kubelet_reserved_cpus
from cotenant.events.node.topology import CpuBasicInfo, Disk, KubeletPolicies, MachineTopology, NumaNode
from cotenant.model.cpu_lists import parse_cpu_list
from cotenant.model.quantities import QuantityError
from cotenant_node_executor.sampling.cpu_info import LSCPU, CpuRow, cpu_model, logical_cpus, parse_lscpu, read_cpus, totals
from cotenant_node_executor.sampling.disks import (
    FINDMNT,
    LSBLK,
    LVS,
    VGS,
    parse_findmnt,
    parse_lsblk,
    parse_lvs,
    parse_vgs,
    with_contents,
)
from cotenant_node_executor.sampling.given import GivenMachine
from cotenant_node_executor.sampling.kubelet import parse_kubelet_config
from cotenant_node_executor.sampling.proc import HUGEPAGE_KB, hugepages_bytes, parse_numa_meminfo_kb
from cotenant_node_executor.targets.cgroup.tree import read_file

DISKS, KUBELET = "disks", "kubelet"
"""What may be unavailable."""
COMMAND_SECONDS = 5.0
_NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd")
_SECTOR_BYTES = 512


def run_command(words: tuple[str, ...]) -> str:
    """Return what a command prints. Raises OSError where it is missing, fails or takes longer than COMMAND_SECONDS."""
    environment = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "LC_ALL": "C"}
    try:
        done = subprocess.run(words, capture_output=True, timeout=COMMAND_SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{words[0]} takes longer than {COMMAND_SECONDS:g} s") from error
    if done.returncode:
        raise OSError(f"{words[0]} ends with {done.returncode}: {done.stderr.decode(errors='replace').strip()[:200]}")
    return done.stdout.decode(errors="replace")


def machine_cpus(sys: Path) -> tuple[CpuRow, ...]:
    """Return the online CPUs; none where neither sysfs nor lscpu lists them."""
    rows = read_cpus(sys / "devices/system/cpu")
    if rows:
        return rows
    try:
        return parse_lscpu(run_command(LSCPU))
    except (OSError, ValueError):
        return ()


class MachineReader:
    """Reads the facts of one machine; costly readings are cached until their inputs change."""

    def __init__(
        self, node: str, given: GivenMachine, *, proc: Path, sys: Path, kubelet: Path, kernel: str = ""
    ) -> None:
        self._node, self._given, self._kernel = node, given, kernel
        self._proc, self._sys, self._kubelet = proc, sys, kubelet
        self._disks: tuple[tuple[str, str], tuple[Disk, ...], str] | None = None
        """The inputs of the last reading, the disks, and why their contents are unknown."""

    def read(self, rows: tuple[CpuRow, ...] | None = None) -> tuple[MachineTopology, str]:
        """Return the topology, and the text of a kubelet's `cpu_manager_state`, empty where there is none."""
        rows = machine_cpus(self._sys) if rows is None else rows
        own = frozenset(self._given.cpus)
        cpus = logical_cpus(row for row in rows if row.cpu in own)
        config = self._config()
        unavailable: dict[str, str] = {}
        reserved = ""
        if config is not None:
            try:
                reserved = kubelet_reserved_cpus(cpus, config)
            except (ValueError, QuantityError) as error:
                unavailable[KUBELET] = str(error)
        disks, why = self._read_disks()
        if why:
            unavailable[DISKS] = why
        policies = KubeletPolicies()
        if config is not None:
            policies = KubeletPolicies(
                cpu_manager_policy=config.cpu_manager_policy,
                cpu_manager_options=config.cpu_manager_policy_options,
                topology_manager_policy=config.topology_manager_policy,
                topology_manager_scope=config.topology_manager_scope,
                reserved_cpus=reserved,
            )
        topology = MachineTopology(
            node=self._node,
            cpus=cpus,
            numa_nodes=self._numa_nodes(),
            cpu=self._basic_info(rows),
            kubelet=policies,
            disks=disks,
            kernel=self._kernel,
            unavailable=unavailable,
        )
        state = read_file(self._kubelet / "cpu_manager_state") if config is not None else None
        return topology, state or ""

    def _config(self) -> KubeletConfig | None:
        """The kubelet's configuration; None where no kubelet runs here."""
        try:
            content = read_file(self._kubelet / "config.yaml")
        except OSError:
            return None
        return parse_kubelet_config(content) if content is not None else None

    def _basic_info(self, rows: tuple[CpuRow, ...]) -> CpuBasicInfo:
        cpu = self._sys / "devices/system/cpu"
        model, vendor = cpu_model(_text(self._proc / "cpuinfo"))
        smt = _text(cpu / "smt/active")
        threads = any(len(cpus) > 1 for cpus in totals(rows).core.values())
        return CpuBasicInfo(
            cpu_model=model,
            vendor_id=vendor,
            hyper_thread_enabled=smt == "1" if smt else threads,
            turbo_enabled=_text(cpu / "intel_pstate/no_turbo") == "0",
            cat_l3_cbm_mask=_text(self._sys / "fs/resctrl/info/L3/cbm_mask"),
        )

    def _numa_nodes(self) -> tuple[NumaNode, ...]:
        folder = self._sys / "devices/system/node"
        try:
            foreign = set(parse_cpu_list(_text(folder / "has_generic_initiator")))
        except ValueError:
            foreign = set()
        numbers = sorted(int(name) for path in folder.glob("node[0-9]*") if (name := path.name[4:]).isdecimal())
        found = [self._numa_node(folder / f"node{number}", number) for number in numbers if number not in foreign]
        total = sum(numa.memory_bytes for numa in found)
        if not found:
            return (NumaNode(node=0, memory_bytes=self._given.memory_bytes),)
        if total <= self._given.memory_bytes or not self._given.memory_stat:
            return tuple(found)
        return tuple(
            msgspec.structs.replace(numa, memory_bytes=numa.memory_bytes * self._given.memory_bytes // total) for numa in found
        )

    def _numa_node(self, folder: Path, number: int) -> NumaNode:
        memory = parse_numa_meminfo_kb(_text(folder / "meminfo"))
        counts = {
            name: int(text)
            for name in HUGEPAGE_KB
            if (text := _text(folder / f"hugepages/{name}/nr_hugepages")).isdecimal()
        }
        sizes = {resource: size_kb * 1024 for size_kb, resource in HUGEPAGE_KB.values()}
        pages = {resource: amount // sizes[resource] for resource, amount in hugepages_bytes(counts).items()}
        return NumaNode(
            node=number,
            memory_bytes=memory.get("MemTotal", 0) * 1024,
            hugepages_2mi=pages["hugepages-2Mi"],
            hugepages_1gi=pages["hugepages-1Gi"],
            distances=tuple(int(word) for word in _text(folder / "distance").split() if word.isdecimal()),
        )

    def _read_disks(self) -> tuple[tuple[Disk, ...], str]:
        names = sorted(path.name for path in (self._sys / "block").glob("*") if not path.name.startswith(_NO_DISKS))
        cause = (",".join(names), _text(self._proc / "self/mountinfo"))
        if self._disks is None or self._disks[0] != cause:
            disks = tuple(self._disk(name) for name in names)
            self._disks = (cause, *_with_contents(disks))
        return self._disks[1], self._disks[2]

    def _disk(self, name: str) -> Disk:
        folder = self._sys / "block" / name
        size = _text(folder / "size")
        return Disk(
            name=name,
            device=_text(folder / "dev"),
            rotational=_text(folder / "queue/rotational") == "1",
            size_bytes=int(size) * _SECTOR_BYTES if size.isdecimal() else 0,
        )


def _with_contents(disks: tuple[Disk, ...]) -> tuple[tuple[Disk, ...], str]:
    """Return the disks with their contents, and why these are unknown. A machine without LVM has no volume groups."""
    if not disks:
        return (), ""
    try:
        devices = parse_lsblk(run_command(LSBLK))
        mounts = parse_findmnt(run_command(FINDMNT))
    except (OSError, ValueError) as error:
        return disks, str(error)
    try:
        groups, volumes = parse_vgs(run_command(VGS), devices), parse_lvs(run_command(LVS))
    except (OSError, ValueError):
        groups, volumes = {}, {}
    return with_contents(disks, devices, groups, volumes, mounts), ""


def _text(path: Path) -> str:
    """Return a file's text without blanks around it; empty where it is missing or cannot be read."""
    try:
        return (read_file(path) or "").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def processors_of(rows: Iterable[CpuRow], cpus: Iterable[int]) -> dict[int, CpuRow]:
    """Return the row of each CPU; one without information is a core of its own on socket 0."""
    known = {row.cpu: row for row in rows}
    return {cpu: known.get(cpu, CpuRow(cpu, cpu, 0, 0)) for cpu in cpus}
