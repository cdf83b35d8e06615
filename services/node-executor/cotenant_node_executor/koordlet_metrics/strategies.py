"""What strategies do, by koordlet's names: suppression, evictions, burst, core scheduling, OOM scores; how long writes take.

In: the strategies' figures and values of the last cycle, the evictions, the core-scheduling groups as observed. Out: values
with their labels. Source: koordlet's metrics (v1.8).

Bound: the node's pods and containers; core-scheduling groups as `targets.other.core_groups` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate

from cotenant.runtime.figures import Value
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.koordlet_metrics.values import Defined, container_labels, of_containers, pods, snapshot_of
from cotenant_node_executor.sampling.spikes import services_milli
from cotenant_node_executor.strategies.cpu.burst import strategy as burst
from cotenant_node_executor.strategies.cpu.evict import strategy as cpu_evict
from cotenant_node_executor.strategies.cpu.suppression import strategy as suppression
from cotenant_node_executor.strategies.memory import evict as memory_evict
from cotenant_node_executor.strategies.readings import best_effort_cpu_milli
from cotenant_node_executor.targets.address import OomScore, OomScoreAttribute
from cotenant_node_executor.targets.cgroup.durations import BOUNDS_MS
from cotenant_node_executor.targets.interface import Knob

WRITES = "resource_update_duration_milliseconds"

EVICTION_REASONS = {cpu_evict.NAME: "EvictPodByBECPUSatisfaction", memory_evict.NAME: "EvictPodByNodeMemoryUsage"}
"""By strategy; another one's reason is its name."""


def _services_cpu(core: ExecutorCore) -> Iterator[Value]:
    snapshot = snapshot_of(core)
    if snapshot is not None:
        yield services_milli(snapshot) / 1000, {}


def _batch_cpu(core: ExecutorCore) -> Iterator[Value]:
    snapshot = snapshot_of(core)
    if snapshot is not None:
        yield best_effort_cpu_milli(snapshot) / 1000, {}


def _suppressed(core: ExecutorCore) -> Iterator[Value]:
    figures = core.figures(suppression.NAME)
    if figures and core.slo is not None:
        yield max(0, figures.get(suppression.QUANTITY, 0)) / 1000, {"type": core.slo.cpu_suppress_policy}


def _evictions(core: ExecutorCore) -> Iterator[Value]:
    counts = dict.fromkeys(EVICTION_REASONS.values(), 0)
    for strategy, count in core.evictions.count.items():
        reason = EVICTION_REASONS.get(strategy, strategy)
        counts[reason] = counts.get(reason, 0) + count
    for reason, count in sorted(counts.items()):
        yield count, {"reason": reason}


def _evicted(core: ExecutorCore) -> Iterator[Value]:
    """The pods that are being evicted: koordlet keeps a series for each pod that it ever evicted."""
    for (namespace, name), placed in sorted(core.placed.items()):
        begun = core.evictions.begun(placed.placement.uid)
        if begun is not None:
            reason = EVICTION_REASONS.get(begun.strategy, begun.strategy)
            yield 1, {"pod_namespace": namespace, "pod_name": name, "reason": reason}


def _scaled(knob: Knob, core: ExecutorCore) -> Iterator[Value]:
    for _, pod, own, group in pods(core):
        for container in pod.spec.containers:
            desired = core.desired(f"{group}/{container.name}", knob)
            if desired is not None and desired.strategy == burst.NAME:
                labels = container_labels(core, own, container)
                del labels["pod_uid"]
                yield float(desired.value), labels


def _oom_scores(core: ExecutorCore) -> Iterator[Value]:
    """Of containers with an annotation; koordlet shows no container_id here."""
    for _, pod, own, group in pods(core):
        for container in pod.spec.containers:
            desired = core.desired(OomScore(f"{group}/{container.name}"), OomScoreAttribute.ADJUSTMENT)
            if desired is not None:
                yield float(desired.value), {**own, "container_name": container.name}


def _cookies(core: ExecutorCore) -> Iterator[Value]:
    for held, own in of_containers(core, core.seen.core_groups.cookies if core.seen is not None else {}):
        yield 1, {**own, "core_sched_group": held.group, "core_sched_cookie": str(held.cookie)}


def _written(part: str, core: ExecutorCore) -> Iterator[Value]:
    """A part of a histogram: koordlet's has no label of the node."""
    writes = dict(core.seen.writes) if core.seen is not None else {}
    for (knob, outcome), found in sorted(writes.items(), key=lambda item: (item[0][0].value, item[0][1])):
        labels = {"type": knob.value, "status": outcome}
        if part == "sum":
            yield found.sum_ms, labels
        elif part == "count":
            yield sum(found.counts), labels
        else:
            bounds = (*[f"{each:g}" for each in BOUNDS_MS], "+Inf")
            for bound, count in zip(bounds, accumulate(found.counts), strict=True):
                yield count, {**labels, "le": bound}


def _cookie_outcomes(core: ExecutorCore) -> Iterable[Value]:
    outcomes = core.seen.core_groups.outcomes if core.seen is not None else {}
    for group, outcome in sorted(outcomes.items()):
        yield outcome.succeeded, {"core_sched_group": group, "status": "succeeded"}
        yield outcome.failed, {"core_sched_group": group, "status": "failed"}


METRICS: tuple[Defined, ...] = (
    ("be_suppress_cpu_cores", "CPU that best-effort work may use, by the policy of suppression", _suppressed),
    ("be_suppress_ls_used_cpu_cores", "CPU that pods other than best-effort use", _services_cpu),
    ("be_suppress_be_used_cpu_cores", "CPU that best-effort work uses", _batch_cpu),
    ("pod_eviction", "Evictions begun, by reason", _evictions),
    ("pod_eviction_detail", "Pods that are being evicted", _evicted),
    ("container_scaled_cfs_quota_us", "Quotas that CPU burst has set", partial(_scaled, Knob.CPU_QUOTA)),
    ("container_scaled_cfs_burst_us", "Bursts that CPU burst has set", partial(_scaled, Knob.CPU_BURST)),
    ("container_oom_score_adj", "OOM score adjustments that annotations state", _oom_scores),
    ("container_core_sched_cookie", "Core-scheduling cookies of containers", _cookies),
    ("core_sched_cookie_manage_status", "Containers put into a core-scheduling group, by outcome", _cookie_outcomes),
    *[
        (f"{WRITES}_{part}", "Duration of writes of control group files, by attribute and outcome", partial(_written, part))
        for part in ("bucket", "sum", "count")
    ],
)
