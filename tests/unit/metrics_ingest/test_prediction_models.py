"""The models of nodes in one store: their rows, their exact figures, and what of them the predictors count."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from cotenant.events.node.metrics import ProdPrediction, Usage
from cotenant_metrics_ingest.prediction.buckets import Buckets
from cotenant_metrics_ingest.prediction.histogram import Histograms
from cotenant_metrics_ingest.prediction.models import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    IntervalFigures,
    ModelStore,
    NodeModels,
    Training,
    tier_places,
)
from cotenant_metrics_ingest.prediction.node import NodePrediction, PredictionStore
from cotenant_metrics_ingest.prediction.seasons import Seasons
from cotenant_metrics_ingest.prediction.windows import Windows

NOW = 1_767_225_600.0
GIB = 1 << 30
ONE = np.array([0])


def figures(pods: dict[str, tuple[int, int]], node: tuple[int, int] | None, tier: str = "koord-prod") -> IntervalFigures:
    values = np.array(list(pods.values()), dtype=np.int64).reshape(-1, 2).T
    return IntervalFigures(list(pods), tier_places(pods, dict.fromkeys(pods, tier)), values, node)


def end_of(buckets: Buckets, value: float, unit: int = 1) -> int:
    """The end of a value's bucket, truncated: what a percentile is where all samples are alike."""
    return int(buckets.results[buckets.find(value)] * unit)


# -- rows -------------------------------------------------------------------------------------------------------------


def test_the_store_grows_by_an_eighth_and_only_for_models_that_are_missing() -> None:
    store, node = ModelStore(), NodeModels()
    store.rows_of(node, [str(number) for number in range(24)])
    assert len(store.updated) == 24
    for names in (["3", "4"], []):
        store.rows_of(node, names)
        assert len(store.updated) == 24
    assert store.rows_of(node, ["24"]) == [24]
    assert (len(store.updated), store.cpu.rows, store.memory.rows) == (27, 27, 27)
    assert sorted(store.rows_of(node, ["25", "26"])) == [25, 26]
    assert len(store.updated) == 27, "just as many were free"
    store.rows_of(node, [f"more {number}" for number in range(5)])
    assert len(store.updated) == 32


@pytest.mark.parametrize("of_node", [(4000, 5 * GIB), None])
def test_an_expired_model_goes_whether_or_not_the_node_is_known(of_node: tuple[int, int] | None) -> None:
    store, found = ModelStore(), NodeModels()
    store.train([Training(found, figures({"a": (1000, GIB), "b": (1000, GIB)}, of_node), NOW)])
    own = set(found.rows) - {"a", "b"}
    assert len(own) == (7 if of_node else 6)
    store.train([Training(found, figures({"b": (1000, GIB)}, of_node), NOW + 1801)])
    assert set(found.rows) == own | {"b"}
    store.train([Training(found, figures({"b": (1000, GIB)}, of_node), NOW + 1860)])
    assert set(found.rows) == own | {"b"}
    assert store.updated[list(found.rows.values())].tolist() == [NOW + 1860] * (len(own) + 1)


# -- figures ----------------------------------------------------------------------------------------------------------


def test_percentiles_are_the_truncated_ends_of_buckets() -> None:
    store, found = ModelStore(), NodeModels()
    store.train([Training(found, figures({"a": (1234, 3 * GIB)}, (5000, 7 * GIB)), NOW)])
    (predicted,) = store.predicted([found])
    pod = Usage(cpu_milli=end_of(CPU_BUCKETS, 1.234, 1000), memory_bytes=end_of(MEMORY_BUCKETS, 3 * GIB))
    assert predicted.pods == {"a": pod}
    assert predicted.peak("a") == predicted.own["__node-koord-prod__"].p60 == pod
    node = predicted.own["__node__"]
    expected = Usage(cpu_milli=end_of(CPU_BUCKETS, 5.0, 1000), memory_bytes=end_of(MEMORY_BUCKETS, 7 * GIB))
    assert (node.p60, node.p90, node.p95, node.p98, node.max) == (expected,) * 5
    system = predicted.own["__node-sys__"]
    assert system.p95.cpu_milli == end_of(CPU_BUCKETS, 3.766, 1000)
    assert system.p98.memory_bytes == end_of(MEMORY_BUCKETS, 4 * GIB)


