"""A machine's hardware: processors, NUMA nodes, CPU model, disks. Written by the node's executor when it changes."""

from __future__ import annotations

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Amount, Count


class LogicalCPU(Part, frozen=True, kw_only=True):
    """One logical CPU: its core, socket and NUMA node, each numbered across the machine."""

    cpu: Count
    core: Count = 0
    socket: Count = 0
    node: Count = 0


class NumaNode(Part, frozen=True, kw_only=True):
    """One NUMA node. `distances`: to each NUMA node in order of their numbers, the kernel's figures (10: to itself)."""

    node: Count = 0
    memory_bytes: Amount = 0
    hugepages_2mi: Count = 0
    hugepages_1gi: Count = 0
    distances: tuple[Count, ...] = ()


class CpuBasicInfo(Part, frozen=True, kw_only=True):
    """The input of CPU normalisation: the content of Koordinator's annotation `node.koordinator.sh/cpu-basic-info`."""

    cpu_model: str = ""
    vendor_id: str = ""
    hyper_thread_enabled: bool = False
    turbo_enabled: bool = False
    cat_l3_cbm_mask: str = ""


class KubeletPolicies(Part, frozen=True, kw_only=True):
    """The kubelet's policies where a kubelet runs the pods; empty texts elsewhere."""

    cpu_manager_policy: str = ""
    cpu_manager_options: dict[str, str] = {}
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    reserved_cpus: str = ""


class CpuPool(Part, frozen=True, kw_only=True):
    """The CPUs of one NUMA node that pods without CPUs of their own share; `cpuset` in the kernel's list format."""

    socket: Count = 0
    node: Count = 0
    cpuset: str = ""


class PodCpus(Part, frozen=True, kw_only=True):
    """CPUs that a kubelet assigned to a pod; namespace and name are empty where the pod is not known."""

    namespace: str = ""
    name: str = ""
    uid: str
    cpuset: str = ""


class Disk(Part, frozen=True, kw_only=True):
    """One block device."""

    name: str
    device: str = ""
    """major:minor"""
    rotational: bool = False
    size_bytes: Amount = 0
    partitions: tuple[str, ...] = ()
    volume_groups: tuple[str, ...] = ()
    """LVM volume groups that are on this disk alone."""
    mount_points: tuple[str, ...] = ()
    """Where it, its partitions and their logical volumes are mounted."""


class MachineTopology(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.topology`. The gateway composes the NodeResourceTopology from it; the calculator takes the CPU model
    and the zones from it.

    `unavailable`: what this kernel or machine cannot measure, with the reason, by collector (`cold-memory`, `cpi`, `resctrl`,
    ...).
    """

    TYPE = "cotenant.topology.v1"
    SUBJECT = "node.{node}.topology"

    node: str
    cpus: tuple[LogicalCPU, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    cpu: CpuBasicInfo = CpuBasicInfo()
    kubelet: KubeletPolicies = KubeletPolicies()
    disks: tuple[Disk, ...] = ()
    kernel: str = ""
    shared_pools: tuple[CpuPool, ...] = ()
    best_effort_pools: tuple[CpuPool, ...] = ()
    pod_cpus: tuple[PodCpus, ...] = ()
    reservation: str = ""
    """What the node's annotation reserves, as JSON: `reservedCPUs`, chosen where it names an amount alone, and its rest."""
    system_qos: str = ""
    """CPUs for system pods, as JSON: the node's annotation."""
    numa_reservation: bool = False
    """The node's reservation is subtracted from each zone's allocatable, in equal shares."""
    reserved_cpu_milli: Amount = 0
    reserved_memory_bytes: Amount = 0
    """Capacity without allocatable."""
    reason: str = ""
    """What differs from the report before it."""
    unavailable: dict[str, str] = {}
