"""Prediction at its bounds: what stays and what is forgotten, what a damaged state is refused for, where each limit lies."""

from __future__ import annotations

import math
import zlib
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
import numpy as np
import pytest

from cotenant.events.envelope import encode_payload
from cotenant.events.node.metrics import Usage
from cotenant.events.node.predictions import PredictionState, SeasonState
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_metrics_ingest.means import NODE_ROW as NODE_ROW
from cotenant_metrics_ingest.prediction import season_states
from cotenant_metrics_ingest.prediction.buckets import Buckets
from cotenant_metrics_ingest.prediction.checkpoints import MAX_BYTES, restored
from cotenant_metrics_ingest.prediction.forecast_choice import Accuracy, ForecastChoice
from cotenant_metrics_ingest.prediction.histogram import YEAR_ONE, Checkpoint, HistogramError, Histograms
from cotenant_metrics_ingest.prediction.models import IntervalFigures, ModelStore, NodeModels, Training, tier_places
from cotenant_metrics_ingest.prediction.node import NodePrediction, PredictedPod, PredictionStore
from cotenant_metrics_ingest.prediction.predictors import PodRequest, predict
from cotenant_metrics_ingest.prediction.seasonal import QUARTERS_A_WEEK, SeasonalCheckpoint, SeasonalProfiles
from cotenant_metrics_ingest.prediction.seasons import Seasons
from cotenant_metrics_ingest.prediction.training import Interval, figures_of, tier_of
from cotenant_metrics_ingest.prediction.windows import WIDTHS, Windows
from cotenant_metrics_ingest.samples import LARGEST_VALUE, samples_of
from tests.unit.metrics_ingest.builders_metrics_ingest import START, state_of
from tests.unit.metrics_ingest.test_prediction import message, models

NOW = 1_767_225_600.0
ONE = np.array([0])
TEN = Buckets(9.0, 1.0)
GIB = 1 << 30


def usage(cpu: int, memory: int) -> Usage:
    return Usage(cpu_milli=cpu, memory_bytes=memory)


# -- choice of the forecast -------------------------------------------------------------------------------------------


def test_a_row_that_is_cleared_begins_again_with_the_histogram() -> None:
    choice = ForecastChoice(2)
    for _ in range(9):
        choice.judge(*np.full((3, 2), [[101.0], [150.0], [100.0]]))
    assert choice.accuracy(0) == Accuracy(True, 1, 50, 9)
    choice.clear(0)
    assert choice.accuracy(0) == Accuracy(False, 0, 0, 0)
    assert choice.accuracy(1) == Accuracy(True, 1, 50, 9)
    for quarter in range(1, 9):
        choice.judge(*np.full((3, 2), [[101.0], [150.0], [100.0]]))
        assert choice.accuracy(0) == Accuracy(quarter >= 8, 1, 50, quarter), "nothing is left of what was before"


def test_more_rows_leave_those_that_are_there_and_fewer_change_nothing() -> None:
    choice = ForecastChoice(1)
    for _ in range(8):
        choice.judge(*np.array([[101.0], [150.0], [100.0]]))
    choice.widen(3)
    choice.widen(2)
    assert choice.rows == 3
    assert [choice.accuracy(row) for row in range(3)] == [Accuracy(True, 1, 50, 8), *[Accuracy(False, 0, 0, 0)] * 2]


# -- histograms -------------------------------------------------------------------------------------------------------


def test_weights_of_more_than_a_hundred_half_lives_ago_count_as_good_as_nothing() -> None:
    histograms = Histograms(TEN, 100.0, rows=1)
    histograms.add(ONE, np.array([1.0]), 4.0, NOW)
    before = float(histograms.references[0])
    # Half up to a multiple of the half-life from year 1 on.
    assert (before - YEAR_ONE) % 100 == 0
    assert -50 <= before - NOW <= 50
    histograms.add(ONE, np.array([5.0]), 1.0, before + 100 * 100)
    assert float(histograms.references[0]) == before, "no new one while it is a hundred half-lives old"
    histograms.add(ONE, np.array([5.0]), 1.0, before + 101 * 100)
    assert float(histograms.references[0]) == before + 101 * 100
    assert histograms.weights(0)[[1, 5]].tolist() == pytest.approx([4 * 2.0 ** ((NOW - before) / 100 - 101), 1.5])
    assert histograms.totals_at(ONE, before + 101 * 100).tolist() == pytest.approx([1.5])