def test_the_counted_peaks_are_those_of_the_system_prod_and_none() -> None:
    store = PredictionStore(10)
    nodes = [NodeModels(), NodeModels(), NodeModels(), NodeModels()]
    store.models.train(
        [
            Training(nodes[0], figures({"a": (1000, GIB)}, None), NOW),
            Training(nodes[1], figures({"a": (2000, 2 * GIB)}, (9000, 9 * GIB), tier=""), NOW),
            Training(nodes[2], figures({"a": (2000, 2 * GIB)}, (9000, 9 * GIB), tier="koord-mid"), NOW),
        ]
    )
    # The last node's models are there and have no samples.
    store.models.rows_of(nodes[3], list(nodes[1].rows))
    assert nodes[0].rows["__node-sys__"] == 0, "a row of 0 is one like any other"

    def cpu(*cores: float) -> int:
        return sum(end_of(CPU_BUCKETS, each, 1000) for each in cores)

    def memory(*gib: float) -> int:
        return sum(end_of(MEMORY_BUCKETS, each * GIB) for each in gib)

    expected = [[cpu(0, 1, 0), cpu(7, 0, 2), cpu(7, 0, 0)], [memory(0, 1, 0), memory(7, 0, 2), memory(7, 0, 0)]]
    found = store.models.counted_peaks(nodes)
    assert found[:, :3].tolist() == expected
    assert np.isnan(found[:, 3]).all()
    with_margin = store.by_histogram(nodes)
    assert with_margin[:, :3].tolist() == [[float(int(each * 1.1)) for each in row] for row in expected]
    assert np.isnan(with_margin[:, 3]).all()


def test_each_percentile_is_the_first_value_up_to_which_so_much_of_the_weight_lies() -> None:
    """Values of 1 to 5 GiB and cores weigh 650, 270, 35, 30 and 15 of 1000: up to them lie 65, 92, 95.5, 98.5 and 100 %."""
    store, found = ModelStore(), NodeModels()
    for value, weight in ((1, 650.0), (2, 270.0), (3, 35.0), (4, 30.0), (5, 15.0)):
        both = (value * 1000, value * GIB)
        store.train([Training(found, figures({"a": both}, (2 * both[0], 2 * both[1])), NOW, weight)])
    cpu = [end_of(CPU_BUCKETS, value, 1000) for value in (1, 2, 3, 4, 5)]
    memory = [end_of(MEMORY_BUCKETS, value * GIB) for value in (1, 2, 3, 4, 5)]
    (predicted,) = store.predicted([found])
    own = predicted.own["__node-sys__"]
    shown = (own.p60, own.p90, own.p95, own.p98, own.max)
    assert [(each.cpu_milli, each.memory_bytes) for each in shown] == list(zip(cpu, memory, strict=True))
    peak = Usage(cpu_milli=cpu[2], memory_bytes=memory[3])
    assert predicted.pods == {"a": peak}
    assert predicted.peak("__node-koord-prod__") == peak
    # The system and prod use as much as the pod; none of no tier is there.
    nothing = (end_of(CPU_BUCKETS, 0, 1000), end_of(MEMORY_BUCKETS, 0))
    assert store.counted_peaks([found])[:, 0].tolist() == [2 * cpu[2] + nothing[0], 2 * memory[3] + nothing[1]]


def report(node: NodePrediction) -> ProdPrediction:
    (predicted,) = node.store.models.predicted([node.models])
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return node.forecast(predicted, (), ["a", "b"], {}, None, now, cold_start_seconds=60, margin_percent=10).terms


def test_a_report_says_when_the_models_were_trained_and_nothing_of_the_kind_before() -> None:
    node = NodePrediction("n1", PredictionStore(10))
    assert (node.trained, node.trained_ms, node.began_ms) == (False, 0, 0)
    found = report(node)
    assert (found.trained_at, found.trainings, found.unplaced, found.allocatable) == (None, 0, 2, Usage())
    node.store.models.train([Training(node.models, figures({}, (4000, GIB)), NOW)])
    node.trained_ms = int(NOW * 1000) + 7
    found = report(node)
    assert found.trained_at == datetime(2026, 1, 1, 0, 0, 0, 7000, tzinfo=UTC)
    assert (found.trainings, node.trained) == (1, True)


def test_the_forecast_by_time_of_day_is_the_end_of_a_bucket_in_milli_cores_and_bytes() -> None:
    seasons = Seasons()
    row = np.array([seasons.begin()])
    at = np.array([NOW + 60])
    seasons.observe(row, at, np.array([[1234.0], [3.0 * GIB]]), lambda places: np.full((2, len(places)), np.nan))
    ((cpu, memory),) = seasons.forecasts(row, at, np.full((2, 1), np.nan))
    assert cpu.time_of_day == end_of(CPU_BUCKETS, 1.234, 1000)
    assert memory.time_of_day == end_of(MEMORY_BUCKETS, 3 * GIB)
    assert (cpu.histogram, cpu.by_time_of_day, memory.histogram) == (None, False, None)


# -- histograms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "reference"), [(NOW, NOW), (NOW + 49, NOW), (NOW + 50, NOW + 100), (NOW + 99, NOW + 100)])
def test_the_first_reference_is_the_nearest_multiple_of_the_half_life_since_year_1(seconds: float, reference: float) -> None:
    """Year 1 began 62,135,596,800 s before the epoch, a multiple of 100 s as NOW is."""
    histograms = Histograms(Buckets(9.0, 1.0), 100.0, rows=1)
    histograms.add(ONE, np.array([1.0]), 1.0, seconds)
    assert histograms.references.tolist() == [reference]
    assert histograms.weights(0)[1] == pytest.approx(2 ** ((seconds - reference) / 100))


