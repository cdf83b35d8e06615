"""Usage of the pods of a simulated machine: one snapshot per sample; pods with unchanged usage are taken from the last one.

In: the running pods, the values in their groups' files, the time. Out: snapshots. `usage` gives the demand of a pod; quota and
CPU set limit the best-effort tree, and services get CPU before batch. A pod with more demand than its quota is throttled in
every period; a pod killed for memory (`memory`) is not in the sample. Only pods that are new, whose usage varies over time, or
whose files changed are computed again; all pods while demand exceeds the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import QoSClass, qos_raw
from cotenant.model.names import MEMORY
from cotenant.model.times import EPOCH
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.runtime.oom_score import oom_score_adj
from cotenant_node_executor.sampling.snapshot import GroupUsage, NodeUsage, PodSample, PressureSet, SystemUsage, UsageSnapshot
from cotenant_node_executor.simulated.files import SimulatedFiles
from cotenant_node_executor.simulated.memory import Holding, ended
from cotenant_node_executor.simulated.usage import UsageCurve, elapsed_ms, share_out, wanted_usage
from cotenant_node_executor.strategies.situation import LocalNode
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, Knob

SYSTEM_PERMILLE = 30
SYSTEM_MEMORY_PERMILLE = 20

BOUND_QUOTA = (BESTEFFORT, Knob.CPU_QUOTA)
BOUND_CPUS = (BESTEFFORT, Knob.CPUSET_CPUS)
_QUOTA, _SHARES, _LIMIT = Knob.CPU_QUOTA, Knob.CPU_SHARES, Knob.MEMORY_LIMIT
_NO_PRESSURE = PressureSet()


class OutOfMemory(Struct, frozen=True):
    """A pod killed for memory, with the memory of all pods just before, and whether the whole machine was out of memory."""

    uid: str
    held: Mapping[str, int]
    machine: bool


class _Load(Struct, gc=False):
    """A running pod: its demand, the limits in its files, and its usage under both without contention."""

    group: str
    tier: str
    batch: bool
    wanted: UsageCurve
    pod: Pod
    quota: int = -1
    weight: int = 0
    memory_limit: int = -1
    cpu_milli: int = 0
    memory_bytes: int = 0
    throttled: bool = False


class SimulatedSampler:
    """Samples one machine. Bound: the running pods."""

    def __init__(self, facts: LocalNode, seed: int, files: SimulatedFiles) -> None:
        self._facts = facts
        self._seed = seed
        self._files = files
        self._system_milli = facts.capacity_milli * SYSTEM_PERMILLE // 1000
        self._system_bytes = facts.memory_bytes * SYSTEM_MEMORY_PERMILLE // 1000
        self._free_bytes = facts.memory_bytes - self._system_bytes
        self._loads: dict[str, _Load] = {}
        self._uids: dict[str, str] = {}
        """Loads by group."""
        self._services_milli = self._batch_milli = self._memory_bytes = 0
        """Sums over the loads."""
        self._moving: set[str] = set()
        """Pods whose usage varies over time."""
        self._changed: set[str] = set()
        """New pods, and pods whose files changed."""
        self._without_rate: set[str] = set()
        """Pods first seen at the newest sample: they have no rates yet."""
        self._uncontended = True
        """Whether all demand was met at the newest sample, so that no pod's usage depends on another's."""
        self._unchanging = False
        """Whether the next sample gives the same figures if nothing changes."""
        self._pods: dict[str, PodSample] = {}
        self._rated_milli = 0
        """Usage of the pods that existed at the previous sample too."""
        self.out_of_memory: tuple[OutOfMemory, ...] = ()
        """Pods killed for memory at the newest sample."""
        self._last_ns: int | None = None

    def written(self, groups: Iterable[str]) -> None:
        """Mark the pods of these groups: their files have changed."""
        for group in groups:
            uid = self._uids.get(group)
            if uid is not None:
                self._allow(self._loads[uid])
                self._changed.add(uid)
        self._unchanging = False

    def sample(self, now: datetime, transitions: Mapping[str, PodToRun | None]) -> UsageSnapshot:
        """Take a sample. `transitions`: pods that started running since the last sample; None for pods that stopped."""
        since_ms = elapsed_ms(now, EPOCH)
        for uid, to_run in transitions.items():
            if to_run is None:
                self._drop(uid)
            else:
                self._take(uid, to_run, since_ms)
        self.out_of_memory = ()
        if not self._unchanging:
            self._read(since_ms)
        now_ns = since_ms * 1_000_000
        last_ns, self._last_ns = self._last_ns, now_ns
        first = last_ns is None
        node_bytes = self._system_bytes + self._memory_bytes
        return UsageSnapshot(
            monotonic_ns=now_ns,
            interval_ns=None if last_ns is None else max(now_ns - last_ns, 0),
            node=NodeUsage(
                cpu_milli=None if first else self._system_milli + self._rated_milli,
                cpu_capacity_milli=self._facts.capacity_milli,
                memory_bytes=node_bytes,
                memory_with_page_cache_bytes=node_bytes,
                memory_total_bytes=self._facts.memory_bytes,
                pressure=_NO_PRESSURE,
            ),
            system=SystemUsage(None if first else self._system_milli, self._system_bytes),
            pods=self._pods,
            tiers={},
        )

    # -- loads ---------------------------------------------------------------------------------------------------------

    def _take(self, uid: str, to_run: PodToRun, since_ms: int) -> None:
        """Add a pod that started running."""
        tier = to_run.group.partition("/")[0]
        batch = tier == BESTEFFORT or qos_raw(to_run.pod) is QoSClass.BE
        tier = tier if tier in (BURSTABLE, BESTEFFORT) else "guaranteed"
        load = _Load(to_run.group, tier, batch, self._wanted(to_run.pod, since_ms), to_run.pod)
        self._allow(load)
        self._loads[uid] = load
        self._uids[load.group] = uid
        self._changed.add(uid)
        if not load.wanted.constant:
            self._moving.add(uid)
        self._unchanging = False

    def _drop(self, uid: str) -> None:
        """Remove a pod that stopped."""
        load = self._loads.pop(uid)
        del self._uids[load.group]
        self._count(load, 0, 0)
        self._moving.discard(uid)
        self._changed.discard(uid)
        self._without_rate.discard(uid)
        self._unchanging = False

    def _wanted(self, pod: Pod, since_ms: int) -> UsageCurve:
        try:
            return wanted_usage(pod, self._seed, since_ms)
        except ValueError:
            # An unreadable annotation counts as absent.
            return wanted_usage(replace(pod, metadata=replace(pod.metadata, annotations={})), self._seed, since_ms)

    def _allow(self, load: _Load) -> None:
        """Read the limits from the pod's files."""
        texts = self._files.of(load.group)
        load.quota, load.weight, load.memory_limit = int(texts[_QUOTA]), max(int(texts[_SHARES]), 2), int(texts[_LIMIT])

    # -- usage ---------------------------------------------------------------------------------------------------------

    def _read(self, since_ms: int) -> None:
        """Compute the usage of each pod."""
        loads, before = self._loads, self._pods
        over_limit = False
        for uid in self._changed | self._moving:
            if self._compute_usage(loads[uid], since_ms):
                over_limit = True
        if over_limit or self._memory_bytes > self._free_bytes:
            self._run_out_of_memory()
        given = self._granted(sorted(self._changed | self._moving | self._without_rate))
        pods = before.copy()
        for uid, milli in given.items():
            pods[uid] = self._usage(uid, milli, before.get(uid))
        self._pods = pods if len(pods) == len(loads) else {uid: pods[uid] for uid in loads}
        self._without_rate = self._changed.difference(before)
        self._changed.clear()
        used = self._services_milli + self._batch_milli if self._uncontended else sum(given.values())
        for uid in self._without_rate:
            used -= given[uid]
        self._rated_milli = used
        self._unchanging = not self._without_rate and not self._moving

    def _compute_usage(self, load: _Load, since_ms: int) -> bool:
        """Compute a pod's usage within its quota at `since_ms` after the epoch; True: it is above its memory limit."""
        place = since_ms + load.wanted.phase_ms
        cpu = max(load.wanted.cpu.at(place), 0)
        load.throttled = 0 <= load.quota < cpu * 100
        self._count(load, load.quota // 100 if load.throttled else cpu, load.wanted.memory.at(place))
        return 0 <= load.memory_limit < load.memory_bytes

    def _count(self, load: _Load, cpu_milli: int, memory_bytes: int) -> None:
        """Set a pod's usage and update the sums."""
        if load.batch:
            self._batch_milli += cpu_milli - load.cpu_milli
        else:
            self._services_milli += cpu_milli - load.cpu_milli
        self._memory_bytes += memory_bytes - load.memory_bytes
        load.cpu_milli, load.memory_bytes = cpu_milli, memory_bytes

    def _run_out_of_memory(self) -> None:
        """Kill pods for memory; a pod that starts again counts as new."""
        pods = {uid: self._holding(self._loads[uid]) for uid in sorted(self._loads)}
        found = []
        for uid, machine in ended(pods, self._free_bytes, self._facts.memory_bytes):
            found.append(OutOfMemory(uid, {other: load.memory_bytes for other, load in self._loads.items()}, machine))
            self._drop(uid)
        self.out_of_memory = tuple(found)

    def _holding(self, load: _Load) -> Holding:
        score = oom_score_adj(load.pod, pod_requests(load.pod).get(MEMORY, 0), self._facts.memory_bytes)
        return Holding(load.memory_bytes, load.memory_limit, score)

    def _granted(self, moved: Sequence[str]) -> dict[str, int]:
        """CPU in milli-CPU for the pods whose usage may have changed: services first, then batch within its limit, by weight
        within each tier. Without contention these are the pods in `moved`."""
        loads, free = self._loads, self._facts.capacity_milli - self._system_milli
        left = free - self._services_milli
        before = self._uncontended
        self._uncontended = left >= 0 and (not self._batch_milli or self._batch_milli <= min(left, self._best_effort_bound()))
        if self._uncontended:
            return {uid: loads[uid].cpu_milli for uid in (moved if before else loads)}
        weights = {uid: load.weight for uid, load in loads.items()}
        given = share_out(free, {uid: load.cpu_milli for uid, load in loads.items() if not load.batch}, weights)
        left = min(free - sum(given.values()), self._best_effort_bound())
        return given | share_out(left, {uid: load.cpu_milli for uid, load in loads.items() if load.batch}, weights)

    def _usage(self, uid: str, cpu_milli: int, before: PodSample | None) -> PodSample:
        """A pod's usage; a first reading has no rates. Unchanged usage is the same object."""
        load = self._loads[uid]
        cpu = cpu_milli if before is not None else None
        ratio = None if load.quota < 0 or self._last_ns is None else float(load.throttled)
        if (
            before is not None
            and before.usage.cpu_milli == cpu
            and before.usage.memory_bytes == load.memory_bytes
            and before.usage.throttled_ratio == ratio
        ):
            return before
        usage = GroupUsage(
            group=load.group,
            cpu_milli=cpu,
            memory_bytes=load.memory_bytes,
            memory_with_page_cache_bytes=load.memory_bytes,
            throttled_ratio=ratio,
            pressure=_NO_PRESSURE,
        )
        return PodSample(uid, load.tier, usage)

    def _best_effort_bound(self) -> int:
        quota = int(self._files.read(*BOUND_QUOTA))
        cpus = self._files.read(*BOUND_CPUS)
        bound = self._facts.capacity_milli if quota < 0 else quota // 100
        return min(bound, len(parse_cpu_list(cpus)) * 1000) if cpus else bound
