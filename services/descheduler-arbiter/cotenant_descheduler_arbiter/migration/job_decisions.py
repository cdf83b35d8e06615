"""Migration jobs: created from users' objects, arbitrated, run through their phases, and removed.

In: the state, the policy, the time. Out: Migration events, one per job at most.

A user's job is accepted under the name of its object. Waiting jobs go through one arbitration round per decision; a changed
waiting reason is published once the last one is 30 s old. Running jobs take one step. Evictions are ordered under a token
bucket over all jobs, and under the workload's object limiter unless the job's own evict annotation exempts it. A finished job
is removed (tombstone) after its ttl + 5 min (30 min without a ttl), a user's job when its object is deleted; in either case not
before the back-off and the limiters no longer count its move.

Source: koord-descheduler migration controller, arbitrator and scavenger.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.migrations import EVICTION_POLICY, PREEMPTION, TAINT_EVICTION, Migration
from cotenant.model.subjects import migration_subject
from cotenant.model.times import EPOCH, NEVER
from cotenant_descheduler_arbiter.config.policy import RESERVATION_FIRST, DeschedulerPolicy
from cotenant_descheduler_arbiter.eviction.backoff import Move, latest_moves, next_consecutive, pause, workload_key
from cotenant_descheduler_arbiter.eviction.evictable import ANNOTATION_EVICT, forced
from cotenant_descheduler_arbiter.eviction.object_limiter import tokens_left
from cotenant_descheduler_arbiter.eviction.order import sort_pods
from cotenant_descheduler_arbiter.migration.acceptance import job_of_object
from cotenant_descheduler_arbiter.migration.arbitration import REASON_FORBIDDEN, ArbitrationResult, run_round
from cotenant_descheduler_arbiter.migration.conditions import fail
from cotenant_descheduler_arbiter.migration.evictions import answer_to, evict_policy
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters, job_facts
from cotenant_descheduler_arbiter.migration.jobs.order import arbitration_order
from cotenant_descheduler_arbiter.migration.jobs.view import Answer, JobView
from cotenant_descheduler_arbiter.migration.moves import JOB_DELETED, counts_until, moved_at, moves_of, taken_over
from cotenant_descheduler_arbiter.migration.places import has_to_release
from cotenant_descheduler_arbiter.migration.reconcile import reconcile, timed_out
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import Known, end

WAITING = "WaitingForArbitration"
REPEAT_REASON = timedelta(seconds=30)
KEPT_AFTER_TTL = timedelta(minutes=5)
KEPT_WITHOUT_TTL = timedelta(minutes=30)


class JobDecisions:
    """The decisions about jobs over one state."""

    def __init__(
        self,
        fold: ClusterFold,
        policy: DeschedulerPolicy,
        filters: JobFilters,
        now: datetime,
        decided: frozenset[str] = frozenset(),
    ) -> None:
        self.fold = fold
        self.policy = policy
        self.filters = filters
        self.now = now
        self.decided = decided
        """Subjects of jobs with an event in this decision."""
        self._moves: dict[str, Move] | None = None

    def decide(self) -> Iterator[Event]:
        """Yield the events, jobs in the order of their names, arbitration first."""
        accepted = list(self._accept())
        yield from accepted
        touched = {event.subject for event in accepted} | self.decided
        jobs = {
            name: known
            for name, known in sorted(self.fold.jobs.items())
            if migration_subject(name) not in touched and not self._orphaned(known.value)
        }
        yield from self._arbitrate(
            [known for known in jobs.values() if _waits(self._current(known.value)) and not timed_out(known.value, self.now)]
        )
        ordered = self._recent_orders()
        for known in jobs.values():
            job = self._current(known.value)
            if job.finished or (_waits(job) and not timed_out(job, self.now) and not self._blocked(job)):
                continue
            yield from self._step(known, job, ordered)
        yield from self._abandon()
        yield from self._remove_old()

    # -- users' jobs ---------------------------------------------------------------------------------------------

    def _accept(self) -> Iterator[Event]:
        for name, known in sorted(self.fold.job_objects.items()):
            present = self.fold.jobs.get(name)
            uid = known.value.metadata.uid
            if present is None or present.value.object_uid != uid:
                job = job_of_object(name, known.value, self.filters, self.policy, self.now)
                if present is not None:
                    job = msgspec.structs.replace(job, former_moves=taken_over(present.value, self.policy, self.now))
                yield Event(subject=migration_subject(name), data=job, causes=(known.ref,))

    def _current(self, job: Migration) -> Migration:
        """Return the job with the mutable fields of its object."""
        known = self.fold.job_objects.get(job.job)
        if known is None or known.value.metadata.uid != job.object_uid:
            return job
        return msgspec.structs.replace(job, paused=known.value.spec.paused)

    def _orphaned(self, job: Migration) -> bool:
        return bool(job.object_uid) and job.job not in self.fold.job_objects

    # -- arbitration ---------------------------------------------------------------------------------------------

    def _blocked(self, job: Migration) -> bool:
        """Whether a waiting job would fail regardless of arbitration."""
        pod = self.filters.pod(f"{job.namespace}/{job.pod}")
        return pod is None or bool(job.uid and pod.uid != job.uid)

    def _arbitrate(self, waiting: list[Known[Migration]]) -> Iterator[Event]:
        if self.policy.dry_run:
            return
        waiting = [known for known in waiting if not self._current(known.value).paused and not self._blocked(known.value)]
        if not waiting:
            return
        by_name = {known.value.job: known for known in waiting}
        facts = [job_facts(known.value) for known in waiting]
        everything = self.filters.jobs
        found = {job.pod_key: self.filters.pod(job.pod_key) for job in everything}
        pods = {key: pod for key, pod in found.items() if pod is not None}
        moving = sort_pods([pods[key] for key in sorted({job.pod_key for job in facts})])
        order = arbitration_order(facts, everything, pods, {pod.key: index for index, pod in enumerate(moving)})
        index = self.filters.index(arbitrating=True)
        decisions = run_round(
            order,
            lambda job: job.pod_key in pods,
            lambda job: self.filters.why_forbidden(pods[job.pod_key]),
            lambda job: self.filters.why_exhausted(pods[job.pod_key], index),
            index.add,
        )
        for decision in decisions:
            known = by_name[decision.job]
            job = self._current(known.value)
            if decision.verdict is ArbitrationResult.PASSED:
                changed = msgspec.structs.replace(job, passed_arbitration=True, reason="", message="")
            elif decision.verdict is ArbitrationResult.FAILED:
                changed = fail(job, REASON_FORBIDDEN, decision.reason, self.now)
            else:
                recent = job.updated_at is not None and self.now - job.updated_at < REPEAT_REASON
                if job.message == decision.reason or (job.reason == WAITING and recent):
                    continue
                changed = msgspec.structs.replace(job, reason=WAITING, message=decision.reason)
            yield self._event(known, changed)

    # -- running -------------------------------------------------------------------------------------------------

    def _step(self, known: Known[Migration], job: Migration, ordered: list[datetime]) -> Iterator[Event]:
        pod = self.filters.pod(f"{job.namespace}/{job.pod}")
        answer = answer_to(self.fold, job)
        view = self._view(job, pod, answer, self._hold(job, pod, ordered))
        causes = tuple(each.ref for each in (answer, view.reservation) if each is not None)
        changed = reconcile(job, view, self.now)
        if changed.ordered_at is not None and job.ordered_at is None:
            ordered.append(self.now)
            changed = self._by_policy(changed, pod)
            self.filters.ordered(changed)
        if changed.evicted_at is not None and job.evicted_at is None:
            changed = self._counted(changed)
        if changed != known.value:
            pod_known = self.fold.pods.objects.get(f"{job.namespace}/{job.pod}")
            yield self._event(known, changed, *causes, *((pod_known.ref,) if pod_known is not None else ()))

    def _view(self, job: Migration, pod: PodFacts | None, answer: Answer | None, hold: str | None) -> JobView:
        if job.mode != RESERVATION_FIRST:
            return JobView(pod, answer, hold)
        declared, bound = self.fold.job_objects.get(job.job), job.bound
        found = self.fold.reservations.facts(job.reservation) if job.reservation else None
        if found is not None and not job.reservation_given and found.job != job.job:
            # Somebody else's of the same name: the gateway refuses to make this job's.
            found = None
        if bound is None and found is not None:
            bound = next((owner for owner in found.owners if owner.uid != job.uid), None)
        return JobView(
            pod,
            answer,
            hold,
            reservation=found,
            bound_pod=self.filters.pod(f"{bound.namespace}/{bound.name}") if bound is not None else None,
            template_name=declared.value.spec.reservation_options.template.metadata.name if declared is not None else "",
        )

    def _by_policy(self, job: Migration, pod: PodFacts | None) -> Migration:
        """Return the job with how its pod is ended. Taints and preemption end it in any case."""
        if pod is None or job.trigger in (TAINT_EVICTION, PREEMPTION):
            return job
        known = self.fold.job_objects.get(job.job)
        declared = known is not None and known.value.metadata.uid == job.object_uid
        labels = known.value.metadata.labels if known is not None and declared else job.labels
        policy = evict_policy(pod, labels, self.policy.job_defaults.evict_policy)
        return msgspec.structs.replace(job, evict_policy="" if policy == EVICTION_POLICY else policy)

    def _hold(self, job: Migration, pod: PodFacts | None, ordered: list[datetime]) -> str | None:
        if self.policy.dry_run:
            return "dry run"
        if tokens_left(ordered, self.policy.evict_qps, self.policy.evict_burst, self.now) < 1:
            return "evictions are ordered faster than evictQPS"
        if pod is None or job.trigger in (TAINT_EVICTION, PREEMPTION) or forced(pod.pod) or self._forced(job):
            return None
        return self.filters.why_limited(pod, self.now)

    def _forced(self, job: Migration) -> bool:
        """Whether the job's own object has the evict annotation, which exempts it from the object limiters."""
        known = self.fold.job_objects.get(job.job)
        if known is None or known.value.metadata.uid != job.object_uid:
            return False
        return ANNOTATION_EVICT in known.value.metadata.annotations

    def _recent_orders(self) -> list[datetime]:
        since = self.now - timedelta(seconds=self.policy.evict_burst / self.policy.evict_qps + 1)
        orders = [known.value.ordered_at for known in self.fold.jobs.values()]
        return sorted(at for at in orders if at is not None and at > since)

    def _counted(self, job: Migration) -> Migration:
        """Return the job with its number among the workload's consecutive moves."""
        base, maximum = self.policy.back_off_base, self.policy.back_off_maximum
        if self._moves is None:
            self._moves = latest_moves(moves_of(known.value for known in self.fold.jobs.values()))
        number = next_consecutive(self._moves.get(workload_key(job.workload, job.namespace, job.pod)), base, maximum, self.now)
        return msgspec.structs.replace(job, workload_moves=number, workload_retry_at=self.now + pause(number, base, maximum))

    def _event(self, known: Known[Migration], job: Migration, *causes: str) -> Event:
        return Event(
            subject=migration_subject(job.job),
            data=msgspec.structs.replace(job, updated_at=self.now),
            causes=(known.ref, *causes),
        )

    def _abandon(self) -> Iterator[Event]:
        """Yield the end of jobs whose object is deleted while they have a reservation, which is deleted before they are
        removed, or once their eviction is ordered, which the limiters still count."""
        for _, known in sorted(self.fold.jobs.items()):
            job = known.value
            if not job.finished and self._orphaned(job) and self._leaves_something(job):
                ended = msgspec.structs.replace(
                    job, phase="Aborted", reason=JOB_DELETED, message="the job was deleted", finished_at=self.now
                )
                yield self._event(known, ended)

    def _leaves_something(self, job: Migration) -> bool:
        """Whether the job has asked for a reservation of its own, or one of its name has moved a pod."""
        reserves = bool(job.reservation) and not job.reservation_given
        return reserves or any(moved_at(move) is not None for move in moves_of((job,)))

    # -- removing --------------------------------------------------------------------------------------------

    def _remove_old(self) -> Iterator[Event]:
        for name, known in sorted(self.fold.jobs.items()):
            kept_until = self._retained_until(known.value)
            if kept_until is not None and kept_until <= self.now:
                yield end(migration_subject(name), known)

    def _retained_until(self, job: Migration) -> datetime | None:
        """Return when the job is removed; None while it is unfinished, or its user's object exists."""
        orphaned = self._orphaned(job)
        if not job.finished:
            return self.now if orphaned and not self._leaves_something(job) else None
        if (job.object_uid and not orphaned) or has_to_release(self.fold, job, orphaned=orphaned):
            return None
        times = [counts_until(move, self.policy) or EPOCH for move in moves_of((job,))]
        if job.created_at is not None and not job.object_uid:
            times.append(job.created_at + retention(job.ttl_seconds))
        return max(times)

    def idle_until(self) -> datetime:
        """Return until when the jobs need no event, if none is due now, no event of a job is folded and no pod is nominated:
        `now` while a job is unfinished, as it depends on its pod, the budgets and the limiters."""
        if any(not known.value.finished for known in self.fold.jobs.values()):
            return self.now
        kept = (self._retained_until(known.value) for known in self.fold.jobs.values())
        return min((until for until in kept if until is not None), default=NEVER)


def _waits(job: Migration) -> bool:
    return not job.finished and job.phase != "Running" and not job.passed_arbitration


def retention(ttl_seconds: int) -> timedelta:
    """Return the age at which a finished job is removed."""
    return timedelta(seconds=ttl_seconds) + KEPT_AFTER_TTL if ttl_seconds else KEPT_WITHOUT_TTL
