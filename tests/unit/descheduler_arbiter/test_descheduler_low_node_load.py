"""LowNodeLoad through apply and decide: when a hot node is relieved, and when not."""

from datetime import timedelta

import msgspec

from cotenant.events.migrations import DetectorState, Migration, NodeLoadJudged
from cotenant.events.node.metrics import HostApplicationMetric, NodeMetricComputed, Usage
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import CYCLE, Cluster, configuration, hot_and_cold

AT_ONCE = {"anomalyCondition": {"consecutiveAbnormalities": 1}}


def test_a_hot_node_is_relieved_only_after_more_than_five_detections_in_a_row() -> None:
    cluster = hot_and_cold()
    cluster.cycle(5)
    assert cluster.migrations() == []
    assert cluster.judged("hot").node_streak.abnormal_streak == 5
    cluster.cycle()
    assert [job.trigger for job in cluster.migrations()] == ["LowNodeLoad"]


def test_a_cycle_in_which_the_node_is_not_hot_breaks_the_streak() -> None:
    cluster = hot_and_cold()
    cluster.cycle(4)
    cluster.usage["hot"] = dict.fromkeys(cluster.usage["hot"], 600)
    cluster.cycle()
    assert cluster.judged("hot").load_class == "normal"
    cluster.usage["hot"] = dict.fromkeys(cluster.usage["hot"], 1000)
    cluster.cycle(5)
    assert cluster.migrations() == []


def test_the_streak_survives_a_restart_between_any_two_cycles() -> None:
    for stop in range(1, 6):
        cluster = hot_and_cold()
        cluster.cycle(stop)
        cluster.restart()
        cluster.cycle(6 - stop)
        assert len(cluster.migrations()) == 1, f"restarted after {stop} cycles"


def test_several_decisions_in_one_cycle_judge_a_node_once() -> None:
    cluster = hot_and_cold()
    cluster.cycle()
    for _ in range(5):
        cluster.now += timedelta(seconds=1)
        cluster.metric("hot")
        assert cluster.decide() == []
    assert cluster.judged("hot").node_streak.abnormal_streak == 1


def test_pods_move_until_the_computed_usage_is_inside_the_band() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE), pods=9)
    cluster.cycle()
    jobs = cluster.migrations()
    assert len(jobs) == 2
    figures = [{figure.name: figure.value for figure in job.figures} for job in jobs]
    names = ("source.before.cpu", "source.after.cpu", "source.high.cpu", "target.after.cpu")
    assert sorted(tuple(each[name] for name in names) for each in figures) == [
        (8000, 7000, 7000, 2100),
        (9000, 8000, 7000, 1100),
    ]
    assert {job.target for job in jobs} == {"cold"}
    assert min(job.evict_reason for job in jobs) == "node is overutilized, node cpu usage(80.00%)>threshold(70.00%)"
    assert max(job.evict_reason for job in jobs) == "node is overutilized, node cpu usage(90.00%)>threshold(70.00%)"


def test_a_move_names_the_metrics_of_source_and_target_and_the_pod_as_causes() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.cycle()
    event, pod = next((event, event.data.pod) for event in cluster.decided if isinstance(event.data, Migration))
    named = {cluster.last[subject].ref for subject in ("metrics.hot", "metrics.cold", f"objects.core.pods.default.{pod}")}
    assert set(event.causes) == named


def test_a_pod_that_would_overload_every_target_stays_with_a_reason() -> None:
    cluster = Cluster(configuration(load=AT_ONCE))
    cluster.node("hot")
    cluster.node("cold")
    cluster.pod("big", "hot", used=3100, owner="big")
    cluster.pod("big-1", "cold", used=0, owner="big")
    cluster.pod("big-2", "cold", used=0, owner="big")
    cluster.pod("idle-0", "cold", used=4000, owner="idle")
    cluster.pod("rest", "hot", used=6000, owner=None)
    cluster.cycle()
    assert cluster.migrations() == []
    kept = {pod.name: pod.reason for pod in cluster.judged("hot").kept}
    assert "it would overload cpu: 7100 > 7000" in kept["big"]
    assert kept["rest"] == "it has no owner that would create it again"


def test_a_pod_whose_move_would_make_the_hot_node_low_stays() -> None:
    cluster = Cluster(configuration(load=AT_ONCE, jobs={"skipCheckExpectedReplicas": True}))
    cluster.node("hot")
    cluster.node("cold")
    cluster.pod("big", "hot", used=6000, owner="big")
    cluster.pod("small", "hot", used=1500, owner="small")
    cluster.pod("idle-0", "cold", used=100, owner="idle")
    cluster.cycle()
    assert [job.pod for job in cluster.migrations()] == ["small"]
    assert {pod.name for pod in cluster.judged("hot").kept} <= {"big"}


