"""What fuzzing found: a zone's number of thousands of digits, and a published ratio that is no number."""

from __future__ import annotations

import json

import msgspec
import pytest

from cotenant.events.node.resources import NodeResources
from cotenant.events.requests import ConfigEffect
from cotenant.model.subjects import resources_subject
from cotenant_batch_resource_calculator.topology import declared_topology
from cotenant_batch_resource_calculator.trial import effect_of
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import NOON, Bench


def test_a_zone_with_a_number_of_thousands_of_digits_comes_last() -> None:
    resources = [{"name": "cpu", "allocatable": "1"}]
    zones = [{"name": name, "resources": resources} for name in ("node-" + "9" * 5000, "node-10", "node-2")]
    assert list(declared_topology(json.dumps({"zones": zones}).encode()).zones)[:2] == ["node-2", "node-10"]


@pytest.mark.parametrize("text", ["ä", "nan", "1e999"])
def test_a_published_ratio_that_is_no_number_is_as_none(text: str) -> None:
    unreadable = {"cpu-normalization-config": "[]", "resource-amplification-config": json.dumps({"enable": True})}
    bench = Bench()
    bench.configure(cpu_normalization_config="[]")
    bench.node("a")
    bench.store(resources_subject("a"), NodeResources(node="a", cpu_normalization=text))
    *_, effect = effect_of(bench.core, NOON, json.dumps(unreadable).encode())
    assert effect is not None
    assert msgspec.json.decode(effect, type=ConfigEffect).error == ""
    bench.decide()
    (resources,) = bench.core.published()
    assert resources.cpu_normalization == ""
