"""Simulated nodes: the executor's own core on a simulated machine, without I/O and without a clock of its own.

In: a name, a size, a seed, and the time with every call. Out: the same events as a real node's. Files are a table (`files`),
containers are entries in another (`containers`), and pod usage is derived from both (`sampler`). The same seed and times give
the same events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.node.topology import CpuBasicInfo, LogicalCPU, MachineTopology, NumaNode
from cotenant.model.names import CPU, LABEL_HOSTNAME, MEMORY, RESOURCE_PODS, SIMULATED_KEY
from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.core.core import MAX_PODS, ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.runtime.interface import Order
from cotenant_node_executor.sampling.slow.readings import COLLECTORS, MachineFacts
from cotenant_node_executor.sampling.snapshot import TriggerCheck, UsageSnapshot
from cotenant_node_executor.sampling.wanted import SamplingOptions
from cotenant_node_executor.simulated.containers import SimulatedRuntime
from cotenant_node_executor.simulated.files import SIMULATED_KNOBS, SimulatedFiles
from cotenant_node_executor.simulated.groups import SimulatedGroups
from cotenant_node_executor.simulated.sampler import BOUND_CPUS, BOUND_QUOTA, OutOfMemory, SimulatedSampler
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import LocalNode, Processor
from cotenant_node_executor.strategies.strategy import Reclaim, Strategy
from cotenant_node_executor.targets.address import Attribute, NonCgroup
from cotenant_node_executor.targets.interface import (
    BESTEFFORT,
    BURSTABLE,
    ROOT_GROUP,
    CgroupVersion,
    KnobSupport,
    NodeCapabilities,
    Reclaimed,
    WriteReport,
    WrittenValue,
)


class NodeSize(Struct, frozen=True):
    """The capacity of a simulated node."""

    cpu_milli: int = 8_000
    memory_bytes: int = 32 * 1024**3


class SimulatedMachine:
    """One simulated host."""

    def __init__(
        self, facts: LocalNode, seed: int, version: CgroupVersion = CgroupVersion.V2, *, outlived: bool = True
    ) -> None:
        self._groups = SimulatedGroups((BURSTABLE, BESTEFFORT))
        self._files = SimulatedFiles(version, tuple(processor.cpu for processor in facts.processors))
        self._sampler = SimulatedSampler(facts, seed, self._files)
        self._snapshot: UsageSnapshot | None = None
        self._machine = simulated_topology(facts)
        self._current = self._files.texts(BOUND_QUOTA, BOUND_CPUS)
        """Present values of the watched files; the same object until something is written."""
        self._unwritten: set[str] = set()
        """Groups whose files may differ from the desired values: changed values, new groups, refused writes."""
        self._others: dict[tuple[NonCgroup, Attribute], str] = {}
        """Values of sysctls, threads and resctrl groups. Bound: the targets that strategies have set."""
        self._removals = 0
        """Number of group removals already applied to the files."""
        self.runtime = SimulatedRuntime(self._groups, outlived=outlived)

    def observe(self, now: datetime, *, sample: bool) -> Observation:
        """Return the state of the tables; with `sample` usage is measured."""
        states = self.runtime.poll(now)
        if sample:
            self._snapshot = self._sampler.sample(now, self.runtime.transitions())
            for pod in self._sampler.out_of_memory:
                self.runtime.run_out_of_memory(pod.uid, now)
                states = self.runtime.poll(now)
        return Observation(self._snapshot, states, self._groups.shown(), self._current, machine=self._machine)

    @property
    def wakes(self) -> Sequence[int]:
        """See `core.node.Machine`: nothing happens between two looks."""
        return ()

    @property
    def urgent(self) -> int | None:
        """See `core.node.Machine`."""
        return None

    @property
    def wants_sample(self) -> bool:
        """See `core.node.Machine`."""
        return False

    def look(self) -> TriggerCheck:
        """See `core.node.Machine`."""
        return TriggerCheck()

    def measure(self, wanted: SamplingOptions) -> None:
        """A simulated machine has neither page cache nor applications outside pods."""

    @property
    def snapshot(self) -> UsageSnapshot | None:
        """The newest sample."""
        return self._snapshot

    @property
    def out_of_memory(self) -> tuple[OutOfMemory, ...]:
        """Pods killed for memory at the newest sample, in order; the same object until the next sample."""
        return self._sampler.out_of_memory

    def create(self, groups: Sequence[str]) -> None:
        """Create groups."""
        for group in groups:
            if self._groups.add(group):
                self._files.begin(group)
                self._unwritten.add(group)

    def write(self, targets: Composed) -> WriteReport:
        """Update the table; a new group starts with unlimited and empty values."""
        values = targets.texts
        others = self._write_others(targets.others) if targets.others else _UNCHANGED
        if not targets.changed and not self._unwritten:
            return others
        self._unwritten |= values.keys() & targets.changed
        groups = self._groups.shown()
        if self._removals != self._groups.removals:
            self._removals = self._groups.removals
            self._files.keep(groups)
        there = {group: values[group] for group in self._unwritten if group in values and (not group or group in groups)}
        report = self._files.write(there, groups)
        # Refused writes are tried again in the next cycle, as on a real machine.
        # The table of files has groups alone.
        self._unwritten = {refused.place for refused in report.refused}  # type: ignore[misc]
        if report.written:
            written: set[str] = {each.place for each in report.written}  # type: ignore[misc]
            self._sampler.written(written)
            if BESTEFFORT in written or ROOT_GROUP in written:
                self._current = self._files.texts(BOUND_QUOTA, BOUND_CPUS)
        return report.and_also(others) if targets.others else report

    def _write_others(self, values: Mapping[NonCgroup, Mapping[Attribute, str]]) -> WriteReport:
        """Sysctls, threads and resctrl groups take any value."""
        written: list[WrittenValue] = []
        for place, attributes in values.items():
            for attribute, text in attributes.items():
                old = self._others.get((place, attribute), "")
                if old != text:
                    self._others[place, attribute] = text
                    written.append(WrittenValue(place, attribute, attribute.value, old, text))
        return WriteReport(tuple(written))

    def carry_out(self, orders: Sequence[Order], now: datetime) -> None:
        """Pass orders to the runtime."""
        for order in orders:
            self.runtime.carry_out(order, now)


    def reclaim(self, orders: Sequence[tuple[str, Reclaim]]) -> None:
        """Simulated pods have no page cache, so there is nothing to reclaim."""

    def reclaimed(self) -> Sequence[Reclaimed]:
        """Nothing was reclaimed."""
        return ()


_UNCHANGED = WriteReport()


def simulated_facts(name: str, size: NodeSize) -> LocalNode:
    """One socket, one NUMA node, two threads a core."""
    return LocalNode(
        name=name,
        capacity_milli=size.cpu_milli,
        allocatable_milli=size.cpu_milli,
        memory_bytes=size.memory_bytes,
        processors=tuple(Processor(cpu=cpu, core=cpu // 2, socket=0, node=0) for cpu in range(size.cpu_milli // 1000)),
    )


def simulated_topology(facts: LocalNode) -> MachineFacts:
    """A machine with one NUMA node; only its CPU and memory are simulated."""
    cpus = tuple(
        LogicalCPU(cpu=each.cpu, core=each.core, socket=each.socket, node=each.node) for each in facts.processors
    )
    return MachineFacts(
        MachineTopology(
            node=facts.name,
            cpus=cpus,
            numa_nodes=(NumaNode(node=0, memory_bytes=facts.memory_bytes, distances=(10,)),),
            cpu=CpuBasicInfo(cpu_model="simulated", vendor_id="cotenant", hyper_thread_enabled=True),
            unavailable=dict.fromkeys(COLLECTORS, "simulated"),
        )
    )


def simulated_status(
    facts: LocalNode, boot: str, version: str, devices: Mapping[str, int], labels: Mapping[str, str]
) -> ExecutorStatus:
    """Build a simulated node's own report; it has no taint, so any pod may be placed on it."""
    amounts = {CPU: facts.capacity_milli, MEMORY: facts.memory_bytes, RESOURCE_PODS: MAX_PODS, **devices}
    return ExecutorStatus(
        node=facts.name,
        boot=boot,
        version=version,
        capacity=amounts,
        allocatable=amounts,
        labels={LABEL_HOSTNAME: facts.name, "kubernetes.io/os": "linux", SIMULATED_KEY: "true", **labels},
        simulated=True,
        capabilities={knob.value: "simulated" for knob in SIMULATED_KNOBS},
        message="simulated: no processes, usage by a model",
    )


