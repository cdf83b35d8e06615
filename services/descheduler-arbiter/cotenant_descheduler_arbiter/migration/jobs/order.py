"""The order in which waiting jobs are arbitrated: four successive stable sorts, so the last one dominates.

    a  creation time, newest first (whole seconds)
    b  eviction order of their pods; jobs without a pod first
    c  jobs whose pod belongs to a batch Job move next to the first job of the same Job
    d  number of migrating jobs of that batch Job, most first; pods of anything else count 0

A job is migrating when it is running, or pending and let through by arbitration.

Source: koord-descheduler arbitrator sorts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts
from cotenant_descheduler_arbiter.state.facts import PodFacts

Pods = Mapping[str, PodFacts]
"""`namespace/name` to pod."""


def by_creation(jobs: Sequence[JobFacts]) -> list[JobFacts]:
    """Return the jobs, newest first."""
    return sorted(jobs, key=lambda job: -job.created)


def by_pod(jobs: Sequence[JobFacts], rank: Mapping[str, int]) -> list[JobFacts]:
    """Return the jobs in their pods' order; `rank` is by `namespace/name`, absent pods come first."""
    return sorted(jobs, key=lambda job: rank.get(job.pod_key, -1))


def batch_job_of(pod: PodFacts | None) -> str:
    """Return the uid of the batch Job that controls the pod, or ""."""
    controller = pod.controller if pod is not None else None
    return controller.uid if controller is not None and controller.kind == "Job" else ""


def by_controller(jobs: Sequence[JobFacts], pods: Pods) -> list[JobFacts]:
    """Return the jobs with those of one batch Job next to each other."""
    first: dict[str, int] = {}
    places: list[int] = []
    for index, job in enumerate(jobs):
        owner = batch_job_of(pods.get(job.pod_key))
        places.append(first.setdefault(owner, index) if owner else index)
    return [job for _, _, job in sorted(zip(places, range(len(jobs)), jobs, strict=True), key=lambda item: item[:2])]


def migrating_jobs(owner_uid: str, jobs: Sequence[JobFacts], pods: Pods) -> int:
    """Return how many jobs of pods with this owner are migrating."""
    count = 0
    for job in jobs:
        pod = pods.get(job.pod_key)
        if pod is None or not any(owner.uid == owner_uid for owner in pod.pod.metadata.owner_references):
            continue
        if job.phase == "Running" or (job.passed and job.active):
            count += 1
    return count


def by_migrating(jobs: Sequence[JobFacts], all_jobs: Sequence[JobFacts], pods: Pods) -> list[JobFacts]:
    """Return the jobs, those of the batch Job with the most migrating jobs first."""
    counts: dict[str, int] = {"": 0}
    keys: list[int] = []
    for job in jobs:
        owner = batch_job_of(pods.get(job.pod_key))
        if owner not in counts:
            counts[owner] = migrating_jobs(owner, all_jobs, pods)
        keys.append(-counts[owner])
    return [job for _, _, job in sorted(zip(keys, range(len(jobs)), jobs, strict=True), key=lambda item: item[:2])]


def arbitration_order(
    waiting: Sequence[JobFacts], all_jobs: Sequence[JobFacts], pods: Pods, rank: Mapping[str, int]
) -> list[JobFacts]:
    """Return the waiting jobs in the order of arbitration."""
    ordered = by_pod(by_creation(waiting), rank)
    return by_migrating(by_controller(ordered, pods), all_jobs, pods)
