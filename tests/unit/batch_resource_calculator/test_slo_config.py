"""How the ConfigMap's texts are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant_batch_resource_calculator.config import colocation
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.config.json_overlay import ConfigError, camel_name, overlay
from cotenant_batch_resource_calculator.config.sections import (
    CPU_BURST,
    QOS,
    SYSTEM,
    THRESHOLD,
    load_strategies,
    select_strategy,
)
from cotenant_batch_resource_calculator.formulas.placing import normalization_ratio
from cotenant_batch_resource_calculator.rendering import cpu_list, render_spec


def test_field_names_match_in_any_case() -> None:
    config = colocation.load('{"ENABLE": true, "CpuReclaimThresholdPercent": 30, "midcputhresholdpercent": 5}')
    assert config.cluster["enable"] is True
    assert config.cluster["cpuReclaimThresholdPercent"] == 30
    assert config.cluster["midCPUThresholdPercent"] == 5


def test_null_and_absent_mean_the_default_and_unknown_fields_are_ignored() -> None:
    config = colocation.load('{"degradeTimeMinutes": null, "flavour": 3}')
    assert config.cluster == colocation.STRATEGY_DEFAULTS


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_no_text_means_the_defaults(text: str | None) -> None:
    assert colocation.load(text).cluster == colocation.STRATEGY_DEFAULTS


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "object"),
        ('{"enable": true', "colocation-config"),
        ('{"degradeTimeMinutes": 0}', "degradeTimeMinutes is 0"),
        ('{"cpuReclaimThresholdPercent": -1}', "cpuReclaimThresholdPercent is -1"),
        ('{"midUnallocatedPercent": 101}', "midUnallocatedPercent is 101"),
        ('{"enable": "yes"}', "enable"),
        ('{"nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": 3}}}]}', "nodeConfigs"),
        ('{"nodeConfigs": ["a"]}', "nodeConfigs"),
    ],
)
def test_an_invalid_section_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        colocation.load(text)


def test_the_defaults_are_those_of_koordinator() -> None:
    assert colocation.STRATEGY_DEFAULTS == {
        "enable": False,
        "metricAggregateDurationSeconds": 300,
        "metricReportIntervalSeconds": 60,
        "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "metricMemoryCollectPolicy": "usageWithoutPageCache",
        "cpuReclaimThresholdPercent": 60,
        "cpuCalculatePolicy": "usage",
        "memoryReclaimThresholdPercent": 65,
        "memoryCalculatePolicy": "usage",
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "midCPUThresholdPercent": 100,
        "midMemoryThresholdPercent": 100,
        "midUnallocatedPercent": 0,
        "midStaticCPUReservedPercent": 0,
        "midStaticMemoryReservedPercent": 0,
    }
    assert load_strategies(THRESHOLD, None).cluster == {
        "enable": False,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cpuset",
        "memoryEvictThresholdPercent": 70,
        "cpuEvictPolicy": "evictByRealLimit",
    }
    assert load_strategies(CPU_BURST, None).cluster == {
        "policy": "none",
        "cpuBurstPercent": 1000,
        "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1,
        "sharePoolThresholdPercent": 50,
    }


def test_events_have_the_metric_fields_that_somebody_has_set() -> None:
    def stored(config: colocation.ColocationConfig, labels: dict[str, str]) -> dict[str, object]:
        strategy = json.loads(bytes(colocation.choose(config, labels).text))
        assert strategy["cpuReclaimThresholdPercent"] == 60
        return {name: value for name, value in strategy.items() if name.startswith("metric")}

    entry = {"nodeSelector": {"matchLabels": {"pool": "x"}}, "metricMemoryCollectPolicy": "usageWithPageCache"}
    wrong = {"nodeSelector": {"matchLabels": {"pool": "y"}}, "metricMemoryCollectPolicy": ""}
    section = {"enable": True, "METRICReportIntervalSeconds": 60, "nodeConfigs": [entry, wrong]}
    config = colocation.load(json.dumps(section))
    assert stored(config, {}) == stored(config, {"pool": "y"}) == {"metricReportIntervalSeconds": 60}
    assert stored(config, {"pool": "x"}) == {
        "metricReportIntervalSeconds": 60,
        "metricMemoryCollectPolicy": "usageWithPageCache",
    }
    assert stored(colocation.load(None), {}) == {}


def test_field_names_of_node_entries_match_in_any_case() -> None:
    config = colocation.load('{"NodeConfigs": [{"NAME": "all", "nodeselector": {}, "cpureclaimthresholdpercent": 7}]}')
    assert config.entries[0].name == "all"
    assert colocation.choose(config, {}).document["cpuReclaimThresholdPercent"] == 7


@pytest.mark.parametrize(("percent", "good"), [(-1, False), (0, True), (1, True), (100, True), (101, False)])
def test_percentages_of_thresholds_are_between_0_and_100(percent: int, good: bool) -> None:
    text = f'{{"clusterStrategy": {{"cpuSuppressThresholdPercent": {percent}}}}}'
    if good:
        assert load_strategies(THRESHOLD, text).cluster["cpuSuppressThresholdPercent"] == percent
    else:
        with pytest.raises(ConfigError, match=f"cpuSuppressThresholdPercent is {percent}"):
            load_strategies(THRESHOLD, text)


def test_an_empty_policy_is_none_given() -> None:
    text = '{"clusterStrategy": {"cpuSuppressPolicy": "", "cpuEvictPolicy": "evictByAllocatable"}}'
    section = load_strategies(THRESHOLD, text)
    assert section.cluster["cpuSuppressPolicy"] == "cpuset"
    assert section.cluster["cpuEvictPolicy"] == "evictByAllocatable"


def test_a_node_entry_out_of_range_falls_back_to_the_cluster_and_is_named() -> None:
    config = colocation.load(
        '{"cpuReclaimThresholdPercent": 50, "nodeConfigs": [{"name": "odd", "nodeSelector": {}, "degradeTimeMinutes": -1}]}'
    )
    assert config.fallen_back == ("odd",)
    assert colocation.choose(config, {}).document["cpuReclaimThresholdPercent"] == 50


def test_the_first_entry_that_selects_wins() -> None:
    config = colocation.load(
        '{"nodeConfigs": [{"cpuReclaimThresholdPercent": 1},'
        ' {"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuReclaimThresholdPercent": 2},'
        ' {"nodeSelector": {}, "cpuReclaimThresholdPercent": 3}]}'
    )
    assert colocation.choose(config, {"pool": "x"}).document["cpuReclaimThresholdPercent"] == 2
    assert colocation.choose(config, {}).document["cpuReclaimThresholdPercent"] == 3


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        ("0.29", 28),
        ("0.57", 56),
        ("1.5", 150),
        ("0", 0),
        ("100", 10_000),
        ("100.5", None),
        ("-1", None),
        ("x", None),
        ("nan", None),
        ("inf", None),
        (None, None),
    ],
)
def test_ratio_labels_truncate_and_invalid_ones_are_ignored(text: str | None, percent: int | None) -> None:
    assert colocation.ratio_percent(text) == percent


@pytest.mark.parametrize(("text", "ratio"), [("1.20", 1.2), ("x", 1.0), ("inf", 1.0), ("nan", 1.0)])
def test_normalisation_ratios_that_are_no_numbers_change_nothing(text: str, ratio: float) -> None:
    assert normalization_ratio({"node.koordinator.sh/cpu-normalization-ratio": text}) == ratio


def test_objects_merge_and_lists_are_replaced() -> None:
    assert overlay({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"c": 3}, "d": [2, 3]}) == {"a": {"b": 1, "c": 3}, "d": [2, 3]}


def test_names_are_spelled_as_koordinator_does() -> None:
    assert camel_name("cpu_evict_be_usage_threshold_percent") == "cpuEvictBEUsageThresholdPercent"
    assert camel_name("memory_qos") == "memoryQOS"


def test_a_node_entry_without_bandwidth_keeps_the_clusters() -> None:
    section = load_strategies(
        SYSTEM,
        '{"clusterStrategy": {"totalNetworkBandwidth": "10G"},'
        ' "nodeStrategies": [{"nodeSelector": {}, "minFreeKbytesFactor": 130}]}',
    )
    assert select_strategy(section, {}) == {"totalNetworkBandwidth": "10G", "minFreeKbytesFactor": 130}


def test_class_strategies_keep_what_users_write() -> None:
    section = load_strategies(
        QOS, '{"clusterStrategy": {"beClass": {"blkioQOS": {"blocks": [{"name": "sda"}]}, "resctrlQOS": {"MBAPercent": 3}}}}'
    )
    assert section.cluster == {"beClass": {"blkioQOS": {"blocks": [{"name": "sda"}]}, "resctrlQOS": {"mbaPercent": 3}}}


def test_host_applications_of_the_first_entry_replace_the_clusters() -> None:
    yarn = '{"name": "yarn-task", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort"}}'
    entry = f'{{"nodeSelector": {{"matchLabels": {{"pool": "x"}}}}, "applications": [{yarn}]}}'
    configuration = load_configuration(
        {"host-application-config": f'{{"applications": [{{"name": "a"}}], "nodeConfigs": [{entry}]}}'}
    )
    assert render_spec(configuration, {}, {}, {})["hostApplications"] == [{"name": "a"}]
    spec: Any = render_spec(configuration, {"pool": "x"}, {}, {})
    (application,) = spec["hostApplications"]
    assert application == {"name": "yarn-task", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort"}}


def test_the_bandwidth_annotation_overrides_the_section() -> None:
    spec = render_spec(load_configuration(None), {}, {"node.koordinator.sh/network-bandwidth": "99M"}, {})
    assert spec["systemStrategy"] == {"totalNetworkBandwidth": "99M"}
    spec = render_spec(load_configuration(None), {}, {"node.koordinator.sh/network-bandwidth": "much"}, {})
    assert spec["systemStrategy"] == {"totalNetworkBandwidth": "0"}


def test_cpu_lists_are_written_as_the_kernel_does() -> None:
    assert cpu_list(frozenset({0, 1, 2, 6, 8, 9})) == "0-2,6,8-9"
