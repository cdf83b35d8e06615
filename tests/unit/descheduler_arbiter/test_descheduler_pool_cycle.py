"""One cycle over pools: who is compared with whom, which streaks follow, and when anything moves at all."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cotenant.api.objects.metadata import LabelSelector, ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.events.envelope import Event
from cotenant.events.migrations import AnomalyStreak, DetectorState, Migration
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.model.subjects import metrics_subject, migration_subject
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition, LowNodeLoad, NodePool
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import (
    CycleResult,
    Judgement,
    Streaks,
    normal_changes_streaks,
    run_cycle,
)
from cotenant_descheduler_arbiter.low_node_load.under_way import under_way
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode, measure

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CONDITION = AnomalyCondition(timeout=timedelta(minutes=10), consecutive_abnormalities=2, consecutive_normalities=2)
POOL = NodePool("pool", low_thresholds={"cpu": 30.0}, high_thresholds={"cpu": 60.0})
DAMPED = msgspec.structs.replace(POOL, anomaly_condition=CONDITION)
PROD = msgspec.structs.replace(DAMPED, prod_low_thresholds={"cpu": 20.0}, prod_high_thresholds={"cpu": 40.0})
HOT_TWICE = AnomalyStreak(total=2, abnormal=2, abnormal_streak=2)
ANOMALY = AnomalyStreak(state=DetectorState.ANOMALY, expires_at=NOW + timedelta(minutes=9))


def machine(name: str, used: int, *, prod: int = 0, labels: Mapping[str, str] | None = None) -> MeasuredNode:
    """A node of 100 that runs pods of 10 each."""
    count = (used + prod) // 10
    pods = [
        PodFacts(Pod(metadata=ObjectMeta(name=f"{name}-{number}", namespace="n")), node=name, prod=number < prod // 10)
        for number in range(count)
    ]
    facts = NodeFacts(name, labels=dict(labels or {}), allocatable={"cpu": 100, "memory": 100, "pods": 110})
    return measure(facts, pods, {}, {pod.key: {"cpu": 10, "memory": 0} for pod in pods})


HOT, COLD, NORMAL = machine("hot", 70), machine("cold", 0), machine("normal", 50)


def cycle(
    *nodes: MeasuredNode,
    pools: tuple[NodePool, ...] = (POOL,),
    streaks: Mapping[str, Streaks] | None = None,
    judged: tuple[str, ...] = (),
    **options: object,
) -> CycleResult:
    return run_cycle(
        LowNodeLoad(pools=pools, **options),  # type: ignore[arg-type]
        [node.facts for node in nodes],
        {node.facts.name: node for node in nodes},
        streaks or {},
        judged,
        NOW,
        why_not_movable=lambda pod: None,
        why_not_now=lambda pod: None,
    )


def judgement(result: CycleResult, node: str) -> Judgement:
    (found,) = [each for each in result.judgements if each.node == node]
    return found


# -- pools ---------------------------------------------------------------------------------------------------------


def test_every_resource_that_is_named_weighs_1_unless_a_positive_weight_is_given() -> None:
    pool = NodePool(
        "pool",
        low_thresholds={"pods": 1.0},
        high_thresholds={"gpu": 1.0},
        resource_weights={"cpu": 0, "memory": -1, "gpu": 3, "fpga": 1},
    )
    assert pool.weights == {"cpu": 1, "memory": 1, "pods": 1, "gpu": 3, "fpga": 1}


def test_what_one_pool_has_acted_on_belongs_to_no_later_one() -> None:
    result = cycle(HOT, COLD, NORMAL, pools=(POOL, msgspec.structs.replace(POOL, name="rest")))
    assert set(result.classes["pool"]) == {"hot", "cold", "normal"}
    assert set(result.classes["rest"]) == {"cold", "normal"}
    assert len(result.moves) == 1


def test_a_pool_takes_the_nodes_that_its_selector_selects() -> None:
    selecting = msgspec.structs.replace(POOL, node_selector=LabelSelector(match_labels={"zone": "a"}))
    there = machine("there", 70, labels={"zone": "a"})
    assert set(cycle(HOT, COLD, there, pools=(selecting,)).classes["pool"]) == {"there"}


# -- when anything moves -------------------------------------------------------------------------------------------


def test_by_default_pods_must_fit_and_one_low_node_is_enough() -> None:
    assert LowNodeLoad() == LowNodeLoad((), 0, True, timedelta(minutes=5))


def test_more_nodes_than_the_number_must_be_low() -> None:
    hot = [machine(name, 70) for name in ("hot-a", "hot-b")]
    assert len(cycle(*hot, COLD).moves) == 2
    assert cycle(*hot, COLD, number_of_nodes=1).moves == []
    assert len(cycle(*hot, COLD, machine("cold-b", 0), number_of_nodes=1).moves) == 2


def test_prod_low_nodes_count_as_low() -> None:
    pool = msgspec.structs.replace(PROD, anomaly_condition=None)
    source, target = machine("src", 0, prod=50), machine("dst", 40)
    result = cycle(source, target, pools=(pool,))
    assert [(move.source, move.target) for move in result.moves] == [("src", "dst")]
    assert judgement(result, "src").load_class is LoadClass.PROD_HIGH
    assert judgement(result, "src").abnormal


def test_without_a_low_node_a_hot_one_is_not_marked_as_relieved() -> None:
    other = machine("other", 70)
    result = cycle(HOT, other, pools=(DAMPED,), streaks={"hot": Streaks(HOT_TWICE, abnormal_at=NOW)})
    found = judgement(result, "hot")
    assert found.abnormal
    assert found.streaks.node == AnomalyStreak(state=DetectorState.ANOMALY, expires_at=NOW + timedelta(minutes=10))
    assert result.moves == []


def test_a_node_is_relieved_when_its_detections_exceed_the_number() -> None:
    once = AnomalyStreak(total=1, abnormal=1, abnormal_streak=1)
    waiting = cycle(HOT, COLD, pools=(DAMPED,), streaks={"hot": Streaks(once, abnormal_at=NOW)})
    assert waiting.moves == []
    assert not judgement(waiting, "hot").abnormal
    assert judgement(waiting, "hot").streaks == Streaks(HOT_TWICE, abnormal_at=NOW)
    result = cycle(HOT, COLD, pools=(DAMPED,), streaks={"hot": Streaks(HOT_TWICE, abnormal_at=NOW)})
    assert len(result.moves) == 1
    assert judgement(result, "hot").streaks.node == AnomalyStreak(total=1, normal=1, normal_streak=1), "relieved"


def test_a_node_that_stays_over_is_marked_normal_once_and_remains_an_anomaly() -> None:
    heavy = machine("hot", 100)
    full = machine("cold", 30)
    result = cycle(heavy, full, pools=(DAMPED,), streaks={"hot": Streaks(ANOMALY, abnormal_at=NOW)})
    assert len(result.moves) == 3
    streak = judgement(result, "hot").streaks.node
    assert (streak.state, streak.normal_streak, streak.abnormal) == (DetectorState.ANOMALY, 1, 1)


def test_the_prod_detector_is_relieved_by_the_prod_usage() -> None:
    known = Streaks(node=AnomalyStreak(), prod=ANOMALY, abnormal_at=NOW)
    result = cycle(machine("src", 0, prod=50), machine("dst", 40), pools=(PROD,), streaks={"src": known})
    assert len(result.moves) == 1
    found = judgement(result, "src").streaks
    assert found.prod == AnomalyStreak(total=1, normal=1, normal_streak=1)
    assert found.node == AnomalyStreak(total=1, normal=1, normal_streak=1)
    still_over = cycle(machine("src", 0, prod=60), machine("dst", 50), pools=(PROD,), streaks={"src": known})
    assert len(still_over.moves) == 1
    assert judgement(still_over, "src").streaks.prod.state is DetectorState.ANOMALY


def test_a_node_that_was_judged_in_this_cycle_is_neither_judged_nor_relieved_again() -> None:
    result = cycle(HOT, COLD, judged=("hot",))
    assert (result.judgements, result.moves) == ([], [])


# -- streaks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("condition", [None, AnomalyCondition(consecutive_abnormalities=1)])
def test_without_a_condition_a_hot_node_is_relieved_at_once_and_no_detector_is_kept(
    condition: AnomalyCondition | None,
) -> None:
    pool = msgspec.structs.replace(POOL, anomaly_condition=condition)
    result = cycle(HOT, COLD, NORMAL, pools=(pool,), streaks={"normal": Streaks(HOT_TWICE, abnormal_at=NOW)})
    assert len(result.moves) == 1
    assert judgement(result, "hot").streaks == Streaks(abnormal_at=NOW)
    assert judgement(result, "hot").abnormal
    assert judgement(result, "normal").streaks == Streaks()
    assert not judgement(result, "normal").abnormal


def test_a_node_that_is_not_hot_any_more_is_marked_normal() -> None:
    before = NOW - timedelta(minutes=1)
    result = cycle(NORMAL, pools=(DAMPED,), streaks={"normal": Streaks(ANOMALY, abnormal_at=before)})
    found = judgement(result, "normal").streaks
    assert found.node == msgspec.structs.replace(ANOMALY, total=1, normal=1, normal_streak=1)
    assert found.abnormal_at == before
    assert judgement(result, "normal").load_class is LoadClass.NORMAL


def test_a_low_node_is_no_anomaly_any_more() -> None:
    result = cycle(COLD, pools=(DAMPED,), streaks={"cold": Streaks(ANOMALY, abnormal_at=NOW)})
    assert judgement(result, "cold").streaks.node == AnomalyStreak(total=1, normal=1, normal_streak=1)


def test_each_detector_of_a_node_is_marked_by_its_own_comparison() -> None:
    hot_in_all = cycle(machine("a", 70), pools=(PROD,), streaks={"a": Streaks(prod=HOT_TWICE)})
    assert judgement(hot_in_all, "a").streaks == Streaks(
        AnomalyStreak(total=1, abnormal=1, abnormal_streak=1), HOT_TWICE, abnormal_at=NOW
    )
    prod_high = cycle(machine("a", 0, prod=50), pools=(PROD,), streaks={"a": Streaks(node=HOT_TWICE)})
    assert judgement(prod_high, "a").streaks == Streaks(
        AnomalyStreak(total=3, normal=1, abnormal=2, normal_streak=1),
        AnomalyStreak(total=1, abnormal=1, abnormal_streak=1),
        abnormal_at=NOW,
    )
    normal = cycle(machine("a", 0, prod=40), pools=(PROD,), streaks={"a": Streaks(prod=ANOMALY)})
    assert judgement(normal, "a").streaks.prod == msgspec.structs.replace(ANOMALY, total=1, normal=1, normal_streak=1)
    prod_low = cycle(machine("a", 40), pools=(PROD,), streaks={"a": Streaks(prod=ANOMALY)})
    assert judgement(prod_low, "a").streaks.prod == AnomalyStreak(total=1, normal=1, normal_streak=1)


def test_a_streak_is_forgotten_five_minutes_after_the_node_was_last_hot() -> None:
    def streak_after(age: timedelta) -> AnomalyStreak:
        known = Streaks(HOT_TWICE, abnormal_at=NOW - age)
        return judgement(cycle(HOT, NORMAL, pools=(DAMPED,), streaks={"hot": known}), "hot").streaks.node

    assert streak_after(timedelta(minutes=5)).state is DetectorState.ANOMALY
    assert streak_after(timedelta(minutes=5, seconds=1)) == AnomalyStreak(total=1, abnormal=1, abnormal_streak=1)


def test_nodes_without_a_streak_that_are_not_hot_are_not_spoken_of() -> None:
    idle = Streaks(AnomalyStreak(total=1, normal=1, normal_streak=1))
    assert cycle(COLD, NORMAL, pools=(DAMPED,), streaks={"normal": idle}).judgements == []


def test_to_be_found_normal_is_news_where_some_pool_would_change_the_streaks() -> None:
    args = LowNodeLoad(pools=(DAMPED, POOL))
    assert normal_changes_streaks(args, Streaks(abnormal_at=NOW), NOW), "the pool without a condition forgets the time"
    assert not normal_changes_streaks(args, Streaks(), NOW)
    assert normal_changes_streaks(LowNodeLoad(pools=(DAMPED,)), Streaks(HOT_TWICE), NOW)


def test_a_class_is_published_without_prod_where_no_prod_threshold_is_given() -> None:
    known = {"cold": Streaks(HOT_TWICE), "normal": Streaks(HOT_TWICE)}
    plain = cycle(COLD, NORMAL, pools=(DAMPED,), streaks=known)
    assert [judgement(plain, name).load_class for name in ("cold", "normal")] == [LoadClass.LOW, LoadClass.NORMAL]
    for given in ({"prod_low_thresholds": {"cpu": 20.0}}, {"prod_high_thresholds": {"cpu": 40.0}}):
        pool = msgspec.structs.replace(DAMPED, **given)
        found = cycle(COLD, NORMAL, pools=(pool,), streaks=known)
        assert judgement(found, "cold").load_class is LoadClass.BOTH_LOW


# -- load that is in progress ----------------------------------------------------------------------------------------


def job(name: str, **fields: object) -> Migration:
    facts = {"namespace": "n", "pod": f"pod-{name}", "uid": f"uid-{name}", "node": "src", "target": "dst", **fields}
    return Migration(job=name, pod_usage={"cpu": 10}, **facts)  # type: ignore[arg-type]


def folded(*jobs: Migration, measured: Mapping[str, datetime | None] | None = None) -> ClusterFold:
    fold = ClusterFold()
    sequence = 0
    for node, at in (measured or {}).items():
        sequence += 1
        data = NodeMetricComputed(node=node, update_time=at, report_interval_seconds=60)
        fold.apply(Event(subject=metrics_subject(node), data=data, sequence=sequence, time=NOW))
    for each in jobs:
        sequence += 1
        fold.apply(Event(subject=migration_subject(each.job), data=each, sequence=sequence, time=NOW))
    return fold


def of_jobs(*jobs: Migration, measured: Mapping[str, datetime | None] | None = None) -> tuple[list[str], list[str]]:
    """Names of the pods that leave, and the nodes that something comes to."""
    leaving, arriving = under_way(folded(*jobs, measured=measured))
    return sorted(key for _, key, _ in leaving), sorted(arriving)


def test_a_job_counts_from_when_its_pod_is_sure_to_go() -> None:
    waiting = job("a", trigger="User")
    running = job("b", trigger="User", phase="Running")
    by_load = job("c", trigger="LowNodeLoad")
    assert of_jobs(waiting) == ([], [])
    assert of_jobs(waiting, running, by_load) == (["n/pod-b", "n/pod-c"], ["dst"])
    leaving, arriving = under_way(folded(running))
    assert leaving == {("src", "n/pod-b", "uid-b")}
    assert arriving == {"dst": [{"cpu": 10}]}
    assert of_jobs(job("d", phase="Running", target="")) == (["n/pod-d"], [])


@pytest.mark.parametrize(("after", "counts"), [(0, True), (59, True), (60, False)])
def test_a_job_that_is_over_counts_until_a_report_interval_has_passed_in_the_metric(after: int, counts: bool) -> None:
    over = job("a", phase="Succeeded", evicted_at=NOW, finished_at=NOW)
    measured = NOW + timedelta(seconds=after)
    assert of_jobs(over, measured={"src": measured}) == (["n/pod-a"] if counts else [], [])
    assert of_jobs(over, measured={"dst": measured}) == ([], ["dst"] if counts else [])


def test_a_job_that_is_over_without_an_eviction_or_an_end_counts_nowhere() -> None:
    measured = {"src": NOW, "dst": NOW}
    assert of_jobs(job("a", phase="Failed", finished_at=NOW), measured=measured) == ([], [])
    assert of_jobs(job("a", phase="Succeeded", evicted_at=NOW), measured=measured) == ([], [])
    over = job("a", phase="Succeeded", evicted_at=NOW, finished_at=NOW)
    assert of_jobs(over) == ([], [])
    assert of_jobs(over, measured={"src": None, "dst": None}) == ([], [])
