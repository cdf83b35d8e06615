"""Profiles: what is accepted, what is refused with a clear text."""


from collections.abc import Sequence

import pytest

from cotenant_descheduler_arbiter.config.checks import PolicyError
from cotenant_descheduler_arbiter.config.resolution import resolve
from tests.unit.descheduler_arbiter.plugins.builders_profiles import Profile, configured, profile


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ([profile("one", deschedule={"PodLifeTime": {}})], "maxPodLifeTimeSeconds: must be given"),
        ([profile("one", deschedule={"PodLifeTime": {"maxPodLifeTimeSeconds": -1}})], "maxPodLifeTimeSeconds: -1 is not in"),
        ([profile("one", deschedule={"PodLifeTime": {"maxPodLifeTimeSeconds": 10**18}})], "is not in 0 .. 2147483647"),
        (
            [profile("one", deschedule={"PodLifeTime": {"maxPodLifeTimeSeconds": 1, "states": ["Failed"]}})],
            "states: 'Failed' is none of",
        ),
        ([profile("one", deschedule={"RemovePodsHavingTooManyRestarts": {}})], "podRestartThreshold: 0 is below 1"),
        ([profile("one", deschedule={"RemoveFailedPods": {"minPodLifetimeSeconds": -5}})], "minPodLifetimeSeconds: -5"),
        ([profile("one", deschedule={"RemovePodsViolatingNodeAffinity": {}})], "nodeAffinityType: must be"),
        ([profile("one", deschedule={"RemoveDuplicates": {}})], "RemoveDuplicates is not a plugin of this extension point"),
        ([profile("one", balance={"LowNodeUtilization": {}})], "thresholds: must name a resource"),
        (
            [profile("one", balance={"LowNodeUtilization": {"thresholds": {"cpu": 50}, "targetThresholds": {"cpu": 20}}})],
            "thresholds[cpu]: 50.0 is above targetThresholds 20.0",
        ),
        (
            [profile("one", balance={"LowNodeUtilization": {"thresholds": {"cpu": 5}, "targetThresholds": {"memory": 20}}})],
            "must name the same resources",
        ),
        ([profile("one", balance={"HighNodeUtilization": {"thresholds": {"cpu": 101}}})], "thresholds[cpu]: 101.0 is not in"),
        (
            [profile("one", balance={"RemoveDuplicates": {"namespaces": {"include": ["a"], "exclude": ["b"]}}})],
            "give include or exclude, not both",
        ),
        ([profile("one"), profile("one")], "two have the same name"),
        ([profile(""), profile("two")], "needs a name"),
        ([profile("one"), profile("two", jobs={"evictBurst": 1})], "differs between profiles"),
        (
            [profile("one", balance={"LowNodeLoad": {}}), profile("two", balance={"LowNodeLoad": {}})],
            "LowNodeLoad is enabled in several profiles: one, two",
        ),
        ([profile("one", plugins={"evict": {"disabled": [{"name": "*"}]}})], "MigrationController has to be enabled here"),
        ([profile("one", jobs={"nodeSelector": "a=b c"})], "MigrationController.nodeSelector: 'a=b c' is not a label selector"),
        ([profile("one", pluginConfig=[{"name": "Guess"}])], "pluginConfig[Guess]: is not a known plugin"),
    ],
)
def test_profiles_that_cannot_be_meant(profiles: Sequence[Profile], message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve(configured(*profiles))
    assert message in str(caught.value)


def test_the_example_of_koordinator_that_disables_all_defaults_and_enables_its_own_is_accepted() -> None:
    plugins = {
        "deschedule": {"disabled": [{"name": "*"}]},
        "balance": {"enabled": [{"name": "LowNodeLoad"}], "disabled": [{"name": "*"}]},
        "evict": {"enabled": [{"name": "MigrationController"}], "disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "MigrationController"}], "disabled": [{"name": "*"}]},
    }
    policy = resolve(configured(profile("koord-descheduler", plugins=plugins)))
    assert policy.low_node_load is not None
    assert policy.profiles == ()
