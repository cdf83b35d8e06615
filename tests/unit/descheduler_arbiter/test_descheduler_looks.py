"""The check that avoids full cycles, and what a cycle over the state publishes and refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cotenant.events.migrations import AnomalyStreak, Migration, NodeLoadJudged
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.objects import ObjectDeleted
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.subjects import descheduling_subject, metrics_subject, migration_subject, node_subject
from cotenant_descheduler_arbiter.config.policy import LowNodeLoad, NodePool
from cotenant_descheduler_arbiter.low_node_load.hot_node_check import HotNodeCheck
from cotenant_descheduler_arbiter.migration.slots import slot_of, start_of_slot
from tests.builders import node_document
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import CYCLE, Cluster, configuration, hot_and_cold

AT_ONCE = {"anomalyCondition": {"consecutiveAbnormalities": 1}}
POOL = NodePool("pool", low_thresholds={"cpu": 40.0}, high_thresholds={"cpu": 70.0})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


# -- cycles as slots of time ---------------------------------------------------------------------------------------


def test_cycles_are_slots_of_time_since_1970() -> None:
    assert slot_of(EPOCH + seconds(6.9), seconds(7)) == 0
    assert slot_of(EPOCH + seconds(7), seconds(7)) == 1
    assert start_of_slot(3, seconds(7)) == EPOCH + seconds(21)


# -- the check of all nodes ------------------------------------------------------------------------------------------------


def measured(cpu: int, *, memory: int = 0, memory_capacity: str = "100", allocatable: bool = True) -> Cluster:
    """A cluster whose only node has 10 cores, uses so much, and was measured now."""
    cluster = Cluster(configuration(load=AT_ONCE))
    amounts = {"cpu": "10", **({"memory": memory_capacity} if allocatable else {})}
    cluster.store(node_subject("a"), node_document("a", allocatable=amounts))
    measure(cluster, cpu, memory)
    return cluster


def measure(cluster: Cluster, cpu: int, memory: int = 0) -> None:
    usage = Usage(cpu_milli=cpu, memory_bytes=memory)
    cluster.publish(metrics_subject("a"), NodeMetricComputed(node="a", update_time=cluster.now, system_usage=usage))


def look_at(cluster: Cluster, *pools: NodePool) -> HotNodeCheck:
    policy = cluster.core.policy
    return HotNodeCheck(cluster.core.fold, policy, LowNodeLoad(pools=pools))


def may_be_hot(cluster: Cluster, *pools: NodePool) -> bool:
    look = look_at(cluster, *(pools or (POOL,)))
    look.mark_changed(["a"])
    return look.may_be_hot(cluster.now)


def test_a_node_may_be_hot_above_the_lowest_threshold_of_any_pool() -> None:
    assert may_be_hot(measured(7001))
    assert not may_be_hot(measured(7000))
    lower = msgspec.structs.replace(POOL, high_thresholds={"cpu": 50.0})
    assert may_be_hot(measured(5001), POOL, lower)
    assert may_be_hot(measured(5001), lower, POOL)
    assert not may_be_hot(measured(5000), POOL, lower)


def test_a_resource_without_a_threshold_is_hot_above_its_capacity() -> None:
    assert may_be_hot(measured(0, memory=101))
    assert not may_be_hot(measured(0, memory=100))
    assert may_be_hot(measured(0, memory=1, allocatable=False)), "of nothing, anything is too much"
    by_memory = NodePool("pool", high_thresholds={"memory": 50.0})
    assert may_be_hot(measured(10_001), by_memory)
    assert not may_be_hot(measured(10_000), by_memory)


@pytest.mark.parametrize(
    "pool",
    [
        msgspec.structs.replace(POOL, use_deviation_thresholds=True),
        msgspec.structs.replace(POOL, prod_high_thresholds={"cpu": 50.0}),
        msgspec.structs.replace(POOL, prod_low_thresholds={"cpu": 50.0}),
        msgspec.structs.replace(POOL, high_thresholds={RESOURCE_PODS: 50.0}),
        msgspec.structs.replace(POOL, low_thresholds={RESOURCE_PODS: 50.0}),
    ],
)
def test_a_pool_that_compares_more_than_cpu_and_memory_computes_every_cycle(pool: NodePool) -> None:
    look = look_at(measured(0), pool)
    assert look.may_be_hot(EPOCH)


def test_without_pools_nothing_is_hot() -> None:
    look = look_at(measured(9000))
    look.mark_changed(["a"])
    assert not look.may_be_hot(EPOCH)


def test_only_changed_nodes_are_checked_and_a_normal_one_no_longer() -> None:
    cluster = measured(9000)
    look = look_at(cluster, POOL)
    assert not look.may_be_hot(cluster.now), "nothing was folded of it"
    look.mark_changed(["a"])
    assert look.may_be_hot(cluster.now)
    assert look.may_be_hot(cluster.now), "it is checked until it is found normal"
    measure(cluster, 0)
    assert not look.may_be_hot(cluster.now)
    measure(cluster, 9000)
    assert not look.may_be_hot(cluster.now), "the caller reports that it was measured again"


def test_a_node_without_a_fresh_metric_is_not_hot() -> None:
    cluster = measured(9000)
    look = look_at(cluster, POOL)
    look.mark_changed(["a", "unknown"])
    assert look.may_be_hot(cluster.now + seconds(179))
    assert not look.may_be_hot(cluster.now + seconds(180))


def test_a_node_that_was_judged_in_this_cycle_waits_for_the_next() -> None:
    cluster = measured(9000)
    cluster.publish(descheduling_subject("a"), NodeLoadJudged(node="a", judged_at=cluster.now))
    look = look_at(cluster, POOL)
    look.mark_changed(["a"])
    assert not look.may_be_hot(cluster.now)
    assert look.may_be_hot(cluster.now + CYCLE)


def test_a_node_with_a_streak_is_looked_at_until_it_is_broken() -> None:
    cluster = measured(0)
    streak = AnomalyStreak(total=1, abnormal=1, abnormal_streak=1)
    cluster.publish(descheduling_subject("a"), NodeLoadJudged(node="a", judged_at=cluster.now - CYCLE, node_streak=streak))
    assert may_be_hot(cluster)
    cluster.publish(descheduling_subject("a"), NodeLoadJudged(node="a", judged_at=cluster.now - CYCLE))
    assert not may_be_hot(cluster)


def test_load_that_is_on_its_way_counts_and_jobs_make_every_node_checked() -> None:
    cluster = measured(6500)
    look = look_at(cluster, POOL)
    assert not look.may_be_hot(cluster.now)
    job = Migration(job="j", namespace="n", pod="p", uid="u", node="b", target="a", phase="Running", pod_usage={"cpu": 501})
    cluster.publish(migration_subject("j"), job)
    assert look.may_be_hot(cluster.now)
    cluster.publish(migration_subject("j"), msgspec.structs.replace(job, pod_usage={"cpu": 500}))
    assert not look.may_be_hot(cluster.now)
    assert not look.may_be_hot(cluster.now), "the jobs are as they were"


# -- what a cycle over the state does ------------------------------------------------------------------------------


def kept(cluster: Cluster, node: str = "hot") -> dict[str, str]:
    return {pod.name: pod.reason for pod in cluster.judged(node).kept}


def test_what_the_cycle_has_evicted_already_counts_for_later_decisions_in_it() -> None:
    cluster = Cluster(configuration(load=AT_ONCE, maxNoOfPodsToEvictTotal=1, jobs={"skipCheckExpectedReplicas": True}))
    for name in ("hot", "late", "cold"):
        cluster.node(name)
    for index in range(8):
        cluster.pod(f"web-{index}", "hot", owner="web")
        cluster.pod(f"api-{index}", "late", owner="api")
    cluster.pod("idle", "cold", used=100)
    cluster.now += CYCLE
    for node in ("hot", "cold"):
        cluster.metric(node)
    cluster.decide()
    assert len(cluster.migrations()) == 1
    cluster.now += seconds(1)
    cluster.metric("late")
    cluster.decide()
    assert len(cluster.migrations()) == 1
    assert "this cycle has reached its 1 evictions" in kept(cluster, "late").values()
    cluster.cycle()
    assert len(cluster.migrations()) == 2


def test_only_pods_that_one_of_the_selectors_selects_move() -> None:
    selectors = [{"name": name, "selector": {"matchLabels": {"app": name}}} for name in ("a", "b")]
    cluster = Cluster(configuration(load={**AT_ONCE, "podSelectors": selectors}))
    cluster.node("hot")
    cluster.node("cold")
    for index, app in enumerate(("c", "b", "c", "c", "c", "c", "c", "c")):
        cluster.pod(f"web-{index}", "hot", labels={"app": app})
    cluster.pod("idle", "cold", used=100)
    cluster.cycle()
    assert [job.pod for job in cluster.migrations()] == ["web-1"]
    assert kept(cluster)["web-0"] == "no pod selector selects it"


def test_nodes_that_the_policy_does_not_select_take_no_part() -> None:
    cluster = Cluster(configuration(load=AT_ONCE, nodeSelector={"matchLabels": {"pool": "x"}}))
    cluster.node("hot", labels={"pool": "x"})
    cluster.node("cold")
    cluster.node("other", labels={"pool": "x"})
    for index in range(8):
        cluster.pod(f"web-{index}", "hot")
        cluster.pod(f"api-{index}", "other", used=750)
    cluster.pod("idle", "cold", used=100)
    cluster.cycle()
    assert cluster.migrations() == [], "the only low node is not selected"
    cluster.node("cold", labels={"pool": "x"})
    cluster.cycle()
    assert {job.target for job in cluster.migrations()} == {"cold"}


def test_a_moved_workload_is_not_moved_until_its_back_off_is_over() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    retry_at = cluster.now + 2 * CYCLE
    job = Migration(
        job="before",
        namespace="default",
        pod="web-9",
        uid="uid-web-9",
        phase="Succeeded",
        workload="uid-web",
        evicted_at=cluster.now,
        finished_at=cluster.now,
        workload_moves=2,
        workload_retry_at=retry_at,
    )
    cluster.publish(migration_subject("before"), job)
    cluster.cycle()
    assert [each.job for each in cluster.migrations()] == ["before"]
    until = retry_at.isoformat(timespec="seconds")
    assert kept(cluster)["web-0"] == f"its workload was moved 2 times in a row, the next move may follow at {until}"
    cluster.cycle()
    assert cluster.now == retry_at
    assert len(cluster.migrations()) == 2


def test_what_is_published_of_a_hot_node() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    cluster.cycle()
    judged = cluster.judged("hot")
    assert judged.moved == tuple(job.job for job in cluster.migrations())
    assert len(judged.moved) == 1
    assert judged.message == "uses cpu 80 %, memory 0 %"
    figures = {figure.name: figure.value for figure in judged.figures}
    assert {name: value for name, value in figures.items() if name.startswith("cpu.")} == {
        "cpu.usage": 8000,
        "cpu.low": 4000,
        "cpu.high": 7000,
    }
    assert {name.rpartition(".")[0] for name in figures} == {"cpu", "memory", "prod.cpu", "prod.memory"}


def test_figures_are_of_pods_and_of_what_the_node_has() -> None:
    low, high = ({"cpu": cpu, "memory": 90.0, "pods": 50.0, "koordinator.sh/gpu": 50.0} for cpu in (40.0, 70.0))
    cluster = hot_and_cold(configuration(load={**AT_ONCE, "lowThresholds": low, "highThresholds": high}))
    cluster.cycle()
    figures = {figure.name: figure.value for figure in cluster.judged("hot").figures}
    named = {name.removeprefix("prod.").rpartition(".")[0] for name in figures}
    assert named == {"cpu", "memory", "pods"}
    assert (figures["pods.usage"], figures["pods.low"], figures["pods.high"]) == (8, 55, 55)


@pytest.mark.parametrize("executor", [True, False])
def test_a_judgement_ends_with_the_node_and_its_executor(executor: bool) -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    if executor:
        cluster.executor("hot")
    cluster.cycle()
    subject = descheduling_subject("hot")
    assert not cluster.last[subject].tombstone
    cluster.publish(node_subject("hot"), ObjectDeleted(), tombstone=True)
    cluster.cycle()
    assert cluster.last[subject].tombstone is not executor


def test_a_dry_run_names_the_moves_in_its_message_only() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE, dryRun=True))
    cluster.cycle()
    assert cluster.judged("hot").moved == ()
    assert cluster.judged("hot").message.startswith("dry run: would move default/web-")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_hot_node_without_a_possible_move_is_published_with_that_message(dry_run: bool) -> None:
    cluster = Cluster(configuration(load=AT_ONCE, dryRun=dry_run))
    cluster.node("hot")
    cluster.node("cold")
    for index in range(12):
        cluster.pod(f"bare-{index:02}", "hot", owner=None)
    cluster.pod("idle", "cold", used=100)
    cluster.cycle()
    judged = cluster.judged("hot")
    assert judged.message.startswith("hot, and nothing can be moved; uses cpu ")
    assert (len(judged.kept), judged.kept_count) == (10, 12)


def test_a_hot_node_below_its_detections_is_published_without_a_message() -> None:
    cluster = hot_and_cold()
    cluster.cycle()
    assert cluster.judged("hot").message == "uses cpu 80 %, memory 0 %"