def simulated_node(
    name: str,
    size: NodeSize,
    *,
    seed: int = 0,
    boot: str = "simulated",
    version: str = "",
    periods: Periods | None = None,
    cgroup: CgroupVersion = CgroupVersion.V2,
    devices: Mapping[str, int] | None = None,
    labels: Mapping[str, str] | None = None,
    outlived: bool = True,
    strategies: tuple[Strategy, ...] = STRATEGIES,
) -> ExecutorNode:
    """Build a simulated node, ready for `start_marker`, `apply` and `step`; `devices`: additional resources in its capacity.

    `outlived`: pods keep running while no executor simulates them; otherwise the machine starts without pods.
    """
    facts = simulated_facts(name, size)
    capabilities = NodeCapabilities(
        version=cgroup,
        controllers=("cpu", "cpuset", "memory"),
        sandbox=True,
        root=f"simulated/{name}",
        knobs={knob.value: KnobSupport(True) for knob in SIMULATED_KNOBS},
    )
    core = ExecutorCore(facts, capabilities, boot, plain_processes=False, strategies=strategies)
    status = simulated_status(facts, boot, version, devices or {}, labels or {})
    return ExecutorNode(core, SimulatedMachine(facts, seed, cgroup, outlived=outlived), status, periods or Periods())
