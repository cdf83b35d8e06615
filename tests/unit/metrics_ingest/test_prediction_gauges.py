"""Predictions by koordlet's names on the service's metrics page."""

from __future__ import annotations

import pytest

from cotenant.engine.definition import Gauge
from cotenant_metrics_ingest import gauges
from cotenant_metrics_ingest.definition import DEFINITION
from tests.unit.metrics_ingest.builders_metrics_ingest import MetricsLog, pod

GIB = 1 << 30
RECLAIMABLE = "node_priority_resource_reclaimable"
STATUS = "node_resource_priority_reclaimable_status"
BY_PREDICTOR = "node_predicted_resource_reclaimable"
PEAK = "node_predicted_resource_peak"


def values(log: MetricsLog, name: str) -> list[tuple[float, dict[str, str]]]:
    gauge: Gauge = next(found for found in DEFINITION.gauges if found.name == f"koordlet_{name}")
    return list(gauge.read(log.core))


def peaks_by_node(log: MetricsLog) -> dict[str, float]:
    wanted = ("minPredictor", "core")
    return {found["node"]: value for value, found in values(log, PEAK) if (found["predictor"], found["unit"]) == wanted}


def ready() -> MetricsLog:
    log = MetricsLog()
    log.node()
    log.executor(16_000, 64 * GIB)
    log.place("a", 4000)
    log.decide()
    return log


def test_the_result_and_each_predictor_are_those_of_the_report() -> None:
    log = ready()
    log.minutes(5, 3000, pods=[pod("a", [1000] * 15)])
    metric = log.metric()
    assert metric.prod_reclaimable is not None
    assert metric.prod_peak is not None
    assert metric.prediction is not None
    labels = {"node": "n1", "priority": "koord-prod"}
    assert metric.prod_reclaimable.cpu_milli > 0
    assert values(log, RECLAIMABLE) == [
        (metric.prod_reclaimable.cpu_milli / 1000, {**labels, "resource": "cpu", "unit": "core"}),
        (metric.prod_reclaimable.memory_bytes, {**labels, "resource": "memory", "unit": "byte"}),
    ]
    assert values(log, STATUS) == [(0, labels)]
    of_cpu = {found["predictor"]: value for value, found in values(log, BY_PREDICTOR) if found["resource"] == "cpu"}
    (pods, tiers) = metric.prediction.predictors
    assert of_cpu == {
        "podReclaimablePredictor": pods.reclaimable.cpu_milli / 1000,
        "priorityReclaimablePredictor": tiers.reclaimable.cpu_milli / 1000,
        "minPredictor": metric.prod_reclaimable.cpu_milli / 1000,
    }
    of_memory = {found["predictor"]: value for value, found in values(log, PEAK) if found["resource"] == "memory"}
    assert of_memory == {
        "podReclaimablePredictor": pods.peak.memory_bytes,
        "priorityReclaimablePredictor": tiers.peak.memory_bytes,
        "minPredictor": metric.prod_peak.memory_bytes,
    }


def test_without_a_prediction_nothing_is_reclaimable_and_the_status_is_1() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.minutes(3, 300)
    assert log.metric().prod_reclaimable is None
    assert {value for value, _ in values(log, RECLAIMABLE)} == {0}
    assert values(log, STATUS) == [(1, {"node": "n1", "priority": "koord-prod"})]
    assert [value for value, found in values(log, BY_PREDICTOR) if found["predictor"] == "minPredictor"] == []


def test_a_silent_node_is_not_shown_and_is_again_with_its_samples() -> None:
    log = ready()
    log.minutes(3, 300)
    log.decide(after=60)
    log.decide(after=3600)
    assert log.metric().unknown_since is not None
    assert [values(log, name) for name in (RECLAIMABLE, STATUS, BY_PREDICTOR, PEAK)] == [[], [], [], []]
    log.minutes(1, 300)
    assert values(log, STATUS)


def test_a_restarted_service_shows_what_was_reported() -> None:
    log = ready()
    log.minutes(5, 3000, pods=[pod("a", [1000] * 15)])
    before = values(log, BY_PREDICTOR)
    log.core = log.reloaded()
    assert values(log, BY_PREDICTOR) == before


def test_nodes_beyond_the_bound_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = ready()
    for name in ("n2", "n3"):
        log.node(name)
        log.executor(16_000, 64 * GIB, name)
    for _ in range(4 * 3):
        for name in ("n1", "n2", "n3"):
            log.sample([300] * 15, node=name)
        log.decide(after=15)
    every = peaks_by_node(log)
    assert set(every) == {"n1", "n2", "n3"}
    monkeypatch.setattr(gauges, "MOST_NODES", 1)
    assert peaks_by_node(log) == {"n1": every["n1"], "(others)": every["n2"] + every["n3"]}
