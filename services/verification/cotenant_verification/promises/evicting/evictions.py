"""Promises 6 and 7: evictions stay within their limits, and every migration ends."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from cotenant.events.envelope import Event
from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION, EvictionOutcome, Migration
from cotenant.events.placements import Waiting
from cotenant.model.subjects import migration_subject
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.evicting.limits import (
    CYCLE_SECONDS,
    EVICT_BURST,
    EVICT_QPS,
    LIMITER_BURST,
    LIMITER_SECONDS,
    limits_of,
    of_workload,
)

UNARBITRATED = (TAINT_EVICTION, PREEMPTION)
"""Pods of lost nodes and victims of preemption are exempt from the limits."""
PATIENCE = timedelta(minutes=10)
"""After a job's TTL: a service may be down, or disconnected, for some minutes."""


def _over(counts: Counter[str], limit: int | None, subject: str, of: str, what: str) -> Wrong:
    for name, count in sorted(counts.items()):
        if limit is not None and count > limit:
            yield subject, f"{count} pods of {of} {name} {what}, limit {limit}"


def evictions_of_a_cycle_stay_in_limits(view: LogView, seen: CommitSeen) -> Wrong:
    """In one descheduling cycle the plugins move no more pods of a node, of a namespace and in total than configured."""
    fresh = [job for job in _jobs_of(seen) if _by_plugin(job) and job.created_at == seen.commit.now]
    if not fresh:
        return
    limits = limits_of(view.configs[seen.commit.config])
    slot = int(seen.commit.now.timestamp()) // CYCLE_SECONDS
    subject = migration_subject(fresh[0].job)
    per_node: Counter[str] = Counter()
    per_namespace: Counter[str] = Counter()
    for job in view.moves.values():
        made = job.created_at if _by_plugin(job) else None
        if made is not None and int(made.timestamp()) // CYCLE_SECONDS == slot:
            per_node[job.node] += 1
            per_namespace[job.namespace] += 1
    yield from _over(per_node, limits.cycle_per_node, subject, "node", "are moved in one cycle")
    yield from _over(per_namespace, limits.cycle_per_namespace, subject, "namespace", "are moved in one cycle")
    if limits.cycle_total is not None and per_node.total() > limits.cycle_total:
        yield subject, f"{per_node.total()} pods are moved in one cycle, limit {limits.cycle_total}"


def _by_plugin(job: Migration) -> bool:
    return not job.object_uid and job.trigger not in UNARBITRATED


def _jobs_of(seen: CommitSeen) -> list[Migration]:
    """The jobs that a commit of the arbiter stores."""
    if seen.service != "descheduler-arbiter":
        return []
    return [event.data for event in seen.events if isinstance(event.data, Migration) and not event.tombstone]


def moves_at_once_stay_in_limits(view: LogView, seen: CommitSeen) -> Wrong:
    """When a job is admitted, no more pods of its node, of its namespace, of its workload and in all are migrating than
    allowed; for a workload the limit follows from its size. Victims of a nomination are exempt, in a job that waited as well.
    """
    jobs = _jobs_of(seen)
    if jobs:
        under_way = {job.uid for job in view.moves.values() if not job.finished}
        view.victims = (view.victims | _victims(view, seen)) & under_way
    victims = view.victims
    passed = [job for job in jobs if _moving(job) and job.uid not in victims]
    if not passed:
        return
    limits = limits_of(view.configs[seen.commit.config])
    # Two jobs of one pod move it once.
    let_through = [job for job in view.moves.values() if _moving(job) and job.uid not in victims]
    moving = list({(job.namespace, job.pod, job.uid): job for job in let_through}.values())
    subject = seen.record.subject
    per_node = Counter(node for job in moving if (node := _node_of(view, job, seen)))
    yield from _over(per_node, limits.moving_per_node, subject, "node", "migrate at once")
    per_namespace = Counter(job.namespace for job in moving)
    yield from _over(per_namespace, limits.moving_per_namespace, subject, "namespace", "migrate at once")
    if limits.moving_globally is not None and len(moving) > limits.moving_globally:
        yield subject, f"{len(moving)} pods migrate at once, limit {limits.moving_globally}"
    per_workload = Counter(job.workload for job in moving if job.workload and _exists(view, job))
    for workload in sorted({job.workload for job in passed if job.workload and job.phase != "Running"}):
        most = _of_workload(view, workload, seen)
        if per_workload[workload] > most:
            jobs_of_it = [job for job in moving if job.workload == workload and _exists(view, job)]
            named = ", ".join(sorted(_told(view, job) for job in jobs_of_it))
            newest = max(jobs_of_it, key=lambda job: (job in passed, job.job))
            text = f"{per_workload[workload]} pods of workload {workload} migrate at once, limit {most}: {named}"
            yield migration_subject(newest.job), text


def _told(view: LogView, job: Migration) -> str:
    """A job with its pod, its phase and its last event."""
    last = view.last.get(migration_subject(job.job))
    return f"{job.job} ({job.namespace}/{job.pod}, {job.phase}, {last.ref if last is not None else 'ended'})"


def _victims(view: LogView, seen: CommitSeen) -> set[str]:
    """The uids of the victims of the nominations that a commit of the arbiter names as causes."""
    causes = (view.by_reference(cause) for event in seen.events if isinstance(event.data, Migration) for cause in event.causes)
    found = (cause.data for cause in causes if cause is not None)
    return {
        victim.uid
        for waiting in found
        if isinstance(waiting, Waiting) and waiting.nomination is not None
        for victim in waiting.nomination.victims
    }


