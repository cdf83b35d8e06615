"""Evictions of preemption victims.

In: waiting pods with a nomination (the scheduler's choice of a node and of victims), the jobs, the pods. Out: an arbitrated
migration job for each victim without one; a victim's job that waits for arbitration is let through; the job of a victim that
no nomination names any more is aborted, unless the eviction was granted.

A victim's eviction respects its disruption budgets, unless the scheduler found no choice within them. A refusal is retried with
the pauses of every migration job; object limiters do not apply, the rate of evictions does.
Source: kube-scheduler's default preemption, which respects budgets where possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import PREEMPTION, Migration
from cotenant.events.placements import Victim, Waiting
from cotenant.model.subjects import migration_subject
from cotenant_descheduler_arbiter.config.policy import EVICT_DIRECTLY
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.new_jobs import arbitrated_job
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known


def decide_preemptions(fold: ClusterFold, filters: JobFilters, now: datetime) -> Iterator[Event]:
    """Yield the jobs for the nominations, by the name of the nominated pod and the order of its victims."""
    wanted: set[str] = set()
    for _, known in sorted(fold.nominated.items()):
        nomination = known.value.nomination
        assert nomination is not None
        for victim in nomination.victims:
            if victim.uid in wanted:
                continue
            wanted.add(victim.uid)
            yield from _evict(fold, filters, known, victim, now)
    for _, job in sorted(fold.jobs.items()):
        found = job.value
        if found.trigger == PREEMPTION and not found.finished and found.evicted_at is None and found.uid not in wanted:
            given_up = msgspec.structs.replace(
                found,
                phase="Aborted",
                reason="NotPreempted",
                message="no pod is nominated to its node at its cost any more",
                finished_at=now,
                updated_at=now,
            )
            yield Event(subject=migration_subject(found.job), data=given_up, causes=(job.ref,))


def _evict(
    fold: ClusterFold, filters: JobFilters, preemptor: Known[Waiting], victim: Victim, now: datetime
) -> Iterator[Event]:
    pod = filters.pod(f"{victim.namespace}/{victim.name}")
    if pod is None or pod.uid != victim.uid or pod.terminating or pod.ended or filters.evicted(pod):
        return
    active = filters.active_job(pod)
    if active is None:
        job, known_pod = _job(preemptor.value, victim, pod, now), fold.pods.objects.get(pod.key)
        causes = (preemptor.ref, *((known_pod.ref,) if known_pod is not None else ()))
        yield Event(subject=migration_subject(job.job), data=job, causes=causes)
        return
    known = fold.jobs[active.name]
    ignoring = known.value.ignore_budgets or victim.violates_budget
    hurried = msgspec.structs.replace(known.value, passed_arbitration=True, ignore_budgets=ignoring, mode=EVICT_DIRECTLY)
    if ignoring and not known.value.ignore_budgets:
        hurried = msgspec.structs.replace(hurried, retry_at=None)
    if hurried != known.value:
        hurried = msgspec.structs.replace(hurried, updated_at=now)
        yield Event(subject=migration_subject(known.value.job), data=hurried, causes=(known.ref, preemptor.ref))


def _job(preemptor: Waiting, victim: Victim, pod: PodFacts, now: datetime) -> Migration:
    reason = (
        f"makes room on node {pod.node} for pod {preemptor.namespace}/{preemptor.name} of priority {preemptor.priority}, "
        f"its own is {victim.priority}"
    )
    return arbitrated_job(pod, PREEMPTION, preemptor.uid, reason, now, ignore_budgets=victim.violates_budget)
