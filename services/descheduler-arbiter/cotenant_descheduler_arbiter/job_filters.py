"""May this pod be moved: all filters over the present state, asked before a job is created and again when it is arbitrated.

Never (`why_forbidden`): another namespace, the largest eviction cost, not evictable, a workload too small to lose one.
Not now (`why_exhausted`): the budgets of migrating pods; (`why_limited`): the object limiters. The evict annotation
opens all but the limiters.

Source: koord-descheduler arbitrator, its non-retryable and retryable filters and object limiters.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from cotenant.events.migrations import Migration

from cotenant_descheduler_arbiter import budgets
from cotenant_descheduler_arbiter.configuration import NamespaceRule
from cotenant_descheduler_arbiter.evictable import EvictableRules, below_max_cost, forced, why_not_evictable
from cotenant_descheduler_arbiter.facts import PodFacts
from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_descheduler_arbiter.job_facts import JobFacts
from cotenant_descheduler_arbiter.max_unavailable import max_away, scaled
from cotenant_descheduler_arbiter.object_limiter import limited
from cotenant_descheduler_arbiter.policy import Policy


def job_facts(job: Migration) -> JobFacts:
    """Return what arbitration reads of a job."""
    return JobFacts(
        name=job.job,
        namespace=job.namespace,
        pod=job.pod,
        uid=job.uid,
        created=int(job.created_at.timestamp()) if job.created_at is not None else 0,
        phase=job.phase,
        passed=job.passed_arbitration,
    )


def namespace_refusal(rule: NamespaceRule, namespace: str) -> str | None:
    """Return why pods of the namespace stay."""
    if rule.include and namespace not in rule.include:
        return f"namespace {namespace} is not among those that may be evicted from"
    if namespace in rule.exclude:
        return f"namespace {namespace} is excluded from eviction"
    return None


class JobFilters:
    """The filters over one state. Reads only; what it looks up twice it remembers."""

    def __init__(self, fold: ClusterFold, policy: Policy) -> None:
        self.fold = fold
        self.policy = policy
        self.rules: EvictableRules = policy.evictable
        if policy.priority_threshold_class:
            threshold = fold.priority_classes.get(policy.priority_threshold_class)
            self.rules = msgspec.structs.replace(policy.evictable, priority_threshold=threshold)
        self.jobs = [job_facts(known.value) for _, known in sorted(fold.jobs.items())]
        self._pods: dict[str, PodFacts | None] = {}
        self._workloads: dict[str, list[PodFacts]] | None = None

    def pod(self, key: str) -> PodFacts | None:
        """Return the facts of a pod by `namespace/name`."""
        if key not in self._pods:
            self._pods[key] = self.fold.pod_facts(key)
        return self._pods[key]

    def workload_pods(self, workload: str) -> list[PodFacts]:
        """Return the pods of a workload that have not ended."""
        if self._workloads is None:
            self._workloads = {}
            for key, known in sorted(self.fold.pods.items()):
                if any(owner.controller for owner in known.value.pod.metadata.owner_references):
                    pod = self.pod(key)
                    if pod is not None and not pod.ended:
                        self._workloads.setdefault(pod.workload, []).append(pod)
        return self._workloads.get(workload, []) if workload else []

    def active_job(self, pod: PodFacts) -> JobFacts | None:
        """Return the unfinished job of a pod."""
        for job in self.jobs:
            if job.active and (job.uid == pod.uid if job.uid and pod.uid else job.pod_key == pod.key):
                return job
        return None

    def evicted(self, pod: PodFacts) -> bool:
        """Tell whether the pod's eviction was granted before: it happens once."""
        outcome = self.fold.outcomes.get(pod.key)
        return outcome is not None and outcome.value.allowed and outcome.value.uid == pod.uid

    def why_forbidden(self, pod: PodFacts) -> str | None:
        """Return why the pod may never be moved."""
        if forced(pod.pod):
            return None
        reason = None
        if "Namespaces" not in self.rules.skip_gates:
            reason = namespace_refusal(self.policy.namespaces, pod.namespace)
        if reason is None and not below_max_cost(pod.pod):
            reason = "its eviction cost says never"
        if reason is None:
            reason = why_not_evictable(pod, self.rules)
        if reason is None:
            reason = budgets.expected_replicas(pod, len(self.workload_pods(pod.workload)), self.policy.budgets)
        return reason

    def why_exhausted(self, pod: PodFacts, jobs: Sequence[JobFacts], *, arbitrating: bool) -> str | None:
        """Return why the pod may not be moved while these jobs are what they are."""
        if forced(pod.pod):
            return None
        limits = self.policy.budgets
        counting = budgets.counting(jobs, pod, arbitrating=arbitrating)
        pods = {job.pod_key: found for job in counting if (found := self.pod(job.pod_key)) is not None}
        workload = self.workload_pods(pod.workload)
        return (
            budgets.globally(counting, limits)
            or budgets.per_node(pod, counting, pods, limits)
            or budgets.per_namespace(pod, counting, limits)
            or budgets.per_workload(pod, counting, pods, len(workload), workload, limits)
        )

    def why_limited(self, pod: PodFacts, now: datetime) -> str | None:
        """Return which object limiter has no token left for the pod."""
        for kind, limiter in self.policy.limiters.items():
            if kind == "workload":
                if not pod.workload:
                    continue
                replicas = len(self.workload_pods(pod.workload))
                allowed = limiter.max_migrating or self.policy.budgets.max_migrating_per_workload
                maximum = max_away(replicas, allowed)
                times = self._evictions(lambda job, uid=pod.workload: job.workload == uid)
            else:
                maximum = scaled(limiter.max_migrating, 0) if limiter.max_migrating is not None else 0
                times = self._evictions(lambda job, name=pod.namespace: job.namespace == name)
            if limited(times, duration=limiter.duration, max_migrating=maximum, burst=limiter.burst, now=now):
                return f"its {kind} has lost {len(times)} pods lately; {maximum} per {limiter.duration} may go"
        return None

    def _evictions(self, concerns: object) -> list[datetime]:
        assert callable(concerns)
        return sorted(
            known.value.evicted_at
            for known in self.fold.jobs.values()
            if known.value.evicted_at is not None and concerns(known.value)
        )
