"""The forecast by time of day: what a week of quarter hours says, and when the histogram is the better one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_metrics_ingest.prediction.buckets import Buckets
from cotenant_metrics_ingest.prediction.forecast_choice import DWELL_QUARTERS, LEAST_QUARTERS, ForecastChoice
from cotenant_metrics_ingest.prediction.models import CPU_BUCKETS, MEMORY_BUCKETS
from cotenant_metrics_ingest.prediction.seasonal import (
    QUARTER_SECONDS,
    QUARTERS_A_WEEK,
    SeasonalCheckpoint,
    SeasonalError,
    SeasonalProfiles,
    slot_of,
)
from cotenant_metrics_ingest.prediction.seasons import Seasons

MONDAY = 4 * 86_400.0
HOUR = 3600.0
DAY = 86_400.0
ONE = np.array([0])


def profile_of(days: int, course: dict[int, float], quiet: float = 1.0, first: float = MONDAY) -> SeasonalProfiles:
    """One row that was `quiet` but for the hours of `course`, for so many days from a Monday on."""
    profiles = SeasonalProfiles(CPU_BUCKETS, 1)
    for quarter in range(days * 96):
        profiles.add(ONE, np.array([course.get(quarter // 4 % 24, quiet)]), first + quarter * QUARTER_SECONDS)
    return profiles


def forecast(profiles: SeasonalProfiles, seconds: float, horizon: float = 360) -> float:
    return float(profiles.forecast(seconds, horizon)[0])


def within_a_bucket(value: float) -> object:
    """From the value to the end of its bucket: 5 % and the first bucket's width more."""
    width = value * 0.05 + 0.025
    return pytest.approx(value + width / 2, abs=width / 2)


def test_nothing_is_known_at_first() -> None:
    assert math.isnan(forecast(SeasonalProfiles(CPU_BUCKETS, 1), MONDAY))


def test_on_the_first_day_the_forecast_is_what_it_lately_had() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 1)
    for minute, value in ((0, 4.0), (16, 8.0), (31, 2.0)):
        profiles.add(ONE, np.array([value]), MONDAY + minute * 60)
    assert forecast(profiles, MONDAY + 32 * 60) == within_a_bucket(8.0)
    profiles.add(ONE, np.array([2.0]), MONDAY + 61 * 60)
    assert forecast(profiles, MONDAY + 62 * 60) == within_a_bucket(2.0)


def test_a_day_of_which_nothing_can_be_compared_is_as_busy_as_usual() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 2)
    nine = MONDAY + 9 * HOUR
    profiles.add(ONE, np.array([8.0]), nine)
    # The day before nothing was known of the quarter hours from eight on.
    profiles.add(ONE, np.array([2.0]), nine + DAY - 300)
    assert profiles.level(np.array([0, 1])).tolist() == [1.0, 1.0]
    assert forecast(profiles, nine + DAY - 60) == within_a_bucket(8.0)
    recent = profiles.recent()
    assert recent[0] == within_a_bucket(2.0)
    assert math.isnan(recent[1])


def test_a_rush_at_nine_is_expected_within_the_horizon_before_nine() -> None:
    profiles = profile_of(4, {9: 10.0})
    night = MONDAY + 4 * DAY
    for quarter in range(36):
        profiles.add(ONE, np.array([1.0]), night + quarter * QUARTER_SECONDS)
    before = night + 9 * HOUR - 300
    assert forecast(profiles, before, 0) == within_a_bucket(1.0)
    assert forecast(profiles, before, 360) == within_a_bucket(10.0)
    profiles.add(ONE, np.array([1.0]), night + 9 * HOUR - 1)
    for horizon in (0, -360):
        assert forecast(profiles, night + 9 * HOUR - 0.5, horizon) == within_a_bucket(1.0)


def test_a_day_that_is_busier_than_usual_is_expected_to_stay_so() -> None:
    profiles = profile_of(4, {9: 10.0})
    night = MONDAY + 4 * DAY
    for quarter in range(36):
        profiles.add(ONE, np.array([1.5]), night + quarter * QUARTER_SECONDS)
    assert forecast(profiles, night + 9 * HOUR - 300, 360) == pytest.approx(15.0, rel=0.12)


