"""NodeSLOs: what nodes share, what they have of their own, and which memory their metrics count."""

from __future__ import annotations

import json

import msgspec
import pytest

from cotenant.domain.reservation import NodeReservation
from cotenant.events.node.resources import NodeSLORendered
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.rendering import Renderer
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import Bench

HOT = "usageWithHotPageCache"
SECTIONS = {
    "resource-threshold-config": json.dumps(
        {
            "clusterStrategy": {"enable": True, "allocatableEvictPriorityThreshold": 5999},
            "nodeStrategies": [
                {"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuSuppressThresholdPercent": 50},
                {"nodeSelector": {"matchLabels": {"pool": "y"}}, "enable": False},
            ],
        }
    ),
    "system-config": json.dumps({"clusterStrategy": {"schedFeatures": {"ID_LOAD": True}, "pageCacheLimitEnabled": 1}}),
    "host-application-config": json.dumps(
        {"applications": [{"name": "nginx", "priority": "koord-prod", "qos": "LS", "strategy": {}}]}
    ),
}


def test_what_is_shared_equals_what_is_rendered_for_one_node_alone() -> None:
    configuration = load_configuration(SECTIONS)
    shared = Renderer(configuration)
    for number, pool in enumerate(["", "x", "y", "x", ""]):
        labels, name = {"pool": pool}, f"n{number}"
        reservation = NodeReservation(resources={"cpu": number}, reserved_cpus=frozenset({number}))
        alone = Renderer(configuration).render(name, labels, {}, reservation, None)
        assert shared.render(name, labels, {}, reservation, None) == alone


def test_sections_and_members_of_later_releases_reach_the_spec() -> None:
    spec = json.loads(bytes(Renderer(load_configuration(SECTIONS)).render("a", {}, {}, NodeReservation(), None).spec))
    assert spec["resourceUsedThresholdWithBE"]["allocatableEvictPriorityThreshold"] == 5999
    assert spec["systemStrategy"]["schedFeatures"] == {"ID_LOAD": True}
    assert spec["systemStrategy"]["pageCacheLimitEnabled"] == 1
    assert spec["hostApplications"] == [{"name": "nginx", "priority": "koord-prod", "qos": "LS", "strategy": {}}]


def test_a_bandwidth_of_the_node_is_its_own() -> None:
    renderer = Renderer(load_configuration(SECTIONS))
    bandwidth = {"node.koordinator.sh/network-bandwidth": "10G"}
    assert b"10G" in bytes(renderer.render("a", {}, bandwidth, NodeReservation(), None).spec)
    assert b"10G" not in bytes(renderer.render("b", {}, {}, NodeReservation(), None).spec)


@pytest.mark.parametrize(
    ("colocation", "expected"),
    [
        ({"enable": True, "metricMemoryCollectPolicy": HOT}, HOT),
        ({"enable": False, "metricMemoryCollectPolicy": HOT}, "usageWithoutPageCache"),
        (
            {
                "enable": True,
                "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "x"}}, "metricMemoryCollectPolicy": HOT}],
            },
            HOT,
        ),
    ],
)
def test_the_memory_that_counts_follows_the_nodes_strategy(colocation: dict[str, object], expected: str) -> None:
    bench = Bench()
    bench.configure(json.dumps(colocation))
    bench.node(labels={"pool": "x"})
    bench.decide()
    assert bench.slo().memory_collect_policy == expected


def test_the_memory_that_counts_stays_while_the_section_cannot_be_read() -> None:
    bench = Bench()
    bench.configure(json.dumps({"enable": True, "metricMemoryCollectPolicy": HOT}))
    bench.node()
    bench.decide()
    bench.configure("{")
    bench.decide()
    assert bench.slo().memory_collect_policy == HOT


def test_extensions_of_the_strategy_travel_with_the_resources_event() -> None:
    bench = Bench()
    entry = {"nodeSelector": {}, "extensions": {"mine": {"b": 2}}}
    bench.configure(json.dumps({"enable": True, "extensions": {"mine": {"a": 1}, "kept": 3}, "nodeConfigs": [entry]}))
    bench.node()
    bench.decide()
    strategy = msgspec.json.decode(bytes(bench.resources().strategy))
    assert strategy["extensions"] == {"mine": {"b": 2}, "kept": 3}


@pytest.mark.parametrize(
    "stored",
    [
        b"[]",
        b'{"cpuBurstStrategy": 5, "hostApplications": {}}',
        b'{"cpuBurstStrategy": {"cpuBurstPercent": "x"}, "hostApplications": 7}',
        b"{}",
    ],
)
def test_a_rejected_section_has_its_defaults_where_the_last_event_cannot_be_read_either(stored: bytes) -> None:
    renderer = Renderer(load_configuration({"cpu-burst-config": "[", "host-application-config": "["}))
    last = NodeSLORendered(node="a", spec=msgspec.Raw(stored))
    spec = json.loads(bytes(renderer.render("a", {}, {}, NodeReservation(), last).spec))
    assert spec["cpuBurstStrategy"]["policy"] == "none"
    assert spec["hostApplications"] == []


def test_a_rejected_section_stays_as_it_was_rendered_last() -> None:
    right = Renderer(load_configuration({"cpu-burst-config": json.dumps({"clusterStrategy": {"policy": "auto"}})}))
    last = right.render("a", {}, {}, NodeReservation(), None)
    for wrong in ('{"clusterStrategy": []}', '{"clusterStrategy": {"cpuBurstPercent": "x"}}', "5"):
        rejected = Renderer(load_configuration({"cpu-burst-config": wrong})).render("a", {}, {}, NodeReservation(), last)
        assert json.loads(bytes(rejected.spec))["cpuBurstStrategy"]["policy"] == "auto"
        assert rejected.reason.startswith("cpu-burst-config: ")