def test_a_row_that_is_cleared_is_as_it_was_at_first() -> None:
    histograms = Histograms(Buckets(9.0, 1.0), 100.0, rows=2)
    histograms.add(np.array([0, 1]), np.array([1.0, 2.0]), 1.0, NOW)
    histograms.clear(ONE)
    assert histograms.totals.tolist() == [0.0, 1.0]
    assert histograms.references.tolist() == [-62_135_596_800.0, NOW]
    assert [np.flatnonzero(histograms.weights(row)).tolist() for row in (0, 1)] == [[], [2]]
    assert histograms.percentiles([1.0]).tolist() == [[0.0], [3.0]]


def test_weights_that_a_new_reference_makes_smaller_than_any_number_are_0() -> None:
    histograms = Histograms(Buckets(9.0, 1.0), 100.0, rows=1)
    histograms.add(ONE, np.array([1.0]), 8.0, NOW)
    histograms.add(ONE, np.array([5.0]), 1.0, NOW + 100 * 1000)
    assert histograms.weights(0)[[1, 5]].tolist() == [8 * 2.0**-1000, 1.0]
    histograms.add(ONE, np.array([7.0]), 1.0, NOW + 100 * 1_000_000)
    assert histograms.weights(0)[[1, 5, 7]].tolist() == [0.0, 0.0, 1.0]
    assert histograms.totals.tolist() == [1.0]


def test_a_restored_total_of_less_than_one_sample_counts_and_one_without_weights_does_not() -> None:
    histograms = Histograms(Buckets(9.0, 1.0), None, rows=3)
    places, buckets = np.array([0, 0, 1]), np.array([0, 3, 3])
    histograms.restore(np.array([0, 1, 2]), places, buckets, np.array([0.25, 0.5, 0.0]), np.array([0.5, 2.0, 3.0]), NOW)
    assert histograms.totals.tolist() == [0.5, 0.0, 0.0]
    assert histograms.weights(0)[[0, 3]].tolist() == pytest.approx([0.5 / 3, 1 / 3])
    histograms.restore(ONE, ONE[:0], ONE[:0], np.zeros(0), np.array([7.0]), NOW)
    assert histograms.totals.tolist() == [0.5, 0.0, 0.0]


def test_weights_without_any_in_use_are_left_out_of_a_state() -> None:
    histograms = Histograms(Buckets(9.0, 1.0), None, rows=2)
    assert [each.tolist() for each in histograms.scaled(np.array([0, 1]))] == [[], [], []]
    histograms.add(np.array([1]), np.array([4.0]), 0.5, NOW)
    histograms.add(np.array([1]), np.array([2.0]), 0.001, NOW)
    # 0.001 of 0.5 are 20 of 10,000, and 0.2 of 100.
    assert [each.tolist() for each in histograms.scaled(np.array([0, 1]))] == [[1, 1], [2, 4], [20, 10_000]]
    assert [each.tolist() for each in histograms.scaled(np.array([0, 1]), 100)] == [[1], [4], [100]]
    assert next(each.tolist() for each in histograms.scaled(np.array([1, 0, 1]))) == [0, 0, 2, 2]


# -- windows ----------------------------------------------------------------------------------------------------------


def test_windows_grow_by_an_eighth_or_4096_weights_and_keep_what_they_hold() -> None:
    windows = Windows(1024, 100)
    windows.weights[windows.places(np.array([0]), np.array([500]))] += 1.0
    assert len(windows.weights) == 4096
    windows.places_of_many(np.repeat(np.arange(1, 90), 2), np.tile([0, 1023], 89))
    # 89 windows of 1024 behind one of 16.
    assert len(windows.weights) == 16 + 89 * 1024
    windows.places_of_many(np.array([90, 90]), np.array([0, 1023]))
    assert len(windows.weights) == (16 + 89 * 1024) * 9 // 8
    assert windows.of(0)[500] == 1.0
    assert not windows.weights[16:].any()


def test_a_window_without_weights_moves_to_the_new_bucket_alone() -> None:
    windows = Windows(205, 1)
    windows.places(np.array([0]), np.array([100]))
    windows.places(np.array([0]), np.array([200]))
    assert (int(windows._width[0]), int(windows._first[0])) == (16, 205 - 16)


def test_windows_of_rows_that_go_are_free_and_those_that_stay_keep_theirs() -> None:
    windows = Windows(205, 4)
    windows.weights[windows.places(np.array([0, 1, 3]), np.array([10, 20, 30]))] += 1.0
    windows.keep(np.array([1, 2]))
    assert [np.flatnonzero(windows.of(row)).tolist() for row in range(2)] == [[20], []]
    assert {width: len(begins) for width, begins in windows._free.items()} == {16: 2}
    windows.scale(0, 0.5)
    assert (windows.of(0)[20], float(windows.weights.sum())) == (0.5, 0.5)
