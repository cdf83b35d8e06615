"""Nodes that fall silent: taints, and the evictions after tolerationSeconds."""

from datetime import timedelta

from cotenant.events.node.conditions import NodeCondition
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import Cluster, configuration

NO_BALANCING = configuration(balance=False)


def silent(cluster: Cluster, node: str) -> None:
    cluster.metric(node, at=cluster.now - timedelta(minutes=1), unknown_since=cluster.now)
    cluster.decide()


def condition(cluster: Cluster, node: str) -> NodeCondition:
    data = cluster.last[f"node.{node}.condition"].data
    assert isinstance(data, NodeCondition)
    return data


def two_nodes() -> Cluster:
    cluster = Cluster(NO_BALANCING)
    for node in ("lost", "well"):
        cluster.node(node)
        cluster.executor(node)
    cluster.pod("web-0", "lost")
    cluster.pod("web-1", "well")
    cluster.metric("lost")
    cluster.metric("well")
    cluster.decide()
    return cluster


def test_a_node_that_reports_has_no_condition_event() -> None:
    assert two_nodes().decided == []


def test_a_silent_node_is_unreachable_with_both_taints() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    published = condition(cluster, "lost")
    assert published.status == "Unknown"
    assert published.taints == (
        ("node.kubernetes.io/unreachable", "", "NoSchedule"),
        ("node.kubernetes.io/unreachable", "", "NoExecute"),
    )
    metric = cluster.last["metrics.lost"].ref
    without, with_taint = (event for event in cluster.decided if event.subject == "node.lost.condition")
    assert (without.causes, with_taint.causes) == ((metric,), (without.ref, metric))


def test_an_executor_that_came_back_without_samples_is_not_ready() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    cluster.executor("lost")
    cluster.decide()
    published = condition(cluster, "lost")
    assert (published.status, published.taints[0][0]) == ("False", "node.kubernetes.io/not-ready")


def test_a_node_that_is_measured_again_loses_its_taints() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    cluster.advance(timedelta(minutes=1))
    cluster.metric("lost")
    cluster.decide()
    published = condition(cluster, "lost")
    assert (published.status, published.taints, published.since) == ("True", (), cluster.now)


def test_pods_of_a_lost_node_go_after_five_minutes_and_no_budget_keeps_them() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    cluster.advance(timedelta(seconds=299))
    assert cluster.migrations() == []
    cluster.advance(timedelta(seconds=1))
    (job,) = cluster.migrations()
    assert (job.trigger, job.pod, job.ignore_budgets, job.evict_ordered) == ("TaintEviction", "web-0", True, True)
    assert "the pod tolerates it for 300 s" in job.evict_reason
    cluster.answer(job.job)
    cluster.decide()
    assert cluster.migration(job.job).phase == "Succeeded"


def test_toleration_seconds_of_the_pod_decide() -> None:
    cluster = two_nodes()
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    cluster.pod("short", "lost", tolerations=[{**unreachable, "tolerationSeconds": 10}])
    cluster.pod("always", "lost", tolerations=[unreachable])
    silent(cluster, "lost")
    cluster.advance(timedelta(seconds=10))
    assert [job.pod for job in cluster.migrations()] == ["short"]
    cluster.advance(timedelta(hours=1))
    assert "always" not in {job.pod for job in cluster.migrations()}


def test_a_pod_that_came_to_a_lost_node_is_tolerated_from_then_on() -> None:
    """Seed 42, one hour: a pod that named its node was evicted as it arrived, 7 minutes after the node was lost."""
    cluster = two_nodes()
    silent(cluster, "lost")
    cluster.advance(timedelta(minutes=7))
    cluster.pod("late", "lost", bound_at=cluster.now)
    cluster.advance(timedelta(seconds=299))
    assert "late" not in {job.pod for job in cluster.migrations()}
    cluster.advance(timedelta(seconds=1))
    assert "late" in {job.pod for job in cluster.migrations()}


def test_nothing_is_evicted_while_every_node_is_silent() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    silent(cluster, "well")
    cluster.advance(timedelta(hours=1))
    assert cluster.migrations() == []


def test_a_restart_does_not_begin_the_toleration_again() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    cluster.advance(timedelta(seconds=200))
    cluster.restart()
    cluster.advance(timedelta(seconds=100))
    assert [job.pod for job in cluster.migrations()] == ["web-0"]


def test_a_node_that_is_deleted_loses_its_condition() -> None:
    cluster = two_nodes()
    silent(cluster, "lost")
    for subject in ("objects.core.nodes._.lost", "node.lost.executor"):
        cluster.publish(subject, cluster.last[subject].data, tombstone=True)
    cluster.decide()
    assert cluster.last["node.lost.condition"].tombstone


def test_a_node_without_any_metric_is_left_alone() -> None:
    cluster = Cluster(NO_BALANCING)
    cluster.node("simulated")
    cluster.pod("web-0", "simulated")
    assert cluster.advance(timedelta(hours=1)) == []
