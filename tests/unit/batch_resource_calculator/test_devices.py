"""Totals of a node's devices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.api.objects.device import Device
from cotenant.kinds.koordinator.devices import device_errors
from cotenant.model.subjects import object_subject
from cotenant_batch_resource_calculator.formulas.devices import DeviceTotals, device_totals
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, Bench

SUBJECT = object_subject("scheduling.koordinator.sh", "devices", "", "a")


def gpu(minor: int, resources: dict[str, str] | None = None, *, health: bool = True) -> dict[str, Any]:
    named = {f"koordinator.sh/{name.replace('_', '-')}": amount for name, amount in (resources or {}).items()}
    return {"type": "gpu", "minor": minor, "health": health, "resources": named}


def device(*devices: dict[str, Any], labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": "a", "labels": labels or {}}, "spec": {"devices": list(devices)}}


def totals(document: dict[str, Any]) -> DeviceTotals:
    return device_totals(msgspec.convert(document, Device))


WHOLE = {"gpu_core": "100", "gpu_memory": "16Gi", "gpu_memory_ratio": "100"}


def test_healthy_devices_are_summed() -> None:
    rdma = {"type": "rdma", "minor": 0, "health": True}
    found = totals(device(gpu(0, WHOLE), gpu(1, WHOLE), gpu(2, WHOLE, health=False), rdma, {**rdma, "health": False}))
    assert found.amounts == {
        "koordinator.sh/gpu": 200,
        "koordinator.sh/gpu-core": 200,
        "koordinator.sh/gpu-memory": 32 * GIB,
        "koordinator.sh/gpu-memory-ratio": 200,
        "koordinator.sh/gpu.shared": 200,
        "koordinator.sh/rdma": 100,
    }


def test_a_node_without_a_healthy_device_offers_none() -> None:
    assert totals(device(gpu(0, WHOLE, health=False))).amounts == {}
    assert totals(device()).amounts == {}


def test_gpus_of_another_vendor_are_not_counted_in_gpu() -> None:
    found = totals(device(gpu(0, WHOLE), labels={"node.koordinator.sh/gpu-vendor": "huawei", "other": "x"}))
    assert "koordinator.sh/gpu" not in found.amounts
    assert found.labels == {"node.koordinator.sh/gpu-vendor": "huawei"}


def test_deprecated_names_count_as_the_new_ones() -> None:
    old = {"type": "gpu", "health": True, "resources": {"kubernetes.io/gpu-core": "50", "nvidia.com/gpu": "1"}}
    assert totals(device(old)).amounts == {
        "koordinator.sh/gpu": 50,
        "koordinator.sh/gpu-core": 50,
        "koordinator.sh/gpu.shared": 100,
        "nvidia.com/gpu": 1,
    }


@pytest.mark.parametrize("amount", ["many", "", "1e400x"])
def test_an_amount_that_is_no_quantity_makes_no_totals(amount: str) -> None:
    found = totals(device(gpu(0, {"gpu_core": amount})))
    assert found.amounts == {}
    assert "Device object" in found.error


def test_the_nodes_event_has_the_totals_whether_it_lends_or_not() -> None:
    bench = Bench()
    bench.node()
    bench.store_object(SUBJECT, device(gpu(0, WHOLE), labels={"node.koordinator.sh/gpu-model": "A100"}))
    bench.decide()
    assert bench.resources().withdrawn
    assert bench.resources().devices["koordinator.sh/gpu"] == 100
    assert bench.resources().device_labels == {"node.koordinator.sh/gpu-model": "A100"}
    bench.configure()
    bench.metric()
    bench.decide()
    assert not bench.resources().withdrawn
    assert bench.resources().devices["koordinator.sh/gpu"] == 100


def test_devices_that_fall_ill_are_published_at_once() -> None:
    bench = Bench()
    bench.configure()
    bench.node()
    bench.metric()
    bench.store_object(SUBJECT, device(gpu(0, WHOLE), gpu(1, WHOLE)))
    bench.decide()
    bench.store_object(SUBJECT, device(gpu(0, WHOLE), gpu(1, WHOLE, health=False)))
    bench.decide()
    assert bench.resources().devices["koordinator.sh/gpu"] == 100
    bench.store_object(SUBJECT, {"metadata": {"name": "a"}, "spec": {"devices": 7}})
    bench.decide()
    assert bench.resources().devices == {}
    assert "cannot be read" in bench.resources().message


def test_a_device_needs_a_type_and_a_minor_of_its_own() -> None:
    wrong = device({"type": "", "minor": 0}, gpu(1), gpu(1), gpu(-1, {"gpu_core": "x"}))
    fields = [error.field for error in device_errors(msgspec.convert(wrong, Device))]
    assert fields == [
        "spec.devices[0].type",
        "spec.devices[2].minor",
        "spec.devices[3].minor",
        "spec.devices[3].resources[koordinator.sh/gpu-core]",
    ]
