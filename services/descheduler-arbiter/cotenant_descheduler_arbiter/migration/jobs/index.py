"""An index of the jobs that count in the budgets: all, by node, by namespace, by workload.

In: jobs that count, and their pods. Out: the jobs that are relevant to one budget of a pod, without the pod's own. The
formulas in `budgets` filter themselves; the index saves a scan over all jobs for every pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts
from cotenant_descheduler_arbiter.state.facts import PodFacts


class JobIndex:
    """Grows as a round or a cycle lets jobs through."""

    def __init__(self, jobs: Iterable[JobFacts], pod_of: Callable[[str], PodFacts | None], *, arbitrating: bool) -> None:
        """`arbitrating`: pending jobs count only if arbitration let them through."""
        self.pods: dict[str, PodFacts] = {}
        self._pod_of = pod_of
        self._all: list[JobFacts] = []
        self._by_node: dict[str, list[JobFacts]] = {}
        self._by_namespace: dict[str, list[JobFacts]] = {}
        self._by_workload: dict[str, list[JobFacts]] = {}
        for job in jobs:
            if job.counts(arbitrating=arbitrating):
                self.add(job)

    def add(self, job: JobFacts) -> None:
        """Add a job."""
        self._all.append(job)
        self._by_namespace.setdefault(job.namespace, []).append(job)
        pod = self._pod_of(job.pod_key)
        if pod is not None:
            self.pods[job.pod_key] = pod
            self._by_node.setdefault(pod.node, []).append(job)
            self._by_workload.setdefault(pod.workload, []).append(job)

    def everywhere(self, pod: PodFacts) -> list[JobFacts]:
        """Return all jobs but the pod's own."""
        return _others(self._all, pod)

    def of_node(self, pod: PodFacts) -> list[JobFacts]:
        """Return the jobs of other pods on the pod's node."""
        return _others(self._by_node.get(pod.node, []), pod)

    def of_namespace(self, pod: PodFacts) -> list[JobFacts]:
        """Return the jobs of other pods in the pod's namespace."""
        return _others(self._by_namespace.get(pod.namespace, []), pod)

    def of_workload(self, pod: PodFacts) -> list[JobFacts]:
        """Return the jobs of other pods of the pod's workload."""
        return _others(self._by_workload.get(pod.workload, []), pod)


def _others(jobs: list[JobFacts], pod: PodFacts) -> list[JobFacts]:
    return [job for job in jobs if not (job.uid and job.uid == pod.uid)]
