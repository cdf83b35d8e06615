"""A node under faults: a simulated machine that fails and returns, an executor that crashes, a clock that jumps.

In: a name, a size, what happens to it. Out: a participant. The machine is `cotenant_node_executor.simulated.machine`: services
go before batch, each tier shares by weight under quota and CPU set; a pod's demand follows from its annotation and the
time. A failure loses the machine: the next one has another boot and no pods. A crash loses the executor's core alone. A slow
executor runs at long intervals, and then reads what has arrived since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from cotenant.domain.qos import QoSClass
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.times import EPOCH
from cotenant.simulation import World
from cotenant_node_executor.simulated.machine import NodeSize, SimulatedMachine, simulated_node
from cotenant_node_executor.simulated.participant import NodeParticipant
from cotenant_node_executor.simulated.sampler import OutOfMemory
from cotenant_node_executor.targets.interface import BESTEFFORT, CgroupVersion, Knob
from cotenant_verification.simulate.openb import GPU_MODEL_LABEL, offered_gpus
from cotenant_verification.workload.pod_constraints import ZONE

SAMPLE = timedelta(seconds=1)
IDLE_PERIOD = timedelta(seconds=15)
GIB = 1024**3


class MachineShape(Struct, frozen=True):
    """A shape: CPU, memory, the version of its kernel's control groups, GPUs; its zone."""

    cpu_milli: int
    memory_gib: int
    cgroup: int = 2
    gpus: int = 0
    model: str = ""
    zone: str = ""


class Control(Struct, frozen=True):
    """One control period: best-effort's bound by the rule and its usage, and the files that bound it."""

    wanted_milli: int
    used_milli: int
    quota: str
    cpus: str
    services: tuple[tuple[int, int], ...]
    """Of each service: its usage, and its available CPU."""


class ChaosNode:
    """One incarnation of a machine; `boot` counts them."""

    def __init__(self, name: str, machine: MachineShape, seed: int, boot: int) -> None:
        self.node_name = name
        self.name = f"node-{name}"
        self.machine = machine
        self.cpu_milli = machine.cpu_milli
        self.boot = boot
        size = NodeSize(machine.cpu_milli, machine.memory_gib * GIB)
        cgroup = CgroupVersion.V1 if machine.cgroup == 1 else CgroupVersion.V2
        devices = offered_gpus(machine.gpus) if machine.gpus else {}
        labels = {GPU_MODEL_LABEL: machine.model} if machine.gpus else {}
        if machine.zone:
            labels[ZONE] = machine.zone
        made = simulated_node(
            name, size, seed=seed, boot=f"boot{boot}", cgroup=cgroup, devices=devices, labels=labels, outlived=False
        )
        self.inner = NodeParticipant(made, period=SAMPLE, idle_period=IDLE_PERIOD)
        self.filters = self.inner.filters
        self.usage_filters = self.inner.usage_filters
        self._down_until = EPOCH
        self._crashes: timedelta | None = None
        self._slow_until = EPOCH
        self._slowness = timedelta(0)
        self._turned = EPOCH
        self._unread: list[Event] = []
        self._jumped = EPOCH
        self._drift_ppm = 0
        self._base = timedelta(0)
        self.slo: NodeSLORendered | None = None
        self._sampled_ns = 0
        self.out_of_memory: tuple[OutOfMemory, ...] = ()
        """Pods that the kernel killed for memory in the last step."""
        self.listeners: list[Callable[[ChaosNode, datetime], None]] = []

    def crash(self, down: timedelta) -> None:
        """The executor's process ends at its next step; its pods keep running."""
        self._crashes = down

    def slow_down(self, every: timedelta, until: datetime) -> None:
        """Run the executor only once in a while: its machine is overloaded."""
        self._slowness, self._slow_until = every, until

    def set_clock(self, by: timedelta, drift_ppm: int, now: datetime) -> None:
        """The clock jumps, and drifts from now on."""
        self._base = self._offset(now) + by
        self._jumped, self._drift_ppm = now, drift_ppm

    def _offset(self, now: datetime) -> timedelta:
        if not self._drift_ppm:
            return self._base
        return self._base + timedelta(microseconds=int((now - self._jumped).total_seconds() * self._drift_ppm))

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One step, unless the executor is down."""
        if self._crashes is not None:
            world.leave()
            self._down_until, self._crashes = now + self._crashes, None
        if self._down_until != EPOCH:
            if now < self._down_until:
                return self._down_until
            self._down_until = EPOCH
            self._unread = []
            self.inner = NodeParticipant(self.inner.node.restarted(), period=SAMPLE, idle_period=IDLE_PERIOD)
            world.load()
            return now + timedelta(milliseconds=1)
        if now < self._slow_until and now < self._turned + self._slowness:
            self._unread.extend(inbox)
            return self._turned + self._slowness
        self._turned = now
        if self._unread:
            inbox, self._unread = (*self._unread, *inbox), []
        for event in inbox:
            if isinstance(event.data, NodeSLORendered):
                self.slo = None if event.tombstone else event.data
        self.inner.offset = self._offset(now)
        before = self.simulated.out_of_memory
        again = self.inner.step(now, inbox, world)
        ended = self.simulated.out_of_memory
        self.out_of_memory = ended if ended is not before else ()
        for listen in self.listeners:
            listen(self, now)
        return again

    @property
    def simulated(self) -> SimulatedMachine:
        """The machine below the executor."""
        machine = self.inner.node.machine
        assert isinstance(machine, SimulatedMachine)
        return machine

    def control(self, now: datetime) -> Control | None:
        """The bound that the suppression rule demands for a new sample, and the one in force; None if there is no new sample.
        """
        core = self.inner.node.core
        seen = self.inner.node.machine.observe(now + self.inner.offset, sample=False)
        slo = self.slo
        if not core.loaded or slo is None or not slo.enable or seen.snapshot is None or seen.snapshot.node.cpu_milli is None:
            return None
        if seen.snapshot.monotonic_ns == self._sampled_ns:
            return None
        self._sampled_ns = seen.snapshot.monotonic_ns
        batch = {p.placement.uid for p in core.placed.values() if p.view is not None and p.view.qos is QoSClass.BE}
        used = {uid: pod.usage.cpu_milli or 0 for uid, pod in seen.snapshot.pods.items()}
        services = {uid: amount for uid, amount in used.items() if uid not in batch}
        in_all = sum(services.values())
        system = max(seen.snapshot.node.cpu_milli - sum(used.values()), 0)
        return Control(
            wanted_milli=self.cpu_milli * slo.cpu_suppress_threshold_percent // 100 - in_all - system,
            used_milli=sum(used.values()) - in_all,
            services=tuple((amount, self.cpu_milli - system - in_all + amount) for amount in services.values()),
            quota=seen.current.get((BESTEFFORT, Knob.CPU_QUOTA), ""),
            cpus=seen.current.get((BESTEFFORT, Knob.CPUSET_CPUS), ""),
        )
