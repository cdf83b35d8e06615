"""Simulated nodes: the executor's own core on an imitated machine, without I/O and without a clock of its own.

In: a name, a size, a seed, and the time with every call. Out: the same events as a real node's. The imitation: files are
a table (`simulated_files`), a quota and a CPU set bound what the best-effort tree gets, services go before batch,
`simulated_usage` says what a pod wants. A pod that wants more than its quota is throttled in every period, for the share of it
that it wants and may not have. The same seed and the same times give the same events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.runs import ExecutorStatus
from cotenant.names import CPU, LABEL_HOSTNAME, MEMORY, PODS, SIMULATED_KEY
from cotenant.qos import KubeQoS, QoSClass
from cotenant_node_executor.core import MAX_PODS, ExecutorCore
from cotenant_node_executor.kernel.cpulist import parse_cpu_list
from cotenant_node_executor.kernel.interface import (
    Capabilities,
    CgroupVersion,
    Knob,
    KnobSupport,
    WriteReport,
)
from cotenant_node_executor.node import ExecutorNode, Periods
from cotenant_node_executor.observation import Observation
from cotenant_node_executor.runtime.interface import Order, PodToRun
from cotenant_node_executor.runtime.simulated import SimulatedRuntime
from cotenant_node_executor.sampling.snapshot import (
    GroupUsage,
    NodeUsage,
    PodUsage,
    PressureSet,
    Snapshot,
    SystemUsage,
)
from cotenant_node_executor.simulated_files import SIMULATED_KNOBS, SimulatedFiles
from cotenant_node_executor.simulated_usage import Wanted, elapsed_ms, share_out, wanted_usage
from cotenant_node_executor.strategies.situation import BESTEFFORT, BURSTABLE, NodeFacts, PodView, pod_view
from cotenant_node_executor.strategies.suppress_cpuset import Processor

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SYSTEM_PERMILLE = 30
SYSTEM_MEMORY_PERMILLE = 20


class NodeSize(Struct, frozen=True):
    """How large a simulated node is."""

    cpu_milli: int = 8_000
    memory_bytes: int = 32 * 1024**3


class _Load(Struct, frozen=True):
    """A running pod: what it wants, and what its files allow."""

    uid: str
    group: str
    tier: str
    wanted: Wanted
    quota: int
    weight: int
    batch: bool


class _Given(Struct, frozen=True):
    """What pods get at a moment: milli-CPU, bytes, and the share of a period for which they are throttled."""

    cpu: dict[str, int]
    memory: dict[str, int]
    throttled_permille: dict[str, int]


class SimulatedMachine:
    """One imitated host."""

    def __init__(self, facts: NodeFacts, seed: int, version: CgroupVersion = CgroupVersion.V2) -> None:
        self._facts = facts
        self._seed = seed
        self._groups: set[str] = {BURSTABLE, BESTEFFORT}
        self._shown_groups: tuple[str, ...] = ()
        self._files = SimulatedFiles(version, tuple(processor.cpu for processor in facts.processors))
        self._written: tuple[Mapping[tuple[str, Knob], str], tuple[str, ...]] = ({}, ())
        """What the files were last made to say, and the groups there were then."""
        self._running: list[PodToRun] = []
        self._wanted: dict[str, tuple[Wanted, PodView]] = {}
        self._loads: dict[str, _Load] = {}
        self._stale = True
        """Whether a file has changed since the loads were read."""
        self._constant: _Given | None = None
        """What each pod is given, where that does not change with the time."""
        self._snapshot: Snapshot | None = None
        self._cpu_ns: dict[str, int] = {}
        self._throttled_ns: dict[str, int] = {}
        self._last: datetime | None = None
        self.runtime = SimulatedRuntime(self._groups)

    def observe(self, now: datetime, *, sample: bool) -> Observation:
        """Look at the table; a sample advances the counters."""
        states = self.runtime.poll(now)
        if sample:
            self._snapshot = self._sample(now)
        return Observation(
            snapshot=self._snapshot,
            states=states,
            groups=self._sorted_groups(),
            current={
                _BOUND_QUOTA: self._files.read(*_BOUND_QUOTA),
                _BOUND_CPUS: self._files.read(*_BOUND_CPUS),
            },
            fresh=sample,
        )

    def _sorted_groups(self) -> tuple[str, ...]:
        """The groups; the same object as long as they are the same."""
        if len(self._shown_groups) != len(self._groups) or not self._groups.issuperset(self._shown_groups):
            self._shown_groups = tuple(sorted(self._groups))
        return self._shown_groups

    def create(self, groups: Sequence[str]) -> None:
        """Make groups."""
        for group in groups:
            if group not in self._groups:
                self._groups.add(group)
                self._files.inherit(group)

    def write(self, values: Mapping[tuple[str, Knob], str]) -> WriteReport:
        """Change the table; unlimited and empty are what a new group starts with."""
        groups = self._sorted_groups()
        if self._written[0] is values and self._written[1] is groups:
            return _UNCHANGED
        differ = [key for key in self._files.differing(values) if not key[0] or key[0] in self._groups]
        report = self._files.write(differ, values, groups) if differ else _UNCHANGED
        if self._written[1] is not groups:
            self._files.keep(self._groups)
        # What was refused is tried again in the next cycle, as on a real machine.
        self._written = ({}, groups) if report.refused else (values, groups)
        self._stale = self._stale or bool(report.written)
        return report

    def carry_out(self, orders: Sequence[Order], now: datetime) -> None:
        """Hand orders to the runtime."""
        for order in orders:
            self.runtime.carry_out(order, now)

    # -- usage ---------------------------------------------------------------------------------------------------------

    def _sample(self, now: datetime) -> Snapshot:
        running = self.runtime.running()
        if running is not self._running or self._stale:
            self._wanted = {pod.uid: self._wanted.get(pod.uid) or self._read(pod) for pod in running}
            self._loads = {uid: self._load(uid, *self._wanted[uid]) for uid in sorted(self._wanted)}
            self._running, self._stale, self._constant = running, False, None
        given = self._constant or self._given(now)
        cpu, memory = given.cpu, given.memory
        interval_ns = None if self._last is None else max(elapsed_ms(now, self._last), 0) * 1_000_000
        self._last = now
        system_milli = self._facts.capacity_milli * SYSTEM_PERMILLE // 1000
        system_memory = self._facts.memory_bytes * SYSTEM_MEMORY_PERMILLE // 1000
        pods: dict[str, PodUsage] = {}
        before, counters = self._cpu_ns, dict[str, int]()
        used = 0
        for load in self._loads.values():
            uid = load.uid
            own = cpu[uid]
            counters[uid] = before.get(uid, 0) + own * (interval_ns or 0) // 1000
            known = uid in before
            used += own if known else 0
            usage = _usage(load.group, own if known else None, counters[uid], memory[uid])
            if load.quota >= 0:
                usage = self._throttled(usage, uid, given.throttled_permille.get(uid, 0), interval_ns)
            pods[uid] = PodUsage(uid, load.tier, usage)
        self._cpu_ns = counters
        self._throttled_ns = {uid: self._throttled_ns[uid] for uid in self._throttled_ns if uid in pods}
        node_memory = min(system_memory + sum(memory.values()), self._facts.memory_bytes)
        first = interval_ns is None
        return Snapshot(
            monotonic_ns=elapsed_ms(now, EPOCH) * 1_000_000,
            interval_ns=interval_ns,
            node=NodeUsage(
                cpu_milli=None if first else system_milli + used,
                cpu_capacity_milli=self._facts.capacity_milli,
                memory_bytes=node_memory,
                memory_with_page_cache_bytes=node_memory,
                memory_total_bytes=self._facts.memory_bytes,
                pressure=_NO_PRESSURE,
            ),
            system=SystemUsage(None if first else system_milli, system_memory),
            pods=pods,
            tiers={},
        )

    def _throttled(self, usage: GroupUsage, uid: str, permille: int, interval_ns: int | None) -> GroupUsage:
        """The usage of a group with a quota; it was throttled for that share of each period."""
        self._throttled_ns[uid] = self._throttled_ns.get(uid, 0) + permille * (interval_ns or 0) // 1000
        ratio = None if interval_ns is None else float(permille > 0)
        return replace(usage, throttled_ratio=ratio, throttled_ns=self._throttled_ns[uid])

    def _load(self, uid: str, wanted: Wanted, view: PodView) -> _Load:
        quota = self._number(view.group, Knob.CPU_QUOTA)
        weight = max(self._number(view.group, Knob.CPU_SHARES), 2)
        before = self._loads.get(uid)
        if before is not None and before.wanted is wanted and before.quota == quota and before.weight == weight:
            return before
        return _Load(
            uid=uid,
            group=view.group,
            tier=_tier(view),
            wanted=wanted,
            quota=quota,
            weight=weight,
            batch=view.kube_qos is KubeQoS.BEST_EFFORT or view.qos is QoSClass.BE,
        )

    def _read(self, pod: PodToRun) -> tuple[Wanted, PodView]:
        try:
            return wanted_usage(pod.pod, self._seed), pod_view(pod.pod)
        except ValueError:
            plain = _without_annotations(pod)
            return wanted_usage(plain.pod, self._seed), pod_view(plain.pod)

    def _given(self, now: datetime) -> _Given:
        """What each pod gets now."""
        since = elapsed_ms(now, EPOCH)
        services: dict[str, int] = {}
        batch: dict[str, int] = {}
        memory: dict[str, int] = {}
        throttled: dict[str, int] = {}
        for load in self._loads.values():
            wanted = load.wanted
            cpu = wanted.cpu.at(since + wanted.phase_ms)
            if 0 <= load.quota < cpu * 100:
                throttled[load.uid] = 1000 - load.quota * 10 // cpu
                cpu = load.quota // 100
            (batch if load.batch else services)[load.uid] = cpu
            memory[load.uid] = wanted.memory.at(since + wanted.phase_ms)
        weights = {load.uid: load.weight for load in self._loads.values()}
        free = self._facts.capacity_milli - self._facts.capacity_milli * SYSTEM_PERMILLE // 1000
        given = share_out(free, services, weights)
        given |= share_out(min(free - sum(given.values()), self._best_effort_bound()), batch, weights)
        found = _Given(given, memory, throttled)
        if all(load.wanted.constant for load in self._loads.values()):
            self._constant = found
        return found

    def _best_effort_bound(self) -> int:
        quota = self._number(*_BOUND_QUOTA)
        cpus = self._files.read(*_BOUND_CPUS)
        bound = self._facts.capacity_milli if quota < 0 else quota // 100
        return min(bound, len(parse_cpu_list(cpus)) * 1000) if cpus else bound

    def _number(self, group: str, knob: Knob) -> int:
        return int(self._files.read(group, knob))


_BOUND_QUOTA = (BESTEFFORT, Knob.CPU_QUOTA)
_BOUND_CPUS = (BESTEFFORT, Knob.CPUSET_CPUS)
_NO_PRESSURE = PressureSet()
_UNCHANGED = WriteReport()


def _usage(group: str, cpu_milli: int | None, cpu_ns: int, memory: int) -> GroupUsage:
    return GroupUsage(
        group=group,
        cpu_milli=cpu_milli,
        cpu_usage_ns=cpu_ns,
        memory_bytes=memory,
        memory_with_page_cache_bytes=memory,
        throttled_ratio=None,
        throttled_ns=None,
        pressure=_NO_PRESSURE,
    )


def _tier(view: PodView) -> str:
    return {KubeQoS.GUARANTEED: "guaranteed", KubeQoS.BURSTABLE: BURSTABLE, KubeQoS.BEST_EFFORT: BESTEFFORT}[view.kube_qos]


def _without_annotations(pod: PodToRun) -> PodToRun:
    """The same pod as if it had said nothing about its usage."""
    return replace(pod, pod=replace(pod.pod, metadata=replace(pod.pod.metadata, annotations={})))


def simulated_facts(name: str, size: NodeSize) -> NodeFacts:
    """One socket, one NUMA node, two threads a core."""
    return NodeFacts(
        name=name,
        capacity_milli=size.cpu_milli,
        allocatable_milli=size.cpu_milli,
        memory_bytes=size.memory_bytes,
        processors=tuple(Processor(cpu=cpu, core=cpu // 2, socket=0, node=0) for cpu in range(size.cpu_milli // 1000)),
    )


def simulated_status(
    facts: NodeFacts, boot: str, version: str, devices: Mapping[str, int], labels: Mapping[str, str]
) -> ExecutorStatus:
    """What a simulated node says of itself; any pod may land on it."""
    amounts = {CPU: facts.capacity_milli, MEMORY: facts.memory_bytes, PODS: MAX_PODS, **devices}
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
) -> ExecutorNode:
    """A simulated node, ready for `start_marker`, `apply` and `step`; `devices` are amounts that it offers beside the usual."""
    facts = simulated_facts(name, size)
    capabilities = Capabilities(
        version=cgroup,
        controllers=("cpu", "cpuset", "memory"),
        sandbox=True,
        root=f"simulated/{name}",
        knobs={knob.value: KnobSupport(True) for knob in SIMULATED_KNOBS},
    )
    core = ExecutorCore(facts, capabilities, boot, plain_processes=False)
    status = simulated_status(facts, boot, version, devices or {}, labels or {})
    return ExecutorNode(core, SimulatedMachine(facts, seed, cgroup), status, periods or Periods())
