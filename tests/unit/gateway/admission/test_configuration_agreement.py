"""What the gateway takes of the node configuration batch-resource-calculator can read; what node-executor reads reaches it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from cotenant.api.objects.selectors import selector_holds
from cotenant.domain.reservation import NodeReservation
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy, choose
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.config.qos import ResourceQOSStrategy
from cotenant_batch_resource_calculator.config.ratios import AmplificationStrategy, NormalizationStrategy
from cotenant_batch_resource_calculator.config.sections import (
    CPUBurstStrategy,
    HostApplication,
    SystemStrategy,
    ThresholdStrategy,
)
from cotenant_batch_resource_calculator.rendering import Renderer
from cotenant_gateway.admission.node_configuration.ranges import SECTIONS, section_errors
from cotenant_gateway.admission.node_configuration.values import member, selector_of
from cotenant_node_executor.strategies.gates import NODE_GATES
from cotenant_node_executor.strategies.registry import strategies_of

Json = dict[str, Any]
FOR_NODES: Json = {"nodeSelector": {"matchLabels": {"a": "b"}}}
ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 50, 101, 1.5, "", "x", "1", "10M", "-1", "5m", [], {}, [1], [None], [{}], ["5m"], 10**18,
    10**19, 1e30, {"a": 1}, {"a": True}, {"a": None}, {"cpu": 1.2}, {"m": {"baseRatio": 1.2}}, {"m": {"baseRatio": "x"}},
)  # fmt: skip
SHAPES: dict[str, type[msgspec.Struct]] = {
    "colocation-config": ColocationStrategy,
    "resource-threshold-config": ThresholdStrategy,
    "resource-qos-config": ResourceQOSStrategy,
    "system-config": SystemStrategy,
    "cpu-burst-config": CPUBurstStrategy,
    "host-application-config": HostApplication,
    "cpu-normalization-config": NormalizationStrategy,
    "resource-amplification-config": AmplificationStrategy,
}


def strategies(shape: type[msgspec.Struct], wrap: Callable[[Json], Json] = lambda inner: inner) -> Iterator[Json]:
    """Yield strategies that set one member, at any depth, to one of the odd values."""
    info = inspect.type_info(shape)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        name = field.encode_name
        yield from (wrap({name: value}) for value in ODD)
        for option in field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,):
            if isinstance(option, inspect.StructType):
                yield from strategies(option.cls, lambda inner, name=name: wrap({name: inner}))  # type: ignore[misc]


def sections(key: str) -> Iterator[Json]:
    """Yield sections with each such strategy for the cluster and for some nodes, and with each odd name of an entry."""
    section = SECTIONS[key]
    for strategy in strategies(SHAPES[key]):
        if key == "host-application-config":
            strategy = {"applications": [{"name": "y", **strategy}]}
        yield {section.cluster: strategy} if section.cluster else strategy
        yield {section.entries: [FOR_NODES | strategy]}
    for value in ODD:
        yield {section.entries: [FOR_NODES | {"name": value}]}


@pytest.mark.parametrize("key", SECTIONS)
def test_what_the_gateway_takes_the_calculator_can_read(key: str) -> None:
    taken = 0
    for document in sections(key):
        text = json.dumps(document)
        if not section_errors(f"data[{key}]", SECTIONS[key], json.loads(text)):
            taken += 1
            assert not load_configuration({key: text}).rejected, text
    assert taken > 10


@pytest.mark.parametrize(
    "selector",
    [
        {"MatchLabels": {"pool": "a"}, "matchExpressions": None},
        {"matchlabels": None, "matchexpressions": [{"Key": "pool", "OPERATOR": "In", "values": ["a"]}]},
        {"matchExpressions": [{"key": "pool", "operator": "Exists", "values": None}]},
    ],
)
def test_both_read_selectors_in_any_case_and_null_as_absent(selector: Json) -> None:
    text = json.dumps({"nodeConfigs": [{"nodeSelector": selector, "cpuReclaimThresholdPercent": 70}]})
    found = load_configuration({"colocation-config": text}).colocation
    assert found is not None
    for labels, percent in (({"pool": "a"}, 70), ({"zone": "a"}, 60)):
        assert choose(found, labels).strategy.cpu_reclaim_threshold_percent == percent
        assert selector_holds(selector_of(selector), labels) == (percent == 70)


def test_of_several_spellings_both_read_the_last() -> None:
    text = '{"cpuReclaimThresholdPercent":50,"CPUReclaimThresholdPercent":70,"cpureclaimthresholdpercent":null}'
    found = load_configuration({"colocation-config": text}).colocation
    assert found is not None
    assert found.cluster["cpuReclaimThresholdPercent"] == member(json.loads(text), "cpuReclaimThresholdPercent") == 70


KEYS = {
    "resourceUsedThresholdWithBE": "resource-threshold-config",
    "resourceQOSStrategy": "resource-qos-config",
    "cpuBurstStrategy": "cpu-burst-config",
    "systemStrategy": "system-config",
}
READ = sorted(
    {
        (*shape.path, field.encode_name.lower())
        for strategy in strategies_of(frozenset(NODE_GATES))
        for shape in strategy.reads
        for field in msgspec.structs.fields(shape.shape)
    }
)
"""The path of every field that a strategy of node-executor reads."""


def rendered(value: Any, *path: str) -> Any:
    """What is in the NodeSLO at a path, if the configuration has a value there; None: nothing."""
    given: Any = value
    for name in reversed(path[1:]):
        given = {name: given}
    configuration = load_configuration({KEYS[path[0]]: json.dumps({"clusterStrategy": given})})
    if configuration.rejected:
        return None
    spec = json.loads(bytes(Renderer(configuration).render("n", {}, {}, NodeReservation(), None).spec))
    for name in path:
        spec = {key.lower(): inner for key, inner in spec.items()}.get(name.lower()) if isinstance(spec, dict) else None
    return spec


@pytest.mark.parametrize("path", READ, ids=".".join)
def test_what_the_executor_reads_reaches_it_through_the_configuration(path: tuple[str, ...]) -> None:
    texts = ("none", "evictByRealLimit", "groupIdentity", "tc", "fair")
    values: tuple[Any, ...] = (7, True, *texts, {"A": True}, [{}])
    assert any(rendered(value, *path) == value for value in values)