def _moving(job: Migration) -> bool:
    let_through = job.phase == "Running" or job.passed_arbitration
    return let_through and not job.finished and job.trigger not in UNARBITRATED


def _node_of(view: LogView, job: Migration, seen: CommitSeen) -> str:
    """The node that a job's pod is on; empty if it has left it, although its job is not over yet, and if it waits. A job that
    was accepted while its pod waited names no node until it starts: its pod counts where it has been placed, as far as
    that was folded."""
    for node in sorted(view.places[job.uid]):
        placed = view.placed[node].get((job.namespace, job.pod))
        if job.node or (placed is not None and placed.sequence <= seen.commit.folded):
            return job.node or node
    return ""


def _exists(view: LogView, job: Migration) -> bool:
    pod = view.pods.get((job.namespace, job.pod))
    return pod is not None and pod.metadata.uid == job.uid


def _of_workload(view: LogView, workload: str, seen: CommitSeen) -> int:
    """How many pods of a workload may be unavailable, by its size when the commit was decided, give or take a pod that was not
    folded yet."""
    replicas = view.replicas_at(workload, seen.commit.folded)
    return max(of_workload(near) for near in (replicas - 1, replicas, replicas + 1))


def orders_stay_in_limits(view: LogView, seen: CommitSeen) -> Wrong:
    """Within five minutes no more evictions of a workload are ordered than its size allows, and one, beside those that
    are exempt; within a second no more in total than evictQPS and evictBurst allow.
    """
    for job in _jobs_of(seen):
        if job.ordered_at != seen.commit.now:
            continue
        orders = view.orders
        orders[job.job, job.uid] = job
        since = seen.commit.now - timedelta(seconds=LIMITER_SECONDS)
        for key in [key for key, known in orders.items() if known.ordered_at is not None and known.ordered_at <= since]:
            del orders[key]
        second = seen.commit.now - timedelta(seconds=1)
        lately = sum(known.ordered_at is not None and known.ordered_at > second for known in orders.values())
        subject = migration_subject(job.job)
        if lately > EVICT_QPS + EVICT_BURST:
            yield subject, (
                f"{lately} evictions are ordered within a second, limit {EVICT_QPS} a second and a burst of "
                f"{EVICT_BURST}"
            )
        if not job.workload or job.ignore_budgets or job.trigger in UNARBITRATED:
            continue
        same = sum(
            known.workload == job.workload and not known.ignore_budgets and known.trigger not in UNARBITRATED
            for known in orders.values()
        )
        most = _of_workload(view, job.workload, seen) + LIMITER_BURST
        if same > most:
            yield subject, f"{same} evictions of workload {job.workload} are ordered within {LIMITER_SECONDS} s, limit {most}"


def a_pod_is_evicted_once(view: LogView, event: Event) -> Wrong:
    """The gateway evicts a pod (a uid) at most once; further requests are answered and change nothing."""
    data = event.data
    if isinstance(data, EvictionOutcome) and data.allowed and data.reason == "Evicted" and not event.tombstone:
        view.may_end.add(data.uid)
        view.evicted[data.uid] += 1
        if view.evicted[data.uid] > 1:
            yield event.subject, f"{data.namespace}/{data.name} ({data.uid}) is evicted {view.evicted[data.uid]} times"


def a_move_is_begun_once(view: LogView, event: Event) -> Wrong:
    """A job of a pod does not start again while it, or another job of that pod, is unfinished. Users may create two."""
    data = event.data
    if not isinstance(data, Migration) or event.tombstone or data.finished:
        return
    before = view.before(event)
    if before is not None and not before.tombstone and isinstance(before.data, Migration):
        if before.data.uid == data.uid and not before.data.finished and before.data.created_at != data.created_at:
            yield event.subject, f"{event.ref} restarts {data.job}, which was {before.data.phase} in {before.ref}"
        return
    if data.object_uid:
        return
    for subject, job in sorted(view.moves.items()):
        if data.uid and subject != event.subject and job.uid == data.uid and not job.finished:
            yield event.subject, f"{event.ref} starts {data.job} while {job.job} of the same pod is {job.phase}"


def moves_with_a_time_to_live_end(moment: Moment) -> Wrong:
    """A job with a TTL is finished when that, and PATIENCE, have passed. While its user has paused it nothing happens, as in
    Koordinator."""
    for subject, event in sorted(moment.view.last.items()):
        job = event.data
        if not isinstance(job, Migration) or job.finished or job.paused or not job.ttl_seconds or job.created_at is None:
            continue
        if moment.now > job.created_at + timedelta(seconds=job.ttl_seconds) + PATIENCE:
            yield subject, (
                f"job {job.job}, created at {job.created_at}, is still {job.phase} after its ttl of "
                f"{job.ttl_seconds} s"
            )


def every_move_has_ended(moment: Moment) -> Wrong:
    """In the idle phase, no job of a pod that is gone, or of a lost node's pod, is unfinished, except paused ones."""
    for subject, event in sorted(moment.view.last.items()):
        job = event.data
        if not isinstance(job, Migration) or job.finished or job.paused:
            continue
        pod = moment.view.pods.get((job.namespace, job.pod))
        if pod is None or pod.metadata.uid != job.uid:
            yield subject, f"job {job.job} is still {job.phase} although its pod {job.namespace}/{job.pod} is gone"