def test_a_weekend_is_judged_by_weekends() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 1)
    for quarter in range(13 * 96):
        busy = 8.0 if (quarter // 96) % 7 < 5 else 1.0
        profiles.add(ONE, np.array([busy]), MONDAY + quarter * QUARTER_SECONDS)
    sunday = int((MONDAY + 13 * DAY) // QUARTER_SECONDS)
    assert float(profiles.usual(np.array([[sunday + 40]]), 0.5)[0, 0]) == within_a_bucket(1.0)
    assert float(profiles.usual(np.array([[sunday + 96 + 40]]), 0.5)[0, 0]) == within_a_bucket(8.0)


def test_a_week_is_kept_and_no_more() -> None:
    profiles = profile_of(7, {9: 10.0})
    for quarter in range(7 * 96):
        profiles.add(ONE, np.array([1.0]), MONDAY + 7 * DAY + quarter * QUARTER_SECONDS)
    assert forecast(profiles, MONDAY + 14 * DAY, 24 * HOUR) == within_a_bucket(1.0)


def test_after_an_hour_of_silence_there_is_no_forecast_and_after_a_gap_the_week_before_still_counts() -> None:
    profiles = profile_of(4, {9: 10.0})
    end = MONDAY + 4 * DAY
    assert math.isnan(forecast(profiles, end + 2 * HOUR))
    profiles.add(ONE, np.array([1.0]), end + DAY + 8.9 * HOUR)
    assert forecast(profiles, end + DAY + 8.95 * HOUR) == within_a_bucket(10.0)


def test_after_more_than_a_week_of_silence_it_starts_over() -> None:
    profiles = profile_of(4, {9: 10.0})
    profiles.add(ONE, np.array([1.0]), MONDAY + 12 * DAY)
    assert forecast(profiles, MONDAY + 12 * DAY + 60, 24 * HOUR) == within_a_bucket(1.0)


def test_an_old_sample_is_left_out_and_a_clock_that_was_put_back_goes_on_from_there() -> None:
    profiles = profile_of(1, {}, quiet=2.0)
    before = profiles.checkpoint(0)
    profiles.add(ONE, np.array([50.0]), MONDAY + HOUR)
    assert profiles.checkpoint(0) == before
    profiles.add(ONE, np.array([4.0]), MONDAY - 3 * DAY)
    assert forecast(profiles, MONDAY - 3 * DAY + 60) == within_a_bucket(4.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_out(value: float) -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 2)
    profiles.add(np.array([0, 1]), np.array([value, 3.0]), MONDAY)
    found = profiles.forecast(MONDAY + 60)
    assert math.isnan(found[0])
    assert found[1] == within_a_bucket(3.0)


def test_zero_is_known_and_more_than_the_last_bucket_is_the_last_bucket() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 2)
    profiles.add(np.array([0, 1]), np.array([0.0, 1e9]), MONDAY)
    found = profiles.forecast(MONDAY + 60)
    assert found[0] == pytest.approx(0.025)
    assert found[1] == pytest.approx(CPU_BUCKETS.results[-1])


def test_rows_are_kept_and_added() -> None:
    profiles = SeasonalProfiles(MEMORY_BUCKETS, 3)
    profiles.add(np.array([0, 1, 2]), np.array([1e9, 2e9, 4e9]), MONDAY)
    profiles.keep(np.array([2]))
    profiles.widen(2)
    found = profiles.forecast(MONDAY + 60)
    assert profiles.rows == 2
    assert found[0] == within_a_bucket(4e9)
    assert math.isnan(found[1])


def test_a_checkpoint_restores_the_same_forecast_and_fits_a_message() -> None:
    profiles = profile_of(9, {9: 10.0, 20: 4.0})
    stored = profiles.checkpoint(0)
    restored = SeasonalProfiles(CPU_BUCKETS, 1)
    restored.load(0, stored)
    assert len(stored.peaks) == QUARTERS_A_WEEK
    for hours in range(24):
        seconds = MONDAY + 9 * DAY + hours * HOUR
        np.testing.assert_array_equal(restored.forecast(seconds, 3600), profiles.forecast(seconds, 3600))


def test_the_last_bucket_may_be_stored_and_a_week_later_nothing_is_left() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 1)
    latest = int(MONDAY // QUARTER_SECONDS)
    last = SeasonalCheckpoint(latest, bytes([158]) * QUARTERS_A_WEEK)
    profiles.load(0, last)
    assert profiles.checkpoint(0) == last
    profiles.add(ONE, np.array([0.0]), MONDAY + 7 * DAY + QUARTER_SECONDS)
    assert sorted(profiles.checkpoint(0).peaks)[-2:] == [0, 1]


@pytest.mark.parametrize("peaks", [b"", b"\x01" * 671, b"\xff" * 672, b"\x9f" * 672])
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(peaks: bytes) -> None:
    profiles = profile_of(1, {})
    before = profiles.checkpoint(0)
    with pytest.raises(SeasonalError):
        profiles.load(0, SeasonalCheckpoint(1, peaks))
    assert profiles.checkpoint(0) == before


def test_buckets_that_do_not_fit_a_byte_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit a byte"):
        SeasonalProfiles(Buckets(255.0, 1.0))
    profiles = SeasonalProfiles(Buckets(254.0, 1.0), 1)
    profiles.add(ONE, np.array([999.0]), MONDAY)
    assert max(profiles.checkpoint(0).peaks) == 255
    profiles.clear(0)
    assert profiles.checkpoint(0) == SeasonalCheckpoint(-1, bytes(QUARTERS_A_WEEK))


def test_slots_are_quarter_hours_from_monday() -> None:
    assert slot_of(int(MONDAY // QUARTER_SECONDS)) == 0
    assert slot_of(int(MONDAY // QUARTER_SECONDS) - 1) == QUARTERS_A_WEEK - 1


@pytest.mark.parametrize(("resource", "seconds_before"), [(0, 360), (1, 3600)])
def test_cpu_looks_six_minutes_ahead_and_memory_an_hour(resource: int, seconds_before: int) -> None:
    seasons = Seasons()
    row = np.array([seasons.begin()])
    own = seasons.resources[resource]
    night = MONDAY + 4 * DAY
    for quarter in range(4 * 96 + 36):
        high = 8.0 if quarter % 96 == 36 else 1.0
        own.profiles.add(row, np.array([high * (1, 1 << 30)[resource]]), MONDAY + quarter * QUARTER_SECONDS)
    begin = night + 9 * HOUR - seconds_before
    seen, too_early = (float(own.forecast(row, np.array([at]))[0]) for at in (begin, begin - 1))
    quiet, rush = ((1000, 8000), (1 << 30, 8 << 30))[resource]
    assert quiet <= too_early <= 1.05 * quiet + 25
    assert rush <= seen


def test_a_quarter_hour_in_the_first_bucket_was_measured() -> None:
    profiles = SeasonalProfiles(Buckets(30.0, 1.0), 1)
    ten = int(MONDAY // QUARTER_SECONDS) + 40
    profiles.add(ONE, np.array([0.0]), MONDAY + 40 * QUARTER_SECONDS)
    assert profiles.usual(np.array([[ten + 96, ten + 97]]), 0.95).tolist() == [[1.0, pytest.approx(math.nan, nan_ok=True)]]
    # So was a day on which nothing was used: half of the usual 10 cores are expected at least.
    busy = profile_of(3, {}, quiet=10.0)
    for quarter in range(4):
        busy.add(ONE, np.array([0.0]), MONDAY + 3 * DAY + quarter * QUARTER_SECONDS)
    assert busy.level(ONE).tolist() == [0.5]


def test_a_horizon_reaches_a_day_and_no_further() -> None:
    profiles = profile_of(4, {})
    now = MONDAY + 4 * DAY + 12 * HOUR
    for quarter in range(49):
        high = 4.0 if quarter == 48 else 1.0
        profiles.add(ONE, np.array([high]), MONDAY + 4 * DAY + quarter * QUARTER_SECONDS)
    # The quarter hours of a day from now on were quiet; that of now, tomorrow, is the first to know of the 4 cores.
    assert forecast(profiles, now, 10 * DAY) == within_a_bucket(4.0)
    # A quarter hour later it is the last one of a day. Level: 4, 1, 1 and 1 cores instead of 1 each.
    profiles.add(ONE, np.array([1.0]), now + QUARTER_SECONDS)
    assert forecast(profiles, now + QUARTER_SECONDS, 10 * DAY) == pytest.approx(4 * 1.75, rel=0.12)


def test_time_begins_with_the_first_quarter_hour_of_the_epoch() -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 2)
    profiles.add(ONE, np.array([3.0]), 0.0)
    found = profiles.forecast(60.0)
    assert found[0] == within_a_bucket(3.0)
    assert math.isnan(found[1])
    assert [profiles.checkpoint(row).latest_quarter for row in (0, 1)] == [0, -1]


@given(
    st.lists(
        st.tuples(st.floats(0, 30 * DAY), st.one_of(st.floats(0, 2000), st.just(math.nan))), min_size=1, max_size=30
    ),
    st.floats(0, 30 * DAY),
    st.floats(0, 2 * HOUR),
)
def test_a_forecast_never_exceeds_twice_what_was_ever_seen_nor_falls_below_the_newest(
    samples: list[tuple[float, float]], seconds: float, horizon: float
) -> None:
    profiles = SeasonalProfiles(CPU_BUCKETS, 1)
    for at, value in samples:
        profiles.add(ONE, np.array([value]), at)
    found = forecast(profiles, seconds, horizon)
    seen = [value for _, value in samples if math.isfinite(value)]
    if seen and math.isfinite(found):
        assert float(profiles.recent()[0]) <= found <= 2 * max(1.05 * max(seen) + 0.025, 0.05)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=20), st.integers(0, 95))
def test_more_of_each_quarter_hour_never_forecasts_less_on_the_first_day(values: list[float], later: int) -> None:
    low, high = SeasonalProfiles(CPU_BUCKETS, 1), SeasonalProfiles(CPU_BUCKETS, 1)
    for place, value in enumerate(values):
        low.add(ONE, np.array([value]), MONDAY + place * 60)
        high.add(ONE, np.array([value + later / 10]), MONDAY + place * 60)
    now = MONDAY + len(values) * 60
    assert forecast(high, now) >= forecast(low, now)


def judged(quarters: int, season: float, histogram: float, peak: float, choice: ForecastChoice | None = None) -> ForecastChoice:
    choice = choice or ForecastChoice(1)
    for _ in range(quarters):
        choice.judge(np.array([season]), np.array([histogram]), np.array([peak]))
    return choice


def test_it_begins_with_the_histogram_and_changes_only_after_two_hours() -> None:
    assert not judged(LEAST_QUARTERS - 1, 11, 50, 10).by_season[0]
    assert judged(LEAST_QUARTERS, 11, 50, 10).by_season[0]


def test_a_forecast_that_is_hardly_better_changes_nothing() -> None:
    assert not judged(40, 10 + 9.5, 10 + 10, 10).by_season[0]


def test_it_falls_back_where_it_withholds_more_and_not_before_an_hour_has_passed() -> None:
    choice = judged(LEAST_QUARTERS, 11, 50, 10)
    judged(DWELL_QUARTERS - 1, 500, 50, 10, choice)
    assert choice.by_season[0]
    judged(1, 500, 50, 10, choice)
    assert not choice.by_season[0]


def test_a_forecast_that_is_often_too_low_costs_what_it_lacks() -> None:
    choice = judged(40, 2, 12, 10)
    assert not choice.by_season[0]
    assert choice.accuracy(0).histogram_cost == 2
    assert choice.accuracy(0).quarters == 40


def test_what_is_missing_is_not_compared_and_the_other_one_is_used() -> None:
    choice = judged(20, math.nan, 12, 10)
    assert choice.accuracy(0).quarters == 0
    nan = np.array([math.nan])
    assert choice.choose(np.array([3.0]), nan)[0] == 3.0
    assert choice.choose(nan, np.array([4.0]))[0] == 4.0
    assert math.isnan(choice.choose(nan, nan)[0])


@given(st.lists(st.tuples(*[st.one_of(st.floats(0, 1e6), st.just(math.nan))] * 3), max_size=100))
def test_costs_are_never_negative_and_the_choice_is_one_of_both(quarters: list[tuple[float, float, float]]) -> None:
    choice = ForecastChoice(1)
    for season, histogram, peak in quarters:
        choice.judge(np.array([season]), np.array([histogram]), np.array([peak]))
        found = choice.choose(np.array([season]), np.array([histogram]))[0]
        assert math.isnan(found) or found in (season, histogram)
    assert (choice.costs >= 0).all()
