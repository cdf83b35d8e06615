"""Load that is moving between nodes: still measured at its source, not yet at its target.

In: the state. Out: the pods that no longer count on their node, and the usages that count on their target. A job counts once
its pod is certain to move: a job of LowNodeLoad at once, any other when it runs. A finished job counts until a report interval
has passed, as the nodes' metrics do not show its effect before.
"""

from __future__ import annotations

from cotenant.events.migrations import Migration
from cotenant_descheduler_arbiter.config.policy import LOW_NODE_LOAD
from cotenant_descheduler_arbiter.state.fold import ClusterFold


def under_way(fold: ClusterFold) -> tuple[set[tuple[str, str, str]], dict[str, list[dict[str, int]]]]:
    """Return the pods (node, key, uid) that no longer count on their node, and the usages moving to each target node."""
    leaving: set[tuple[str, str, str]] = set()
    arriving: dict[str, list[dict[str, int]]] = {}
    for _, known in sorted(fold.jobs.items()):
        job = known.value
        will_go = job.phase == "Running" or job.trigger == LOW_NODE_LOAD
        if (job.evicted_at is None) if job.finished else not will_go:
            continue
        if not job.finished or _not_measured_since(fold, job, job.node):
            leaving.add((job.node, f"{job.namespace}/{job.pod}", job.uid))
        if job.target and (not job.finished or _not_measured_since(fold, job, job.target)):
            arriving.setdefault(job.target, []).append(job.pod_usage)
    return leaving, arriving


def _not_measured_since(fold: ClusterFold, job: Migration, node: str) -> bool:
    metric = fold.metrics.get(node)
    if metric is None or metric.value.update_time is None or job.finished_at is None:
        return False
    since = (metric.value.update_time - job.finished_at).total_seconds()
    return since < metric.value.report_interval_seconds
