"""Promise 12: after the faults everything comes to rest, and never is anything published that says nothing new.

Whether a waiting pod fits is told here from the log alone, in plain sums, and cautiously: a node takes it if it has room, no
taint, a fresh metric well below every threshold, and if its quota and all above that have room; pods with wishes of their own
about nodes are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.conditions import NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, PODS
from cotenant.objects.node import decode_node
from cotenant.objects.pod import Pod, pod_requests
from cotenant.quota.names import LABEL_PREEMPTIBLE, LABEL_QUOTA
from cotenant.subjects import (
    condition_subject,
    executor_subject,
    metrics_subject,
    node_subject,
    pod_subject,
    run_subject,
    waiting_subject,
)
from cotenant_console.chaos.checking import Moment
from cotenant_console.chaos.invariants import Wrong
from cotenant_console.chaos.invariants.quotas import used_by, way_up
from cotenant_console.chaos.sight import TRACKED, CommitSeen, Sight

LAST_STRETCH = timedelta(minutes=2)
EVENTS_PER_NODE = 40
"""In the last stretch of the quiet: metrics, resources, quotas, reports of jobs that end."""
STORM = 1_500
LEFT_ALONE = timedelta(minutes=2)
"""What was begun longer ago is work that is left undone."""
FRESH = timedelta(seconds=60)
COOL_PERCENT = {CPU: 45, MEMORY: 75}
"""Of what a node offers: thresholds are 65 and 95, and pods may be estimated higher than they are."""
HELD_BACK = ("gated", "malformed", "predecessor")
"""Reasons that no room can mend."""
DECIDING = ("scheduler", "quota-tree", "batch-resource-calculator", "descheduler-arbiter")


def nothing_is_said_twice(sight: Sight, seen: CommitSeen) -> Wrong:
    """No decision publishes on a subject what stands there already."""
    if seen.service not in DECIDING:
        return
    for event in seen.events:
        before = sight.before(event)
        if before is not None and not before.tombstone and not event.tombstone and before.data == event.data:
            yield event.subject, f"{event.ref} says again what {before.ref} says"


def no_work_is_left(moment: Moment) -> Wrong:
    """When it is quiet, every placed pod has a report, nothing has been ending for long, every eviction that was ordered is
    answered, no report is kept of a pod that is gone, and nobody is said to wait who does not exist or is placed.
    """
    sight = moment.sight
    for node, held in sorted(sight.placed.items()):
        if node not in moment.stage.nodes:
            continue
        for (namespace, name), event in sorted(held.items()):
            run = sight.last.get(run_subject(node, namespace, name))
            data = event.data
            assert isinstance(data, Placement)
            if run is None or not isinstance(run.data, RunStatus) or run.data.uid != data.uid:
                yield event.subject, f"{namespace}/{name} is placed on {node} and its executor says nothing of it"
            elif data.phase is PlacementPhase.TERMINATING and _long_ago(data.terminating_at, moment):
                yield event.subject, f"{namespace}/{name} is ending on {node} since {data.terminating_at}"
    for subject, event in sorted(sight.last.items()):
        if isinstance(event.data, Waiting):
            yield from _needless_waiting(sight, subject, event.data)
        elif isinstance(event.data, RunStatus) and event.data.node in moment.stage.nodes:
            yield from _needless_report(moment, event, event.data)
    for (namespace, name), pod in sorted(sight.pods.items()):
        since = pod.metadata.deletion_timestamp
        if since is not None and _long_ago(datetime.fromisoformat(since), moment) and not sight.places[pod.metadata.uid]:
            yield pod_subject(namespace, name), f"{namespace}/{name} is being deleted since {since}, and nothing holds it"
    for subject, job in sorted(sight.moves.items()):
        if job.phase == "Running" and not (job.answer or job.evicted_at) and _long_ago(job.ordered_at, moment):
            yield subject, f"the eviction that {job.job} ordered at {job.ordered_at} has no answer"


def _long_ago(at: datetime | None, moment: Moment) -> bool:
    return at is not None and moment.now - at > LEFT_ALONE


def _needless_waiting(sight: Sight, subject: str, data: Waiting) -> Wrong:
    pod = sight.pods.get((data.namespace, data.name))
    if pod is None or pod.metadata.uid != data.uid:
        yield subject, f"{data.namespace}/{data.name} is said to wait and does not exist"
    elif sight.places[data.uid]:
        yield subject, f"{data.namespace}/{data.name} is said to wait and is placed"


def _needless_report(moment: Moment, event: Event, data: RunStatus) -> Wrong:
    pod = moment.sight.pods.get((data.namespace, data.name))
    gone = (pod is None or pod.metadata.uid != data.uid) and data.node not in moment.sight.places[data.uid]
    if gone and _long_ago(event.time, moment):
        yield event.subject, f"{data.node} still reports {data.namespace}/{data.name} ({data.uid}), which is gone"


def nobody_waits_who_fits(moment: Moment) -> Wrong:
    """When it is quiet, every pod without a place says why, and no node would take it and its quota admit it."""
    sight = moment.sight
    ended = {uid for _, uid in sight.ended_runs}
    free = [node for node in sorted(moment.stage.nodes) if _takes_anyone(moment, node)]
    for (namespace, name), head in sorted(sight.pods.items()):
        uid = head.metadata.uid
        if sight.places[uid] or head.metadata.deletion_timestamp is not None or uid in ended:
            continue
        subject = pod_subject(namespace, name)
        event = sight.last.get(waiting_subject(namespace, name))
        if event is None or not isinstance(event.data, Waiting):
            yield subject, f"{namespace}/{name} ({uid}) has no place and nobody says why"
            continue
        pod = sight.pod(namespace, name)
        requests = pod_requests(pod)
        held_back = any(reason.code in HELD_BACK for reason in event.data.reasons)
        if held_back or _has_wishes(pod) or not _admitted(sight, pod, requests):
            continue
        for node in free:
            if _fits(moment, node, requests):
                yield subject, f"{namespace}/{name} waits ({event.data.message}), and node {node} has room for {requests}"


def _has_wishes(pod: Pod) -> bool:
    spec = pod.spec
    ports = any(port.host_port for container in spec.containers for port in container.ports)
    return bool(
        spec.node_name
        or spec.node_selector
        or spec.affinity
        or spec.topology_spread_constraints
        or ports
        or pod.metadata.labels.get(LABEL_PREEMPTIBLE) == "false"
    )


def _takes_anyone(moment: Moment, node: str) -> bool:
    """Ready, declared, without taints, and nobody is promised its room."""
    last = moment.sight.last
    executor, condition, declared = (
        last.get(subject) for subject in (executor_subject(node), condition_subject(node), node_subject(node))
    )
    if executor is None or not isinstance(executor.data, ExecutorStatus) or executor.data.taints:
        return False
    if condition is not None and isinstance(condition.data, NodeCondition) and condition.data.taints:
        return False
    if declared is not None and isinstance(declared.data, ObjectStored):
        spec = decode_node(declared.data.object).spec
        if spec.unschedulable or spec.taints:
            return False
    nominated = (event.data.nomination for event in last.values() if isinstance(event.data, Waiting))
    return all(nomination is None or nomination.node != node for nomination in nominated)


def _fits(moment: Moment, node: str, requests: dict[str, int]) -> bool:
    sight = moment.sight
    now = sight.log[-1].sequence
    offered = sight.offer(node, now)
    used: Counter[str] = Counter()
    for placement in sight.held(node, now):
        used.update(placement.requests)
        used[PODS] += 1
    wanted = {**requests, PODS: 1}
    if any(used[name] + wanted[name] > offered.get(name, 0) for name in TRACKED if name in wanted):
        return False
    metric = sight.last.get(metrics_subject(node))
    if metric is None or not isinstance(metric.data, NodeMetricComputed) or metric.data.unknown_since is not None:
        return False
    data = metric.data
    if data.update_time is None or moment.now - data.update_time > FRESH:
        return False
    loads = (
        (CPU, data.node_usage.cpu_milli + requests.get(CPU, 0) + requests.get(BATCH_CPU, 0)),
        (MEMORY, data.node_usage.memory_bytes + requests.get(MEMORY, 0) + requests.get(BATCH_MEMORY, 0)),
    )
    return all(load * 100 <= offered.get(name, 0) * COOL_PERCENT[name] for name, load in loads)


def _admitted(sight: Sight, pod: Pod, requests: dict[str, int]) -> bool:
    """Whether the quota that the pod names, and all above it, have room; it is passed over where namespaces decide."""
    label = pod.metadata.labels.get(LABEL_QUOTA, "")
    now = sight.log[-1].sequence
    for tree, quotas in sorted(sight.charges.trees.items()):
        if any(quota.namespaces for quota in _published(quotas)):
            return False
        if label not in quotas:
            continue
        used = used_by(sight, tree, now)
        for quota in way_up(sight, tree, label, now):
            for resource, most in quota.max.items():
                if used[quota.quota][resource] + requests.get(resource, 0) > min(most, quota.runtime.get(resource, most)):
                    return False
    return True


def _published(quotas: dict[str, Event]) -> Iterator[QuotaRuntime]:
    return (event.data for event in quotas.values() if isinstance(event.data, QuotaRuntime))


def it_is_quiet(moment: Moment) -> Wrong:
    """In the last stretch of the quiet no more is published than samples, loads and jobs that end give rise to."""
    since = moment.now - LAST_STRETCH
    counts: Counter[str] = Counter()
    for event in reversed(moment.sight.log):
        if event.time is not None and event.time < since:
            break
        if not isinstance(event.data, Commit | ServiceStarted):
            counts[event.source] += 1
    limit = EVENTS_PER_NODE * max(len(moment.stage.nodes), 1) + 3 * len(moment.sight.pods)
    for source, count in counts.most_common(1):
        if count > limit:
            yield source, f"{source} stored {count} events in the last {LAST_STRETCH} of the quiet, more than {limit}"


def nobody_storms(sight: Sight, event: Event) -> Wrong:
    """No source stores more than STORM events in one second."""
    second = int(sight.now.timestamp()) if sight.now is not None else 0
    if sight.second != second:
        sight.second = second
        sight.of_second.clear()
    sight.of_second[event.source] += 1
    if sight.of_second[event.source] > STORM:
        yield event.subject, f"{event.source} stored more than {STORM} events within one second"
