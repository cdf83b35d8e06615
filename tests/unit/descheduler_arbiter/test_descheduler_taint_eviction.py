"""Evictions by NoExecute taints: users' taints, jobs made as they may run, and ended when their cause is gone."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from cotenant.events.migrations import EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.placements import Nomination, Placement, Victim, Waiting
from cotenant.model.subjects import eviction_subject, pod_subject, waiting_subject
from tests.builders import pod_document
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration

SECOND = timedelta(seconds=1)
DRAIN = {"key": "maintenance", "value": "disk", "effect": "NoExecute"}
SOON = {"key": "spot", "value": "", "effect": "NoExecute"}


def cluster_with(pods: int = 1, **jobs: object) -> Cluster:
    """Node n and node other, measured; pods web-0 .. on n."""
    cluster = Cluster(configuration(balance=False, jobs={"evictBurst": 1, **jobs}))
    for node in ("n", "other"):
        cluster.node(node)
        cluster.executor(node)
        cluster.metric(node)
    for index in range(pods):
        cluster.pod(f"web-{index}", "n")
    cluster.decide()
    return cluster


def taint(cluster: Cluster, *taints: Mapping[str, str]) -> None:
    cluster.node("n", taints=taints)
    cluster.decide()


def lose(cluster: Cluster) -> None:
    cluster.metric("n", at=cluster.now - timedelta(minutes=1), unknown_since=cluster.now)
    cluster.decide()


def jobs(cluster: Cluster, phase: str = "") -> list[Migration]:
    return [job for job in cluster.migrations() if not phase or job.phase == phase]


def tolerate(cluster: Cluster, name: str, tolerations: Sequence[Mapping[str, object]]) -> None:
    document = pod_document(
        name, uid=f"uid-{name}", owner="web", created="2026-01-01T00:00:00Z", requests={"cpu": "500m"},
        tolerations=list(tolerations),
    )
    cluster.store(pod_subject("default", name), document)
    cluster.decide()


def test_a_users_no_execute_taint_evicts_at_once_and_past_budgets() -> None:
    cluster = cluster_with()
    taint(cluster, DRAIN)
    (job,) = jobs(cluster)
    assert (job.trigger, job.pod, job.taint, job.ignore_budgets) == ("TaintEviction", "web-0", "maintenance", True)
    assert "node n has maintenance=disk:NoExecute" in job.evict_reason
    assert [request.key for request in cluster.requests()] == ["evict/default/web-0/uid-web-0/0"]
    condition = cluster.last["node.n.condition"].data
    assert isinstance(condition, NodeCondition)
    assert condition.ready


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
def test_other_taints_evict_nobody(effect: str) -> None:
    cluster = cluster_with()
    taint(cluster, {**DRAIN, "effect": effect})
    assert cluster.advance(timedelta(hours=1)) == []


def test_of_several_taints_the_shortest_toleration_counts_each_from_its_own_time() -> None:
    cluster = cluster_with(pods=0)
    long = {"key": "maintenance", "operator": "Exists", "tolerationSeconds": 100}
    short = {"key": "spot", "operator": "Exists", "tolerationSeconds": 20}
    for name, tolerations in (("both", [long, short]), ("ever", [{"operator": "Exists"}]), ("long", [long])):
        cluster.pod(name, "n", tolerations=tolerations)
    taint(cluster, DRAIN)
    cluster.advance(timedelta(seconds=50))
    assert jobs(cluster) == []
    taint(cluster, DRAIN, SOON)
    assert [job.pod for job in jobs(cluster)] == ["long"]
    cluster.advance(timedelta(seconds=19))
    assert [job.pod for job in jobs(cluster)] == ["long"]
    cluster.advance(SECOND)
    assert {job.pod for job in jobs(cluster)} == {"both", "long"}
    cluster.advance(timedelta(hours=1))
    assert "ever" not in {job.pod for job in jobs(cluster)}


def test_the_first_toleration_that_matches_counts() -> None:
    cluster = cluster_with(pods=0)
    ever, short = {"key": "maintenance", "operator": "Exists"}, {"operator": "Exists", "tolerationSeconds": 5}
    cluster.pod("ever-first", "n", tolerations=[ever, short])
    cluster.pod("short-first", "n", tolerations=[short, ever])
    taint(cluster, DRAIN)
    cluster.advance(timedelta(minutes=1))
    assert [job.pod for job in jobs(cluster)] == ["short-first"]


def test_tolerations_of_a_users_taint_go_on_after_a_restart_and_another_change_of_the_node() -> None:
    cluster = cluster_with(pods=0)
    cluster.pod("web", "n", tolerations=[{"operator": "Exists", "tolerationSeconds": 100}])
    taint(cluster, DRAIN)
    cluster.advance(timedelta(seconds=60))
    cluster.node("n", taints=[DRAIN], labels={"new": "label"})
    cluster.decide()
    cluster.restart()
    cluster.advance(timedelta(seconds=39))
    assert jobs(cluster) == []
    cluster.advance(SECOND)
    assert [job.pod for job in jobs(cluster)] == ["web"]


def test_a_taint_that_is_removed_and_set_again_counts_anew() -> None:
    cluster = cluster_with(pods=0)
    cluster.pod("web", "n", tolerations=[{"operator": "Exists", "tolerationSeconds": 100}])
    taint(cluster, DRAIN)
    cluster.advance(timedelta(seconds=60))
    taint(cluster)
    taint(cluster, DRAIN)
    cluster.advance(timedelta(seconds=99))
    assert jobs(cluster) == []


def test_daemon_and_static_pods_stay_as_in_kubernetes() -> None:
    def with_owner(cluster: Cluster, name: str, kind: str, annotations: Mapping[str, str]) -> None:
        uid = cluster.pod(name, "n")
        document = pod_document(name, uid=uid, requests={"cpu": "500m"}, annotations=annotations)
        metadata = document["metadata"]
        assert isinstance(metadata, dict)
        if kind:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": kind, "name": "d", "uid": "d", "controller": True}
            ]
        cluster.store(pod_subject("default", name), document)

    cluster = cluster_with(pods=0)
    with_owner(cluster, "agent", "DaemonSet", {})
    with_owner(cluster, "mirror", "Node", {"kubernetes.io/config.mirror": "x"})
    with_owner(cluster, "static", "", {"kubernetes.io/config.source": "file"})
    lose(cluster)
    cluster.advance(timedelta(hours=1))
    assert jobs(cluster) == []
    cluster.metric("n")
    cluster.decide()
    taint(cluster, DRAIN)
    assert [job.pod for job in jobs(cluster)] == ["agent"]


def test_a_users_taint_is_not_held_by_the_rate_of_nodes() -> None:
    cluster = Cluster(configuration(balance=False))
    for index in range(5):
        cluster.node(f"n{index}", taints=[DRAIN])
        cluster.executor(f"n{index}")
        cluster.pod(f"web-{index}", f"n{index}")
        cluster.metric(f"n{index}")
    cluster.decide()
    assert {job.node for job in jobs(cluster)} == {f"n{index}" for index in range(5)}


def test_at_most_a_seconds_worth_of_evictions_is_outstanding() -> None:
    cluster = cluster_with(pods=50, evictQPS="10")
    taint(cluster, DRAIN)
    assert len(jobs(cluster)) == 10
    done = 0
    for _ in range(200):
        for job in jobs(cluster, "Running"):
            if job.evict_ordered:
                cluster.answer(job.job)
        cluster.advance(SECOND / 10)
        unfinished = len([job for job in jobs(cluster) if not job.finished])
        assert unfinished <= 10
        done = len(jobs(cluster, "Succeeded"))
    assert done == 50


def test_jobs_end_when_the_node_is_ready_again() -> None:
    cluster = cluster_with(pods=30)
    lose(cluster)
    cluster.advance(timedelta(seconds=300))
    assert len(jobs(cluster)) == 10
    ordered = [job for job in jobs(cluster) if job.evict_ordered]
    assert ordered
    cluster.metric("n")
    cluster.decide()
    assert {(job.phase, job.reason) for job in jobs(cluster)} == {("Aborted", "NodeReady")}
    assert jobs(cluster)[0].message == "node n is Ready again"
    assert list(cluster.requests()) == []
    cluster.advance(timedelta(hours=1))
    assert {job.phase for job in jobs(cluster)} <= {"Aborted"}


def test_no_eviction_is_ordered_in_the_decision_that_sees_the_node_again() -> None:
    cluster = cluster_with(pods=3)
    lose(cluster)
    cluster.advance(timedelta(seconds=300))
    before = sum(job.evict_ordered for job in jobs(cluster))
    cluster.now += SECOND
    cluster.metric("n")
    cluster.decide()
    assert sum(job.evict_ordered for job in jobs(cluster)) == before


def test_an_eviction_that_was_granted_is_not_called_off() -> None:
    cluster = cluster_with()
    lose(cluster)
    cluster.advance(timedelta(seconds=300))
    (job,) = jobs(cluster)
    cluster.answer(job.job)
    cluster.metric("n")
    cluster.decide()
    assert cluster.migration(job.job).phase == "Succeeded"


def test_jobs_end_when_the_taint_is_removed() -> None:
    cluster = cluster_with()
    taint(cluster, DRAIN)
    taint(cluster)
    (job,) = jobs(cluster)
    assert (job.phase, job.reason) == ("Aborted", "TaintRemoved")
    assert job.message == "node n does not have the taint maintenance any more"


def test_jobs_end_when_the_pod_tolerates_the_taint() -> None:
    cluster = cluster_with()
    taint(cluster, DRAIN)
    tolerate(cluster, "web-0", [{"key": "maintenance", "operator": "Exists"}])
    (job,) = jobs(cluster)
    assert (job.phase, job.reason) == ("Aborted", "Tolerated")


def test_jobs_end_when_the_pod_is_gone_or_has_ended() -> None:
    cluster = cluster_with(pods=2)
    taint(cluster, DRAIN)
    cluster.end_pod("web-0")
    cluster.finish_pod("web-1")
    cluster.decide()
    assert {(job.pod, job.phase, job.reason) for job in jobs(cluster)} == {
        ("web-0", "Failed", "MissingPod"),
        ("web-1", "Aborted", "PodEnded"),
    }


def test_jobs_end_when_every_node_is_lost() -> None:
    cluster = cluster_with()
    lose(cluster)
    cluster.advance(timedelta(seconds=300))
    cluster.metric("other", at=cluster.now - timedelta(minutes=1), unknown_since=cluster.now)
    cluster.decide()
    (job,) = jobs(cluster)
    assert (job.phase, job.reason) == ("Aborted", "EvictionsStopped")


def test_the_next_loss_of_the_node_makes_a_job_of_its_own() -> None:
    cluster = cluster_with()
    for _ in range(2):
        lose(cluster)
        cluster.advance(timedelta(seconds=300))
        cluster.metric("n")
        cluster.decide()
        cluster.advance(timedelta(seconds=20))
    assert [job.reason for job in jobs(cluster)] == ["NodeReady", "NodeReady"]


def test_a_pod_that_was_evicted_is_not_evicted_again() -> None:
    cluster = cluster_with()
    granted = EvictionOutcome(namespace="default", name="web-0", uid="uid-web-0", allowed=True, job="before")
    cluster.publish(eviction_subject("default", "web-0"), granted)
    taint(cluster, DRAIN)
    assert jobs(cluster) == []


def test_a_pod_that_comes_to_a_tainted_node_is_tolerated_from_then_on() -> None:
    cluster = cluster_with(pods=0)
    taint(cluster, DRAIN)
    cluster.advance(timedelta(minutes=10))
    tolerations = [{"operator": "Exists", "tolerationSeconds": 30}]
    cluster.pod("late", "n", tolerations=tolerations, bound_at=cluster.now)
    cluster.decide()
    cluster.advance(timedelta(seconds=29))
    assert jobs(cluster) == []
    cluster.advance(SECOND)
    assert [job.pod for job in jobs(cluster)] == ["late"]
    assert isinstance(cluster.last["node.n.placement.default.late"].data, Placement)


def test_a_paused_job_of_a_user_does_not_keep_the_pod_on_its_node() -> None:
    cluster = cluster_with()
    cluster.job("mine", "web-0", paused=True)
    cluster.decide()
    taint(cluster, DRAIN)
    mine = cluster.migration("mine")
    assert (mine.phase, mine.reason) == ("Aborted", "TaintEviction")
    assert mine.message == "the taint maintenance of node n evicts the pod"
    assert [job.pod for job in jobs(cluster) if job.trigger == "TaintEviction"] == ["web-0"]


def test_a_victim_of_preemption_goes_past_its_budget_when_its_node_is_tainted() -> None:
    cluster = cluster_with()
    victim = Victim(namespace="default", name="web-0", uid="uid-web-0")
    nomination = Nomination(node="n", at=cluster.now, victims=(victim,))
    waiting = Waiting(namespace="default", name="vital", uid="uid-vital", message="full", nomination=nomination)
    cluster.publish(waiting_subject("default", "vital"), waiting)
    cluster.decide()
    (job,) = jobs(cluster)
    cluster.answer(job.job, allowed=False, message="budget")
    cluster.decide()
    assert cluster.migration(job.job).retry_at is not None
    taint(cluster, DRAIN)
    (job,) = jobs(cluster)
    assert (job.trigger, job.ignore_budgets, job.retry_at) == ("Preemption", True, None)
