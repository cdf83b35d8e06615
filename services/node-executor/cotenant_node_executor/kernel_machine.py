"""`node.Machine` for this host: real control groups, counters and processes.

In: a driver, the probed capabilities, a folder for the runtime's state. Out: observations, writes, running processes.

Over 300 lines: one method of a few lines for each operation of the interface, and the wiring of the parts that do the work.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.core.observation import NO_STORAGE, Observation
from cotenant_node_executor.runtime.interface import Collect, Order, Runtime, Start, Stop
from cotenant_node_executor.runtime.process import ProcessRuntime
from cotenant_node_executor.runtime.realtime.link import GuardLink
from cotenant_node_executor.sampling.given import GivenMachine
from cotenant_node_executor.sampling.host_applications import application_directory, kubelet_layout, refusal
from cotenant_node_executor.sampling.latency.poller import LatencyPoller
from cotenant_node_executor.sampling.sampler import Sampler
from cotenant_node_executor.sampling.slow.readings import Asked
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.sampling.snapshot import TriggerCheck, UsageSnapshot
from cotenant_node_executor.sampling.threads import NO_THREADS, Threads, ThreadSampler
from cotenant_node_executor.sampling.urgency import Urgency
from cotenant_node_executor.sampling.wanted import SamplingOptions
from cotenant_node_executor.strategies.strategy import Reclaim
from cotenant_node_executor.targets.address import RealtimeAttribute, RealtimeThreads
from cotenant_node_executor.targets.cgroup.reclaim import Reclaimer
from cotenant_node_executor.targets.cgroup.writer import Writer
from cotenant_node_executor.targets.convert import milli_to_shares, shares_to_weight
from cotenant_node_executor.targets.disks import Storage
from cotenant_node_executor.targets.interface import (
    BESTEFFORT,
    BURSTABLE,
    ROOT_GROUP,
    THREADS,
    CgroupDriver,
    CgroupVersion,
    Knob,
    NodeCapabilities,
    Reclaimed,
    Stat,
    WriteReport,
)
from cotenant_node_executor.targets.other.core_groups import CoreGroupAccessor
from cotenant_node_executor.targets.other.held import HeldValues
from cotenant_node_executor.targets.other.host import host_accessors
from cotenant_node_executor.targets.other.realtime import REALTIME
from cotenant_node_executor.targets.other.storage import read_storage
from cotenant_node_executor.targets.other.threads import SchedulingCalls
from cotenant_node_executor.targets.other.writer import OtherWriter

logger = logging.getLogger(__name__)

WATCHED = ((BESTEFFORT, Knob.CPU_QUOTA), (BESTEFFORT, Knob.CPUSET_CPUS))
"""Files whose present value a strategy reads."""

STORAGE_FOR = timedelta(minutes=1)
"""How long the tables of block devices are cached."""

IDENTITY_SYSCTL = Path("/proc/sys/kernel/sched_group_identity_enabled")


class KernelMachine:
    """One subtree of this host's control groups and the processes in it."""

    lone_containers = True
    """A pod's group holds its containers alone."""

    def __init__(
        self,
        driver: CgroupDriver,
        capabilities: NodeCapabilities,
        state: Path,
        *,
        given: GivenMachine | None = None,
        slow: SlowWorker | None = None,
    ) -> None:
        """`given`: the part of the host that is measured, None for all of it; `slow`: collectors with a longer period, if
        anything."""
        self._driver = driver
        self._capabilities = capabilities
        for group in (BURSTABLE, BESTEFFORT):
            driver.create(group)
        self._raise_family()
        self._woken_by: tuple[int, ...] = ()
        self.runtime = self._open_runtime(state)
        pressure = capabilities.supports("psi.group")
        self._sampler = Sampler(driver, group_pressure=pressure, given=given, lone_containers=self.lone_containers)
        self._urgency = Urgency(driver, group_pressure=pressure)
        self._slow = slow
        self._applications: dict[str, str] = {}
        """Directories of host applications below the mount, by name."""
        self._asked = Asked()
        self._writer = Writer(driver, capabilities)
        self._reclaimer = Reclaimer(driver)
        held = HeldValues(state.parent / "initial-values.json")
        if held.problem:
            logger.warning("%s", held.problem)
        self.guard = GuardLink(driver, len(given.cpus) if given is not None else len(os.sched_getaffinity(0)))
        """Of the real-time class."""
        self._core_groups = CoreGroupAccessor(SchedulingCalls(), driver.pids)
        accessors = host_accessors(self._core_groups, driver.threads, driver.pids, self.guard, self._unified)
        self._other_writer = OtherWriter(accessors, held)
        self._thread_sampler = ThreadSampler(driver.threads)
        self._services = LatencyPoller(driver.pids)
        self._with_threads = False
        self._threads = NO_THREADS
        self._with_disks = capabilities.supports(Knob.BLKIO_READ_BPS) or capabilities.supports(Knob.IO_MAX)
        self._storage = NO_STORAGE
        self._storage_at: datetime | None = None
        self._snapshot: UsageSnapshot | None = None
        self._values: Mapping[tuple[str, Knob], str] = {}
        """Values of the last cycle, by file."""

    def _open_runtime(self, state: Path) -> Runtime:
        """Build the runtime, and register what wakes the cycles for it."""
        runtime = ProcessRuntime(self._driver, state, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._woken_by = (runtime.containers.exits.fileno(),)
        return runtime

    def _unified(self, group: str) -> Path | None:
        """A group's directory in the cgroup v2 tree, also where that has no controllers."""
        file = self._driver.stat_path(group, Stat.CPU_PRESSURE)
        return file.parent if file is not None and not self._capabilities.sandbox else None

    def _raise_family(self) -> None:
        """Raise the CPU weight of the group around all nodes' subtrees: the default equals that of one process, and services
        would wait behind everything outside it. The executor is the only writer of this group."""
        own = self._driver.path(ROOT_GROUP, Knob.CPU_SHARES)
        if own is None or self._capabilities.sandbox:
            return
        shares = milli_to_shares(1000 * len(os.sched_getaffinity(0)))
        text = str(shares if self._capabilities.version is CgroupVersion.V1 else shares_to_weight(shares))
        try:
            (own.parent.parent / own.name).write_text(text, encoding="ascii")
        except OSError as error:
            logger.warning("%s keeps its weight: %s", own.parent.parent, error)

    def existing_pods(self) -> tuple[str, ...]:
        """Uids of pods whose groups existed before this executor started, which it adopts."""
        names = (group.rpartition("/")[2] for group in self._driver.groups() if group.count("/") < 2)
        return tuple(sorted(name.removeprefix("pod") for name in names if name.startswith("pod")))

    def observe(self, now: datetime, *, sample: bool) -> Observation:
        """Sample the counters, poll the processes, read the watched files."""
        if sample:
            self._snapshot = self._sampler.snapshot(time.monotonic_ns(), self._applications)
            self._ask(self._snapshot)
            self._urgency.sampled(self._snapshot)
            self._threads = self._read_threads(self._snapshot) if self._with_threads else NO_THREADS
        self.guard.beat()
        states = self.runtime.poll(now)
        current: dict[tuple[str, Knob], str] = {}
        for group, knob in self._watched():
            if self._capabilities.supports(knob):
                value = self._driver.read(group, knob)
                if value is not None:
                    current[(group, knob)] = value
        return Observation(
            snapshot=self._snapshot,
            states=states,
            groups=frozenset(self._driver.groups()),
            current=current,
            identity_sysctl=self._sysctl(),
            machine=self._slow.facts if self._slow is not None else None,
            slow=self._slow.readings if self._slow is not None else None,
            storage=self._present_storage(now) if self._with_disks else self._storage,
            spike=self._urgency.spike,
            threads=self._threads,
            realtime=self.guard.state,
            core_groups=self._core_groups.shown,
            writes=self._writer.durations,
            services=self._services.readings,
        )

    def _watched(self) -> Sequence[tuple[str, Knob]]:
        """The files whose present values strategies read."""
        return WATCHED

    @property
    def wakes(self) -> Sequence[int]:
        """See `core.node.Machine`: containers that end."""
        return self._woken_by

    @property
    def urgent(self) -> int | None:
        """See `core.node.Machine`: tasks that wait."""
        return self._urgency.fileno()

    @property
    def wants_sample(self) -> bool:
        """See `core.node.Machine`."""
        return self._urgency.wants_sample

    def look(self) -> TriggerCheck:
        """See `core.node.Machine`."""
        return self._urgency.look(time.monotonic_ns())

    def _read_threads(self, snapshot: UsageSnapshot) -> Threads:
        """The threads of pods that are not best-effort."""
        usage = {pod.usage.group: pod.usage.cpu_milli for pod in snapshot.pods.values() if pod.tier != BESTEFFORT}
        return self._thread_sampler.read(usage, snapshot.monotonic_ns)

    def measure(self, wanted: SamplingOptions) -> None:
        """Find the groups of host applications, and what the slow collectors shall read."""
        self._with_threads = wanted.threads and self._capabilities.supports(THREADS)
        self._urgency.follows_spikes = wanted.spikes
        self._services.ask(wanted.services)
        layout = kubelet_layout(self._driver)
        own = self._driver.root_group
        self._applications = {each.name: application_directory(each, layout, own) for each in wanted.host_applications}
        applications = tuple(sorted([each for each in self._applications.items() if not refusal(each[1])]))
        self._asked = msgspec.structs.replace(self._asked, applications=applications, cold_memory=wanted.cold_memory)
        if self._slow is not None:
            self._slow.ask(self._asked)

    def _ask(self, snapshot: UsageSnapshot) -> None:
        """Let the slow collectors read the existing pods."""
        if self._slow is None:
            return
        pods = tuple((uid, pod.usage.group) for uid, pod in snapshot.pods.items())
        containers = tuple([each.usage.group for pod in snapshot.pods.values() for each in pod.containers])
        if pods != self._asked.pods or containers != self._asked.containers:
            self._asked = msgspec.structs.replace(self._asked, pods=pods, containers=containers)
            self._slow.ask(self._asked)

    def close(self) -> None:
        """End the slow collectors and the guard, which restore the kernel's settings, and the triggers. Pods keep running."""
        self._urgency.close()
        self._services.close()
        self.guard.close()
        if self._slow is not None:
            self._slow.close()

    def _present_storage(self, now: datetime) -> Storage:
        """The block devices, read again after STORAGE_FOR; the same object while nothing has changed."""
        if self._storage_at is None or now - self._storage_at >= STORAGE_FOR:
            self._storage_at = now
            found = read_storage()
            if found != self._storage:
                self._storage = found
        return self._storage

    def _sysctl(self) -> int | None:
        if not self._capabilities.supports(Knob.CPU_BVT):
            return None
        try:
            text = IDENTITY_SYSCTL.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        return int(text) if text.isdigit() else None

    def create(self, groups: Sequence[str]) -> None:
        """Create groups, parents first, and drop cached values of an earlier group of that name.

        A group that the kernel refuses (for example a container named like a cgroup file) is skipped: its container fails to
        start with that reason, and no other container is affected.
        """
        for group in groups:
            try:
                self._driver.create(group)
            except (OSError, ValueError) as error:
                logger.warning("group %s cannot be created: %s", group, error)
            self._writer.forget(group)

    def write(self, targets: Composed) -> WriteReport:
        """Write the values that differ."""
        if targets.changed:
            self._values = {(group, knob): text for group, texts in targets.texts.items() for knob, text in texts.items()}
            self.guard.before_budgets({
                place.group
                for place, own in targets.others.items()
                if isinstance(place, RealtimeThreads) and own.get(RealtimeAttribute.CLASS) == REALTIME
            })
        report = self._writer.apply(self._wanted_values())
        if targets.others or self._other_writer.holding:
            return report.and_also(self._other_writer.apply(targets.others))
        return report

    def _wanted_values(self) -> Mapping[tuple[str, Knob], str]:
        """The values of files for this cycle."""
        return self._values

    def carry_out(self, orders: Sequence[Order], now: datetime) -> None:
        """Pass orders to the runtime. An order that fails, for example on a full disk, is tried again in the next cycle."""
        for order in orders:
            try:
                self.runtime.carry_out(order, now)
            except OSError as error:
                trace = order.pod.traceparent if isinstance(order, Start) else ""
                logger.warning("%s: %s", order_text(order), error, extra={"traceparent": trace})

    def reclaim(self, orders: Sequence[tuple[str, Reclaim]]) -> None:
        """Begin the first order in the background."""
        for strategy, order in orders:
            self._reclaimer.begin(strategy, order.group, order.memory_bytes, order.why)

    def reclaimed(self) -> Sequence[Reclaimed]:
        """What was reclaimed since the last call."""
        return self._reclaimer.finished()

    def stop_everything(self, now: datetime, grace_seconds: int) -> bool:
        """Stop all pods and remove the subtree; call again until it returns True. Logs and exit codes stay on disk."""
        states = self.runtime.poll(now)
        live = False
        for uid in sorted(states):
            if any(not state.exited for state in states[uid].values()):
                live = True
                self.runtime.carry_out(Stop(uid, grace_seconds), now)
            else:
                self.runtime.carry_out(Collect(uid), now)
        if not live:
            self._other_writer.apply({})
        return not live and self._driver.close()


def order_text(order: Order) -> str:
    """Describe an order in a log line."""
    if isinstance(order, Start):
        return f"start of container {order.container} of {order.pod.pod.metadata.namespace}/{order.pod.pod.metadata.name}"
    return f"{type(order).__name__.lower()} of pod {order.uid}"
