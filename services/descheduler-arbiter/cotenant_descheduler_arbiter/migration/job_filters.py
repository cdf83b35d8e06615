"""Whether a pod may be moved: all filters over the present state, applied before a job is created and again at arbitration.

Never (`why_forbidden`): an excluded namespace, the largest eviction cost, not evictable, a workload too small to lose a pod.
Not now (`why_exhausted`): the budgets of migrating pods; (`why_limited`): the object limiters. The evict annotation
overrides all but the limiters.

Source: koord-descheduler arbitrator, its non-retryable and retryable filters and object limiters.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property

import msgspec

from cotenant.events.migrations import Migration
from cotenant_descheduler_arbiter.config.policy import RESERVATION_FIRST, DeschedulerPolicy, EvictableRules
from cotenant_descheduler_arbiter.config.scaling import scaled
from cotenant_descheduler_arbiter.eviction.backoff import Move
from cotenant_descheduler_arbiter.eviction.evictable import below_max_cost, forced, namespace_refusal, why_not_evictable
from cotenant_descheduler_arbiter.eviction.object_limiter import limited
from cotenant_descheduler_arbiter.migration import budgets
from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts, job_moving
from cotenant_descheduler_arbiter.migration.jobs.index import JobIndex
from cotenant_descheduler_arbiter.migration.max_unavailable import max_away
from cotenant_descheduler_arbiter.migration.moves import moved_at, moves_of
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold


def job_facts(job: Migration) -> JobFacts:
    """Return the facts of a job that arbitration uses."""
    return JobFacts(
        name=job.job,
        namespace=job.namespace,
        pod=job.pod,
        uid=job.uid,
        created=int(job.created_at.timestamp()) if job.created_at is not None else 0,
        phase=job.phase,
        passed=job.passed_arbitration,
    )


class JobFilters:
    """The filters over one state. Read-only, with cached look-ups."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy) -> None:
        self.fold = fold
        self.policy = policy
        self.rules: EvictableRules = policy.evictable
        if policy.priority_threshold_class:
            threshold = fold.priority_classes.get(policy.priority_threshold_class)
            self.rules = msgspec.structs.replace(policy.evictable, priority_threshold=threshold)
        self._workloads: dict[str, list[PodFacts]] = {}
        self._leavings: dict[tuple[str, str], list[datetime]] | None = None

    @cached_property
    def jobs(self) -> list[JobFacts]:
        """All jobs, by name."""
        return [job_facts(known.value) for _, known in sorted(self.fold.jobs.items())]

    @cached_property
    def _active(self) -> dict[str, list[JobFacts]]:
        """The unfinished jobs of each pod."""
        active: dict[str, list[JobFacts]] = {}
        for job in self.jobs:
            if job.active:
                active.setdefault(job.pod_key, []).append(job)
        return active

    def pod(self, key: str) -> PodFacts | None:
        """Return the facts of a pod by `namespace/name`."""
        return self.fold.pods.facts(key)

    def workload_pods(self, workload: str) -> list[PodFacts]:
        """Return the pods of a workload that have not ended."""
        if workload not in self._workloads:
            self._workloads[workload] = self.fold.pods.of_workload(workload)
        return self._workloads[workload]

    def active_job(self, pod: PodFacts) -> JobFacts | None:
        """Return the unfinished job of a pod."""
        return job_moving(self._active.get(pod.key, ()), pod.key, pod.uid)

    def evicted(self, pod: PodFacts) -> bool:
        """Whether the pod's eviction was granted before; it is granted only once."""
        outcome = self.fold.outcomes.get(pod.key)
        return outcome is not None and outcome.value.ends_pod and outcome.value.uid == pod.uid

    def why_not_reservable(self, pod: PodFacts) -> str | None:
        """Return why the pod cannot get a reservation, where jobs create one first: its scheduler does not support them."""
        names = self.policy.scheduler_names
        if self.policy.job_defaults.mode != RESERVATION_FIRST or not names or pod.pod.spec.scheduler_name in names:
            return None
        return f"its scheduler {pod.pod.spec.scheduler_name} is none of {', '.join(sorted(names))}, which know reservations"

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

    def index(self, *, arbitrating: bool) -> JobIndex:
        """Return the jobs that count in the budgets."""
        return JobIndex(self.jobs, self.pod, arbitrating=arbitrating)

    def why_exhausted(self, pod: PodFacts, index: JobIndex) -> str | None:
        """Return why the pod may not be moved beside these jobs."""
        if forced(pod.pod):
            return None
        limits = self.policy.budgets
        workload = self.workload_pods(pod.workload)
        return (
            (budgets.globally(index.everywhere(pod), limits) if limits.max_migrating_globally else None)
            or budgets.per_node(pod, index.of_node(pod), index.pods, limits)
            or (budgets.per_namespace(pod, index.of_namespace(pod), limits) if limits.max_migrating_per_namespace else None)
            or budgets.per_workload(pod, index.of_workload(pod), index.pods, len(workload), workload, limits)
        )

    def why_limited(self, pod: PodFacts, now: datetime) -> str | None:
        """Return which object limiter has no token left for the pod. A workload whose pods have all ended keeps the rate of a
        single replica."""
        for kind, limiter in self.policy.limiters.items():
            if kind == "workload":
                if not pod.workload:
                    continue
                replicas = max(len(self.workload_pods(pod.workload)), 1)
                allowed = limiter.max_migrating or self.policy.budgets.max_migrating_per_workload
                maximum = max_away(replicas, allowed)
                times = self._left(kind, pod.workload)
            else:
                maximum = scaled(limiter.max_migrating, 0) if limiter.max_migrating is not None else 0
                times = self._left(kind, pod.namespace)
            if limited(times, duration=limiter.duration, max_migrating=maximum, burst=limiter.burst, now=now):
                return f"its {kind} has lost {len(times)} pods lately; {maximum} per {limiter.duration} may go"
        return None

    def ordered(self, job: Migration) -> None:
        """Count an eviction that this decision orders, for the next pods of the same workload."""
        if self._leavings is not None:
            _note(self._leavings, job)

    def _left(self, kind: str, name: str) -> list[datetime]:
        """Return the times of evictions of a workload or namespace, including unanswered orders, ascending."""
        if self._leavings is None:
            self._leavings = {}
            for move in moves_of(known.value for known in self.fold.jobs.values()):
                _note(self._leavings, move)
        return sorted(self._leavings.get((kind, name), ()))


def _note(leavings: dict[tuple[str, str], list[datetime]], move: Move) -> None:
    at = moved_at(move)
    if at is not None:
        leavings.setdefault(("workload", move.workload), []).append(at)
        leavings.setdefault(("namespace", move.namespace), []).append(at)
