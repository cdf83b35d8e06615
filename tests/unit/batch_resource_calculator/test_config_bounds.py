"""The configuration at its bounds: a risk budget's members, nulls in maps, and what a node's own metadata changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant_batch_resource_calculator.config.colocation import (
    STRATEGY_DEFAULTS,
    ColocationStrategy,
    choose,
    chosen,
    load,
    of_document,
    on_node,
    ratio_percent,
)
from cotenant_batch_resource_calculator.config.in_force import KEYS, load_configuration, reject_configuration
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, canonical, overlay
from cotenant_batch_resource_calculator.config.ratios import NormalizationStrategy
from cotenant_batch_resource_calculator.config.risk import MOST_HOURS, RiskBudget, read_risk_budget

CPU_RATIO = "node.koordinator.sh/cpu-reclaim-ratio"
MID_CPU_RATIO = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
STRATEGY = "node.koordinator.sh/colocation-strategy"


def budget(start_percent: int = 60, **members: Any) -> RiskBudget | None:
    return read_risk_budget({"riskBudget": msgspec.Raw(msgspec.json.encode(members))}, start_percent)


def test_a_budget_without_members_has_the_documented_ones() -> None:
    documented = RiskBudget(broken_permille=10, lowest_percent=40, highest_percent=95, start_percent=60, least_hours=6)
    assert budget() == RiskBudget() == documented
    assert MOST_HOURS == 1024
    assert read_risk_budget(None, 60) is None
    assert read_risk_budget({"riskBudget": msgspec.Raw(b"null")}, 60) is None
    assert read_risk_budget({"forecast": msgspec.Raw(b'"timeOfDay"')}, 60) is None


@pytest.mark.parametrize(
    ("members", "fields"),
    [
        ({"brokenPercent": 0}, {"broken_permille": 0}),
        ({"brokenPercent": 0.1}, {"broken_permille": 1}),
        ({"brokenPercent": 100}, {"broken_permille": 1000}),
        ({"brokenPercent": 1.1}, {"broken_permille": 11}),
        # Up to a millionth of a tenth is rounding.
        ({"brokenPercent": 1e-7}, {"broken_permille": 0}),
        ({"lowestPercent": 0, "highestPercent": 0}, {"lowest_percent": 0, "highest_percent": 0}),
        ({"lowestPercent": 100, "highestPercent": 100}, {"lowest_percent": 100, "highest_percent": 100}),
        ({"LEASTHOURS": 1}, {"least_hours": 1}),
        ({"leastHours": 512}, {"least_hours": 512}),
    ],
)
def test_members_may_have_their_bounds(members: dict[str, Any], fields: dict[str, int]) -> None:
    assert budget(**members) == RiskBudget(**fields)


@pytest.mark.parametrize(
    "members",
    [
        {"brokenPercent": -0.1},
        {"brokenPercent": 100.1},
        {"brokenPercent": 0.15},
        {"brokenPercent": 2e-7},
        {"brokenPercent": 1e18},
        {"lowestPercent": -1},
        {"highestPercent": 101},
        {"lowestPercent": 96},
        {"leastHours": 0},
        {"leastHours": 513},
    ],
)
def test_members_beyond_their_bounds_are_refused_by_name(members: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^extensions\.riskBudget.* must be"):
        budget(**members)


def test_the_strategys_threshold_is_the_start_up_to_100() -> None:
    for start, percent in ((0, 0), (100, 100), (101, 100)):
        found = budget(start)
        assert found is not None
        assert found.start_percent == percent


def test_null_members_of_maps_are_absent_but_those_of_extensions() -> None:
    ratios: Any = {"RatioModel": {"a": None, "b": {"baseRatio": 1.5}}, "defaultRatio": None}
    assert canonical(ratios, NormalizationStrategy) == {"ratioModel": {"b": {"baseRatio": 1.5}}}
    extensions: Any = {"extensions": {"a": None, "b": 1}}
    assert canonical(extensions, ColocationStrategy) == extensions
    assert overlay({"extensions": {"a": 1, "c": 2}}, extensions) == {"extensions": {"a": None, "b": 1, "c": 2}}


def test_a_nodes_annotation_and_its_labels_count_each_by_itself_and_together() -> None:
    base = chosen({"enable": True, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65})
    annotation = {STRATEGY: '{"memoryReclaimThresholdPercent": 70}'}

    def found(labels: dict[str, str], annotations: dict[str, str]) -> tuple[int | None, int | None, int | None]:
        strategy, ignored = on_node(base, labels, annotations)
        assert not ignored
        return (
            strategy.cpu_reclaim_threshold_percent,
            strategy.memory_reclaim_threshold_percent,
            strategy.mid_static_cpu_reserved_percent,
        )

    assert found({}, {}) == (60, 65, None)
    assert found({CPU_RATIO: "0.5", MID_CPU_RATIO: "0.25"}, {}) == (50, 65, 25)
    assert found({}, annotation) == (60, 70, None)
    assert found({CPU_RATIO: "0.5"}, annotation) == (50, 70, None)
    strategy, ignored = on_node(base, {CPU_RATIO: "0.5"}, {STRATEGY: '{"memoryReclaimThresholdPercent": "x"}'})
    assert (strategy.cpu_reclaim_threshold_percent, strategy.memory_reclaim_threshold_percent) == (50, 65)
    assert ignored.startswith("annotation ignored: ")


def test_the_first_entry_that_selects_a_node_counts_and_is_named_or_numbered() -> None:
    entries: Any = [
        {"name": "large", "nodeSelector": {"matchLabels": {"size": "l"}}, "cpuReclaimThresholdPercent": 70},
        {"nodeSelector": {"matchLabels": {"zone": "z"}}, "cpuReclaimThresholdPercent": 80},
        {"name": "wrong", "nodeSelector": {"matchLabels": {"size": "s"}}, "cpuReclaimThresholdPercent": -1},
        {"nodeSelector": {"matchLabels": {"size": "xs"}}, "degradeTimeMinutes": 0},
    ]
    config = of_document({"enable": True, "nodeConfigs": entries})
    assert config.fallen_back == ("wrong", "nodeConfigs[3]")
    nodes: tuple[dict[str, str], ...] = ({"size": "l", "zone": "z"}, {"zone": "z"}, {"size": "s"}, {"size": "xs"}, {})
    found = [choose(config, labels) for labels in nodes]
    assert [(each.group, each.strategy.cpu_reclaim_threshold_percent) for each in found] == [
        ("large", 70), ("nodeConfigs[1]", 80), ("wrong", 60), ("nodeConfigs[3]", 60), ("", 60),
    ]  # fmt: skip
    assert [each.strategy.degrade_time_minutes for each in found] == [15] * 5


def test_without_a_section_the_defaults_count() -> None:
    assert load(None).cluster == load("").cluster == STRATEGY_DEFAULTS
    with pytest.raises(ConfigError, match="colocation-config"):
        load(" ")


def test_a_ratio_label_is_a_number_from_0_to_100() -> None:
    texts = ("0", "0.999", "1", "100", "100.01", "-0.01", "x", "nan", None)
    assert [ratio_percent(text) for text in texts] == [0, 99, 100, 10_000, None, None, None, None, None]


def test_a_configuration_exists_with_its_config_map_even_if_it_is_rejected() -> None:
    assert not load_configuration(None).exists
    assert load_configuration({}).exists
    rejected = reject_configuration("unreadable", "LOG:7")
    assert rejected.exists
    assert rejected.rejected == dict.fromkeys(KEYS, "unreadable")
    assert rejected.rejection(*KEYS) == "unreadable"
