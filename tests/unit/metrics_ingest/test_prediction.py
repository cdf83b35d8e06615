"""Prediction through the core: trained once a minute, reported with its terms, stored, and restored.

Promise of a restart (docs/metrics-ingest.md): a percentile after it is one of the models before it whose rank is off by at most
half a ten-thousandth for each bucket in use, and by what came after the models were stored.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.envelope import Event, encode_event
from cotenant.events.node.metrics import NodeMetricComputed, ProdPrediction, Usage
from cotenant.events.node.predictions import HistogramState, PredictionState
from cotenant.events.node.usage import PodUsage, Series, UsageSample
from cotenant.events.placements import PlacementPhase
from cotenant_metrics_ingest.core import TRAIN_EVERY
from cotenant_metrics_ingest.prediction.checkpoints import restored
from cotenant_metrics_ingest.prediction.models import IntervalFigures, ModelStore, NodeModels, Training, tier_places
from cotenant_metrics_ingest.prediction.training import Interval, figures_of
from cotenant_metrics_ingest.samples import samples_of
from tests.unit.metrics_ingest.builders_metrics_ingest import START, MetricsLog, percentile_of, pod, state_of

CORES = 16_000
GIB = 1 << 30
KIB_8 = 8192


def ready() -> MetricsLog:
    log = MetricsLog()
    log.node()
    log.executor(CORES, 64 * GIB)
    log.place("a", 4000)
    log.decide()
    return log


def prediction(log: MetricsLog) -> ProdPrediction:
    found = log.metric().prediction
    assert found is not None
    return found


def within_a_bucket(found: int, value: int) -> bool:
    return value <= found <= value * 1.05 + 25


def test_prod_pods_lend_what_they_are_predicted_not_to_need() -> None:
    log = ready()
    log.minutes(5, 3000, pods=[pod("a", [1000] * 15)])
    metric = log.metric()
    assert metric.prod_reclaimable is not None
    (of_pods, of_tiers) = prediction(log).predictors
    # 1 core is predicted as the end of its bucket; the margin is 10 %.
    assert within_a_bucket(of_pods.peak.cpu_milli, 1100)
    assert of_pods.reclaimable.cpu_milli == 4000 - of_pods.peak.cpu_milli
    # The system's two cores are in the peak of the priority predictor.
    assert within_a_bucket(of_tiers.peak.cpu_milli, 3300)
    assert metric.prod_reclaimable.cpu_milli == 4000 - of_tiers.peak.cpu_milli
    assert metric.prod_peak is not None
    assert metric.prod_peak.cpu_milli == of_tiers.peak.cpu_milli


def test_a_young_pod_lends_nothing() -> None:
    log = ready()
    log.place("b", 8000, created=START - timedelta(hours=23))
    log.minutes(3, 3000, pods=[pod("a", [100] * 15), pod("b", [100] * 15)])
    assert prediction(log).cold == 1
    (of_pods, _) = prediction(log).predictors
    assert of_pods.reclaimable.cpu_milli < 4000


def test_batch_pods_and_pods_that_end_lend_nothing() -> None:
    log = ready()
    log.place("b", 8000, priority=5500)
    log.place("a", 4000, phase=PlacementPhase.TERMINATING)
    log.minutes(3, 300, pods=[pod("a", [100] * 15), pod("b", [100] * 15)])
    assert log.metric().prod_reclaimable == Usage()


def test_a_pod_without_placement_is_counted_and_lends_nothing() -> None:
    log = ready()
    log.place("a", 4000, phase=PlacementPhase.GONE)
    log.minutes(3, 300, pods=[pod("a", [100] * 15)])
    assert prediction(log).unplaced == 1
    assert log.metric().prod_reclaimable == Usage()


def test_without_the_nodes_allocatable_nothing_is_lent_and_the_report_says_why() -> None:
    log = MetricsLog()
    log.node()
    log.place("a", 4000)
    log.decide()
    log.minutes(3, 300, pods=[pod("a", [100] * 15)])
    assert log.metric().prod_reclaimable is None
    assert "allocatable" in prediction(log).error


def test_models_are_trained_once_a_minute_and_pods_models_end_after_thirty() -> None:
    log = ready()
    log.minutes(10, 3000, pods=[pod("a", [1000] * 15)])
    assert prediction(log).trainings in (9, 10)
    node = log.core._nodes["n1"].prediction
    assert node is not None
    assert "uid-a" in node.models.rows
    log.minutes(32, 3000)
    assert "uid-a" not in node.models.rows
    assert "__node__" in node.models.rows


def test_nodes_are_trained_together_at_intervals_not_with_each_decision() -> None:
    log = ready()
    log.minutes(3, 3000)
    node = log.core._nodes["n1"].prediction
    assert node is not None
    trainings = node.models.trainings
    # A minute of the node's clock ends with one of these messages.
    for seconds in (15, 30, 45, 60):
        log.sample([3000] * 15, at=log.now + timedelta(seconds=seconds))
    log.decide(after=TRAIN_EVERY.total_seconds() / 2)
    assert node.models.trainings == trainings
    log.decide(after=TRAIN_EVERY.total_seconds() / 2)
    assert node.models.trainings == trainings + 1


def test_a_deleted_node_leaves_no_models() -> None:
    log = ready()
    log.minutes(12, 3000)
    assert any(event.subject == "predictions.n1" for event in log.log)
    log.delete_node()
    log.decide(after=1)
    log.decide(after=1)
    last = [event for event in log.log if event.subject == "predictions.n1"][-1]
    assert last.tombstone


def test_models_are_stored_at_most_every_ten_minutes_and_replace_each_other() -> None:
    log = ready()
    log.minutes(35, 3000, pods=[pod("a", [1000] * 15)])
    stored = [event for event in log.log if event.subject == "predictions.n1"]
    assert len(stored) in (3, 4)
    assert all(event.replaces for event in stored)
    times = [event.time for event in stored if event.time is not None]
    assert all(later - earlier >= timedelta(minutes=10) for earlier, later in pairwise(times))


def test_a_restart_goes_on_with_the_stored_models() -> None:
    log = ready()
    log.minutes(30, 3000, pods=[pod("a", [1000] * 15)])
    before = log.metric()
    fresh = log.reloaded()
    fresh.decide(log.now)
    log.now += timedelta(seconds=60)
    log.sample([3000] * 15, [1000] * 15, pods=[pod("a", [1000] * 15)])
    fresh.apply(log.usage[-1])
    (event,) = [event for event in fresh.decide(log.now) if event.subject == "metrics.n1"]
    after = event.data
    assert isinstance(after, NodeMetricComputed)
    assert after.prod_reclaimable == before.prod_reclaimable
    assert after.prediction is not None
    assert after.prediction.restored.startswith("LOG:")


def models(pods: int, minutes: int = 300, spread: int = 97) -> tuple[ModelStore, NodeModels]:
    """The models of one node in a store where others were before and are gone."""
    store, found = ModelStore(), NodeModels()
    other = NodeModels()
    train(store, other, 10, 20, spread)
    store.keep(other, ())
    train(store, found, pods, minutes, spread)
    return store, found


def train(store: ModelStore, node: NodeModels, pods: int, minutes: int, spread: int) -> None:
    uids = [f"{number:08x}-0000-4000-8000-000000000000" for number in range(pods)]
    tiers = tier_places(uids, dict.fromkeys(uids, "koord-prod"))
    for minute in range(minutes):
        cpu = [100 + (minute * (number + 7)) % spread * 10 for number in range(pods)]
        values = np.array([cpu, [(1 + minute % 3) << 28] * pods], dtype=np.int64)
        figures = IntervalFigures(uids, tiers, values, (20_000 + minute, 40 << 30))
        store.train([Training(node, figures, START.timestamp() + 60 * minute)])


def stored(pods: int, minutes: int = 300) -> PredictionState:
    store, found = models(pods, minutes)
    return state_of("n1", store, found, int(found.trained_at * 1000), START)


@pytest.mark.parametrize("pods", [0, 1, 30])
def test_restored_percentiles_are_those_of_a_rank_that_is_hardly_off(pods: int) -> None:
    store, before = models(pods)
    state = state_of("n1", store, before, int(before.trained_at * 1000), START)
    new_store = ModelStore()
    after = restored(state, {uid for uid in before.rows if not uid.startswith("__")}, new_store)
    assert after is not None
    assert set(after.rows) == set(before.rows)
    buckets = 60
    off = buckets / 2 / min(state.cpu.heaviest, state.memory.heaviest)
    for histograms, again in ((store.cpu, new_store.cpu), (store.memory, new_store.memory)):
        for wanted in (0.6, 0.9, 0.95, 0.98):
            low, high = (histograms.percentiles([wanted + each]) for each in (-off, off))
            found = again.percentiles([wanted])
            for model, row in after.rows.items():
                old = before.rows[model]
                assert low[old, 0] <= found[row, 0] <= high[old, 0], (model, wanted)


def size(state: PredictionState) -> int:
    event = Event(
        subject="predictions.n1",
        data=state,
        id="cell/metrics-ingest/0/123456789/999",
        source="/cell/metrics-ingest/0",
        time=START,
        causes=("LOG:123456789",),
    )
    return len(encode_event(event))


@pytest.mark.parametrize("pods", [0, 30, 110, 600])
def test_a_state_is_at_most_8_kib_and_says_what_it_left_out(pods: int) -> None:
    state = stored(pods, 60)
    assert size(state) <= KIB_8
    assert len(state.packed_pods) // 16 + state.dropped == pods
    assert (state.dropped > 0) == (pods > 30)


def test_pods_that_are_gone_are_not_restored() -> None:
    after = restored(stored(3), set(), ModelStore())
    assert after is not None
    assert all(model.startswith("__") for model in after.rows)


@pytest.mark.parametrize("damage", [b"", b"\x80", b"\xff" * 40, b"\x01" * 9, bytes(range(128)) * 3])
def test_a_damaged_state_is_as_none_and_leaves_no_models(damage: bytes) -> None:
    state = stored(2)
    assert restored(state, set(), ModelStore()) is not None
    store = ModelStore()
    assert restored(msgspec.structs.replace(state, cpu=HistogramState(models=damage)), set(), store) is None
    assert restored(msgspec.structs.replace(state, memory=HistogramState(models=damage)), set(), store) is None
    assert not store.cpu.percentiles([1.0]).any()
    if len(damage) % 16:
        assert restored(msgspec.structs.replace(state, packed_pods=damage), set(), store) is None


def message(cpu: tuple[int, ...], pods: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> UsageSample:
    """Regular where all pods have as many samples as the node."""
    nothing = (0,) * len(cpu)
    return UsageSample(
        node="n1",
        offsets_ms=tuple(range(-1000 * (len(cpu) - 1), 1, 1000)),
        node_usage=Series(cpu_milli=cpu, memory_bytes=cpu),
        system_usage=Series(cpu_milli=nothing, memory_bytes=nothing),
        pods=tuple(
            PodUsage(
                namespace="d",
                name=name,
                uid=name,
                priority="koord-prod",
                series=Series(cpu_milli=values, memory_bytes=values),
            )
            for name, values in pods
        ),
    )


def figures(*messages: tuple[UsageSample, int]) -> IntervalFigures:
    """The P90s of an interval of these messages, each with the index of its first new sample."""
    interval = Interval("n1")
    for number, (sample, first) in enumerate(messages, start=1):
        keys = ["node", "system", *(pod.uid for pod in sample.pods)]
        interval.add(sample, samples_of(sample), keys, first, 15_000 * number)
    (found,) = figures_of([interval.end()])
    return found


def test_the_p90_is_the_rank_below_over_all_samples_of_the_interval() -> None:
    found = figures(
        (message(tuple(range(15)), (("a", tuple(range(100, 115))),)), 0),
        (message(tuple(range(15, 30)), (("a", tuple(range(115, 130))), ("b", (7, 9)))), 0),
    )
    # 30 samples: trunc(27) - 1 = the 27th smallest. Two samples: the smaller one.
    assert found.node == (26, 26)
    assert (found.pods, found.values[0].tolist()) == (["a", "b"], [126, 7])


def test_pods_with_impossible_values_are_left_out_of_the_training() -> None:
    found = figures((message((1, 2), (("a", (10**30, 1)), ("b", (-1, 1)), ("c", (5, 5)), ("d", (0, 0)))), 0))
    assert (found.pods, found.values[0].tolist()) == (["c", "d"], [5, 0])
    assert found.node == (1, 1)


def test_only_samples_that_are_new_are_trained_with() -> None:
    found = figures((message((9, 9, 1, 2), (("a", (9, 9, 3, 4)),)), 2))
    assert found.node == (1, 1)
    assert found.values.tolist() == [[3], [3]]


samples_of_series = st.lists(st.integers(0, 10**6), min_size=1, max_size=20)
intervals = st.lists(
    st.lists(
        st.tuples(samples_of_series, st.dictionaries(st.sampled_from("abc"), samples_of_series, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=5,
)


@given(intervals)
def test_p90s_of_many_intervals_are_those_of_each(given_intervals: list[list[tuple[list[int], dict[str, list[int]]]]]) -> None:
    ended, expected = [], []
    for messages in given_intervals:
        interval = Interval("n1")
        keys: list[str] = []
        plain: dict[str, list[int]] = {}
        for number, (node, pods) in enumerate(messages, start=1):
            shown = tuple((name, tuple(values[-len(node) :])) for name, values in pods.items())
            sample = message(tuple(node), shown)
            if keys[2:] != [*pods]:
                keys = ["node", "system", *pods]
            interval.add(sample, samples_of(sample), keys, 0, 15_000 * number)
            plain.setdefault("", []).extend(node)
            for name, values in shown:
                plain.setdefault(name, []).extend(values)
        ended.append(interval.end())
        expected.append({name: percentile_of(values, 0.9) for name, values in plain.items()})
    for found, plain_p90s in zip(figures_of(ended), expected, strict=True):
        assert found.node == (plain_p90s[""], plain_p90s[""])
        p90s = dict(zip(found.pods, found.values[0].tolist(), strict=True))
        assert p90s == {name: value for name, value in plain_p90s.items() if name}


def test_a_state_of_another_time_than_any_clocks_is_as_none() -> None:
    state = stored(2)
    for trained_ms in (-1, 0, 1 << 53, state.trained_ms + 10**9):
        assert restored(msgspec.structs.replace(state, trained_ms=trained_ms), set(), ModelStore()) is None
