"""Migration jobs through apply and decide: from the object to the end."""

from datetime import timedelta

import msgspec
import pytest

from cotenant.events.migrations import EvictionRequest, Migration
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration, hot_and_cold

AT_ONCE = {"anomalyCondition": {"consecutiveAbnormalities": 1}}


def replicas(count: int = 4, config: object = None) -> Cluster:
    cluster = Cluster(config or configuration(balance=False))  # type: ignore[arg-type]
    cluster.node("a")
    cluster.node("b")
    for index in range(count):
        cluster.pod(f"web-{index}", "a")
    return cluster


def test_a_users_job_is_arbitrated_ordered_granted_and_done_when_the_pod_is_gone() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    job = cluster.migration("move")
    assert (job.phase, job.passed_arbitration, job.evict_ordered, job.trigger) == ("Running", True, True, "User")
    (request,) = cluster.requests()
    body = msgspec.json.decode(request.body, type=EvictionRequest)
    assert request.subject == "cotenant.gateway.evict.descheduler-arbiter"
    assert (body.name, body.uid, body.job) == ("web-0", "uid-web-0", "move")
    cluster.answer("move")
    cluster.decide()
    assert cluster.migration("move").conditions[0].reason == "Evicting"
    assert cluster.requests() == []
    cluster.end_pod("web-0")
    cluster.decide()
    job = cluster.migration("move")
    assert (job.phase, job.status, job.message) == ("Succeeded", "Complete", 'Pod "default/web-0" has been evicted')


def test_the_eviction_is_wanted_until_it_is_answered_and_never_again() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    keys = {request.key for request in cluster.requests()}
    for _ in range(5):
        cluster.advance(timedelta(seconds=1))
        assert {request.key for request in cluster.requests()} == keys
    cluster.answer("move")
    assert cluster.requests() == []
    cluster.decide()
    cluster.restart()
    assert cluster.requests() == []


def test_a_refusal_by_a_budget_is_reported_and_retried() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    first = cluster.requests()[0].key
    cluster.answer("move", allowed=False, message="budget web allows 0 disruptions")
    cluster.decide()
    job = cluster.migration("move")
    assert (job.phase, job.reason, job.message, job.attempts) == (
        "Running",
        "EvictionRefused",
        "budget web allows 0 disruptions",
        1,
    )
    assert cluster.requests() == []
    cluster.advance(timedelta(seconds=3))
    assert cluster.requests()[0].key != first


def test_refusals_grow_the_pause_until_the_ttl_ends_the_job() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    pauses = []
    for _ in range(5):
        cluster.answer("move", allowed=False, message="no")
        cluster.decide()
        retry = cluster.migration("move").retry_at
        assert retry is not None
        pauses.append((retry - cluster.now).total_seconds())
        cluster.advance(retry - cluster.now)
    assert pauses == [3, 6, 12, 24, 48]
    cluster.advance(timedelta(minutes=5))
    job = cluster.migration("move")
    assert (job.phase, job.reason) == ("Failed", "Timeout")
    assert cluster.requests() == []


def test_a_job_for_a_missing_pod_fails() -> None:
    cluster = replicas()
    cluster.job("move", "nobody")
    cluster.decide()
    assert (cluster.migration("move").phase, cluster.migration("move").reason) == ("Failed", "MissingPod")


def test_a_pod_that_goes_by_itself_before_it_was_granted_fails_the_job() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    cluster.end_pod("web-0")
    cluster.decide()
    assert cluster.migration("move").reason == "MissingPod"


def test_a_job_never_evicts_the_successor_of_its_pod() -> None:
    cluster = replicas()
    cluster.job("move", "web-0", uid="uid-of-an-older-pod")
    cluster.decide()
    assert cluster.migration("move").reason == "MissingPod"
    assert cluster.requests() == []


def test_a_successor_of_the_same_name_completes_the_job() -> None:
    cluster = replicas()
    cluster.job("move", "web-0")
    cluster.decide()
    cluster.answer("move")
    cluster.decide()
    cluster.end_pod("web-0")
    cluster.pod("web-0", "b", uid="uid-successor")
    cluster.decide()
    assert cluster.migration("move").phase == "Succeeded"


