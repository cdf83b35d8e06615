"""Thresholds, classes, scores and detectors of LowNodeLoad on their own; expected figures are worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cotenant.events.migrations import AnomalyStreak, DetectorState
from cotenant_descheduler_arbiter.config.policy import AnomalyCondition
from cotenant_descheduler_arbiter.eviction.order import creation_seconds
from cotenant_descheduler_arbiter.low_node_load.anomaly import current, mark, reset
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass, NodeLoad, classify, is_over, is_under, over_resources
from cotenant_descheduler_arbiter.low_node_load.reason import over_utilized_reason
from cotenant_descheduler_arbiter.low_node_load.scoring import excess_score, most_requested, percent_floor, usage_score
from cotenant_descheduler_arbiter.low_node_load.sorting import sort_nodes
from cotenant_descheduler_arbiter.low_node_load.thresholds import (
    Band,
    BandAmounts,
    band_amounts,
    band_percent,
    fill_band,
    mean_percent,
    pool_resources,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


# -- thresholds ----------------------------------------------------------------------------------------------------


def test_a_pool_compares_what_is_named_and_memory() -> None:
    assert pool_resources({"cpu": 1.0}, {"pods": 2.0}) == ("cpu", "memory", "pods")


def test_a_side_that_is_not_named_never_decides() -> None:
    resources = ("cpu", "memory", "pods")
    assert fill_band({"cpu": 40}, {"cpu": 70, "pods": 80}, resources, deviation=False) == Band(
        low={"cpu": 40.0, "memory": 100.0, "pods": 100.0}, high={"cpu": 70.0, "memory": 100.0, "pods": 80.0}
    )
    assert fill_band({"cpu": 10}, {"pods": 5}, resources, deviation=True) == Band(
        low={"cpu": 10.0, "memory": 0.0, "pods": 0.0}, high={"cpu": 100.0, "memory": 0.0, "pods": 5.0}
    )


def test_the_mean_is_over_all_measured_nodes_also_those_without_the_resource() -> None:
    nodes = [({"cpu": 50}, {"cpu": 200}), ({"cpu": 75}, {"cpu": 100}), ({"cpu": 9}, {"memory": 1}), ({}, {"cpu": 1})]
    assert mean_percent(nodes, ("cpu", "memory")) == {"cpu": 25.0, "memory": 0.0}
    assert mean_percent([], ("cpu",)) == {"cpu": 0.0}


def test_bands_lie_around_the_mean_in_deviation_mode() -> None:
    band = Band(low={"cpu": 10.0, "memory": 0.0, "pods": 30.0}, high={"cpu": 20.0, "memory": 5.0, "pods": 95.0})
    assert band_percent(band, None) is band
    assert band_percent(band, {"cpu": 50.0, "memory": 50.0, "pods": 20.0}) == Band(
        low={"cpu": 40.0, "memory": 100.0, "pods": 0.0}, high={"cpu": 70.0, "memory": 100.0, "pods": 100.0}
    )
    assert band_percent(Band(low={"cpu": 0.5}, high={"cpu": 20.0}), {}) == Band(low={"cpu": 0.0}, high={"cpu": 20.0})


def test_percentages_become_truncated_amounts_of_the_node() -> None:
    found = band_amounts(Band(low={"cpu": 33.0, "memory": 100.0}, high={"cpu": 66.0, "memory": 100.0}), {"cpu": 1001})
    assert found == BandAmounts(low={"cpu": 330, "memory": 0}, high={"cpu": 660, "memory": 0})


# -- classes -------------------------------------------------------------------------------------------------------


def load(usage: int, prod_usage: int, *, unschedulable: bool = False) -> NodeLoad:
    """A node that is low up to 40 and high above 70, for prod pods low up to 20 and high above 50."""
    return NodeLoad(
        name="a",
        allocatable={"cpu": 100},
        usage={"cpu": usage},
        prod_usage={"cpu": prod_usage},
        band=BandAmounts(low={"cpu": 40}, high={"cpu": 70}),
        prod_band=BandAmounts(low={"cpu": 20}, high={"cpu": 50}),
        unschedulable=unschedulable,
    )


@pytest.mark.parametrize(
    ("usage", "prod", "expected"),
    [
        (40, 51, LoadClass.PROD_HIGH),
        (40, 20, LoadClass.BOTH_LOW),
        (40, 21, LoadClass.LOW),
        (41, 50, LoadClass.NORMAL),
        (41, 20, LoadClass.PROD_LOW),
        (70, 51, LoadClass.PROD_HIGH),
        (71, 51, LoadClass.HIGH),
        (71, 20, LoadClass.HIGH),
    ],
)
def test_the_class_of_a_node(usage: int, prod: int, expected: LoadClass) -> None:
    assert classify(load(usage, prod)) is expected


def test_an_unschedulable_node_is_never_low() -> None:
    assert classify(load(0, 0, unschedulable=True)) is LoadClass.NORMAL
    assert classify(load(71, 0, unschedulable=True)) is LoadClass.HIGH
    band = BandAmounts(low={"cpu": 40}, high={"cpu": 70})
    assert classify(NodeLoad("a", {}, {}, {}, band, band)) is LoadClass.BOTH_LOW, "nodes are schedulable by default"


def test_over_and_under_take_a_resource_without_usage_as_unused() -> None:
    assert over_resources({"memory": 2, "cpu": 2}, {"cpu": 1, "memory": 1, "pods": 0}) == ("cpu", "memory")
    assert not is_over({}, {"cpu": 0})
    assert is_over({}, {"cpu": -1})
    assert is_under({}, {"cpu": 0})
    assert not is_under({"cpu": 1, "memory": 0}, {"cpu": 0, "memory": 0})


def test_the_reason_of_an_eviction_names_what_is_over() -> None:
    found = over_utilized_reason(
        {"cpu": 2, "gpu": 7, "memory": 5},
        {"cpu": 1, "gpu": 6, "memory": 5, "pods": -1},
        {"cpu": 50},
        {"cpu": 3, "pods": 10},
        prod=False,
    )
    assert found == (
        "node is overutilized, node cpu usage(66.67%)>threshold(50.00%), node gpu usage(0.00%)>threshold(0.00%), "
        "node pods usage(0.00%)>threshold(0.00%)"
    )
    prod = over_utilized_reason({"cpu": 2}, {"cpu": 1}, {"cpu": 50}, {"cpu": 2}, prod=True)
    assert prod == "node is overutilized, prod cpu usage(100.00%)>threshold(50.00%)"


# -- scores and order ----------------------------------------------------------------------------------------------


def test_percents_are_whole_and_0_where_nothing_is_allocatable() -> None:
    found = percent_floor({"cpu": 2, "memory": 5, "pods": 1, "gpu": 1}, {"cpu": 3, "memory": 0, "pods": 1})
    assert found == {"cpu": 66, "memory": 0, "pods": 100, "gpu": 0}


def test_the_score_of_a_resource_is_capped_at_1000() -> None:
    assert [most_requested(*pair) for pair in ((1, 3), (4, 3), (5, 0), (0, 3))] == [333, 1000, 0, 0]


def test_the_score_of_a_node_weighs_its_resources() -> None:
    # (3 x 333 + 1 x 500) div 4
    assert usage_score({"cpu": 1, "memory": 1}, {"cpu": 3, "memory": 2}, {"cpu": 3, "memory": 1, "pods": 9}) == 374
    assert usage_score({"cpu": 1, "gpu": 1}, {"cpu": 2, "gpu": 1}, {"cpu": 1}) == 500
    assert usage_score({"memory": 1}, {"cpu": 3}, {"memory": 1}) == 0
    assert usage_score({"cpu": 1}, {"cpu": 1}, {}) == 0


def test_the_pod_that_just_covers_the_excess_scores_best() -> None:
    weights = {"cpu": 3, "memory": 1}
    assert excess_score({"cpu": 50}, {"cpu": 100}, weights) == 0.5
    assert excess_score({"cpu": 100}, {"cpu": 100}, weights) == 2.0
    assert excess_score({"cpu": 200}, {"cpu": 100}, weights) == 1.5
    # (3 x 0.5 + 1 x 1.5) / 4; what is not over does not weigh
    assert excess_score({"cpu": 50, "memory": 200, "pods": 1}, {"cpu": 100, "memory": 100}, weights) == 0.75
    assert excess_score({"a": 1, "cpu": 50}, {"cpu": 100}, weights) == 0.5
    assert excess_score({"cpu": 50}, {"cpu": 0}, weights) == 0.0
    assert excess_score({"gpu": 2, "cpu": 50}, {"gpu": 1, "cpu": 100}, weights) == 0.5
    assert excess_score({}, {"cpu": 100}, weights) == 0.0


def test_nodes_are_ordered_by_score_and_then_by_name() -> None:
    nodes = [("c", {"cpu": 5}, {"cpu": 10}), ("a", {"cpu": 5}, {"cpu": 10}), ("b", {"cpu": 9}, {"cpu": 10})]
    assert sort_nodes(nodes, {"cpu": 1}) == ["b", "a", "c"]
    assert sort_nodes(nodes, {"cpu": 1}, ascending=True) == ["a", "c", "b"]


def test_creation_times_are_whole_seconds_and_utc_where_they_name_no_zone() -> None:
    assert creation_seconds("1970-01-01T00:01:00.9Z") == 60
    assert creation_seconds("1970-01-01T00:01:00") == 60
    assert creation_seconds("1970-01-01T01:01:00+01:00") == 60
    assert creation_seconds("yesterday") == creation_seconds(None) == creation_seconds("") == 0


# -- the anomaly detector ------------------------------------------------------------------------------------------

CONDITION = AnomalyCondition(timeout=seconds(30), consecutive_abnormalities=2, consecutive_normalities=1)
ANOMALY = AnomalyStreak(state=DetectorState.ANOMALY, expires_at=NOON + seconds(30))


def marks(detector: AnomalyStreak, *normal: bool, condition: AnomalyCondition = CONDITION) -> AnomalyStreak:
    for each in normal:
        detector = mark(detector, condition, NOON, normal=each)
    return detector


def test_the_third_detection_in_a_row_exceeds_two() -> None:
    assert marks(AnomalyStreak(), False, False) == AnomalyStreak(total=2, abnormal=2, abnormal_streak=2)
    assert marks(AnomalyStreak(), False, False, False) == ANOMALY


def test_a_normal_mark_breaks_the_streak() -> None:
    found = marks(AnomalyStreak(), False, False, True, False, False)
    assert found == AnomalyStreak(total=5, normal=1, abnormal=4, abnormal_streak=2)
    assert marks(AnomalyStreak(), True) == AnomalyStreak(total=1, normal=1, normal_streak=1)


def test_an_anomaly_ends_with_the_second_normal_mark_in_a_row() -> None:
    once = marks(ANOMALY, True)
    assert (once.state, once.total, once.normal_streak) == (DetectorState.ANOMALY, 1, 1)
    assert marks(ANOMALY, True, True) == AnomalyStreak()
    assert marks(ANOMALY, True, False, True).state is DetectorState.ANOMALY


def test_an_anomaly_ends_when_its_time_is_over_and_abnormal_marks_do_not_extend_it() -> None:
    marked = mark(ANOMALY, CONDITION, NOON + seconds(30), normal=False)
    assert (marked.state, marked.expires_at, marked.abnormal_streak) == (DetectorState.ANOMALY, ANOMALY.expires_at, 1)
    assert current(marked, CONDITION, NOON + seconds(30)) == marked
    assert current(marked, CONDITION, NOON + seconds(31)) == AnomalyStreak()


def test_a_timeout_of_zero_means_a_minute() -> None:
    for timeout, expected in ((0.0, 60.0), (-1.0, 60.0), (1.0, 1.0)):
        condition = AnomalyCondition(timeout=seconds(timeout), consecutive_abnormalities=0)
        assert marks(AnomalyStreak(), False, condition=condition).expires_at == NOON + seconds(expected)


def test_by_default_more_than_five_detections_count_and_more_than_three_normal_marks_end_it() -> None:
    default = AnomalyCondition()
    assert marks(AnomalyStreak(), *[False] * 5, condition=default).state is DetectorState.OK
    hot = marks(AnomalyStreak(), *[False] * 6, condition=default)
    assert (hot.state, hot.expires_at) == (DetectorState.ANOMALY, NOON + seconds(60))
    assert marks(hot, *[True] * 3, condition=default).state is DetectorState.ANOMALY
    assert marks(hot, *[True] * 4, condition=default) == AnomalyStreak()


def test_one_detection_is_enough_where_one_is_named() -> None:
    assert AnomalyCondition(consecutive_abnormalities=1).immediate
    assert not AnomalyCondition(consecutive_abnormalities=2).immediate


def test_a_reset_ends_an_anomaly_and_leaves_counters_in_state_ok() -> None:
    counted = AnomalyStreak(total=2, abnormal=2, abnormal_streak=2)
    assert reset(counted) is counted
    assert reset(ANOMALY) == AnomalyStreak()
