"""The forecast by time of day in the service: chosen by configuration, judged, with a way back, and over a restart.

The node is busy for one quarter hour out of four, so that the histogram expects the busy one all the time.
"""

from __future__ import annotations

import random
from datetime import timedelta

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.metrics import PredictorTerms, ResourceForecast
from cotenant.events.node.predictions import PredictionState, SeasonState
from cotenant.explain.sentences import figures
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.core import MetricsIngestCore
from cotenant_metrics_ingest.policy import wants_time_of_day
from cotenant_metrics_ingest.prediction.checkpoints import states_of
from cotenant_metrics_ingest.prediction.seasonal import QUARTERS_A_WEEK, SeasonalCheckpoint
from cotenant_metrics_ingest.prediction.seasons import Seasons
from tests.unit.metrics_ingest.builders_metrics_ingest import START, MetricsLog, pod

BY_TIME = {"enable": True, "extensions": {"forecast": "timeOfDay"}}
IDLE, BUSY = 1000, 8000
GIB = 1 << 30
KIB_8 = 8192
HOUR_MINUTES = 60


def log_with(strategy: object) -> MetricsLog:
    log = MetricsLog(MetricsConfig(prediction_cold_start_seconds=0))
    log.node()
    log.executor(16_000, 64 * GIB)
    log.place("a", 12_000, 8 * GIB)
    log.strategy(strategy)
    log.decide()
    return log


def quarter(log: MetricsLog, cpu: int, minutes: int = 15) -> None:
    """A message of three samples a minute."""
    for _ in range(minutes):
        log.now += timedelta(seconds=60)
        log.sample([cpu] * 3, [2 * GIB] * 3, pods=[pod("a", [cpu - 200] * 3, [GIB] * 3)], period_ms=20_000)
        log.decide()


def hours(log: MetricsLog, count: int) -> None:
    for _ in range(count):
        quarter(log, BUSY)
        for _ in range(3):
            quarter(log, IDLE)


def forecasts(log: MetricsLog) -> dict[str, ResourceForecast]:
    prediction = log.metric().prediction
    assert prediction is not None
    return {each.resource: each for each in prediction.forecasts}


def terms(log: MetricsLog) -> dict[str, PredictorTerms]:
    prediction = log.metric().prediction
    assert prediction is not None
    return {each.predictor: each for each in prediction.predictors}


@pytest.fixture(scope="module")
def learned() -> MetricsLog:
    """Six hours: the busy quarter hours are long ago at the end of each hour, so that the recent ones are expected."""
    log = log_with(BY_TIME)
    hours(log, 6)
    return log


def test_without_configuration_there_is_no_forecast_by_time_of_day() -> None:
    log = log_with({"enable": True})
    quarter(log, BUSY, 5)
    assert forecasts(log) == {}
    assert "timeOfDay" not in terms(log)


def test_both_forecasts_and_their_errors_are_on_the_log(learned: MetricsLog) -> None:
    cpu = forecasts(learned)["cpu"]
    # The first quarter hour was not seen from its beginning on, the last one goes on.
    assert cpu.quarters in (22, 23)
    assert cpu.histogram is not None
    assert cpu.histogram >= BUSY * 1.1
    assert cpu.time_of_day is not None
    assert IDLE <= cpu.time_of_day <= IDLE * 1.05 + 25
    assert cpu.histogram_cost > 0
    shown = figures([event for event in learned.log if event.subject == "metrics.n1"][-1])
    assert f"{cpu.histogram_cost / 1000:.2f} cores" in shown["forecast of cpu"]
    assert "by time of day" in shown["forecast of cpu"]


def test_the_better_forecast_is_in_force_and_decides_what_prod_pods_do_not_need(learned: MetricsLog) -> None:
    metric = learned.metric()
    # Memory does not change, where the histogram withholds its margin; the rush hours of CPU are not known on the first day.
    assert {name: each.by_time_of_day for name, each in forecasts(learned).items()} == {"cpu": False, "memory": True}
    for place, (name, resource) in enumerate(forecasts(learned).items()):
        assert resource.by_time_of_day == (resource.time_of_day_cost < resource.histogram_cost * 0.9), name
        assert metric.prod_reclaimable is not None
        assert metric.prod_peak is not None
        given = (metric.prod_reclaimable.cpu_milli, metric.prod_reclaimable.memory_bytes)[place]
        peak = (metric.prod_peak.cpu_milli, metric.prod_peak.memory_bytes)[place]
        request = (12_000, 8 * GIB)[place]
        if resource.by_time_of_day:
            assert resource.time_of_day is not None
            assert (given, peak) == (request - resource.time_of_day, resource.time_of_day)
        else:
            assert given <= request - (resource.histogram or 0)
            assert peak == resource.histogram


def test_where_it_is_worse_it_falls_back_to_the_histogram() -> None:
    seasons = Seasons()
    row = np.array([seasons.begin()])
    by_histogram = np.array([[9000.0], [1.1e9]])
    chosen = []
    for minute in range(40 * HOUR_MINUTES):
        hour = minute // HOUR_MINUTES
        # A steady day, then one with a rush each hour that begins in the middle of a quarter hour and is seen too late.
        rush = hour >= 20 and minute % HOUR_MINUTES in range(7, 15)
        peaks = np.array([[8000.0 if rush else 1000.0], [1e9]])
        seasons.observe(row, np.array([START.timestamp() + 60 * minute]), peaks, lambda _: by_histogram)
        if minute % HOUR_MINUTES == HOUR_MINUTES - 1:
            ((cpu, _),) = seasons.forecasts(row, np.array([START.timestamp() + 60 * minute]), by_histogram)
            chosen.append(cpu.by_time_of_day)
    assert not chosen[0]
    assert all(chosen[3:20])
    assert not chosen[-1]