def test_a_paused_job_waits_and_goes_on_when_it_is_no_longer_paused() -> None:
    cluster = replicas()
    cluster.job("move", "web-0", paused=True)
    cluster.decide()
    cluster.advance(timedelta(seconds=30))
    assert cluster.migration("move").phase == "Pending"
    cluster.job("move", "web-0")
    cluster.decide()
    assert cluster.migration("move").phase == "Running"


def test_a_malformed_ttl_or_mode_fails_the_job_with_a_reason() -> None:
    cluster = replicas()
    cluster.job("late", "web-0", ttl="soon")
    cluster.job("odd", "web-1", mode="Teleport")
    cluster.decide()
    assert cluster.migration("late").message == "spec.ttl: 'soon' is not a duration such as 30s, 5m or 1h30m"
    assert cluster.migration("odd").reason == "InvalidMode"


def test_a_deleted_job_is_removed_and_requests_nothing() -> None:
    cluster = replicas()
    cluster.job("move", "web-0", paused=True)
    cluster.decide()
    cluster.delete_job("move")
    (event,) = cluster.decide()
    assert event.tombstone
    assert cluster.requests() == []


LIMITED = configuration(
    balance=False,
    jobs={"maxMigratingPerWorkload": 3, "objectLimiters": {"workload": {"duration": "300s", "maxMigrating": 1}}},
)


@pytest.mark.parametrize("answered", [True, False])
def test_the_limiter_counts_the_move_of_a_deleted_job_also_under_a_new_job_of_its_name(*, answered: bool) -> None:
    cluster = replicas(8, LIMITED)
    cluster.job("move", "web-0")
    cluster.decide()
    if answered:
        cluster.answer("move")
        cluster.decide()
        cluster.end_pod("web-0")
        cluster.decide()
    cluster.delete_job("move")
    cluster.decide()
    assert cluster.migration("move").phase == ("Succeeded" if answered else "Aborted")
    assert cluster.requests() == []
    document = {
        "metadata": {"name": "move", "uid": "another", "creationTimestamp": cluster.now.isoformat()},
        "spec": {"podRef": {"namespace": "default", "name": "web-1"}, "ttl": "1h"},
    }
    cluster.store("objects.scheduling%2Ekoordinator%2Esh.podmigrationjobs._.move", document)
    cluster.job("second", "web-2", ttl="1h")
    cluster.decide()
    (former,) = cluster.migration("move").former_moves
    assert (former.pod, former.workload) == ("web-0", cluster.migration("second").workload)
    cluster.advance(timedelta(seconds=250))
    assert [cluster.migration(name).ordered_at for name in ("move", "second")] == [None, None]
    cluster.advance(timedelta(seconds=60))
    assert sum(cluster.migration(name).ordered_at is not None for name in ("move", "second")) == 1


def test_the_record_of_a_deleted_job_ends_when_no_limiter_and_no_back_off_count_its_move() -> None:
    cluster = replicas(8, LIMITED)
    cluster.job("move", "web-0")
    cluster.decide()
    cluster.delete_job("move")
    cluster.decide()
    cluster.advance(timedelta(seconds=449))
    assert not cluster.last["migrations.move"].tombstone
    cluster.advance(timedelta(seconds=2))
    assert cluster.last["migrations.move"].tombstone


def test_a_job_of_the_same_name_with_another_uid_is_a_new_job() -> None:
    cluster = replicas()
    cluster.job("move", "nobody")
    cluster.decide()
    cluster.store(
        "objects.scheduling%2Ekoordinator%2Esh.podmigrationjobs._.move",
        {
            "metadata": {"name": "move", "uid": "another", "creationTimestamp": cluster.now.isoformat()},
            "spec": {"podRef": {"namespace": "default", "name": "web-0"}},
        },
    )
    cluster.decide()
    assert cluster.migration("move").phase == "Running"


