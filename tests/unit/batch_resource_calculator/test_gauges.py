"""slo-controller's metrics by its names."""

from __future__ import annotations

import pytest

from cotenant.engine.definition import Gauge
from cotenant.model.subjects import object_subject
from cotenant_batch_resource_calculator import gauges
from cotenant_batch_resource_calculator.definition import DEFINITION
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, Bench, used

PREFIX = "slo_controller_"
DEVICES = object_subject("scheduling.koordinator.sh", "devices", "", "a")


def values(bench: Bench, name: str) -> list[tuple[float, dict[str, str]]]:
    gauge: Gauge = next(found for found in DEFINITION.gauges if found.name == PREFIX + name)
    return list(gauge.read(bench.core))


def of_plugins(bench: Bench, *plugins: str) -> dict[tuple[str, str, str], float]:
    found = values(bench, "node_resource_run_plugin_status")
    rows = ((labels["plugin"], labels["status"], labels["reason"], count) for count, labels in found)
    return {(plugin, status, reason): count for plugin, status, reason, count in rows if plugin in plugins}


def test_events_and_configmaps_are_counted_by_outcome() -> None:
    bench = Bench()
    bench.configure("{")
    bench.configure()
    bench.node("a")
    bench.node("b", cpu="0")
    bench.metric("a")
    bench.decide()
    assert values(bench, "node_resource_reconcile_count") == [
        (1, {"status": "failed", "reason": "UnknownCapacity"}),
        (1, {"status": "succeeded", "reason": ""}),
    ]
    assert values(bench, "nodemetric_spec_parse_count") == [(1, {"status": "failed"}), (1, {"status": "succeeded"})]
    assert values(bench, "nodeslo_spec_parse_count") == [(0, {"status": "failed"}), (2, {"status": "succeeded"})]
    assert values(bench, "nodeslo_reconcile_count") == [(0, {"status": "failed"}), (2, {"status": "succeeded"})]


def test_a_metric_that_is_missing_is_a_failed_calculation() -> None:
    bench = Bench()
    bench.configure()
    bench.node()
    bench.decide()
    assert of_plugins(bench, "BatchResource", "MidResource") == {
        (name, status, reason): count
        for name in ("BatchResource", "MidResource")
        for count, status, reason in ((1, "failed", "NoMetric"), (0, "succeeded", ""))
    }


def test_a_calculation_whose_input_cannot_be_used_is_a_failed_one() -> None:
    bench = Bench()
    bench.configure(
        cpu_normalization_config='{"enable": true}',
        resource_amplification_config='{"enable": true, "resourceAmplificationRatio": {"cpu": 0.5}}',
    )
    bench.node()
    bench.metric()
    bench.decide()
    bench.store_object(DEVICES, {"spec": {"devices": [{"type": "gpu", "health": True, "resources": {"x": "many"}}]}})
    bench.decide()
    inputs = ("CPUNormalization", "ResourceAmplification", "GPUDeviceResource", "RDMADeviceResource")
    assert bench.resources().failed == inputs
    assert of_plugins(bench, *inputs) == {
        ("CPUNormalization", "failed", "UnusableInput"): 2,
        ("CPUNormalization", "succeeded", ""): 0,
        ("ResourceAmplification", "failed", "UnusableInput"): 2,
        ("ResourceAmplification", "succeeded", ""): 0,
        ("GPUDeviceResource", "failed", "UnusableInput"): 1,
        ("GPUDeviceResource", "succeeded", ""): 1,
        ("RDMADeviceResource", "failed", "UnusableInput"): 1,
        ("RDMADeviceResource", "succeeded", ""): 1,
    }
    bench.configure()
    bench.store_object(DEVICES, {"spec": {"devices": []}})
    bench.decide()
    assert bench.resources().failed == ()
    assert of_plugins(bench, "CPUNormalization")["CPUNormalization", "succeeded", ""] == 1


def test_amounts_are_shown_before_foreign_shares_in_cores_and_bytes() -> None:
    bench = Bench()
    bench.configure()
    bench.node()
    bench.yarn(used(10, 10))
    bench.metric(system=used(1, 1), prod_reclaimable=used(7, 8))
    bench.decide()
    shown = values(bench, "node_extended_resource_allocatable_internal")
    assert {labels["node"] for _, labels in shown} == {"a"}
    found = {labels["resource"]: (value, labels["unit"]) for value, labels in shown}
    assert found == {
        "kubernetes.io/batch-cpu": (59.0, "core"),
        "kubernetes.io/batch-memory": (64.0 * GIB, "byte"),
        "kubernetes.io/mid-cpu": (7.0, "core"),
        "kubernetes.io/mid-memory": (8.0 * GIB, "byte"),
    }


def test_beyond_a_number_of_nodes_the_others_are_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "MOST_NODES", 2)
    bench = Bench()
    bench.configure()
    for name in "abcd":
        bench.node(name)
        bench.metric(name, system=used(1, 1))
    bench.decide()
    shown = values(bench, "node_extended_resource_allocatable_internal")
    cpu = {labels["node"]: value for value, labels in shown if labels["resource"] == "kubernetes.io/batch-cpu"}
    assert cpu == {"a": 59.0, "b": 59.0, "(others)": 118.0}