def test_switching_it_off_takes_effect_and_leaves_nothing_behind(learned: MetricsLog) -> None:
    core = reloaded(learned)
    node = core._nodes["n1"]
    node.strategy = msgspec.Raw(b'{"enable": true}')
    node.configure()
    assert node.prediction is not None
    assert node.prediction.season is None
    assert node.prediction.to_store("n1").seasons == ()
    node.strategy = msgspec.Raw(msgspec.json.encode(BY_TIME))
    node.configure()
    assert node.prediction.season is not None
    assert all(not any(checkpoint(each).peaks) for each in node.prediction.to_store("n1").seasons)


def checkpoint(state: SeasonState) -> SeasonalCheckpoint:
    seasons = Seasons()
    row = seasons.begin()
    seasons.restore(row, [state])
    return seasons.resources[("cpu", "memory").index(state.resource)].profiles.checkpoint(row)


def reloaded(log: MetricsLog) -> MetricsIngestCore:
    core = log.reloaded()
    core.decide(log.now)
    return core


def test_a_restart_keeps_the_week_and_the_choice(learned: MetricsLog) -> None:
    before = learned.core._nodes["n1"].prediction
    stored = next(event for event in reversed(learned.log) if event.subject == "predictions.n1").data
    assert isinstance(stored, PredictionState)
    after = reloaded(learned)._nodes["n1"].prediction
    assert before is not None
    assert after is not None
    for old, state, new in zip(
        before.to_store("n1").seasons, stored.seasons, after.to_store("n1").seasons, strict=True
    ):
        assert (new.by_time_of_day, checkpoint(new)) == (state.by_time_of_day, checkpoint(state))
        assert new.by_time_of_day == old.by_time_of_day


def test_a_state_with_two_weeks_and_thirty_pods_is_at_most_8_kib() -> None:
    dice = random.Random(3)
    log = log_with(BY_TIME)
    pods = [pod(f"{number:08x}-0000-4000-8000-000000000000", [300] * 3, [GIB] * 3) for number in range(30)]
    for _ in range(11):
        log.now += timedelta(seconds=60)
        log.sample([9000] * 3, [2 * GIB] * 3, pods=pods, period_ms=20_000)
        log.decide()
    prediction = log.core._nodes["n1"].prediction
    assert prediction is not None
    assert prediction.season is not None
    for resource in prediction.store.seasons.resources:
        noise = bytes(dice.randrange(40, 150) for _ in range(QUARTERS_A_WEEK))
        resource.profiles.load(prediction.season, SeasonalCheckpoint(1_963_000, noise))
    (state,) = states_of([prediction.to_store("n1")], prediction.store.models, log.now)
    assert len(msgspec.json.encode(state)) <= KIB_8 - 700


@pytest.mark.parametrize("damage", [b"", b"\x00", b"x" * 700, bytes(range(256))])
def test_a_damaged_week_is_as_none(damage: bytes) -> None:
    seasons = Seasons()
    row = seasons.begin()
    seasons.restore(row, [SeasonState(resource="cpu", by_time_of_day=True, latest_quarter=5, peaks=damage)])
    assert not any(state.by_time_of_day for state in seasons.state(row))


@pytest.mark.parametrize(
    ("strategy", "annotation", "wanted"),
    [
        (BY_TIME, "", True),
        ({"extensions": {"forecast": "timeOfDay"}}, "", False),
        ({"enable": True, "extensions": {"forecast": "histogram"}}, "", False),
        ({"enable": True, "extensions": {"forecast": 7}}, "", False),
        ({"enable": True, "extensions": []}, "", False),
        (BY_TIME, '{"extensions": {"forecast": null}}', False),
        ({"enable": True, "extensions": {"other": 1}}, '{"extensions": {"forecast": "timeOfDay"}}', True),
        (BY_TIME, '{"extensions": {"other": 1}}', True),
        (BY_TIME, "no JSON", True),
    ],
)
def test_the_strategy_chooses_the_forecast_and_a_nodes_annotation_overlays_it(
    strategy: object, annotation: str, wanted: bool
) -> None:
    assert wants_time_of_day(msgspec.json.encode(strategy), annotation) is wanted


amounts = st.lists(st.tuples(st.integers(0, 1 << 44), st.integers(0, 1 << 44)), min_size=1, max_size=60)


@settings(max_examples=40, deadline=None)
@given(amounts, amounts)
def test_rows_do_not_see_one_another(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    together, alone = Seasons(), Seasons()
    rows, one = np.array([together.begin(), together.begin()]), np.array([alone.begin()])
    for minute in range(min(len(first), len(second))):
        at = START.timestamp() + 300 * minute
        peaks = np.array([first[minute], second[minute]], dtype=float).T
        together.observe(rows, np.array([at, at + 70]), peaks, lambda asked: np.full((2, len(asked)), 1e6))
        alone.observe(one, np.array([at]), peaks[:, :1], lambda asked: np.full((2, len(asked)), 1e6))
        expected = np.full((2, 2), 1e6)
        found = together.forecasts(rows, np.array([at, at + 70]), expected)[0]
        assert found == alone.forecasts(one, np.array([at]), expected[:, :1])[0]
        assert all(each.time_of_day is not None and each.time_of_day >= 0 for each in found)
