"""Decaying histograms against a plain reference, and their states.

Tolerance: both add the same weights in another order and scale, so sums differ by a relative 1e-9 at most. A percentile may
then be that of a neighbouring rank only where the threshold falls on a sum to within that; it must lie between the reference's
percentiles at ranks 1e-9 lower and higher.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_metrics_ingest.prediction.buckets import Buckets
from cotenant_metrics_ingest.prediction.histogram import HistogramError, Histograms
from tests.unit.metrics_ingest.plain_histogram import PlainHistogram

RATIO = 1.3
HALF_LIFE = 3600.0
NOW = 1_767_225_600.0
TOLERANCE = 1e-9
PERCENTILES = (0.0, 0.1, 0.5, 0.6, 0.9, 0.95, 0.98, 1.0)

samples = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=2),
        st.floats(min_value=0, max_value=200),
        st.floats(min_value=0.1, max_value=10),
        st.integers(min_value=0, max_value=20 * 3600),
    ),
    max_size=40,
)


def made(rows: int = 3) -> Histograms:
    return Histograms(Buckets(100.0, 0.1, RATIO), HALF_LIFE, 1e-12, rows=rows)


@settings(max_examples=60, deadline=None)
@given(samples)
def test_percentiles_are_those_of_the_plain_rule(given_samples: list[tuple[int, float, float, int]]) -> None:
    histograms, plain = made(), [PlainHistogram(100.0, 0.1, RATIO, HALF_LIFE) for _ in range(3)]
    for row, value, weight, offset in sorted(given_samples, key=lambda each: each[3]):
        histograms.add(np.array([row]), np.array([value]), weight, NOW + offset)
        plain[row].add(value, weight, NOW + offset)
    end = NOW + 20 * 3600
    found = histograms.percentiles(PERCENTILES)
    for row, reference in enumerate(plain):
        for column, percentile in enumerate(PERCENTILES):
            low, high = (reference.percentile(percentile + each, end) for each in (-TOLERANCE, TOLERANCE))
            assert low * (1 - TOLERANCE) <= found[row, column] <= high * (1 + TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(min_value=0, max_value=99), min_size=1, max_size=30))
def test_a_percentile_is_above_its_sample_by_at_most_one_bucket(values: list[float]) -> None:
    histograms = made(1)
    for value in values:
        histograms.add(np.array([0]), np.array([value]), 1.0, NOW)
    found = float(histograms.percentiles([1.0])[0, 0])
    assert max(values) <= found * (1 + TOLERANCE)
    assert found <= max(values) * RATIO + 0.1 + TOLERANCE


def test_nothing_predicts_nothing_and_zero_predicts_the_first_bucket() -> None:
    histograms = made(2)
    histograms.add(np.array([1]), np.array([0.0]), 1.0, NOW)
    assert histograms.percentiles([0.95]).tolist() == [[0.0], [0.1]]
    assert [not highest for (highest,) in histograms.percentiles([1.0])] == [True, False]


@pytest.mark.parametrize(("value", "bucket"), [(math.nan, 0), (-5.0, 0), (math.inf, -1), (1e300, -1)])
def test_values_that_nothing_has_are_in_an_outer_bucket(value: float, bucket: int) -> None:
    for buckets in (Buckets(100.0, 0.1, RATIO), Buckets(10.0, 1.0)):
        assert buckets.find(value) == bucket % buckets.count


def test_a_new_reference_changes_no_percentile() -> None:
    histograms = made(1)
    for number in range(50):
        histograms.add(np.array([0]), np.array([float(number)]), 1.0, NOW + 60 * number)
    before = histograms.percentiles(PERCENTILES)
    histograms._shift(0, float(histograms.references[0]) + 7 * HALF_LIFE)
    assert histograms.percentiles(PERCENTILES).tolist() == before.tolist()


def test_rows_that_stay_keep_their_figures_when_others_go() -> None:
    histograms = made(3)
    for row, value in enumerate((1.0, 10.0, 50.0)):
        histograms.add(np.array([row]), np.array([value]), 1.0, NOW)
    before = histograms.percentiles([0.9])
    histograms.keep([0, 2])
    assert histograms.percentiles([0.9]).tolist() == before[[0, 2]].tolist()


def test_memory_is_one_window_a_row_whose_use_stays_within_it() -> None:
    histograms = made(3)
    for number in range(1000):
        histograms.add(np.array([0, 2]), np.array([5.0, 5.0 + 10 * (number % 3)]), 1.0, NOW + number)
    assert np.count_nonzero(histograms.windows.weights) == 4
    first = len(histograms.windows.weights)
    for number in range(1000):
        histograms.clear(np.array([0]))
        histograms.add(np.array([0]), np.array([float(number % 100)]), 1.0, NOW + number)
    assert len(histograms.windows.weights) == first


def test_a_damaged_state_changes_nothing() -> None:
    histograms = made(1)
    histograms.add(np.array([0]), np.array([5.0]), 1.0, NOW)
    before = histograms.weights(0).tolist()
    one = np.array([0])
    for buckets, weights, totals in (
        (np.array([9999]), np.array([1.0]), np.array([1.0])),
        (np.array([-1]), np.array([1.0]), np.array([1.0])),
        (np.array([1]), np.array([-1.0]), np.array([1.0])),
        (np.array([1]), np.array([1.0]), np.array([math.nan])),
        (np.array([1]), np.array([1.0]), np.array([-1.0])),
    ):
        with pytest.raises(HistogramError):
            histograms.restore(one, one, buckets, weights, totals, NOW)
    assert histograms.weights(0).tolist() == before
