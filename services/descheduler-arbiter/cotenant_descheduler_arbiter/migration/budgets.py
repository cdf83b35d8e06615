"""Budgets of concurrent migrations: the filters of arbitration.

In: the pod, all jobs, all pods. Out: None, or the reason. There is one permanent filter (expected replicas) and four temporary
ones. A job counts if it is running, or pending and (during arbitration) let through; jobs of the pod itself never count. A
maximum of 0 or none is unlimited; gates in `skip_gates` are skipped.

    globally, per namespace: counting jobs >= maximum
    per node: other pods of the node with a counting job >= maximum
    per workload: distinct pods of the workload with a counting job, if any, >= max migrating(replicas);
                  those together with the workload's unavailable pods >= max unavailable(replicas)
    expected replicas: rejected when replicas is 1, or equal to either maximum: one more would be all of them

A workload's replicas are the pods with the same controller that have not ended; the controller's desired number of replicas is
not known here.

Source: koord-descheduler arbitrator filters, migration controller arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant_descheduler_arbiter.config.policy import Budgets
from cotenant_descheduler_arbiter.migration.jobs.facts import JobFacts
from cotenant_descheduler_arbiter.migration.max_unavailable import max_away
from cotenant_descheduler_arbiter.state.facts import PodFacts


def expected_replicas(pod: PodFacts, replicas: int, budgets: Budgets) -> str | None:
    """Return why no pod of a workload of this size may ever be moved, or None."""
    if not pod.workload or budgets.skip_check_expected_replicas or "ExpectedReplicas" in budgets.skip_gates:
        return None
    migrating = max_away(replicas, budgets.max_migrating_per_workload)
    unavailable = max_away(replicas, budgets.max_unavailable_per_workload)
    if replicas == 1 or replicas in (migrating, unavailable):
        return (
            f"its workload has {replicas} replicas and may lose {migrating} by migration and {unavailable} in all: "
            "one more would be all of them"
        )
    return None


def globally(jobs: Sequence[JobFacts], budgets: Budgets) -> str | None:
    """Return why no further job may run anywhere, given the counting jobs."""
    limit = budgets.max_migrating_globally or 0
    if limit > 0 and "MaxMigratingGlobally" not in budgets.skip_gates and len(jobs) >= limit:
        return f"{len(jobs)} pods migrate, maxMigratingGlobally is {limit}"
    return None


def per_node(pod: PodFacts, jobs: Sequence[JobFacts], pods: Mapping[str, PodFacts], budgets: Budgets) -> str | None:
    """Return why no further pod of the same node may migrate."""
    limit = budgets.max_migrating_per_node or 0
    if not pod.node or limit <= 0 or "MaxMigratingPerNode" in budgets.skip_gates:
        return None
    here = {
        other.uid or other.key
        for job in jobs
        if (other := pods.get(job.pod_key)) is not None and other.node == pod.node and other.uid != pod.uid
    }
    if len(here) >= limit:
        return f"{len(here)} pods of node {pod.node} migrate, maxMigratingPerNode is {limit}"
    return None


def per_namespace(pod: PodFacts, jobs: Sequence[JobFacts], budgets: Budgets) -> str | None:
    """Return why no further pod of the same namespace may migrate."""
    limit = budgets.max_migrating_per_namespace or 0
    if limit <= 0 or "MaxMigratingPerNamespace" in budgets.skip_gates:
        return None
    count = sum(1 for job in jobs if job.namespace == pod.namespace)
    if count >= limit:
        return f"{count} pods of namespace {pod.namespace} migrate, maxMigratingPerNamespace is {limit}"
    return None


def per_workload(
    pod: PodFacts,
    jobs: Sequence[JobFacts],
    pods: Mapping[str, PodFacts],
    replicas: int,
    workload_pods: Sequence[PodFacts],
    budgets: Budgets,
) -> str | None:
    """Return why no further pod of the same workload may migrate."""
    workload = pod.workload
    if not workload:
        return None
    migrating = {
        job.pod_key
        for job in jobs
        if job.namespace == pod.namespace
        and (other := pods.get(job.pod_key)) is not None
        and other.workload == workload
    }
    limit = max_away(replicas, budgets.max_migrating_per_workload)
    if "MaxMigratingPerWorkload" not in budgets.skip_gates and migrating and len(migrating) >= limit:
        return f"{len(migrating)} of {replicas} pods of its workload migrate, at most {limit} may"
    away = migrating | {other.key for other in workload_pods if not other.available}
    limit = max_away(replicas, budgets.max_unavailable_per_workload)
    if "MaxUnavailablePerWorkload" not in budgets.skip_gates and len(away) >= limit:
        return f"{len(away)} of {replicas} pods of its workload are away or not ready, at most {limit} may be"
    return None