def test_only_as_many_pods_of_a_workload_migrate_as_may_be_away() -> None:
    cluster = replicas(5)
    for index in range(3):
        cluster.job(f"move-{index}", f"web-{index}")
    cluster.decide()
    phases = sorted(cluster.migration(f"move-{index}").phase for index in range(3))
    assert phases == ["Pending", "Running", "Running"]
    waiting = next(job for job in cluster.migrations() if job.phase == "Pending")
    assert waiting.reason == "WaitingForArbitration"
    assert "2 of 5 pods of its workload migrate, at most 2 may" in waiting.message


def test_a_waiting_job_runs_once_the_budget_is_free() -> None:
    cluster = replicas(5)
    for index in range(3):
        cluster.job(f"move-{index}", f"web-{index}")
    cluster.decide()
    first = next(job for job in cluster.migrations() if job.phase == "Running")
    cluster.answer(first.job)
    cluster.decide()
    cluster.end_pod(first.pod)
    cluster.pod(f"{first.pod}-again", "b")
    cluster.decide()
    assert sum(job.phase == "Running" for job in cluster.migrations()) == 2


def test_the_only_replica_of_a_workload_is_never_migrated() -> None:
    cluster = replicas(1)
    cluster.job("move", "web-0")
    cluster.decide()
    job = cluster.migration("move")
    assert (job.phase, job.reason) == ("Failed", "ForbiddenMigratePod")
    assert "1 replicas" in job.message


def test_a_pod_not_ready_counts_as_away() -> None:
    cluster = replicas(4)
    cluster.pod("web-1", "a", ready=False)
    cluster.pod("web-2", "a", ready=False)
    cluster.job("move", "web-0")
    cluster.decide()
    assert "away or not ready" in cluster.migration("move").message


def test_a_job_waits_no_longer_than_its_ttl() -> None:
    cluster = replicas(4)
    cluster.pod("web-1", "a", ready=False)
    cluster.pod("web-2", "a", ready=False)
    cluster.job("move", "web-0", ttl="1m")
    cluster.decide()
    cluster.advance(timedelta(minutes=1))
    assert cluster.migration("move").reason == "Timeout"


def test_evictions_are_ordered_no_faster_than_the_rate() -> None:
    cluster = replicas(30, configuration(balance=False, jobs={"evictQPS": "2", "evictBurst": 1, "maxMigratingPerWorkload": 20,
                                                               "maxUnavailablePerWorkload": 25}))
    for index in range(10):
        cluster.job(f"move-{index}", f"web-{index}")
    cluster.decide()
    assert sum(job.evict_ordered for job in cluster.migrations()) == 1
    for _ in range(4):
        cluster.advance(timedelta(milliseconds=500))
    assert sum(job.evict_ordered for job in cluster.migrations()) == 5


def test_the_object_limiter_lets_one_pod_of_a_workload_go_per_period() -> None:
    limiter = {"workload": {"duration": "5m", "maxMigrating": 1}}
    cluster = replicas(8, configuration(balance=False, jobs={"objectLimiters": limiter}))
    cluster.job("first", "web-0")
    cluster.decide()
    cluster.answer("first")
    cluster.decide()
    cluster.end_pod("web-0")
    cluster.decide()
    cluster.job("second", "web-1", ttl="1h")
    cluster.decide()
    assert not cluster.migration("second").evict_ordered
    cluster.advance(timedelta(minutes=4))
    cluster.restart()
    cluster.decide()
    assert not cluster.migration("second").evict_ordered
    cluster.advance(timedelta(minutes=2))
    assert cluster.migration("second").evict_ordered


def test_a_jobs_own_evict_annotation_exempts_it_from_the_object_limiter() -> None:
    limiter = {"workload": {"duration": "5m", "maxMigrating": 1}}
    jobs = {"objectLimiters": limiter, "maxMigratingPerWorkload": 4, "maxUnavailablePerWorkload": 5}
    cluster = replicas(8, configuration(balance=False, jobs=jobs))
    cluster.job("first", "web-0", ttl="1h")
    cluster.decide()
    cluster.job("forced", "web-1", annotations={"descheduler.alpha.kubernetes.io/evict": "true"}, ttl="1h")
    cluster.job("second", "web-2", ttl="1h")
    cluster.decide()
    assert [cluster.migration(job).evict_ordered for job in ("first", "forced", "second")] == [True, True, False]


