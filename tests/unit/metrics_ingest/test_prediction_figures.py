"""Prediction in figures: buckets, weights of days, costs of forecasts, terms of predictors, and whose state is stored."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cotenant.events.node.metrics import Usage
from cotenant.model.tiers import PriorityClass
from cotenant_metrics_ingest.prediction.buckets import MAX_BUCKETS, Buckets
from cotenant_metrics_ingest.prediction.checkpoints import due_checkpoints
from cotenant_metrics_ingest.prediction.forecast_choice import ForecastChoice
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.models import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    living,
    model_ids,
    tier_places,
    unknown_models,
)
from cotenant_metrics_ingest.prediction.predictors import (
    PodRequest,
    Prediction,
    Terms,
    peak_of,
    predict,
    scaled,
    with_forecast,
)
from cotenant_metrics_ingest.prediction.seasonal import QUARTER_SECONDS, SeasonalProfiles
from cotenant_metrics_ingest.prediction.seasons import Seasons
from cotenant_metrics_ingest.prediction.services import LowerPods, lower_pods, services_peaks
from cotenant_metrics_ingest.prediction.training import Ended, Interval, figures_of
from cotenant_metrics_ingest.samples import LARGEST_VALUE, samples_of
from tests.unit.metrics_ingest.test_prediction import message

MONDAY = 4 * 86_400.0
DAY = 86_400.0
NOW = 1_767_225_600.0
ONE = np.array([0])

# -- buckets and histograms -------------------------------------------------------------------------------------------


def test_cpu_and_memory_have_158_and_205_buckets() -> None:
    assert (CPU_BUCKETS.count, MEMORY_BUCKETS.count) == (158, 205)
    assert CPU_BUCKETS.starts[:3].tolist() == pytest.approx([0, 0.025, 0.05125])
    assert CPU_BUCKETS.results[-1] == CPU_BUCKETS.starts[-1] >= 1024 / 1.05
    assert CPU_BUCKETS.results[:2].tolist() == pytest.approx([0.025, 0.05125])


@pytest.mark.parametrize(
    ("ratio", "starts", "found"),
    [
        (1.0, [0, 2, 4, 6, 8, 10], {-1.0: 0, 0.0: 0, 1.99: 0, 2.0: 1, 9.9: 4, 10.0: 5, 99.0: 5}),
        (2.0, [0, 2, 6, 14], {-1.0: 0, 0.0: 0, 1.99: 0, 2.0: 1, 5.9: 1, 6.0: 2, 14.0: 3, 99.0: 3}),
    ],
)
def test_a_value_is_in_the_last_bucket_that_does_not_begin_above_it(
    ratio: float, starts: list[float], found: dict[float, int]
) -> None:
    buckets = Buckets(10.0, 2.0, ratio)
    assert buckets.starts.tolist() == starts
    assert buckets.results.tolist() == [*starts[1:], starts[-1]]
    assert {value: buckets.find(value) for value in found} == found


@pytest.mark.parametrize(
    ("largest", "first", "ratio"),
    [(0, 1, 1), (1, 0, 1), (1, 1, 0.99), (math.inf, 1, 1), (1, math.inf, 1), (1, 1, math.inf), (1024, 1, 1)],
)
def test_buckets_that_cannot_be_are_refused(largest: float, first: float, ratio: float) -> None:
    with pytest.raises(ValueError, match="buckets"):
        Buckets(largest, first, ratio)
    assert Buckets(1023, 1.0).count == MAX_BUCKETS == 1024


def test_a_sample_counts_half_after_a_half_life() -> None:
    histograms = Histograms(Buckets(10.0, 1.0), 100.0, rows=1)
    histograms.add(ONE, np.array([1.0]), 4.0, NOW)
    histograms.add(ONE, np.array([5.0]), 1.0, NOW + 200)
    first, second = histograms.weights(0)[[1, 5]].tolist()
    assert first == second, "four samples of two half-lives ago are one of now"
    assert histograms.totals_at(ONE, NOW + 200).tolist() == pytest.approx([2.0])
    assert histograms.totals_at(ONE, NOW).tolist() == pytest.approx([8.0])


def test_without_a_half_life_weights_stay() -> None:
    histograms = Histograms(Buckets(10.0, 1.0), None, rows=1)
    for seconds in (NOW, NOW + 1e9):
        histograms.add(ONE, np.array([3.0]), 1.5, seconds)
    assert histograms.weights(0).tolist() == [0, 0, 0, 3.0, 0, 0, 0, 0, 0, 0, 0]
    assert histograms.totals.tolist() == [3.0]


def test_a_sample_taken_back_is_gone_and_what_is_left_below_epsilon_too() -> None:
    histograms = Histograms(Buckets(10.0, 1.0), None, 0.5, rows=1)
    histograms.add(ONE, np.array([3.0]), 2.0, NOW)
    histograms.add(ONE, np.array([7.0]), 2.0, NOW)
    histograms.subtract(0, 3.0, 1.5, NOW)
    assert (histograms.weights(0)[3], histograms.totals[0]) == (0.5, 2.5)
    histograms.subtract(0, 3.0, 0.25, NOW)
    assert (histograms.weights(0)[3], histograms.totals[0]) == (0.0, 2.25)
    histograms.subtract(0, 7.0, 2.0, NOW)
    assert (histograms.weights(0)[7], histograms.totals[0]) == (0.0, 0.0)


def test_percentiles_are_the_ends_of_the_buckets_that_reach_them() -> None:
    histograms = Histograms(Buckets(10.0, 1.0), None, rows=1)
    for value, weight in ((2.0, 1.0), (4.0, 2.0), (10.0, 1.0)):
        histograms.add(ONE, np.array([value]), weight, NOW)
    assert histograms.percentiles([0.0, 0.25, 0.26, 0.75, 0.76, 1.0])[0].tolist() == [3, 3, 5, 5, 10, 10]
    places, buckets, weights = histograms.scaled(ONE, 100)
    assert (places.tolist(), buckets.tolist(), weights.tolist()) == ([0, 0, 0], [2, 4, 10], [50, 100, 50])


# -- forecasts by time of day -----------------------------------------------------------------------------------------


def usual_of(days_before: dict[int, float], weekday: int, quantile: float) -> float:
    """The usual value of 10 o'clock on a weekday (0: Monday) from what it was so many days before; 20 cores elsewhere."""
    profiles = SeasonalProfiles(Buckets(30.0, 1.0), 1)
    asked = MONDAY + (14 + weekday) * DAY + 10 * 3600
    for age, value in sorted(days_before.items(), reverse=True):
        profiles.add(ONE, np.array([value]), asked - age * DAY)
    return float(profiles.usual(np.array([[int(asked // QUARTER_SECONDS)]]), quantile)[0, 0])


@pytest.mark.parametrize(
    ("weekday", "weights"),
    [
        (0, [79 / 4, 63 / 4, 50, 40, 31, 25, 80]),
        (2, [79, 63, 50 / 4, 40 / 4, 31, 25, 80]),
        (4, [79, 63, 50, 40, 31 / 4, 25 / 4, 80]),
        (5, [79 / 4, 63 / 4, 50 / 4, 40 / 4, 31 / 4, 25, 80]),
        (6, [79, 63 / 4, 50 / 4, 40 / 4, 31 / 4, 25 / 4, 80]),
    ],
)
def test_days_before_count_by_age_by_weekday_and_by_kind_of_day(weekday: int, weights: list[float]) -> None:
    """Each age in turn is the day that was low: the quantile at its share is low, one a little above it is high."""
    for age in range(1, 8):
        values = {each: 2.0 if each == age else 8.0 for each in range(1, 8)}
        share = weights[age - 1] / sum(weights)
        assert usual_of(values, weekday, share - 0.001) == 3.0
        assert usual_of(values, weekday, share + 0.001) == 9.0


@pytest.mark.parametrize(("today", "expected"), [(1.0, 5.5), (4.0, 5.5), (9.0, 11.0), (12.0, 14.3), (29.0, 30.0)])
def test_a_day_stays_as_busy_as_it_is_from_half_to_twice_the_usual(today: float, expected: float) -> None:
    """Usual are 10 cores, and 11 in the last quarter hour of a day; what it lately had is the least."""
    profiles = SeasonalProfiles(Buckets(30.0, 1.0), 1)
    for quarter in range(3 * 96):
        profiles.add(ONE, np.array([10.0 if quarter % 96 == 95 else 9.0]), MONDAY + quarter * QUARTER_SECONDS)
    start = MONDAY + 3 * DAY
    for quarter in range(94):
        profiles.add(ONE, np.array([today]), start + quarter * QUARTER_SECONDS)
    found = float(profiles.forecast(start + 93 * QUARTER_SECONDS, 2 * QUARTER_SECONDS)[0])
    assert found == pytest.approx(expected)


def test_an_hour_of_silence_is_bridged_and_no_more() -> None:
    profiles = SeasonalProfiles(Buckets(30.0, 1.0), 1)
    profiles.add(ONE, np.array([5.0]), MONDAY)
    assert float(profiles.forecast(MONDAY + 4 * QUARTER_SECONDS)[0]) == 6.0
    assert math.isnan(float(profiles.forecast(MONDAY + 5 * QUARTER_SECONDS)[0]))
    assert math.isnan(float(profiles.forecast(MONDAY - 5 * QUARTER_SECONDS)[0]))


def test_the_highest_of_a_quarter_hour_and_of_the_two_before_is_recent() -> None:
    profiles = SeasonalProfiles(Buckets(30.0, 1.0), 1)
    for minute, value in ((0, 9.0), (15, 3.0), (30, 4.0), (31, 2.0)):
        profiles.add(ONE, np.array([value]), MONDAY + 60 * minute)
    assert float(profiles.recent()[0]) == 10.0
    profiles.add(ONE, np.array([1.0]), MONDAY + 60 * 45)
    assert float(profiles.recent()[0]) == 5.0


def chosen(season: list[float], histogram: list[float], peak: float = 100.0) -> ForecastChoice:
    choice = ForecastChoice(1)
    for one, other in zip(season, histogram, strict=True):
        choice.judge(np.array([one]), np.array([other]), np.array([peak]))
    return choice


def test_a_cost_is_the_mean_excess_of_two_hours_and_the_shortfall_of_all_but_one_in_twenty() -> None:
    found = chosen([100.0] * 12 + [108.0] * 8, [90.0] + [100.0] * 19).accuracy(0)
    assert (found.season_cost, found.histogram_cost, found.quarters) == (8, 0, 20)
    found = chosen([50.0] * 2 + [100.0] * 18, [60.0] + [100.0] * 18 + [40.0]).accuracy(0)
    assert (found.season_cost, found.histogram_cost) == (50, 40)
    found = chosen([70.0], [130.0]).accuracy(0)
    assert (found.season_cost, found.histogram_cost, found.quarters) == (30, 30, 1)


@pytest.mark.parametrize(("season", "changed"), [(108.99, True), (109.0, False)])
def test_it_changes_below_nine_tenths_of_the_histograms_cost(season: float, changed: bool) -> None:
    assert bool(chosen([season] * 8, [110.0] * 8).by_season[0]) is changed
    assert not chosen([season] * 7, [110.0] * 7).by_season[0]


@pytest.mark.parametrize(("season", "stays"), [(111.0, True), (111.05, False)])
def test_it_changes_back_above_eleven_tenths_of_it(season: float, stays: bool) -> None:
    assert bool(chosen([101.0] * 8 + [season] * 8, [110.0] * 16).by_season[0]) is stays


# -- predictors -------------------------------------------------------------------------------------------------------


def usage(cpu: int, memory: int) -> Usage:
    return Usage(cpu_milli=cpu, memory_bytes=memory)


def test_the_terms_of_both_predictors_for_cpu_and_memory() -> None:
    pods = [
        PodRequest(uid="a", prod=True, age_seconds=101, request=usage(1000, 5000)),
        PodRequest(uid="cold", prod=True, age_seconds=100, request=usage(300, 700)),
        PodRequest(uid="unseen", prod=True, age_seconds=101, request=usage(40, 60)),
        PodRequest(uid="batch", prod=False, age_seconds=101, request=usage(9, 9)),
    ]
    found = predict(
        pods,
        {"a": usage(200, 1000), "batch": usage(1, 1)},
        {"system": usage(100, 3000), "prod": usage(150, 200)},
        allocatable=usage(1100, 4000),
        cold_start_seconds=100,
        margin_percent=10,
    )
    assert found.pod == Terms(
        request=usage(1000, 5000), peak=usage(220, 1100), cap=usage(880, 2900), reclaimable=usage(780, 2900)
    )
    assert found.priority == Terms(
        request=usage(1300, 5700), peak=usage(275, 3520), cap=usage(825, 480), reclaimable=usage(825, 480)
    )
    assert found.reclaimable == usage(780, 480)
    assert (found.pod_peak, found.node_peak) == (usage(560, 1860), usage(560, 3520))
    assert (found.cold, found.unpredicted, found.error) == (("cold",), ("unseen",), "")


def test_a_margin_is_added_and_the_rest_of_a_unit_dropped() -> None:
    assert scaled(usage(199, 9), 10) == usage(218, 9)
    assert scaled(usage(199, 9), 0) == usage(199, 9)
    assert peak_of(usage(1, 2), usage(3, 4)) == usage(1, 4)


def base() -> Prediction:
    terms = Terms(request=usage(1000, 5000), peak=usage(220, 1100), cap=usage(880, 2900), reclaimable=usage(780, 2900))
    return Prediction(pod=terms, reclaimable=usage(600, 700), node_peak=usage(50, 60))


def test_a_forecast_in_force_decides_its_resource_alone() -> None:
    found = with_forecast(base(), 400, None, usage(900, 9000))
    assert found.season == Terms(request=usage(1000, 0), peak=usage(400, 0), cap=usage(500, 0), reclaimable=usage(500, 0))
    assert (found.reclaimable, found.node_peak) == (usage(500, 700), usage(400, 60))
    found = with_forecast(base(), None, 4800, usage(900, 9000))
    assert (found.reclaimable, found.node_peak) == (usage(600, 200), usage(50, 4800))
    assert with_forecast(base(), 0, 0, usage(900, 9000)).reclaimable == usage(900, 5000)
    assert with_forecast(base(), 400, 400, None) == base()
    assert with_forecast(Prediction(), 400, 400, usage(900, 9000)) == Prediction()


# -- models and their states ------------------------------------------------------------------------------------------


def test_the_models_of_a_node_and_those_that_belong_to_nothing() -> None:
    tiers = ("koord-prod", "koord-mid", "koord-batch", "koord-free", "")
    own = ("__node__", "__node-sys__", *(f"__node-{tier}__" for tier in tiers))
    assert model_ids(("a",)) == (*own, "a")
    assert model_ids((), node_known=False) == own[1:]
    assert unknown_models([*own, "a", "b"], {"a"}) == ["b"]
    assert unknown_models(own, (), node_known=False) == ["__node__"]
    assert living({"a": 1800.0, "b": 1800.1, "c": 0.0}) == ["a", "c"]
    assert tier_places(["a", "b", "c"], {"a": PriorityClass.PROD.value, "b": "other"}).tolist() == [0, 4, 4]


def test_states_are_stored_every_ten_minutes_the_oldest_first_and_200_at_most() -> None:
    assert due_checkpoints({"a": 600.0, "b": 599.9, "d": 601.0, "c": 601.0}) == ["c", "d", "a"]
    assert due_checkpoints({"a": 600.0, "b": 700.0, "c": 650.0}, most=2) == ["b", "c"]
    assert len(due_checkpoints({str(number): 1000.0 for number in range(300)})) == 200


def ended(node: int, **pods: int) -> Ended:
    """An interval of fifteen equal samples, told in one message."""
    sample = message((node,) * 15, tuple((name, (value,) * 15) for name, value in pods.items()))
    interval = Interval("n1")
    interval.add(sample, samples_of(sample), ["node", "system", *pods], 0, 15_000)
    return interval.end()


def test_p90s_of_nodes_with_as_many_samples_are_those_of_each() -> None:
    found = figures_of([ended(9, a=1, b=2), ended(8, a=3), ended(7, a=4, b=5, c=6), ended(6)])
    assert [each.node for each in found] == [(9, 9), (8, 8), (7, 7), (6, 6)]
    assert [each.pods for each in found] == [["a", "b"], ["a"], ["a", "b", "c"], []]
    assert [each.values.tolist() for each in found] == [[[1, 2]] * 2, [[3]] * 2, [[4, 5, 6]] * 2, [[]] * 2]


def test_what_is_expected_of_a_quarter_hour_is_asked_as_of_its_beginning() -> None:
    seasons = Seasons()
    row = np.array([seasons.begin()])
    expected: dict[int, float] = {}
    for quarter in range(4 * 96 + 37):
        peaks = np.array([[8000.0 if quarter % 96 == 36 else 1000.0], [1.0]])
        ends = np.array([MONDAY + quarter * QUARTER_SECONDS + 60])
        seasons.observe(row, ends, peaks, lambda places: np.full((2, len(places)), np.nan))
        expected[quarter - 4 * 96] = float(seasons.resources[0].expected[0, row[0]])
    # A rush at nine: six minutes before it nothing is seen of it, from nine on it is.
    assert expected[35] < 1200
    assert expected[36] > 7000


def test_the_quarter_hour_of_the_start_is_not_judged() -> None:
    seasons = Seasons()
    row = np.array([seasons.begin()])
    found = []
    for minute in (5, 15, 30):
        ends = np.array([MONDAY + 60.0 * minute + 60])
        seasons.observe(row, ends, np.array([[1.0], [1.0]]), lambda places: np.full((2, len(places)), 50.0))
        found.append(float(seasons.resources[0].expected[1, row[0]]))
    assert math.isnan(found[0])
    assert found[1:] == [50.0, 50.0]


@pytest.mark.parametrize("regular", [True, False])
def test_the_peak_of_services_leaves_lower_pods_out_sample_by_sample(regular: bool) -> None:
    pods = (("prod", (1, 1, 1)), ("batch", (5, 25, 1)), ("mid", (4, 0, 20)), ("free", (0, 0, 2)))
    sample = message((10, 30, 28), pods)
    table = samples_of(sample) if regular else None
    assert (table is not None) is regular
    tiers = {"prod": "koord-prod", "batch": "koord-batch", "mid": "koord-mid", "free": "koord-free"}
    lower = lower_pods([name for name, _ in pods], tiers)
    assert (list(lower.reclaimed), list(lower.others)) == ([1, 3], [2])
    # Without batch and free: 5, 5, 25; without mid too: 1, 5, 5.
    assert services_peaks(sample, table, 0, lower) == (usage(25, 25), usage(5, 5))
    assert services_peaks(sample, table, 2, lower) == (usage(25, 25), usage(5, 5))
    assert services_peaks(sample, table, 0, lower_pods(["prod"], tiers)) == (usage(30, 30), usage(30, 30))
    assert services_peaks(sample, table, 1, LowerPods((1,))) == (usage(27, 27), usage(27, 27))


def test_a_short_series_belongs_to_the_newest_times_and_more_than_the_node_used_leaves_nothing() -> None:
    sample = message((10, 30, 28), (("batch", (28, 27)),))
    assert services_peaks(sample, None, 0, LowerPods((0,)))[0] == usage(10, 10)
    assert services_peaks(sample, None, 1, LowerPods((0,)))[0] == usage(2, 2)
    longer = message((10, 30), (("batch", (99, 9, 9)),))
    assert services_peaks(longer, None, 0, LowerPods((0,)))[0] == usage(21, 21)
    more = message((10, 30), (("batch", (11, 31)),))
    assert services_peaks(more, samples_of(more), 0, LowerPods((0,)))[0] == usage(0, 0)
    assert services_peaks(more, None, 0, LowerPods((0,)))[0] == usage(0, 0)
    most = message((LARGEST_VALUE, 7), (("batch", (LARGEST_VALUE,)),))
    assert services_peaks(most, None, 1, LowerPods((0,)))[0] == usage(0, 0)
    impossible = message((10, 30), (("batch", (-5, 1)),))
    assert services_peaks(impossible, None, 0, LowerPods((0,)))[0] == usage(29, 29)
