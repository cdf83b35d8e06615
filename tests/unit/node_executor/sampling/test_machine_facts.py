"""What a machine is made of, read from an imitated /proc, /sys and kubelet folder; parsers against rubbish."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.topology import Disk
from cotenant_node_executor.sampling import disks, machine
from cotenant_node_executor.sampling.cpu_info import cpu_model, logical_cpus, parse_lscpu, read_cpus
from cotenant_node_executor.sampling.given import GivenMachine, given_machine
from cotenant_node_executor.sampling.kubelet import parse_kubelet_config
from cotenant_node_executor.sampling.machine import MachineReader, processors_of
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies
from tests.unit.node_executor.sampling.trees import write

GIB = 1 << 30
WORDS = st.lists(st.sampled_from(["0", "1", "-", "yes", "0:0:0:0", "0:0:0", "x", '"', 'NAME="a"', "\n", "²", "7"]), max_size=40)
CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: "static"   # a comment
topologyManagerPolicy: restricted
topologyManagerScope: pod
cpuManagerPolicyOptions:
  full-pcpus-only: "true"
authentication:
  anonymous:
    enabled: false
kubeReserved:
  cpu: 500m
  memory: 1Gi
systemReserved:
  cpu: 700m
clusterDNS:
- 10.0.0.10
"""


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two sockets of two NUMA nodes, two cores a node, two threads a core; sysfs numbers cores within their socket."""
    files = {"devices/system/cpu/online": "0-15\n", "devices/system/cpu/smt/active": "1\n"}
    for cpu in range(16):
        socket, core = cpu % 8 // 4, cpu % 4
        place = f"devices/system/cpu/cpu{cpu}"
        files |= {
            f"{place}/topology/core_id": f"{core}\n",
            f"{place}/topology/physical_package_id": f"{socket}\n",
            f"{place}/cache/index3/id": f"{socket}\n",
            f"{place}/node{cpu % 8 // 2}/here": "",
        }
    for node in range(4):
        place = f"devices/system/node/node{node}"
        files |= {
            f"{place}/meminfo": f"Node {node} MemTotal: {1 << 20} kB\nNode {node} MemFree: 1024 kB\n",
            f"{place}/distance": "10 12 21 21\n",
            f"{place}/hugepages/hugepages-2048kB/nr_hugepages": "8\n",
            f"{place}/hugepages/hugepages-1048576kB/nr_hugepages": "0\n",
        }
    files["devices/system/node/node4/meminfo"] = "Node 4 MemTotal: 1024 kB\n"
    files["devices/system/node/has_generic_initiator"] = "4\n"
    files |= {"block/vda/size": "2048\n", "block/vda/dev": "254:0\n", "block/vda/queue/rotational": "0\n"}
    files["block/loop0/size"] = "1\n"
    return write(tmp_path / "sys", files)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\n\nprocessor\t: 1\nmodel name\t: Other\n"
    return write(tmp_path / "proc", {"cpuinfo": text, "self/mountinfo": "1 0 254:0 / / rw - ext4 /dev/vda rw\n"})


def reader(proc: Path, sys: Path, kubelet: Path, part: GivenMachine | None = None) -> MachineReader:
    everything = GivenMachine(cpus=tuple(range(16)), capacity_milli=16000, memory_bytes=4 * GIB)
    return MachineReader("n1", part or everything, proc=proc, sys=sys, kubelet=kubelet, kernel="6.12")


def test_cores_are_numbered_across_the_machine(sys: Path) -> None:
    cpus = logical_cpus(read_cpus(sys / "devices/system/cpu"))
    assert [cpu.core for cpu in cpus] == [*range(8), *range(8)]
    assert [(cpu.socket, cpu.node) for cpu in cpus][:8] == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 2), (1, 2), (1, 3), (1, 3)]


def test_a_machine_is_read_from_its_files(proc: Path, sys: Path, tmp_path: Path) -> None:
    topology, state = reader(proc, sys, tmp_path / "none").read()
    assert state == ""
    assert (topology.cpu.cpu_model, topology.cpu.vendor_id, topology.cpu.hyper_thread_enabled) == ("Xeon", "GenuineIntel", True)
    assert [numa.node for numa in topology.numa_nodes] == [0, 1, 2, 3], "a device's memory is no NUMA node of ours"
    assert topology.numa_nodes[1].memory_bytes == GIB
    assert topology.numa_nodes[1].hugepages_2mi == 8
    assert topology.numa_nodes[0].distances == (10, 12, 21, 21)
    assert [(disk.name, disk.device, disk.size_bytes) for disk in topology.disks] == [("vda", "254:0", 2048 * 512)]
    assert topology.kubelet.cpu_manager_policy == ""


def test_only_the_cpus_that_the_node_is_given_are_its_machine(proc: Path, sys: Path, tmp_path: Path) -> None:
    part = GivenMachine(cpus=(0, 8), capacity_milli=2000, memory_bytes=GIB, memory_stat="there")
    topology, _ = reader(proc, sys, tmp_path, part).read()
    assert [cpu.cpu for cpu in topology.cpus] == [0, 8]
    assert sum(numa.memory_bytes for numa in topology.numa_nodes) == GIB, "each NUMA node has its share of the limit"


def test_a_kubelets_policies_and_state_are_read(proc: Path, sys: Path, tmp_path: Path) -> None:
    kubelet = write(tmp_path / "kubelet", {"config.yaml": CONFIG, "cpu_manager_state": '{"entries": {}}'})
    topology, state = reader(proc, sys, kubelet).read()
    assert topology.kubelet.cpu_manager_policy == "static"
    assert topology.kubelet.cpu_manager_options == {"full-pcpus-only": "true"}
    assert topology.kubelet.topology_manager_policy == "restricted"
    assert topology.kubelet.reserved_cpus == "0,8", "1.2 CPUs are two, of one core"
    assert state == '{"entries": {}}'


def test_a_kubelet_that_cannot_start_is_named(proc: Path, sys: Path, tmp_path: Path) -> None:
    kubelet = write(tmp_path / "kubelet", {"config.yaml": "cpuManagerPolicy: static\n"})
    topology, _ = reader(proc, sys, kubelet).read()
    assert "systemReserved" in topology.unavailable["kubelet"]


def test_disks_are_looked_at_again_only_when_mounts_change(
    proc: Path, sys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def answer(words: tuple[str, ...]) -> str:
        ran.append(words[0])
        texts = {
            "lsblk": 'NAME="vda" TYPE="disk" MAJ:MIN="254:0"\nNAME="vda1" TYPE="part" MAJ_MIN="254:1"\n',
            "findmnt": 'TARGET="/" SOURCE="/dev/vda1"\n',
        }
        if words[0] not in texts:
            raise OSError(f"no {words[0]}")
        return texts[words[0]]

    monkeypatch.setattr(machine, "run_command", answer)
    made = reader(proc, sys, tmp_path)
    first, _ = made.read()
    assert first.disks[0].partitions == ("/dev/vda1",)
    assert first.disks[0].mount_points == ("/",)
    made.read()
    assert ran == ["lsblk", "findmnt", "vgs"]
    (proc / "self/mountinfo").write_text("another")
    made.read()
    assert ran == ["lsblk", "findmnt", "vgs"] * 2


def test_volume_groups_on_one_disk_belong_to_it() -> None:
    devices = disks.parse_lsblk('NAME="sda" TYPE="disk" MAJ:MIN="8:0"\nNAME="sda2" TYPE="part" MAJ:MIN="8:2"')
    groups = disks.parse_vgs(" data 1 /dev/sda2\n wide 2 /dev/sda2\n", devices)
    assert groups == {"data": "/dev/sda"}
    volumes = disks.parse_lvs(" lv-a data\n")
    mounts = disks.parse_findmnt('TARGET="/x y" SOURCE="/dev/mapper/data-lv--a"')
    found = disks.with_contents([Disk(name="sda")], devices, groups, volumes, mounts)
    assert found[0].volume_groups == ("data",)
    assert found[0].mount_points == ("/x y",)


@given(WORDS)
def test_parsers_take_rubbish_for_an_error_at_worst(words: list[str]) -> None:
    text = " ".join(words)
    for parse in (parse_lscpu, disks.parse_lsblk, disks.parse_lvs, disks.parse_findmnt):
        try:
            parse(text)
        except ValueError:
            continue


@given(st.text(max_size=200))
def test_a_kubelets_file_and_cpuinfo_may_hold_anything(text: str) -> None:
    assert parse_kubelet_config(text).cpu_manager_policy
    assert cpu_model(text)[0]


def test_a_machine_of_which_nothing_is_known_has_a_core_for_each_cpu(tmp_path: Path) -> None:
    assert read_cpus(tmp_path) == ()
    rows = processors_of((), (0, 3))
    assert [(row.cpu, row.core, row.socket) for row in rows.values()] == [(0, 0, 0), (3, 3, 0)]


# -- the part that a node is given -------------------------------------------------------------------------------------


def v2(root: Path, files: Mapping[str, str]) -> Hierarchies:
    write(root, {"cgroup.procs": "", **files})
    return Hierarchies({}, root, ("cpu", "memory", "cpuset"), {"": "pod/main"})


def part_of(hierarchies: Hierarchies, group: str = "pod", cpus: int = 8) -> GivenMachine:
    every = frozenset(range(cpus))
    return given_machine(hierarchies, {"": group}, every, every, 16 * GIB)


def test_without_limits_the_whole_machine_is_given(tmp_path: Path) -> None:
    found = part_of(v2(tmp_path, {"pod/cpu.max": "max 100000\n", "pod/memory.max": "max\n"}))
    assert (found.capacity_milli, found.memory_bytes, found.whole) == (8000, 16 * GIB, True)
    assert (found.cpu_usage, found.memory_stat) == ("", "")


def test_a_containers_cpuset_is_its_capacity(tmp_path: Path) -> None:
    found = part_of(v2(tmp_path, {"cpuset.cpus.effective": "2-3\n"}))
    assert (found.cpus, found.capacity_milli, found.whole) == ((2, 3), 2000, False)
    assert found.cpu_usage == "", "its CPUs' own lines in /proc/stat tell what is used"


def test_the_smallest_limit_around_counts_and_its_group_tells_the_usage(tmp_path: Path) -> None:
    files = {
        "a/cpu.max": "150000 100000\n",
        "a/b/cpu.max": "400000 100000\n",
        "memory.max": f"{2 * GIB}\n",
        "a/b/memory.max": f"{3 * GIB}\n",
    }
    found = part_of(v2(tmp_path, files), "a/b")
    assert (found.capacity_milli, found.cpu_usage) == (1500, str(tmp_path / "a/cpu.stat"))
    assert (found.memory_bytes, found.memory_stat) == (2 * GIB, str(tmp_path / "memory.stat"))


def test_limits_of_v1_are_read_in_their_own_hierarchies(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "cpu/g/cpu.cfs_quota_us": "50000",
            "cpu/g/cpu.cfs_period_us": "100000",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/g/memory.limit_in_bytes": str(GIB),
            "cpuset/g/cpuset.effective_cpus": "0-3",
        },
    )
    mounts = {name: tmp_path / name for name in ("cpu", "cpuacct", "cpuset", "memory")}
    found = part_of(Hierarchies(mounts, None, (), {}), "g")
    assert (found.capacity_milli, found.cpu_usage) == (500, str(tmp_path / "cpuacct/g/cpuacct.usage"))
    assert (found.memory_bytes, found.memory_stat) == (GIB, str(tmp_path / "memory/g/memory.stat"))
    assert found.cpus == (0, 1, 2, 3)


@given(st.text(max_size=12), st.text(max_size=12), st.text(max_size=12))
def test_limits_that_cannot_be_read_limit_nothing_below_one_milli(
    tmp_path_factory: pytest.TempPathFactory, a: str, b: str, c: str
) -> None:
    root = tmp_path_factory.mktemp("groups")
    ascii_only = (text.encode("ascii", "replace").decode() for text in (a, b, c))
    files = dict(zip(("pod/cpu.max", "pod/memory.max", "cpuset.cpus.effective"), ascii_only, strict=True))
    found = part_of(v2(root, files))
    assert 1 <= found.capacity_milli <= 8000
    assert 0 < found.memory_bytes <= 16 * GIB