def test_an_unanswered_eviction_counts_in_the_object_limiter() -> None:
    limiter = {"workload": {"duration": "5m", "maxMigrating": 1}}
    cluster = replicas(8, configuration(balance=False, jobs={"objectLimiters": limiter, "maxMigratingPerWorkload": 4}))
    cluster.job("first", "web-0", ttl="1h")
    cluster.job("second", "web-1", ttl="1h")
    cluster.decide()
    cluster.restart()
    cluster.decide()
    assert [cluster.migration(job).evict_ordered for job in ("first", "second")] == [True, False]
    cluster.advance(timedelta(minutes=5))
    assert cluster.migration("second").evict_ordered


def test_the_object_limiter_holds_where_all_pods_of_the_workload_have_ended() -> None:
    """Seed 143, 10 minutes: with no pod left to count there was no limit, and the third was ordered to go within 5 minutes."""
    cluster = replicas(4, configuration(balance=False, jobs={"objectLimiters": {"workload": {"duration": "5m"}}}))
    cluster.job("first", "web-0")
    cluster.decide()
    cluster.answer("first")
    cluster.job("second", "web-1", ttl="1h")
    cluster.decide()
    assert cluster.migration("second").phase == "Running"
    for index in range(4):
        cluster.finish_pod(f"web-{index}")
    cluster.decide()
    assert not cluster.migration("second").evict_ordered
    cluster.advance(timedelta(minutes=5))
    assert cluster.migration("second").evict_ordered


def test_a_moved_workload_has_a_growing_back_off() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, workloadBackOff={"base": "1m", "maximum": "10m"}), pods=10)
    pauses = []
    for _ in range(3):
        while not (jobs := [job for job in cluster.migrations() if not job.finished]):
            cluster.cycle()
        for job in jobs:
            cluster.answer(job.job)
        cluster.decide()
        last = max((job for job in cluster.migrations() if job.evicted_at), key=lambda job: job.workload_moves)
        assert last.workload_retry_at is not None
        assert last.evicted_at is not None
        pauses.append((last.workload_moves, last.workload_retry_at - last.evicted_at))
        for job in jobs:
            cluster.end_pod(job.pod)
            cluster.pod(f"{job.pod}x", "hot", used=1000, owner="web")
        cluster.decide()
        cluster.restart()
    moves = [number for number, _ in pauses]
    assert moves == sorted(set(moves))
    assert all(pause == min(timedelta(minutes=1) * 2 ** (number - 1), timedelta(minutes=10)) for number, pause in pauses)


def test_finished_jobs_are_removed_after_their_retention() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.cycle()
    (job,) = cluster.migrations()
    cluster.answer(job.job)
    cluster.decide()
    cluster.end_pod(job.pod)
    cluster.decide()
    assert cluster.migration(job.job).phase == "Succeeded"
    cluster.advance(timedelta(minutes=9))
    assert cluster.migrations() != []
    cluster.advance(timedelta(minutes=2))
    assert cluster.migrations() == []


def test_a_restart_anywhere_leads_to_the_same_decisions() -> None:
    def run(restart_after: int | None) -> list[tuple[str, Migration]]:
        cluster = hot_and_cold(pods=10)
        for step in range(12):
            cluster.cycle()
            for job in cluster.migrations():
                if job.evict_ordered and job.evicted_at is None:
                    cluster.answer(job.job)
            cluster.decide()
            if step == restart_after:
                cluster.restart()
        return [(event.subject, event.data) for event in cluster.decided if isinstance(event.data, Migration)]

    straight = run(None)
    assert straight
    for step in range(12):
        assert run(step) == straight, f"restarted after step {step}"
