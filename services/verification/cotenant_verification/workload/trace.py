"""The openb trace as a workload with faults on top, in place of the machines and pods that a seed makes up.

In: the trace, a header. Out: entries. As many machines of the trace as the header says, chosen by the seed, with their GPUs,
and PODS_PER_NODE times as many pods: those that came one after the other from a place in the trace that the seed chooses, their
times scaled to the span. BE pods of the trace run on batch resources; a pod's usage is below its request
(the trace has none). Quotas, configuration, migration jobs and YARN are those of other runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from cotenant_verification.simulate.openb import OpenbTrace, TraceNode, TracePod
from cotenant_verification.workload.administration import administration
from cotenant_verification.workload.quotas import quotas
from cotenant_verification.workload.schedule import SETTLE_MS, Header, ScheduleEntry
from cotenant_verification.workload.yarn import yarn

PODS_PER_NODE = 10
SHORTEST_MS = 1_000


def trace_workload(trace: OpenbTrace, header: Header) -> list[ScheduleEntry]:
    """A piece of the trace."""
    chance = Random(f"openb/{header.seed}")
    machines = chance.sample(trace.nodes, min(header.nodes, len(trace.nodes)))
    entries = [_machine(f"n{index}", index, node, chance) for index, node in enumerate(machines)]
    capacity = sum(node.cpu_milli for node in machines)
    entries += _pods(chance, header, trace.pods)
    return [*entries, *quotas(header, capacity), *administration(header), *yarn(header, capacity)]


def _machine(name: str, index: int, node: TraceNode, chance: Random) -> ScheduleEntry:
    args: dict[str, int | str] = {"cpu": node.cpu_milli, "memory_gib": node.memory_mib // 1024, "cgroup": chance.choice((1, 2))}
    if node.gpus:
        args |= {"gpus": node.gpus, "model": node.model}
    return ScheduleEntry(at_ms=1_500 + index, kind="node", target=name, args=args)


def _pods(chance: Random, header: Header, pods: Sequence[TracePod]) -> list[ScheduleEntry]:
    count = min(PODS_PER_NODE * header.nodes, len(pods))
    first = chance.randrange(len(pods) - count + 1)
    piece = pods[first : first + count]
    begin, end = piece[0].created, piece[-1].created
    room = header.span_ms - SETTLE_MS - SHORTEST_MS
    entries = []
    for pod in piece:
        at_ms = SETTLE_MS + (pod.created - begin) * room // max(end - begin, 1)
        entries.append(ScheduleEntry(at_ms=at_ms, kind="create-pod", target=pod.name, args=_wants(pod, chance)))
        leaves_ms = at_ms + max((pod.deleted - pod.created) * room // max(end - begin, 1), SHORTEST_MS)
        if leaves_ms < header.span_ms:
            entries.append(ScheduleEntry(at_ms=leaves_ms, kind="delete-pod", target=pod.name, args={"grace": -1}))
    return entries


def _wants(pod: TracePod, chance: Random) -> dict[str, int | str]:
    args: dict[str, int | str] = {
        "class": "batch" if pod.qos == "BE" else "ls",
        "app": f"openb-{pod.qos.lower()}",
        "cpu": pod.cpu_milli,
        "memory_mib": pod.memory_mib,
        "use_low": pod.cpu_milli * chance.randrange(5, 40) // 100,
        "use_high": pod.cpu_milli * chance.randrange(40, 100) // 100,
        "period": chance.choice((60, 300, 1800)),
    }
    if pod.gpus:
        args["gpu_core"] = pod.gpu_core
        if pod.gpu_milli >= 1000 or pod.gpus > 1:
            args["gpus"] = pod.gpus
    if pod.models:
        args["models"] = "|".join(pod.models)
    return args
