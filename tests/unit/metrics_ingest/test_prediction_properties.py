"""Prediction for any use: against a plain reference, never negative, monotone in use, over a restart.

Tolerance against the reference: as in test_histogram, a percentile lies between the reference's at ranks 1e-9 lower and higher.
Over a restart (docs/metrics-ingest.md): the rank is off by half a ten-thousandth for each bucket in use, and by the intervals
that were not over or not stored, here at most one and a half of thirty.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant_metrics_ingest.config import MetricsConfig
from cotenant_metrics_ingest.prediction.models import (
    CPU_HALF_LIFE_SECONDS,
    EXPIRED_SECONDS,
    MEMORY_HALF_LIFE_SECONDS,
    NODE_MODEL,
    SYSTEM_MODEL,
    TIERS,
    IntervalFigures,
    ModelStore,
    NodeModels,
    Training,
    tier_model,
    tier_places,
)
from cotenant_metrics_ingest.prediction.predictors import PodRequest, Prediction, predict, with_forecast
from tests.unit.metrics_ingest.builders_metrics_ingest import START, MetricsLog, pod
from tests.unit.metrics_ingest.plain_histogram import PlainHistogram

GIB = 1 << 30
TOLERANCE = 1e-9
PERCENTILES = (0.6, 0.9, 0.95, 0.98, 1.0)
BEGIN = START.timestamp()

uses = st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 41))
tiers = st.sampled_from([tier.value for tier in TIERS])
minutes = st.lists(
    st.tuples(
        st.one_of(st.none(), uses),
        st.dictionaries(st.sampled_from("abcd"), st.tuples(tiers, uses), max_size=4),
        st.integers(1, 40),
    ),
    min_size=1,
    max_size=12,
)


class Plain:
    """The models of one node as the rule states them: a list of samples each."""

    def __init__(self) -> None:
        self.models: dict[str, tuple[PlainHistogram, PlainHistogram]] = {}
        self.updated: dict[str, float] = {}

    def train(self, node: tuple[int, int] | None, pods: dict[str, tuple[str, tuple[int, int]]], seconds: float) -> None:
        every = tuple(sum(use[place] for _, use in pods.values()) for place in range(2))
        samples = {uid: use for uid, (_, use) in pods.items()}
        for tier in TIERS:
            own = [use for of, use in pods.values() if of == tier.value]
            samples[tier_model(tier.value)] = (sum(cpu for cpu, _ in own), sum(memory for _, memory in own))
        known = node or (0, 0)
        samples[SYSTEM_MODEL] = (max(known[0] - every[0], 0), max(known[1] - every[1], 0))
        if node is not None:
            samples[NODE_MODEL] = node
        for model, (cpu, memory) in samples.items():
            if model not in self.models:
                self.models[model] = (
                    PlainHistogram(1024.0, 0.025, 1.05, CPU_HALF_LIFE_SECONDS),
                    PlainHistogram(2.0**41, 5 * 2.0**20, 1.05, MEMORY_HALF_LIFE_SECONDS),
                )
            self.models[model][0].add(cpu / 1000, 1.0, seconds)
            self.models[model][1].add(float(memory), 1.0, seconds)
            self.updated[model] = seconds
        for model in [model for model, at in self.updated.items() if seconds - at > EXPIRED_SECONDS]:
            del self.models[model], self.updated[model]


@settings(max_examples=25, deadline=None)
@given(st.lists(minutes, min_size=1, max_size=3))
def test_models_of_many_nodes_are_those_of_the_plain_rule(
    nodes: list[list[tuple[tuple[int, int] | None, dict[str, tuple[str, tuple[int, int]]], int]]],
) -> None:
    store, models, plain = ModelStore(), [NodeModels() for _ in nodes], [Plain() for _ in nodes]
    times = [BEGIN + 17 * place for place in range(len(nodes))]
    for turn in range(max(map(len, nodes))):
        trainings = []
        for place, intervals in enumerate(nodes):
            if turn < len(intervals):
                node, pods, later = intervals[turn]
                times[place] += 60 * later
                plain[place].train(node, pods, times[place])
                values = np.array([use for _, use in pods.values()], dtype=np.int64).reshape(-1, 2).T
                of_pods = tier_places(pods, {uid: tier for uid, (tier, _) in pods.items()})
                trainings.append(Training(models[place], IntervalFigures([*pods], of_pods, values, node), times[place]))
        store.train(trainings)
    for found, expected, seconds in zip(models, plain, times, strict=True):
        assert set(found.rows) == set(expected.models)
        for histograms, resource in ((store.cpu, 0), (store.memory, 1)):
            for model, row in found.rows.items():
                percentiles = histograms.percentiles(PERCENTILES, np.array([row]))[0]
                for wanted, value in zip(PERCENTILES, percentiles.tolist(), strict=True):
                    plain_model = expected.models[model][resource]
                    low, high = (plain_model.percentile(wanted + each, seconds) for each in (-TOLERANCE, TOLERANCE))
                    assert low * (1 - TOLERANCE) <= value <= high * (1 + TOLERANCE), (model, wanted)


usages = st.builds(Usage, cpu_milli=st.integers(0, 1 << 44), memory_bytes=st.integers(0, 1 << 50))
requests = st.builds(
    PodRequest, uid=st.sampled_from("abcde"), prod=st.booleans(), age_seconds=st.floats(-10, 1e6), request=usages,
    ended=st.booleans(),
)
expected_values = st.one_of(st.none(), st.integers(0, 1 << 44))


def both(usage: Usage) -> tuple[int, int]:
    return usage.cpu_milli, usage.memory_bytes


def predicted(
    pods: list[PodRequest],
    peaks: dict[str, Usage],
    system: Usage | None,
    allocatable: Usage | None,
    forecast: tuple[int | None, int | None] = (None, None),
) -> Prediction:
    found = predict(pods, peaks, {"system": system}, allocatable=allocatable, cold_start_seconds=3600, margin_percent=10)
    return with_forecast(found, *forecast, allocatable)


@given(
    st.lists(requests, max_size=5),
    st.dictionaries(st.sampled_from("abcde"), usages),
    st.one_of(st.none(), usages),
    st.one_of(st.none(), usages),
    st.tuples(expected_values, expected_values),
)
def test_what_is_not_needed_is_never_negative_nor_more_than_was_requested_or_can_be_given(
    pods: list[PodRequest],
    peaks: dict[str, Usage],
    system: Usage | None,
    allocatable: Usage | None,
    forecast: tuple[int | None, int | None],
) -> None:
    found = predicted(pods, peaks, system, allocatable, forecast)
    if system is None or allocatable is None:
        assert found.reclaimable is None
        assert found.error
        return
    assert found.reclaimable is not None
    asked = {each.uid: each for each in reversed(pods) if each.prod and not each.ended}
    most = zip(both(allocatable), *(both(each.request) for each in asked.values()), strict=True)
    for given_amount, (can_give, *of_pods) in zip(both(found.reclaimable), most, strict=True):
        assert 0 <= given_amount <= min(can_give, sum(of_pods))


@given(
    st.lists(requests, max_size=5),
    st.dictionaries(st.sampled_from("abcde"), usages),
    usages,
    usages,
    st.dictionaries(st.sampled_from("abcde"), usages),
    st.tuples(expected_values, expected_values),
)
def test_who_is_predicted_to_use_more_gives_no_more(
    pods: list[PodRequest],
    peaks: dict[str, Usage],
    system: Usage,
    allocatable: Usage,
    more: dict[str, Usage],
    forecast: tuple[int | None, int | None],
) -> None:
    before = predicted(pods, peaks, system, allocatable, forecast)
    higher = {
        uid: Usage(
            cpu_milli=peak.cpu_milli + more.get(uid, Usage()).cpu_milli,
            memory_bytes=min(peak.memory_bytes + more.get(uid, Usage()).memory_bytes, 1 << 50),
        )
        for uid, peak in peaks.items()
    }
    raised = (None if forecast[0] is None else forecast[0] + 1000, None if forecast[1] is None else forecast[1] + GIB)
    after = predicted(pods, higher, system, allocatable, raised)
    assert before.reclaimable is not None
    assert after.reclaimable is not None
    assert all(new <= old for new, old in zip(both(after.reclaimable), both(before.reclaimable), strict=True))


def run(log: MetricsLog, used: list[int]) -> NodeMetricComputed:
    """A minute each; the system uses half a core beside the pod."""
    for cpu in used:
        log.now += timedelta(seconds=60)
        log.sample([cpu + 500] * 3, [cpu << 20] * 3, pods=[pod("a", [cpu] * 3, [cpu << 19] * 3)], period_ms=20_000)
        log.decide()
    return log.metric()


def ready() -> MetricsLog:
    log = MetricsLog(MetricsConfig(prediction_cold_start_seconds=0))
    log.node()
    log.executor(32_000, 64 * GIB)
    log.place("a", 16_000, 32 * GIB)
    log.decide()
    return log


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 8000)), min_size=2, max_size=20))
def test_a_node_that_uses_more_gives_no_more(course: list[tuple[int, int]]) -> None:
    low, high = run(ready(), [cpu for cpu, _ in course]), run(ready(), [cpu + more for cpu, more in course])
    assert low.prod_reclaimable is not None
    assert high.prod_reclaimable is not None
    assert low.prod_peak is not None
    assert high.prod_peak is not None
    for less, more in zip(both(high.prod_reclaimable), both(low.prod_reclaimable), strict=True):
        assert 0 <= less <= more
    assert high.prod_peak.cpu_milli >= low.prod_peak.cpu_milli
    assert low.services_peak is not None
    assert low.services_peak.cpu_milli == course[-1][0] + 500


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(100, 8000), min_size=30, max_size=30), st.data())
def test_a_restart_in_the_middle_predicts_the_same_within_what_is_promised(course: list[int], data: st.DataObject) -> None:
    log = ready()
    run(log, course[:12])
    while not log.log[-1].subject.startswith("predictions."):
        run(log, [course[12]])
    middle = data.draw(st.integers(0, 10))
    run(log, course[12 : 12 + middle])
    going_on, again = log.core, log.reloaded()
    again.decide(log.now)
    for cpu in course[12 + middle :]:
        log.core = going_on
        run(log, [cpu])
        for event in (log.usage[-1], *[each for each in log.log[-2:] if each.subject.startswith("metrics")]):
            again.apply(event)
        again.decide(log.now)
    before, after = going_on._nodes["n1"].prediction, again._nodes["n1"].prediction
    assert before is not None
    assert after is not None
    assert set(after.models.rows) == set(before.models.rows)
    lost = (min(middle, 10) + 1.5) / 30
    for model in before.models.rows:
        for histograms, others in (
            (before.store.models.cpu, after.store.models.cpu),
            (before.store.models.memory, after.store.models.memory),
        ):
            old, new = np.array([before.models.rows[model]]), np.array([after.models.rows[model]])
            for wanted in (0.6, 0.9, 0.95, 0.98):
                low, high = (
                    histograms.percentiles([min(max(wanted + each, 0.0), 1.0)], old)[0, 0] for each in (-lost, lost)
                )
                assert low <= others.percentiles([wanted], new)[0, 0] <= high, (model, wanted)


@pytest.mark.parametrize("silence", [timedelta(minutes=4), timedelta(days=2)])
def test_a_node_that_was_silent_gives_what_it_gave_and_says_since_when(silence: timedelta) -> None:
    log = ready()
    before = run(log, [3000] * 5)
    log.decide(after=silence.total_seconds())
    after = log.metric()
    assert after.unknown_since is not None
    assert after.prod_reclaimable == before.prod_reclaimable


def test_a_node_that_uses_nothing_gives_all_but_the_first_buckets() -> None:
    metric = run(ready(), [0] * 5)
    assert metric.prod_reclaimable is not None
    # System 0.5 cores, tiers prod and none: the ends of their buckets and 10 %.
    assert 16_000 - (550 + 50 + 50) * 1.1 <= metric.prod_reclaimable.cpu_milli < 16_000 - 550
