"""The configuration document: what is accepted, what is refused with a clear text."""

from datetime import timedelta

import pytest

from cotenant.model.durations import DurationError, parse_duration
from cotenant_descheduler_arbiter.config.checks import PolicyError
from cotenant_descheduler_arbiter.config.resolution import resolve
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import configuration


@pytest.mark.parametrize(
    ("load", "message"),
    [
        ({"lowThresholds": {"cpu": 80}, "highThresholds": {"cpu": 70}}, "low 80.0 is above high 70.0"),
        ({"lowThresholds": {"cpu": -1}}, "is not in 0 .. 1000000"),
        ({"numberOfNodes": -1}, "LowNodeLoad.numberOfNodes"),
        ({"nodeMetricExpirationSeconds": 0}, "LowNodeLoad.nodeMetricExpirationSeconds"),
        ({"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}}, "give include or exclude, not both"),
        ({"anomalyCondition": {"timeout": "5s"}}, "a hot node's streak would expire before the next cycle"),
        ({"anomalyCondition": {"timeout": "soon"}}, "'soon' is not a duration"),
        ({"prodHighThresholds": {"cpu": 90}}, "is above highThresholds 70.0"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "operator 'Near' of label 'a'"),
        ({"lowTresholds": {"cpu": 1}}, "lowTresholds"),
        ({"highThresholds": {"cpu": 1e308}}, "nodePools[__default_node_pool__].Thresholds.high[cpu]: 1e+308 is not in"),
        ({"nodeMetricExpirationSeconds": 10**18}, "LowNodeLoad.nodeMetricExpirationSeconds: 1000000000000000000 is not in"),
        ({"numberOfNodes": 10**18}, "$.numberOfNodes"),
    ],
)
def test_arguments_of_low_node_load_that_cannot_be_meant(load: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve(configuration(load=load))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ({"evictionPolicy": "Explode"}, "'Explode' is none of Eviction, Delete, SoftEviction"),
        ({"evictQPS": "0"}, "is not a finite number above 0"),
        ({"skipEvictionGates": ["Everything"]}, "skipEvictionGates: 'Everything' is none of"),
        ({"defaultDeleteOptions": {"gracePeriodSeconds": -1}}, "defaultDeleteOptions: gracePeriodSeconds: -1 is not in"),
        ({"defaultDeleteOptions": {"gracePeriodSeconds": 10**18}}, "gracePeriodSeconds"),
        ({"evictQPS": "many"}, "is not a number"),
        ({"evictQPS": "inf"}, "is not a finite number above 0"),
        ({"evictBurst": 10**18}, "$.evictBurst"),
        ({"objectLimiters": {"workload": {"duration": "1m", "burst": 10**18}}}, "$.objectLimiters[...].burst"),
        ({"maxMigratingPerWorkload": 10**18}, "$.maxMigratingPerWorkload"),
        ({"defaultJobMode": "Later"}, "is none of EvictDirectly, ReservationFirst"),
        ({"objectLimiters": {"cluster": {"duration": "1m"}}}, "is none of workload, namespace"),
        ({"maxMigratingPerWorkload": "half"}, "is neither a whole number nor a percentage"),
    ],
)
def test_arguments_of_the_migration_controller_that_cannot_be_meant(jobs: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve(configuration(jobs=jobs))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("lifecycle", "message"),
    [
        ({"nodeEvictionRate": -0.1}, "nodeLifecycle.nodeEvictionRate: -0.1 is neither 0 (no evictions) nor at least"),
        ({"secondaryNodeEvictionRate": 1e-9}, "nodeLifecycle.secondaryNodeEvictionRate"),
        ({"largeClusterSizeThreshold": -1}, "nodeLifecycle.largeClusterSizeThreshold: -1 is below 0"),
        ({"unhealthyZoneThreshold": 55}, "nodeLifecycle.unhealthyZoneThreshold: 55.0 is not in 0 .. 1"),
        ({"defaultTolerationSeconds": -1}, "nodeLifecycle.defaultTolerationSeconds: -1"),
        ({"defaultTolerationSeconds": 10**12}, "nodeLifecycle.defaultTolerationSeconds"),
    ],
)
def test_rates_of_lost_nodes_that_cannot_be_meant(lifecycle: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve(configuration(nodeLifecycle=lifecycle))
    assert message in str(caught.value)


def test_the_rates_of_lost_nodes_have_the_defaults_of_kube_controller_manager() -> None:
    rates = resolve(configuration()).node_evictions
    assert (rates.normal, rates.secondary, rates.large_zone_nodes, rates.unhealthy_fraction) == (0.1, 0.01, 50, 0.55)


def test_an_unknown_plugin_is_refused() -> None:
    document = {"plugins": {"balance": {"enabled": [{"name": "MoveEverything"}]}}}
    with pytest.raises(PolicyError, match="MoveEverything is not a plugin"):
        resolve(configuration(profiles=[document]))


def test_pools_inherit_what_they_do_not_say() -> None:
    load = {
        "nodePools": [{"name": "gpu", "nodeSelector": {"matchLabels": {"gpu": "yes"}}, "highThresholds": {"cpu": 90}}]
    }
    policy = resolve(configuration(load=load))
    assert policy.low_node_load is not None
    default, gpu = policy.low_node_load.pools
    assert gpu.low_thresholds == default.low_thresholds
    assert gpu.anomaly_condition == default.anomaly_condition
    assert gpu.high_thresholds == {"cpu": 90.0}


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m0s", 300), ("1h30m", 5400), ("500ms", 0.5), ("0", 0), ("1.5s", 1.5), ("-1m", -60)]
)
def test_go_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "m", "1x", "1m 2s", "9" * 70 + "s"])
def test_texts_that_are_no_duration(text: str) -> None:
    with pytest.raises(DurationError):
        parse_duration(text)
