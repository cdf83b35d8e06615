"""Jobs of taint evictions: created as they may run, ended when their cause is gone.

In: the pods to evict (`taint_eviction`), the jobs, the time. Out: Migration events.

At most `most_outstanding` jobs wait for the gateway's answer: as many as `evictQPS` allows in a second, or its burst.
Further pods get their job when one is answered, so a job's cause is never much older than the job. The cause is checked
again before the eviction is ordered, and until it is granted; if it is gone the job ends as Aborted, with the reason:

    NodeReady         the node is ready again
    EvictionsStopped  no node of any zone is ready
    TaintRemoved      a user removed the taint
    Tolerated         the pod's tolerations changed, or its toleration has not ended yet
    PodEnded          the pod has ended by itself

A pod that another job moves already does not wait for that job: see `_overtaken`.

Source: Kubernetes' taint eviction controller (cancelled deletions); the bound is cotenant's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from math import ceil

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION, Migration
from cotenant.events.node.conditions import TAINT_NOT_READY, TAINT_UNREACHABLE
from cotenant.model.subjects import migration_subject
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.migration.evictions import answer_to
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.new_jobs import arbitrated_job
from cotenant_descheduler_arbiter.node_lifecycle.taint_eviction import Due, TaintEvictions, taints_in_force
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known
from cotenant_descheduler_arbiter.state.node_views import is_ready


class Occupied(msgspec.Struct, frozen=True):
    """The changes of this decision so far: nodes with another condition, subjects of jobs."""

    nodes: Collection[str]
    subjects: Collection[str]


def most_outstanding(policy: DeschedulerPolicy) -> int:
    """Return how many taint evictions may be unanswered at once."""
    return max(policy.evict_burst, ceil(policy.evict_qps))


def _outstanding(fold: ClusterFold) -> list[tuple[str, Known[Migration]]]:
    """Return the taint evictions without an answer, by name."""
    return sorted(
        (name, known)
        for name, known in fold.jobs.items()
        if known.value.trigger == TAINT_EVICTION and not known.value.finished and known.value.evicted_at is None
    )


def _aborted(job: Migration, reason: str, message: str, now: datetime) -> Migration:
    return msgspec.structs.replace(
        job, phase="Aborted", reason=reason, message=message, finished_at=now, updated_at=now
    )


def _causes(fold: ClusterFold, known: Known[Migration]) -> tuple[str, ...]:
    """Return the job and the condition of its node."""
    condition = fold.conditions.get(known.value.node)
    return (known.ref, condition.ref) if condition is not None else (known.ref,)


def settle_jobs(fold: ClusterFold, evictions: TaintEvictions, changing: Collection[str], now: datetime) -> Iterator[Event]:
    """Yield the end of the jobs whose cause is gone. `changing`: nodes whose condition changes in this decision."""
    for _, known in _outstanding(fold):
        job = known.value
        if job.node in changing:
            continue
        answer = answer_to(fold, job)
        if answer is not None and answer.allowed:
            continue
        pod = fold.pods.facts(f"{job.namespace}/{job.pod}")
        if pod is None or pod.uid != job.uid or pod.terminating:
            continue
        gone = _why_not(fold, evictions, job, pod, now)
        if gone is None:
            continue
        reason, message = gone
        ended = _aborted(job, reason, message, now)
        yield Event(subject=migration_subject(job.job), data=ended, causes=_causes(fold, known))


def held_jobs(fold: ClusterFold, changing: Collection[str]) -> frozenset[str]:
    """Return the subjects of unanswered jobs on nodes whose condition changes in this decision: they wait for the next one."""
    if not changing:
        return frozenset()
    return frozenset(migration_subject(name) for name, known in _outstanding(fold) if known.value.node in changing)


def _why_not(
    fold: ClusterFold, evictions: TaintEvictions, job: Migration, pod: PodFacts, now: datetime
) -> tuple[str, str] | None:
    """Return reason and message why no taint evicts the job's pod now, or None. The pods of a removed node are still
    evicted."""
    if pod.ended:
        return "PodEnded", "the pod has ended by itself"
    node = pod.node
    if node not in fold.conditions:
        return None
    due = evictions.due_of(pod)
    if due is not None and due.until <= now:
        return None
    if due is not None:
        return "Tolerated", f"the pod tolerates {due.cause.taint.key} of node {node} until {due.until:%Y-%m-%dT%H:%M:%SZ}"
    if taints_in_force(fold, node):
        return "Tolerated", f"the pod tolerates the NoExecute taints of node {node} forever"
    if job.taint not in ("", TAINT_NOT_READY, TAINT_UNREACHABLE):
        return "TaintRemoved", f"node {node} does not have the taint {job.taint} any more"
    if is_ready(fold, node):
        return "NodeReady", f"node {node} is Ready again"
    return "EvictionsStopped", f"node {node} is not ready and neither is any other node: no pod is evicted"


def begin_jobs(
    fold: ClusterFold,
    policy: DeschedulerPolicy,
    evictions: TaintEvictions,
    filters: JobFilters,
    occupied: Occupied,
    now: datetime,
) -> Iterator[Event]:
    """Yield a job for each pod that is due and has none, within the bound, or the end of another job of the pod."""
    room: int | None = None
    for key in evictions.due(now):
        pod = fold.pods.facts(key)
        if pod is None or pod.node in occupied.nodes:
            continue
        if room is None:
            room = most_outstanding(policy) - len(_outstanding(fold))
        if room <= 0:
            return
        due = evictions.due_of(pod)
        if due is None or filters.evicted(pod):
            continue
        active = filters.active_job(pod)
        if active is None:
            room -= 1
            yield _job(fold, pod, due, now)
        elif migration_subject(active.name) not in occupied.subjects:
            yield from _overtaken(fold, fold.jobs[active.name], due, now)


def _overtaken(fold: ClusterFold, known: Known[Migration], due: Due, now: datetime) -> Iterator[Event]:
    """Yield the change of a job that moves the pod already, if its eviction is not granted: a preemption victim is evicted at
    once, past budgets; any other job ends, paused or not.
    """
    job = known.value
    answer = answer_to(fold, job)
    if job.trigger == TAINT_EVICTION or job.evicted_at is not None or (answer is not None and answer.allowed):
        return
    if job.trigger == PREEMPTION:
        if job.ignore_budgets:
            return
        changed = msgspec.structs.replace(job, ignore_budgets=True, retry_at=None, updated_at=now)
    else:
        message = f"the taint {due.cause.taint.key} of node {job.node} evicts the pod"
        changed = _aborted(job, "TaintEviction", message, now)
    yield Event(subject=migration_subject(job.job), data=changed, causes=_causes(fold, known))


def _job(fold: ClusterFold, pod: PodFacts, due: Due, now: datetime) -> Event:
    condition, taint = fold.conditions[pod.node], due.cause.taint
    named = f"{taint.key}={taint.value}" if taint.value else taint.key
    reason = (
        f"node {pod.node} has {named}:{taint.effect} since {due.cause.since:%Y-%m-%dT%H:%M:%SZ}, "
        f"the pod tolerates it for {int(due.tolerated.total_seconds())} s"
    )
    cause = f"{pod.key}/{named}/{due.cause.since.isoformat()}"
    job = arbitrated_job(pod, TAINT_EVICTION, cause, reason, now, ignore_budgets=True)
    job = msgspec.structs.replace(job, taint=taint.key)
    known = fold.pods.objects.get(pod.key)
    causes = (condition.ref, *((known.ref,) if known is not None else ()))
    return Event(subject=migration_subject(job.job), data=job, causes=causes)