@pytest.mark.parametrize(
    ("places", "buckets", "weights", "totals"),
    [
        ([0, 1], [1, 1], [1, 1], [1, 1]),
        ([-1, 0], [1, 1], [1, 1], [1]),
        ([0], [10], [1], [1]),
        ([0, 0], [1, 1], [1, 1], [1]),
        ([0, 0], [2, 1], [1, 1], [1]),
        ([0], [1], [1], [math.inf]),
        ([0], [1], [1], []),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(
    places: list[int], buckets: list[int], weights: list[float], totals: list[float]
) -> None:
    histograms = Histograms(TEN, 100.0, rows=1)
    of_place, of_bucket = (np.array(each, dtype=np.int64) for each in (places, buckets))
    with pytest.raises(HistogramError):
        histograms.restore(ONE, of_place, of_bucket, np.array(weights, dtype=float), np.array(totals, dtype=float), NOW)
    assert histograms.totals.tolist() == [0.0]
    assert histograms.references.tolist() == [YEAR_ONE]
    assert not histograms.weights(0).any()


def test_restored_weights_make_up_the_total_of_their_row() -> None:
    histograms = Histograms(TEN, None, rows=3)
    places, buckets = np.array([0, 0, 1, 2]), np.array([0, 9, 4, 4])
    histograms.restore(np.array([2, 0, 1]), places, buckets, np.array([1.0, 3.0, 5.0, 0.0]), np.array([8.0, 0.5, 6.0]), NOW)
    assert histograms.totals.tolist() == [0.5, 0.0, 8.0], "a row without weights has no total"
    assert histograms.weights(2)[[0, 9]].tolist() == [2.0, 6.0]
    assert histograms.weights(0)[4] == 0.5
    assert histograms.checkpoint(2) == Checkpoint({0: 3333, 9: 10_000}, 8.0, YEAR_ONE)
    with pytest.raises(HistogramError, match="no checkpoint"):
        histograms.load(None)


def test_a_bucket_counts_from_epsilon_on() -> None:
    histograms = Histograms(TEN, None, 0.5, rows=1)
    histograms.add(ONE, np.array([1.0]), 0.25, NOW)
    assert histograms.percentiles([1.0]).tolist() == [[0.0]]
    histograms.add(ONE, np.array([3.0]), 0.5, NOW)
    assert histograms.percentiles([0.0, 1.0]).tolist() == [[4.0, 4.0]]
    histograms.add(ONE, np.array([1.0]), 0.25, NOW)
    assert histograms.percentiles([0.5, 0.51]).tolist() == [[2.0, 4.0]]


def test_a_window_holds_what_is_used_in_its_middle_and_is_used_again() -> None:
    windows = Windows(205, 3)
    windows.weights[windows.places(np.array([0]), np.array([100]))] += 1.0
    assert (windows._first[0], windows._width[0]) == (93, WIDTHS[0])
    windows.widen(2)
    assert len(windows._width) == 3
    windows.weights[windows.places(np.array([0]), np.array([108]))] += 2.0
    assert windows._width[0] == 16, "from 93 to 108 there is room"
    windows.weights[windows.places(np.array([0]), np.array([116]))] += 4.0
    # 17 buckets are in use: the next width has 24, three free ones before and four behind.
    assert (windows._first[0], windows._width[0]) == (97, WIDTHS[1])
    assert np.flatnonzero(windows.of(0)).tolist() == [100, 108, 116]
    assert windows.of(0)[[100, 108, 116]].tolist() == [1.0, 2.0, 4.0]
    begin = int(windows._begin[0])
    windows.clear(np.array([0, 1]))
    assert not windows.weights.any()
    assert {width: len(begins) for width, begins in windows._free.items()} == {16: 1, 24: 1}
    windows.weights[windows.places_of_many(np.array([1, 1, 2]), np.array([0, 20, 204]))] += 1.0
    assert (windows._begin[1], windows._width[1]) == (begin, 24)
    assert windows._begin[2] == 0, "the 16 that were given up first"
    assert windows._first[[1, 2]].tolist() == [0, 205 - 16]
    assert [np.flatnonzero(windows.of(row)).tolist() for row in range(3)] == [[], [0, 20], [204]]


# -- models -----------------------------------------------------------------------------------------------------------


def figures(pods: dict[str, tuple[int, int]], node: tuple[int, int] | None) -> IntervalFigures:
    values = np.array(list(pods.values()), dtype=np.int64).reshape(-1, 2).T
    return IntervalFigures(list(pods), tier_places(pods, dict.fromkeys(pods, "koord-prod")), values, node)


def test_without_the_nodes_figures_it_has_no_model_and_all_others_are_trained() -> None:
    store, known, unknown = ModelStore(), NodeModels(), NodeModels()
    pods = {"a": (1000, GIB), "b": (500, GIB)}
    store.train([Training(unknown, figures(pods, None), NOW), Training(known, figures(pods, (4000, 5 * GIB)), NOW)])
    assert set(known.rows) - set(unknown.rows) == {"__node__"}
    without, with_node = store.predicted([unknown, known])
    for predicted in (without, with_node):
        prod = predicted.own["__node-koord-prod__"]
        assert 1500 <= prod.p95.cpu_milli <= 1500 * 1.05 + 25
        assert 2 * GIB <= prod.p98.memory_bytes <= 2.2 * GIB
        assert predicted.own["__node-koord-mid__"].max.cpu_milli == 25, "a tier without pods uses nothing"
    # Beyond its pods the node uses 2.5 cores and 3 GiB; of a node that is not known nothing.
    assert 2500 <= with_node.own["__node-sys__"].p95.cpu_milli <= 2500 * 1.05 + 25
    assert 3 * GIB <= with_node.own["__node-sys__"].p98.memory_bytes <= 3.2 * GIB
    assert without.own["__node-sys__"].max.cpu_milli == 25
    assert (known.trainings, known.trained_at) == (1, NOW)
    assert unknown.rows["__node-sys__"] == 0
    sums = store.counted_peaks([unknown, known, NodeModels()])
    assert (1525 <= sums[0, 0] < sums[0, 1], np.isfinite(sums).tolist()) == (True, [[True, True, False]] * 2)


def test_a_model_stays_thirty_minutes_and_its_row_is_used_again() -> None:
    store, found = ModelStore(), NodeModels()
    store.train([Training(found, figures({"a": (1000, GIB)}, (4000, GIB)), NOW)])
    row = found.rows["a"]
    store.train([Training(found, figures({}, (4000, GIB)), NOW + 1800)])
    assert "a" in found.rows
    store.train([Training(found, figures({}, (4000, GIB)), NOW + 1801)])
    assert "a" not in found.rows
    assert store.updated[row] == 0
    store.train([Training(found, figures({"b": (1000, GIB)}, (4000, GIB)), NOW + 1860)])
    assert found.rows["b"] == row
    assert store.cpu.weights(row).sum() == store.cpu.weights(row).max(), "nothing of the one before is left"


def test_rows_are_numbered_without_gaps() -> None:
    store, nodes = ModelStore(), [NodeModels() for _ in range(3)]
    for node in nodes:
        store.rows_of(node, ["x", "y", "x"])
    assert sorted(row for node in nodes for row in node.rows.values()) == list(range(6))
    seasons = Seasons()
    assert sorted(seasons.begin() for _ in range(20)) == list(range(20))
    assert [each.profiles.rows for each in seasons.resources] == [20, 20]
    assert [(each.expected.shape, each.peaks.shape, each.choice.rows) for each in seasons.resources] == [
        ((2, 20), (20,), 20)
    ] * 2
    row = np.array([7])
    for _ in range(2):
        seasons.observe(row, np.array([NOW]), np.ones((2, 1)), lambda places: np.full((2, len(places)), 50.0))
        assert np.isnan(seasons.resources[0].expected[1, 7]), "its first quarter hour is not judged"
        seasons.end(7)
        assert seasons.begin() == 7


def test_a_node_that_ends_leaves_its_models_and_its_row_to_the_next() -> None:
    store = PredictionStore(10)
    node = NodePrediction("n1", store)
    node.choose(by_time_of_day=True)
    row = node.season
    store.models.train([Training(node.models, figures({"a": (1000, GIB)}, (4000, GIB)), NOW)])
    node.end()
    assert (node.season, node.trained, node.over) == (None, False, [])
    assert store.seasons.begin() == row
    plain = NodePrediction("n2", store)
    plain.end()
    assert plain.season is None


def test_a_sample_counts_half_after_half_a_day_for_cpu_and_after_a_day_for_memory() -> None:
    store, found = ModelStore(), NodeModels()
    store.train([Training(found, figures({"a": (1000, GIB)}, (4000, GIB)), NOW)])
    row = np.array([found.rows["a"]])
    assert store.cpu.totals_at(row, NOW + 43_200).tolist() == pytest.approx([0.5])
    assert store.memory.totals_at(row, NOW + 86_400).tolist() == pytest.approx([0.5])


def test_the_priority_of_a_pods_message_is_its_tier_and_else_its_qos_says_it() -> None:
    (sample,) = message((1,), (("a", (1,)),)).pods
    for priority, qos, tier in (
        ("koord-mid", "BE", "koord-mid"),
        ("koord-batch", "", "koord-batch"),
        ("", "BE", "koord-batch"),
        ("other", "BE", "koord-batch"),
        ("", "LS", "koord-prod"),
        ("", "", ""),
    ):
        assert tier_of(msgspec.structs.replace(sample, priority=priority, qos=qos)) == tier


# -- restart ----------------------------------------------------------------------------------------------------------


def trained(trained_ms: int) -> NodePrediction:
    store = PredictionStore(10)
    found = NodePrediction("n1", store)
    store.models.train([Training(found.models, figures({"a": (1000, GIB)}, (4000, GIB)), trained_ms / 1000)])
    found.trained_ms = trained_ms
    return found


@pytest.mark.parametrize(("missing_ms", "weight"), [(59_999, None), (60_000, 1.0), (150_000, 2.5), (900_000, 10.0)])
def test_a_whole_interval_that_is_missing_is_trained_with_and_ten_at_most(missing_ms: int, weight: float | None) -> None:
    trained_ms = int(NOW * 1000)
    node = trained(trained_ms)
    means = {NODE_ROW: (3000, 2 * GIB), "a": (700, GIB), "b": (300, 5)}
    found = node.catching_up(means, {"b": "koord-mid"}, trained_ms + missing_ms)
    if weight is None:
        assert found is None
        assert node.trained_ms == trained_ms
        return
    assert found is not None
    assert (found.weight, found.seconds) == (weight, NOW + missing_ms / 1000)
    assert node.trained_ms == trained_ms + missing_ms
    assert (found.figures.pods, found.figures.node) == (["a", "b"], (3000, 2 * GIB))
    assert found.figures.values.tolist() == [[700, 300], [GIB, 5]]
    assert found.figures.tiers.tolist() == [4, 1]


def test_without_models_or_the_nodes_means_nothing_is_caught_up() -> None:
    later = int(NOW * 1000) + 600_000
    assert trained(int(NOW * 1000)).catching_up({"a": (1, 1)}, {}, later) is None
    assert NodePrediction("n1", PredictionStore(10)).catching_up({NODE_ROW: (1, 1)}, {}, later) is None


def state_size(state: PredictionState) -> int:
    return len(encode_payload(state))


def test_a_state_is_scaled_down_only_where_it_is_too_large_and_then_the_smallest_pods_are_left_out() -> None:
    store, found = models(26, 60)
    trained_ms = int(found.trained_at * 1000)

    def state(room: int) -> PredictionState:
        """With a name by which it has so many bytes at the finest scale that leaves no pod out."""
        return state_of("n" * (MAX_BYTES - empty + room), store, found, trained_ms, START)

    empty = state_size(state_of("", store, found, trained_ms, START))
    scale = state_of("", store, found, trained_ms, START).cpu.heaviest
    assert (state_size(state(0)), state(0).cpu.heaviest) == (MAX_BYTES, scale), "it may have just so many bytes"
    assert state_size(state(1)) <= MAX_BYTES
    assert state(1).cpu.heaviest < scale or state(1).dropped


def test_those_who_use_the_most_are_stored() -> None:
    store, found = models(110, 60)
    state = state_of("n1", store, found, int(found.trained_at * 1000), START)
    assert 0 < state.dropped < 110
    (predicted,) = store.predicted([found])
    peaks = {pod: (peak.cpu_milli, peak.memory_bytes) for pod, peak in predicted.pods.items()}
    stored = [str(UUID(bytes=state.packed_pods[at : at + 16])) for at in range(0, len(state.packed_pods), 16)]
    assert min(peaks[pod] for pod in stored) >= max(peaks[pod] for pod in peaks.keys() - set(stored))


def test_models_of_several_buckets_are_restored_bucket_by_bucket() -> None:
    store, found = ModelStore(), NodeModels()
    for minute, cpu in enumerate((500, 9000, 2000, 2000)):
        training = Training(found, figures({"a": (cpu // 2, cpu << 20)}, (cpu, cpu << 20)), NOW + 60 * minute)
        store.train([training])
    new_store = ModelStore()
    state = state_of("n1", store, found, int(found.trained_at * 1000), START)
    later = msgspec.structs.replace(state.memory, reference_seconds=state.memory.reference_seconds + 100_000)
    assert restored(msgspec.structs.replace(state, memory=later), {"a"}, ModelStore()) is None
    after = restored(state, {"a"}, new_store)
    assert after is not None
    at = found.trained_at
    for old, new in ((store.cpu, new_store.cpu), (store.memory, new_store.memory)):
        totals = old.totals_at(np.array([found.rows["a"]]), at).tolist()
        assert new.totals_at(np.array([after.rows["a"]]), at).tolist() == pytest.approx(totals, abs=5.1e-4)
    for model, row in found.rows.items():
        for old, new in ((store.cpu, new_store.cpu), (store.memory, new_store.memory)):
            weights, restored_weights = old.weights(row), new.weights(after.rows[model])
            assert restored_weights / restored_weights.sum() == pytest.approx(weights / weights.sum(), abs=1e-4)


def week(latest: int = 5) -> SeasonalCheckpoint:
    return SeasonalCheckpoint(latest, bytes(range(150)) * 4 + bytes(QUARTERS_A_WEEK - 600))


@pytest.mark.parametrize("latest", [0, 5, 2**40 - 1])
def test_a_stored_week_is_the_week(latest: int) -> None:
    state = season_states.state_of("cpu", week(latest), by_time_of_day=True)
    assert (state.resource, state.by_time_of_day, state.latest_quarter) == ("cpu", True, latest)
    profiles = SeasonalProfiles(Buckets(1024.0, 0.025, 1.05), 2)
    assert season_states.load(state, profiles, 1)
    assert profiles.checkpoint(1) == week(latest)
    assert profiles.checkpoint(0).peaks == bytes(QUARTERS_A_WEEK)


@pytest.mark.parametrize(
    "change",
    [
        {"latest_quarter": -1},
        {"latest_quarter": 2**40},
        {"peaks": b"no deflate"},
        {"peaks": zlib.compress(bytes(QUARTERS_A_WEEK + 1))},
        {"peaks": zlib.compress(bytes(QUARTERS_A_WEEK - 1))},
        {"peaks": zlib.compress(bytes([200]) + bytes(QUARTERS_A_WEEK - 1))},
    ],
)
def test_a_damaged_week_leaves_the_row_and_the_choice(change: dict[str, object]) -> None:
    good = season_states.state_of("cpu", week(), by_time_of_day=True)
    bad = msgspec.structs.replace(good, **change)
    profiles = SeasonalProfiles(Buckets(1024.0, 0.025, 1.05), 1)
    profiles.load(0, week(7))
    assert not season_states.load(bad, profiles, 0)
    assert profiles.checkpoint(0) == week(7)
    seasons = Seasons()
    row = seasons.begin()
    seasons.restore(row, [bad, SeasonState(resource="other")])
    assert not seasons.resources[0].choice.by_season[row]
    seasons.restore(row, [good])
    assert [bool(each.choice.by_season[row]) for each in seasons.resources] == [True, False]
    assert [state.latest_quarter for state in seasons.state(row)] == [5, -1]


# -- intervals --------------------------------------------------------------------------------------------------------


def test_an_interval_is_over_with_the_first_message_of_the_next_minute_of_the_nodes_phase() -> None:
    interval = Interval("n1")
    sample = message((1, 2), (("a", (1, 2)),))
    keys = ["node", "system", "a"]
    begin = (60_000 - interval._phase) % 60_000
    over = [
        interval.add(sample, samples_of(sample), keys, 0, at) for at in (begin, begin + 59_999, begin + 60_000, begin + 60_001)
    ]
    assert over == [False, False, True, False]


def test_the_largest_possible_value_counts_and_more_leaves_its_pod_out() -> None:
    most = LARGEST_VALUE
    sample = message((most, most), (("a", (most, most)), ("b", (most + 1, 0)), ("c", (0, -1)), ("d", (3,)), ("e", (0, 0))))
    interval = Interval("n1")
    interval.add(sample, samples_of(sample), ["node", "system", *"abcde"], 0, 15_000)
    (found,) = figures_of([interval.end()])
    assert found.node == (most, most)
    assert (found.pods, found.values.tolist()) == (["a", "d", "e"], [[most, 3, 0]] * 2)


def test_an_interval_keeps_the_newest_messages_and_those_of_two_minutes() -> None:
    sample = message((9,) * 100, (("a", (9,) * 100),))
    newer = message((1,) * 100, (("a", (1,) * 100),))
    keys = ["node", "system", "a"]
    interval = Interval("n1")
    interval.add(sample, samples_of(sample), keys, 0, 1)
    interval.add(newer, samples_of(newer), keys, 0, 120_000)
    assert [part.end_ms for part in interval.end().parts] == [1, 120_000]
    interval.add(sample, samples_of(sample), keys, 0, 1)
    interval.add(newer, samples_of(newer), keys, 0, 120_001)
    ended = interval.end()
    assert ([part.end_ms for part in ended.parts], ended.newest_ms) == ([120_001], 120_001)
    assert figures_of([ended])[0].node == (1, 1)


def test_the_first_message_ends_no_interval_whenever_it_comes() -> None:
    sample = message((1, 2), (("a", (1, 2)),))
    for at in (0, 60_000, 90_000, int(NOW * 1000)):
        assert not Interval("n1").add(sample, samples_of(sample), ["node", "system", "a"], 0, at)


def test_cpu_and_memory_of_an_irregular_interval_are_not_mixed_up() -> None:
    (one,) = message((5, 5), (("a", (3,)),)).pods
    series = msgspec.structs.replace(one.series, memory_bytes=(4,))
    sample = message((5, 5))
    sample = msgspec.structs.replace(
        sample,
        node_usage=msgspec.structs.replace(sample.node_usage, memory_bytes=(6, 6)),
        pods=(msgspec.structs.replace(one, series=series),),
    )
    interval = Interval("n1")
    interval.add(sample, samples_of(sample), ["node", "system", "a"], 0, 15_000)
    (found,) = figures_of([interval.end()])
    assert (found.node, found.values.tolist()) == ((5, 6), [[3], [4]])


def test_of_an_interval_240_samples_count_and_of_more_the_newest_messages() -> None:
    old, new = (message((value,) * 120, (("a", (value,) * 120),)) for value in (9, 1))
    keys = ["node", "system", "a"]
    interval = Interval("n1")
    for sample, at in ((old, 1), (new, 2)):
        interval.add(sample, samples_of(sample), keys, 0, at)
    # Of 240 samples, the 216th: half of them are 9.
    assert figures_of([interval.end()])[0].node == (9, 9)
    one_more = message((1,), (("a", (1,)),))
    for sample, at in ((old, 1), (new, 2), (one_more, 3)):
        interval.add(sample, samples_of(sample), keys, 0, at)
    ended = interval.end()
    assert [part.size for part in ended.parts] == [120, 1]
    assert figures_of([ended])[0].node == (1, 1)
    large = message((9,) * 500, (("a", (9,) * 500),))
    interval.add(large, samples_of(large), keys, 0, 4)
    assert [part.size for part in interval.end().parts] == [500], "the newest message is never dropped"


# -- pods -------------------------------------------------------------------------------------------------------------


def placement(manifest: object, **changes: object) -> Placement:
    raw = msgspec.Raw(msgspec.json.encode(manifest))
    found = Placement(node="n1", namespace="d", name="a", uid="u", phase=PlacementPhase.BOUND, pod=raw)
    return msgspec.structs.replace(found, **changes)


def test_what_prediction_reads_of_a_placement() -> None:
    manifest = {
        "metadata": {"namespace": "d", "name": "a", "creationTimestamp": "1970-01-02T00:00:00Z"},
        "spec": {"priority": 9500, "containers": [{"name": "main"}]},
    }
    found = PredictedPod.of(placement(manifest, requests={"cpu": 1500, "memory": GIB}))
    assert found == PredictedPod("u", "koord-prod", 86_400.0, 1500, GIB, ended=False)
    assert found.request(datetime(1970, 1, 3, tzinfo=UTC)) == PodRequest(
        uid="u", prod=True, age_seconds=86_400.0, request=usage(1500, GIB), ended=False
    )
    del manifest["metadata"]["creationTimestamp"]  # type: ignore[attr-defined]
    bound = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=77)
    ending = PredictedPod.of(placement(manifest, bound_at=bound, phase=PlacementPhase.TERMINATING))
    assert (ending.created_seconds, ending.cpu_milli, ending.memory_bytes, ending.ended) == (77.0, 0, 0, True)
    assert PredictedPod.of(placement(manifest)).created_seconds == math.inf
    assert PredictedPod.of(placement({"metadata": 7})).tier == "koord-prod"
    assert PredictedPod.of(placement({"metadata": 7})).request(bound).age_seconds == -math.inf


def test_a_pod_that_comes_twice_or_ends_takes_part_once_or_not() -> None:
    pods = [
        PodRequest(uid="first", prod=True, age_seconds=200, request=usage(500, 500), ended=True),
        PodRequest(uid="a", prod=True, age_seconds=200, request=usage(1000, 1000)),
        PodRequest(uid="a", prod=True, age_seconds=200, request=usage(1000, 1000)),
        PodRequest(uid="gone", prod=True, age_seconds=200, request=usage(500, 500), ended=True),
    ]
    peaks = {"a": usage(100, 100), "gone": usage(1, 1)}
    found = predict(pods, peaks, {"s": usage(50, 50)}, allocatable=usage(9000, 9000), cold_start_seconds=100, margin_percent=0)
    assert found.reclaimable == usage(900, 900)
    assert (found.unpredicted, found.pod_peak) == (("a",), usage(100, 100))
    found = predict(pods, peaks, {"s": None}, allocatable=usage(9, 9), cold_start_seconds=100, margin_percent=0)
    assert (found.reclaimable, found.node_peak, found.error) == (None, None, "no prediction of s yet")
    found = predict(pods, peaks, {"s": usage(1, 200)}, allocatable=None, cold_start_seconds=100, margin_percent=0)
    assert (found.reclaimable, found.node_peak) == (None, usage(100, 200))
    assert "allocatable" in found.error
