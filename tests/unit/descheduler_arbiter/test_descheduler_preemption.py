"""The scheduler names victims; the arbiter has them evicted, once, budgets first asked, and lets go what is wanted no more."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.events.migrations import EvictionRequest, Migration
from cotenant.events.placements import Nomination, Victim, Waiting
from cotenant.model.subjects import waiting_subject
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration


def replicas(count: int = 6, **options: object) -> Cluster:
    cluster = Cluster(configuration(balance=False, **options))  # type: ignore[arg-type]
    cluster.node("a")
    for index in range(count):
        cluster.pod(f"low-{index}", "a", owner="low")
    return cluster


def nominate(cluster: Cluster, *victims: str, violates: bool = False, at: datetime | None = None) -> None:
    """Pod `high` is nominated to node a, which these pods shall leave."""
    found = tuple(
        Victim(namespace="default", name=name, uid=cluster.pods[name][1], priority=1, violates_budget=violates)
        for name in victims
    )
    cluster.publish(
        waiting_subject("default", "high"),
        Waiting(
            namespace="default",
            name="high",
            uid="uid-high",
            priority=1000,
            nomination=Nomination(node="a", at=at or cluster.now, victims=found),
        ),
    )


def asked(cluster: Cluster) -> list[EvictionRequest]:
    return [msgspec.json.decode(request.body, type=EvictionRequest) for request in cluster.requests()]


def job_of(cluster: Cluster, pod: str) -> Migration:
    (found,) = [job for job in cluster.migrations() if job.pod == pod]
    return found


def test_every_victim_is_evicted_without_arbitration_and_for_a_reason() -> None:
    cluster = replicas()
    nominate(cluster, "low-0", "low-2")
    cluster.decide()
    assert [(request.name, request.ignore_budgets) for request in asked(cluster)] == [("low-0", False), ("low-2", False)]
    job = job_of(cluster, "low-0")
    assert (job.trigger, job.phase, job.node) == ("Preemption", "Running", "a")
    assert job.evict_reason == "makes room on node a for pod default/high of priority 1000, its own is 1"
    for pod in ("low-0", "low-2"):
        cluster.answer(job_of(cluster, pod).job)
        cluster.decide()
        cluster.end_pod(pod)
        cluster.decide()
    assert [job.phase for job in cluster.migrations()] == ["Succeeded", "Succeeded"]
    assert asked(cluster) == []


def test_the_job_follows_from_the_waiting_event_and_the_pod() -> None:
    cluster = replicas()
    nominate(cluster, "low-0")
    (created, *_) = cluster.decide()
    assert cluster.last["waiting.default.high"].ref in created.causes


def test_a_refusal_by_a_budget_is_repeated_with_growing_pauses() -> None:
    cluster = replicas()
    nominate(cluster, "low-0")
    cluster.decide()
    pauses = []
    for _ in range(4):
        cluster.answer(job_of(cluster, "low-0").job, allowed=False, message="no disruption is left")
        cluster.decide()
        assert cluster.decide() == []
        assert asked(cluster) == []
        retry_at = job_of(cluster, "low-0").retry_at
        assert retry_at is not None
        pauses.append((retry_at - cluster.now).total_seconds())
        cluster.advance(retry_at - cluster.now)
        assert [request.name for request in asked(cluster)] == ["low-0"]
    assert pauses == [3, 6, 12, 24]


def test_where_no_choice_spares_the_budget_it_is_not_asked_and_a_refused_job_is_hurried() -> None:
    cluster = replicas()
    nominate(cluster, "low-0")
    cluster.decide()
    cluster.answer(job_of(cluster, "low-0").job, allowed=False)
    cluster.decide()
    assert asked(cluster) == []
    nominate(cluster, "low-0", violates=True)
    cluster.decide()
    assert [(request.name, request.ignore_budgets) for request in asked(cluster)] == [("low-0", True)]
    cluster.answer(job_of(cluster, "low-0").job)
    cluster.decide()
    assert job_of(cluster, "low-0").phase == "Running"
    cluster.end_pod("low-0")
    cluster.decide()
    assert job_of(cluster, "low-0").phase == "Succeeded"


def test_a_job_that_waits_for_arbitration_is_let_through() -> None:
    cluster = replicas(jobs={"maxMigratingGlobally": 1})
    cluster.job("first", "low-1")
    cluster.job("second", "low-0")
    cluster.decide()
    waiting = next(name for name in ("first", "second") if cluster.migration(name).phase == "Pending")
    nominate(cluster, cluster.migration(waiting).pod)
    cluster.decide()
    assert cluster.migration(waiting).phase == "Running"
    assert len(cluster.migrations()) == 2


def test_what_no_nomination_names_any_more_is_given_up() -> None:
    cluster = replicas()
    nominate(cluster, "low-0", "low-1")
    cluster.decide()
    nominate(cluster, "low-1")
    cluster.decide()
    assert (job_of(cluster, "low-0").phase, job_of(cluster, "low-0").reason) == ("Aborted", "NotPreempted")
    assert [request.name for request in asked(cluster)] == ["low-1"]
    ended = Waiting(namespace="default", name="high", uid="uid-high")
    cluster.publish(waiting_subject("default", "high"), ended, tombstone=True)
    cluster.decide()
    assert asked(cluster) == []


def test_what_was_granted_is_not_given_up() -> None:
    cluster = replicas()
    nominate(cluster, "low-0")
    cluster.decide()
    cluster.answer(job_of(cluster, "low-0").job)
    cluster.decide()
    ended = Waiting(namespace="default", name="high", uid="uid-high")
    cluster.publish(waiting_subject("default", "high"), ended, tombstone=True)
    cluster.decide()
    assert job_of(cluster, "low-0").phase == "Running"
    cluster.end_pod("low-0")
    cluster.decide()
    assert job_of(cluster, "low-0").phase == "Succeeded"


def test_a_victim_is_evicted_once() -> None:
    cluster = replicas()
    nominate(cluster, "low-0")
    cluster.decide()
    cluster.answer(job_of(cluster, "low-0").job)
    cluster.decide()
    nominate(cluster, "low-0", at=cluster.now + timedelta(seconds=1))
    cluster.decide()
    assert len(cluster.migrations()) == 1
    assert asked(cluster) == []


def test_a_dry_run_evicts_nobody() -> None:
    cluster = replicas(dryRun=True)
    nominate(cluster, "low-0")
    cluster.decide()
    assert asked(cluster) == []


def test_waiting_pods_without_nomination_cost_no_decision() -> None:
    cluster = replicas()
    cluster.decide()
    version = cluster.core.fold.version
    cluster.publish(waiting_subject("default", "other"), Waiting(namespace="default", name="other", uid="uid-other"))
    assert cluster.core.fold.version == version


def test_a_fresh_core_decides_the_same() -> None:
    cluster = replicas()
    nominate(cluster, "low-0", "low-1")
    cluster.restart(sorted(cluster.last, reverse=True))
    cluster.decide()
    before = asked(cluster)
    cluster.restart(sorted(cluster.last))
    assert cluster.decide() == []
    assert asked(cluster) == before
