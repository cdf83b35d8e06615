"""The inputs of a strategy in one cycle: the node, its placed pods, the node SLO, the newest sample, present file values.

In: state of the core. Out: one frozen struct. Groups are paths below the executor's own root; CPU is in milli-CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cotenant.domain.node import overcommitted_amounts
from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.sampling.latency.readings import NO_SERVICES, Services
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.threads import NO_THREADS, Threads
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.targets.disks import NO_DEVICES, Storage, VolumeDevices
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob, NodeCapabilities
from cotenant_node_executor.targets.other.realtime import NO_REALTIME, RealtimeState

_BELOW_BESTEFFORT = f"{BESTEFFORT}/"


class Processor(Struct, frozen=True):
    """One logical CPU and its position in the topology."""

    cpu: int
    core: int
    socket: int
    node: int


class ResctrlFacts(Struct, frozen=True):
    """The resctrl file system of this machine. `root_schemata`: the root's text, whose domains have the ids that
    every group's have; `cbm_mask`: all cache ways, in hexadecimal; `in_mbps`: memory bandwidth is in MB/s, else in percent."""

    root_schemata: str
    cbm_mask: str
    vendor: str
    in_mbps: bool = False


class LocalNode(Struct, frozen=True):
    """Size and topology of this machine."""

    name: str
    capacity_milli: int
    allocatable_milli: int
    memory_bytes: int
    processors: tuple[Processor, ...]
    kubelet_pods: bool = False
    """Kubelet runs the pods of this node: it admits, starts and ends them, in control groups that it creates."""
    kubelet_cpu_policy: str = ""
    """CPU manager policy of the kubelet that runs the pods; "" where there is none."""
    manages_batch_cpus: bool = False
    """Batch pods are bound to the NUMA nodes that they were given, instead of being suppressed (koordlet's BECPUManager)."""
    resctrl: ResctrlFacts | None = None
    network_device: str = ""
    """The device of the default route; "" where there is none."""


class BestEffortTree(Struct, frozen=True):
    """The input of suppression by CPU set."""

    groups: frozenset[str]
    """The best-effort group and its descendants, except pods with exclusive CPUs."""
    owners: Mapping[int, str]
    """QoS class of the pod that holds each exclusive CPU."""


class Situation(Struct, frozen=True):
    """One cycle's inputs. `current`: present values of the watched files."""

    node: LocalNode
    capabilities: NodeCapabilities
    pods: Mapping[str, PodView]
    """Placed pods with an existing group, by group."""
    groups: frozenset[str]
    """Every group below the root, including those without a manifest, such as YARN's containers."""
    tree: BestEffortTree
    slo: NodeSLORendered | None
    snapshot: UsageSnapshot | None
    current: Mapping[tuple[str, Knob], str]
    burstable_milli: int = 0
    """The sum of the burstable pods' CPU requests."""
    identity_sysctl: int | None = None
    """Group identity's sysctl, None where this kernel has none."""
    resources: NodeResources | None = None
    """The overcommitted resources of the node, None before they are known."""
    evicting: frozenset[str] = frozenset()
    """Uids of pods that are being ended: their usage and requests are about to disappear."""
    storage: Storage = Storage()
    """This machine's block devices."""
    spike: UsageSnapshot | None = None
    """The sample with the services' CPU as measured since, where it rose suddenly."""
    threads: Threads = NO_THREADS
    """Usage of the threads of busy pods, by the pod's group."""
    realtime: RealtimeState = NO_REALTIME
    """The actions of the real-time guard."""
    cold: Mapping[str, int] | None = None
    """Page cache that was not accessed for minutes, by the pod's uid; None where it is not measured. One object a reading."""
    services: Services = NO_SERVICES
    """Services' reports of their own latency."""
    volumes: VolumeDevices = NO_DEVICES
    """The devices of pods' volumes, as far as their containers show them."""

    @property
    def offered(self) -> Mapping[str, int]:
        """The batch and mid resources that the node offers, by name; empty while they are unknown or withdrawn."""
        resources = self.resources
        return {} if resources is None or resources.withdrawn else overcommitted_amounts(resources)


def holding_cpus(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """The pods with exclusive CPUs, by name."""
    return tuple(sorted([pod for pod in pods if pod.bound_cpus], key=lambda pod: (pod.namespace, pod.name)))


def in_best_effort_tree(group: str) -> bool:
    """Whether a group is the best-effort group or below it."""
    return group == BESTEFFORT or group.startswith(_BELOW_BESTEFFORT)


def best_effort_tree(holding: Sequence[PodView], groups: Iterable[str]) -> BestEffortTree:
    """The best-effort tree of these groups, with the pods' exclusive CPUs; if two pods hold a CPU the last one wins."""
    alone = tuple(f"{pod.group}/" for pod in holding if pod.qos in (QoSClass.LSE, QoSClass.LSR))
    tree = [group for group in groups if in_best_effort_tree(group)]
    if alone:
        tree = [group for group in tree if not f"{group}/".startswith(alone)]
    return BestEffortTree(groups=frozenset(tree), owners=cpu_owners((pod.qos.value, pod.bound_cpus) for pod in holding))


def cpu_owners(bound: Iterable[tuple[str, frozenset[int]]]) -> dict[int, str]:
    """QoS class by CPU from (class of the pod, its CPUs); if two pods hold a CPU the last one wins."""
    owners: dict[int, str] = {}
    for qos, cpus in bound:
        for cpu in sorted(cpus):
            owners[cpu] = qos
    return owners
