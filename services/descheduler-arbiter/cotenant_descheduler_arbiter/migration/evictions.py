"""Ordered evictions: outstanding requests to the gateway, and its answers.

In: the state, the policy, the time. Out: one request per running job with an ordered and unanswered eviction; it says how the
pod is ended (Eviction, Delete, SoftEviction).

Source of the policies: koord-descheduler's evictors.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from cotenant.engine.core import Request
from cotenant.events.migrations import EVICT_POLICIES, EVICTION_POLICY, EvictionRequest, Migration, evict_subject
from cotenant_descheduler_arbiter.config.policy import RESERVATION_FIRST, DeschedulerPolicy
from cotenant_descheduler_arbiter.migration.jobs.view import Answer
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold

LABEL_EVICT_POLICY = "koordinator.sh/evict-policy"
"""On a pod, or on its job: how the pod is ended."""
ASK = evict_subject("descheduler-arbiter")


def evict_policy(pod: PodFacts, job_labels: Mapping[str, str], default: str) -> str:
    """Return how a pod is ended: as its own label says, else its job's, else the default; an unknown name counts as none."""
    for labels in (pod.pod.metadata.labels, job_labels):
        named = labels.get(LABEL_EVICT_POLICY, "")
        if named:
            return named if named in EVICT_POLICIES else default
    return default


def answer_to(fold: ClusterFold, job: Migration) -> Answer | None:
    """Return the gateway's answer to this job, or to another eviction of the pod."""
    known = fold.outcomes.get(f"{job.namespace}/{job.pod}")
    if known is None or known.value.uid != job.uid or not (known.value.ends_pod or known.value.job == job.job):
        return None
    return Answer(known.ref, known.value.allowed, known.value.message or known.value.reason)


def outstanding_evictions(fold: ClusterFold, policy: DeschedulerPolicy, now: datetime) -> list[Request]:
    """Return the ordered and unanswered evictions, by job name."""
    requests: list[Request] = []
    if policy.dry_run:
        return requests
    for name in sorted(name for name, known in fold.jobs.items() if known.value.phase == "Running"):
        job = fold.jobs[name].value
        if not job.evict_ordered or job.evicted_at is not None or job.paused:
            continue
        if job.retry_at is not None and now < job.retry_at:
            continue
        answer = answer_to(fold, job)
        if answer is not None and answer.ref != job.answer:
            continue
        body = EvictionRequest(
            namespace=job.namespace,
            name=job.pod,
            uid=job.uid,
            job=job.job,
            trigger=job.trigger,
            reason=job.evict_reason or job.trigger,
            ignore_budgets=job.ignore_budgets,
            grace_period_seconds=job.grace_period_seconds,
            policy=job.evict_policy or EVICTION_POLICY,
            reservation=job.reservation if job.mode == RESERVATION_FIRST else "",
        )
        requests.append(
            Request(
                key=f"evict/{job.namespace}/{job.pod}/{job.uid}/{job.attempts}",
                subject=ASK,
                body=msgspec.json.encode(body),
            )
        )
    return requests