def test_a_stale_metric_is_never_used() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    for node in ("hot", "cold"):
        cluster.metric(node, at=cluster.now - timedelta(seconds=180))
    assert cluster.advance() == []
    cluster.metric("hot")
    assert cluster.advance(timedelta(0))
    assert cluster.migrations() == []


def test_an_unknown_node_is_neither_source_nor_target() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, nodeLifecycle={"enabled": False}))
    cluster.now += CYCLE
    cluster.metric("hot")
    cluster.metric("cold", unknown_since=cluster.now)
    cluster.decide()
    assert cluster.migrations() == []


def test_host_applications_and_system_usage_make_a_node_hot() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE), pods=4)
    cluster.now += CYCLE
    known = cluster.metric("hot").data
    assert isinstance(known, NodeMetricComputed)
    outside = (HostApplicationMetric(name="database", usage=Usage(cpu_milli=2000)),)
    loaded = msgspec.structs.replace(known, system_usage=Usage(cpu_milli=1500), host_applications=outside)
    cluster.publish("metrics.hot", loaded)
    cluster.metric("cold")
    cluster.decide()
    figures = {figure.name: figure.value for figure in cluster.judged("hot").figures}
    assert figures["cpu.usage"] == 4000 + 2000 + 1500
    assert cluster.judged("hot").message == "uses cpu 75 %, memory 0 %"
    assert len(cluster.migrations()) == 1


def test_an_unschedulable_node_is_no_target() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.node("cold", unschedulable=True)
    cluster.cycle()
    assert cluster.migrations() == []


def test_a_taint_that_the_pods_do_not_tolerate_keeps_them() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.node("cold", taints=[{"key": "only", "value": "batch", "effect": "NoSchedule"}])
    cluster.cycle()
    assert cluster.migrations() == []
    assert "taint only:NoSchedule is not tolerated" in cluster.judged("hot").kept[0].reason


def test_batch_pods_go_before_the_services_pods() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.pod("batch-0", "hot", used=1000, owner="job", labels={"koordinator.sh/priority-class": "koord-batch"})
    cluster.pod("batch-1", "cold", used=0, owner="job", labels={"koordinator.sh/priority-class": "koord-batch"})
    cluster.pod("batch-2", "cold", used=0, owner="job", labels={"koordinator.sh/priority-class": "koord-batch"})
    cluster.cycle()
    assert cluster.migrations()[0].pod == "batch-0"


def test_usage_that_is_on_its_way_counts_at_the_target_until_it_is_measured_there() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.cycle()
    (job,) = cluster.migrations()
    cluster.cycle(3)
    assert [each.job for each in cluster.migrations()] == [job.job], "the node counts as relieved while its pod leaves"


def test_no_more_pods_than_the_cycle_allows() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, maxNoOfPodsToEvictTotal=1), pods=10)
    cluster.cycle()
    assert len(cluster.migrations()) == 1
    assert any("reached its 1 evictions" in pod.reason for pod in cluster.judged("hot").kept)


def test_no_more_than_max_migrating_per_node() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, jobs={"maxMigratingPerNode": 1}), pods=10)
    cluster.cycle()
    assert len(cluster.migrations()) == 1
    assert any("maxMigratingPerNode is 1" in pod.reason for pod in cluster.judged("hot").kept)


def test_dry_run_reports_the_moves_and_creates_no_job() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, dryRun=True))
    cluster.cycle()
    assert cluster.migrations() == []
    assert cluster.judged("hot").message.startswith("dry run: would move default/web-")
    assert cluster.requests() == []


def test_one_node_alone_is_never_relieved() -> None:
    cluster = Cluster(configuration(load=AT_ONCE))
    cluster.node("hot")
    for index in range(9):
        cluster.pod(f"web-{index}", "hot")
    assert cluster.cycle() == []


def test_an_idle_cluster_stores_nothing() -> None:
    cluster = hot_and_cold(pods=3)
    assert cluster.cycle(10) == []


def test_a_relieved_anomaly_ends_and_is_published_once() -> None:
    cluster = hot_and_cold()
    cluster.cycle(6)
    assert cluster.judged("hot").node_streak.state is DetectorState.OK, "the computed usage is inside the band"
    cluster.usage["hot"] = dict.fromkeys(cluster.usage["hot"], 100)
    cluster.cycle(3)
    published = [event for event in cluster.decided if isinstance(event.data, NodeLoadJudged)]
    assert cluster.judged("hot").node_streak.abnormal_streak == 0
    assert len(published) <= 7
