"""Whether a plugin may move a pod, and what it uses up of limits and budgets if it does.

In: the state with its filters, the cycle. Out: reasons. `why_not` are the filters that hold however many pods go; `why_not_now`
the limits of the cycle and the budgets of migrating pods, which shrink with each pod that goes (`count`).

Source: koord-descheduler migration controller (Filter, Evict) and eviction limiter; the back-off is cotenant's own.
"""

from __future__ import annotations

from datetime import datetime

from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.eviction.backoff import latest_moves, workload_key
from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts
from cotenant_descheduler_arbiter.migration.moves import moves_of
from cotenant_descheduler_arbiter.migration.slots import evicted_in_slot, slot_of
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold


class Movable:
    """Mutable: the counts of one cycle over one state."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy, filters: JobFilters, now: datetime) -> None:
        self.filters = filters
        self.slot = slot_of(now, policy.interval)
        self.counts = CycleCounts(policy.cycle_limits, evicted_in_slot(fold, self.slot, policy.interval))
        self._now = now
        self._index = filters.index(arbitrating=False)
        self._moves = latest_moves(moves_of(known.value for known in fold.jobs.values()))

    def why_not(self, pod: PodFacts) -> str | None:
        """Return why the pod stays regardless of other evictions."""
        active = self.filters.active_job(pod)
        if active is not None:
            return f"job {active.name} moves it already"
        if self.filters.evicted(pod):
            return "it was evicted already"
        reason = (
            self.filters.why_not_reservable(pod)
            or self.filters.why_forbidden(pod)
            or self.filters.why_limited(pod, self._now)
        )
        if reason is not None:
            return reason
        last = self._moves.get(workload_key(pod.workload, pod.namespace, pod.name))
        if last is not None and last.workload_retry_at is not None and self._now < last.workload_retry_at:
            until = last.workload_retry_at.isoformat(timespec="seconds")
            return f"its workload was moved {last.workload_moves} times in a row, the next move may follow at {until}"
        return None

    def why_exhausted(self, pod: PodFacts) -> str | None:
        """Return which budget of migrating pods is used up."""
        return self.filters.why_exhausted(pod, self._index)

    def why_not_now(self, pod: PodFacts) -> str | None:
        """Return which limit of the cycle or budget is used up."""
        return self.counts.refusal(pod.node, pod.namespace) or self.why_exhausted(pod)

    def count(self, pod: PodFacts) -> None:
        """Count an evicted pod in the budgets."""
        self._index.add(JobFacts(name="", namespace=pod.namespace, pod=pod.name, uid=pod.uid))
