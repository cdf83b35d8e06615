"""Quotas on a node that is faster than the cluster's yardstick."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources
from cotenant_node_executor.strategies.cpu.normalization import (
    OFF,
    AdoptedRatio,
    adopted_ratio,
    decide,
    normalized_quota_us,
    stated_ratio,
)
from cotenant_node_executor.strategies.strategy import StrategyDecision
from tests.builders import container
from tests.unit.node_executor.builders_node_executor import NODE, batch, pod, situation, slo


def resources(ratio: float) -> NodeResources:
    return NodeResources(node=NODE, cpu_normalization_ratio=ratio)


def quotas(decision: StrategyDecision) -> dict[str, str]:
    return {str(group): own[0].value for group, own in decision.values.items()}


LIMITS = {"cpu": "2", "memory": "1Gi"}


def test_shared_pods_and_batch_pods_get_their_limits_divided_by_the_ratio() -> None:
    held = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    pods = [
        pod("web", "LS", requests={"cpu": "1"}, limits=LIMITS),
        pod("plain", requests={"cpu": "1"}, limits=LIMITS),
        pod("open", "LS", requests={"cpu": "1"}),
        pod("db", "LSR", requests=LIMITS, limits=LIMITS),
        pod("held", requests={"cpu": "1"}, limits=LIMITS, annotations=held),
        batch("job", 3000),
    ]
    there = replace(situation(pods, node_slo=slo(cpu_suppress_policy="cpuset")), resources=resources(1.5))
    assert quotas(decide(there, None)) == {
        "burstable/poduid-web": "133334",
        "burstable/poduid-web/main": "133334",
        "burstable/poduid-plain": "133334",
        "burstable/poduid-plain/main": "133334",
        "besteffort/poduid-job": "200000",
        "besteffort/poduid-job/main": "200000",
    }
    by_quota = replace(there, slo=slo(cpu_suppress_policy="cfsQuota"))
    assert not [group for group in quotas(decide(by_quota, None)) if "job" in group]


def test_of_a_batch_pod_the_containers_with_batch_amounts_are_divided() -> None:
    amounts = {"kubernetes.io/batch-cpu": "3000", "kubernetes.io/batch-memory": "1Gi"}
    containers = [container("a", requests=amounts, limits=amounts), container("b")]
    there = situation([pod("job", "BE", containers=containers)], node_slo=slo(cpu_suppress_policy="cpuset"))
    found = quotas(decide(replace(there, resources=resources(1.5)), None))
    assert found == {"besteffort/poduid-job/a": "200000"}
    only_b = situation([pod("job", "BE", containers=containers[1:])], node_slo=slo(cpu_suppress_policy="cpuset"))
    assert quotas(decide(replace(only_b, resources=resources(1.5)), None)) == {}


def test_without_a_ratio_above_one_no_quota_is_stated() -> None:
    there = situation([pod("web", "LS", requests={"cpu": "1"}, limits=LIMITS)])
    for ratio in (0.8, 1.0):
        assert decide(replace(there, resources=resources(ratio)), None).values == {}
    assert decide(there, None) == StrategyDecision(memory=AdoptedRatio(OFF))


def test_a_small_change_and_an_impossible_ratio_keep_the_one_before() -> None:
    assert adopted_ratio(1.5, resources(1.505)) == 1.5
    assert adopted_ratio(1.5, resources(1.52)) == 1.52
    assert adopted_ratio(1.5, resources(0.0)) == 1.5
    assert adopted_ratio(1.5, None) == OFF
    assert adopted_ratio(1.5, resources(1e300)) == 1e6


@pytest.mark.parametrize("text", ["", "x", "[}", "0", "-1", "nan", "inf", "-inf"])
def test_a_ratio_is_a_positive_number(text: str) -> None:
    with pytest.raises(ValueError, match="expected a positive number"):
        stated_ratio(text)


def test_a_ratio_may_be_below_one_and_is_off_where_none_is_stated() -> None:
    assert [stated_ratio(each) for each in ("0.5", 0.01, "1", "1e3", None)] == [0.5, 0.01, 1.0, 1000.0, OFF]


@given(st.integers(-1, 10**9), st.floats(0.01, 100))
def test_a_quota_is_never_raised_and_never_lowered_below_its_part(quota: int, ratio: float) -> None:
    found = normalized_quota_us(quota, ratio)
    if quota <= 0:
        assert found is None
        return
    assert found is not None
    assert found <= quota
    assert found >= min(quota, math.floor(quota / max(ratio, 1.0)))


@given(st.lists(st.integers(1, 64_000), min_size=1, max_size=6), st.floats(1.01, 10))
def test_a_pods_quota_holds_each_of_its_containers(limits: list[int], ratio: float) -> None:
    whole = normalized_quota_us(sum(limits) * 100, ratio)
    assert whole is not None
    assert all((normalized_quota_us(limit * 100, ratio) or 0) <= whole for limit in limits)
