"""What the pods of a simulated machine use: a snapshot a sample, with the pods that use the same as before taken over from it.

In: the pods that run, what their groups' files say, the time. Out: snapshots. `simulated_usage` says what a pod wants; a
quota and a CPU set bound what the best-effort tree gets, services go before batch. A pod that wants more than its quota is
throttled in every period; whom the kernel ends for want of memory (`simulated_memory`) is not in the sample any more. Where
no pod's use moves with the time and nothing has changed, the last figures hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from cotenant.names import MEMORY
from cotenant.objects.pod import pod_requests
from cotenant.qos import QoSClass, qos_raw
from cotenant_node_executor.kernel.cpulist import parse_cpu_list
from cotenant_node_executor.kernel.interface import Knob
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.runtime.oom_score import oom_score_adj
from cotenant_node_executor.sampling.snapshot import GroupUsage, NodeUsage, PodUsage, PressureSet, Snapshot, SystemUsage
from cotenant_node_executor.simulated_files import SimulatedFiles
from cotenant_node_executor.simulated_memory import Holding, ended
from cotenant_node_executor.simulated_usage import Wanted, elapsed_ms, share_out, wanted_usage
from cotenant_node_executor.strategies.situation import BESTEFFORT, BURSTABLE, NodeFacts

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SYSTEM_PERMILLE = 30
SYSTEM_MEMORY_PERMILLE = 20

BOUND_QUOTA = (BESTEFFORT, Knob.CPU_QUOTA)
BOUND_CPUS = (BESTEFFORT, Knob.CPUSET_CPUS)
_NO_PRESSURE = PressureSet()


class OutOfMemory(Struct, frozen=True):
    """A pod that the kernel ended: what all pods held just before; whether it was the machine that lacked memory."""

    uid: str
    held: Mapping[str, int]
    machine: bool


class _Use(Struct, frozen=True):
    """What a pod uses at a moment if nobody else wants anything; within its quota."""

    cpu_milli: int
    memory_bytes: int
    throttled: bool
    over: bool
    """Beyond its memory limit."""


class _Load(Struct, frozen=True):
    """A running pod: what it wants, and what its files allow."""

    group: str
    tier: str
    batch: bool
    wanted: Wanted
    score_adj: int
    quota: int = -1
    weight: int = 0
    memory_limit: int = -1
    constant: _Use | None = None
    """Where time changes nothing."""

    def at(self, since_ms: int) -> _Use:
        """What it uses so long after the epoch."""
        place = since_ms + self.wanted.phase_ms
        cpu, memory = self.wanted.cpu.at(place), self.wanted.memory.at(place)
        throttled = 0 <= self.quota < cpu * 100
        return _Use(self.quota // 100 if throttled else cpu, memory, throttled, 0 <= self.memory_limit < memory)


class _Figures(Struct, frozen=True):
    """What all pods use, and their sums over those that were there at the last sample."""

    pods: dict[str, PodUsage]
    cpu_milli: int
    memory_bytes: int


class SimulatedSampler:
    """Samples one machine. Bound: the pods that run."""

    def __init__(self, facts: NodeFacts, seed: int, files: SimulatedFiles) -> None:
        self._facts = facts
        self._seed = seed
        self._files = files
        self._running: Mapping[str, PodToRun] = {}
        self._loads: dict[str, _Load] = {}
        self._uids: dict[str, str] = {}
        """By group: whose load it is."""
        self._figures = _Figures({}, 0, 0)
        self._settled = False
        """Whether the next sample gives the same figures as long as nothing changes."""
        self.out_of_memory: tuple[OutOfMemory, ...] = ()
        """Whom the kernel ended at the newest sample."""
        self._last_ns: int | None = None
        self._free_memory = facts.memory_bytes - facts.memory_bytes * SYSTEM_MEMORY_PERMILLE // 1000

    def written(self, groups: Iterable[str]) -> None:
        """Files of these groups say something else now."""
        for group in groups:
            uid = self._uids.get(group)
            if uid is not None:
                self._loads[uid] = self._allowed(self._loads[uid])
        self._settled = False

    def sample(self, now: datetime, running: Mapping[str, PodToRun]) -> Snapshot:
        """Read what is used now. `running` is the same object as long as nothing has changed in it."""
        if running is not self._running:
            self._follow(running, now)
        self.out_of_memory = ()
        if not self._settled:
            self._read(now)
        figures, facts = self._figures, self._facts
        now_ns = elapsed_ms(now, EPOCH) * 1_000_000
        first = self._last_ns is None
        interval_ns = None if self._last_ns is None else max(now_ns - self._last_ns, 0)
        self._last_ns = now_ns
        system_milli = facts.capacity_milli * SYSTEM_PERMILLE // 1000
        system_memory = facts.memory_bytes * SYSTEM_MEMORY_PERMILLE // 1000
        node_memory = system_memory + figures.memory_bytes
        return Snapshot(
            monotonic_ns=now_ns,
            interval_ns=interval_ns,
            node=NodeUsage(
                cpu_milli=None if first else system_milli + figures.cpu_milli,
                cpu_capacity_milli=facts.capacity_milli,
                memory_bytes=node_memory,
                memory_with_page_cache_bytes=node_memory,
                memory_total_bytes=facts.memory_bytes,
                pressure=_NO_PRESSURE,
            ),
            system=SystemUsage(None if first else system_milli, system_memory),
            pods=figures.pods,
            tiers={},
        )

    # -- whose load ----------------------------------------------------------------------------------------------------

    def _follow(self, running: Mapping[str, PodToRun], now: datetime) -> None:
        """Take the loads of pods that came, drop those of pods that went."""
        came = [uid for uid in running if uid not in self._loads]
        gone = [uid for uid in self._loads if uid not in running]
        for uid in gone:
            self._drop(uid)
        for uid in came:
            load = self._loads[uid] = self._allowed(self._load(running[uid], now))
            self._uids[load.group] = uid
        if came:
            self._loads = dict(sorted(self._loads.items()))
        self._running = running
        self._settled = self._settled and not came and not gone

    def _drop(self, uid: str) -> None:
        del self._uids[self._loads.pop(uid).group]

    def _load(self, to_run: PodToRun, now: datetime) -> _Load:
        pod, since = to_run.pod, elapsed_ms(now, EPOCH)
        try:
            wanted = wanted_usage(pod, self._seed, since)
        except ValueError:
            # As if it had said nothing about its usage.
            wanted = wanted_usage(replace(pod, metadata=replace(pod.metadata, annotations={})), self._seed, since)
        tier = to_run.group.partition("/")[0]
        batch = tier == BESTEFFORT or qos_raw(pod) is QoSClass.BE
        score = oom_score_adj(pod, pod_requests(pod).get(MEMORY, 0), self._facts.memory_bytes)
        return _Load(to_run.group, tier if tier in (BURSTABLE, BESTEFFORT) else "guaranteed", batch, wanted, score)

    def _allowed(self, load: _Load) -> _Load:
        """The load with what its files say."""
        quota = int(self._files.read(load.group, Knob.CPU_QUOTA))
        weight = max(int(self._files.read(load.group, Knob.CPU_SHARES)), 2)
        limit = int(self._files.read(load.group, Knob.MEMORY_LIMIT))
        bounded = _Load(load.group, load.tier, load.batch, load.wanted, load.score_adj, quota, weight, limit)
        return replace(bounded, constant=bounded.at(0)) if load.wanted.constant else bounded

    # -- what they use -------------------------------------------------------------------------------------------------

    def _read(self, now: datetime) -> None:
        """What each pod is given now: services first, then batch within its bound, each by weight."""
        since = elapsed_ms(now, EPOCH)
        loads = self._loads
        uses = {uid: load.constant or load.at(since) for uid, load in loads.items()}
        memory = sum(use.memory_bytes for use in uses.values())
        if memory > self._free_memory or any(use.over for use in uses.values()):
            self._run_out_of_memory(uses)
            memory = sum(use.memory_bytes for use in uses.values())
        weights = {uid: load.weight for uid, load in loads.items()}
        free = self._facts.capacity_milli - self._facts.capacity_milli * SYSTEM_PERMILLE // 1000
        given = share_out(free, {uid: use.cpu_milli for uid, use in uses.items() if not loads[uid].batch}, weights)
        left = min(free - sum(given.values()), self._best_effort_bound())
        given |= share_out(left, {uid: use.cpu_milli for uid, use in uses.items() if loads[uid].batch}, weights)
        before = self._figures.pods
        pods = {uid: self._usage(uid, given[uid], use, before.get(uid)) for uid, use in uses.items()}
        self._figures = _Figures(
            pods=pods,
            cpu_milli=sum(given[uid] for uid in pods if uid in before),
            memory_bytes=memory,
        )
        self._settled = all(uid in before for uid in pods) and all(load.constant is not None for load in loads.values())

    def _run_out_of_memory(self, uses: dict[str, _Use]) -> None:
        """End whom the kernel ends; whoever starts again is taken for somebody new."""
        pods = {
            uid: Holding(use.memory_bytes, self._loads[uid].memory_limit, self._loads[uid].score_adj)
            for uid, use in uses.items()
        }
        found = []
        for uid, machine in ended(pods, self._free_memory, self._facts.memory_bytes):
            found.append(OutOfMemory(uid, {other: use.memory_bytes for other, use in uses.items()}, machine))
            del uses[uid]
            self._drop(uid)
        self.out_of_memory = tuple(found)

    def _usage(self, uid: str, cpu_milli: int, use: _Use, before: PodUsage | None) -> PodUsage:
        """A pod's usage; a first reading has no rates. What has not changed is the same object."""
        load = self._loads[uid]
        cpu = cpu_milli if before is not None else None
        ratio = None if load.quota < 0 or self._last_ns is None else float(use.throttled)
        if (
            before is not None
            and before.usage.cpu_milli == cpu
            and before.usage.memory_bytes == use.memory_bytes
            and before.usage.throttled_ratio == ratio
        ):
            return before
        usage = GroupUsage(
            group=load.group,
            cpu_milli=cpu,
            memory_bytes=use.memory_bytes,
            memory_with_page_cache_bytes=use.memory_bytes,
            throttled_ratio=ratio,
            pressure=_NO_PRESSURE,
        )
        return PodUsage(uid, load.tier, usage)

    def _best_effort_bound(self) -> int:
        quota = int(self._files.read(*BOUND_QUOTA))
        cpus = self._files.read(*BOUND_CPUS)
        bound = self._facts.capacity_milli if quota < 0 else quota // 100
        return min(bound, len(parse_cpu_list(cpus)) * 1000) if cpus else bound
