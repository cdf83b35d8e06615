"""The fair class: latency-sensitive threads on CPUs of their own, with long slices, beside an idle best-effort group.

In: the situation with the threads of pods; the memory: threads' CPUs, how long nothing is spread. Out: cpu.idle 1 of the
best-effort directory, so that its pods give way on every level of the hierarchy; one CPU for each busy thread of a pod of
class `fair` (`placing`), and a slice of SLICE_NS for all threads of these pods if the kernel honours it: threads that they
start later inherit it. Released threads get the CPUs of their pool and the default slice back, once.

A thread is put on a CPU only while the system, that is everything outside of pods, uses little (at most SYSTEM_PERCENT of the
node; again below SYSTEM_AGAIN_PERCENT, for SYSTEM_REST_SAMPLES): the kernel moves a thread away from a CPU that others need,
and a thread that is pinned there would wait. For the same reason threads are released if a service with a latency goal is late
for LATE_SAMPLES while its threads are pinned (`lateness`). After that, and after there were more busy threads than CPUs,
nothing is spread for REST_SAMPLES, so that threads do not move back and forth. Pods with CPUs of their own are left out.

Source: measured on a mainline kernel (docs/colocation.md): cpu.idle alone leaves a p99 of 1.2 times that of an idle node;
two latency-sensitive threads on one CPU, and best-effort work that gets a running thread's CPU for a tick, are the reasons.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.cpu.cpusets import cpu_pools
from cotenant_node_executor.strategies.cpu.protection.classes import CLASS_SHAPES, inputs, protected
from cotenant_node_executor.strategies.cpu.protection.lateness import Lateness, lateness, problems, worst
from cotenant_node_executor.strategies.cpu.protection.placing import BUSY_MILLI, Put, placed, spread_order
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.sections import CPU_PART, QOS
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place, Thread, ThreadAttribute
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, SLICES, Knob

NAME = "spread"
SLICE_NS = 100_000_000
"""The longest that the kernel takes."""
SYSTEM_PERCENT, SYSTEM_AGAIN_PERCENT = 25, 15
SYSTEM_REST_SAMPLES, REST_SAMPLES = 5, 30
LATE_SAMPLES = 3


class ThreadSpread(Struct, frozen=True):
    """`put`: threads with a CPU of their own; `sliced`: threads with a long slice; `rest`: samples without spreading."""

    put: dict[int, Put] = {}
    sliced: frozenset[int] = frozenset()
    rest: int = 0
    sample: int = 0
    """When the sample was taken that this was decided from, in monotonic ns: one sample counts once."""
    late: int = 0
    """Consecutive samples in which a service with pinned threads was late."""
    why: str = ""
    """Why nothing is spread for that, until spreading resumes."""


NOTHING = ThreadSpread()


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Spread the busy threads of this sample."""
    before = memory if isinstance(memory, ThreadSpread) else NOTHING
    found = protected(situation)
    pods = () if found is None else tuple(pod for pod in found.fair if not pod.bound_cpus)
    threads = {each.tid: each.milli for pod in pods for each in _of(situation, pod)}
    cpus = shared_cpus(situation)
    late = lateness(situation)
    held = worst(tuple(each for each in late if any(one.tid in before.put for one in situation.threads.get(each.group, ()))))
    now = _next(situation, before, threads, spread_order(situation.node.processors, cpus), held)
    desired: dict[Place, tuple[Desired, ...]] = {}
    if found is not None and (found.fair or found.realtime):
        why = "gives way to latency-sensitive pods as a whole"
        desired[BESTEFFORT] = (Desired(Knob.CPU_IDLE, "1", NAME, why),)
    everything = format_cpu_list(cpus)
    for tid in sorted({*now.put, *now.sliced, *before.put, *before.sliced}):
        own = _of_thread(tid, before, now, everything)
        if own:
            desired[Thread(tid)] = own
    return StrategyDecision(desired, memory=now, problems=problems(late))


def shared_cpus(situation: Situation) -> frozenset[int]:
    """The CPUs that latency-sensitive pods share."""
    return frozenset(cpu for pool in cpu_pools(situation).share for cpu in parse_cpu_list(pool.cpuset))


def _of(situation: Situation, pod: PodView) -> tuple[ThreadUsage, ...]:
    return situation.threads.get(pod.group, ())


def _next(
    situation: Situation, before: ThreadSpread, threads: dict[int, int], cpus: tuple[int, ...], held: Lateness | None
) -> ThreadSpread:
    sample = situation.snapshot.monotonic_ns if situation.snapshot is not None else 0
    if sample == before.sample:
        # A pod came or went: removed ones are dropped, and the next sample decides.
        put = {tid: each for tid, each in before.put.items() if tid in threads}
        return ThreadSpread(put, before.sliced & threads.keys(), before.rest, sample, before.late, before.why)
    sliced: frozenset[int] = frozenset()
    if situation.capabilities.supports(SLICES):
        sliced = frozenset(threads)
    rest = max(before.rest - 1, 0)
    if _system_percent(situation) > (SYSTEM_PERCENT if before.rest == 0 else SYSTEM_AGAIN_PERCENT):
        return ThreadSpread({}, sliced, max(rest, SYSTEM_REST_SAMPLES), sample, why=before.why)
    if rest:
        return ThreadSpread({}, sliced, rest, sample, why=before.why)
    late = before.late + 1 if held is not None else 0
    if held is not None and late >= LATE_SAMPLES:
        return ThreadSpread({}, sliced, REST_SAMPLES, sample, why=f"late for {late} samples on CPUs of its own: {held.text}")
    put = placed(threads, before.put, cpus)
    busy = sum(milli >= BUSY_MILLI for milli in threads.values())
    return ThreadSpread(put, sliced, REST_SAMPLES if busy > len(cpus) else 0, sample, late)


def _system_percent(situation: Situation) -> float:
    """Usage outside of pods; the whole node where that is unknown."""
    used = situation.snapshot.system.cpu_milli if situation.snapshot is not None else None
    return 100.0 if used is None else 100.0 * used / max(situation.node.capacity_milli, 1)


def _of_thread(tid: int, before: ThreadSpread, now: ThreadSpread, everything: str) -> tuple[Desired, ...]:
    found: list[Desired] = []
    if tid in now.put:
        why = "no two busy latency-sensitive threads share a CPU"
        found.append(Desired(ThreadAttribute.AFFINITY, str(now.put[tid].cpu), NAME, why))
    elif tid in before.put:
        found.append(Desired(ThreadAttribute.AFFINITY, everything, NAME, now.why or "needs no CPU of its own"))
    if tid in now.sliced:
        found.append(Desired(ThreadAttribute.SLICE, str(SLICE_NS), NAME, "no best-effort tick within a request"))
    elif tid in before.sliced:
        found.append(Desired(ThreadAttribute.SLICE, "0", NAME, "protected no more"))
    return tuple(found)


def _figures(memory: Struct | None) -> dict[str, int]:
    if not isinstance(memory, ThreadSpread):
        return {}
    return {"threads.spread": len(memory.put), "threads.long-slice": len(memory.sliced)}


STRATEGY = Strategy(
    name=NAME,
    topic="protection",
    sets=(Knob.CPU_IDLE, ThreadAttribute.AFFINITY, ThreadAttribute.SLICE),
    decide=decide,
    inputs=inputs,
    cause=Cause.USAGE,
    figures=_figures,
    section=QOS,
    part=CPU_PART,
    reads=CLASS_SHAPES,
)
