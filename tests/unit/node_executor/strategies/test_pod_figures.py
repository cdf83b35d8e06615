"""What strategies read of one pod: its allocation, its own word on eviction, and the figures of its containers."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import ContainerUsage, PodSample
from cotenant_node_executor.strategies.allocation import NumaAllocation, holds_cpus, resource_status
from cotenant_node_executor.strategies.cpu.normalization import OFF, normalized_quota_us
from cotenant_node_executor.strategies.pod_eviction import is_enabled, policies_of, rank_of
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.strategies.readings import best_effort_cpu_milli, container_usages, pod_cpu_milli
from cotenant_node_executor.strategies.system_config import FEATURES, SystemStrategy, system_values
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE
from tests.builders import container
from tests.unit.node_executor.builders_node_executor import batch, pod, snapshot, usage

STATUS = "scheduling.koordinator.sh/resource-status"
PRIORITY, POLICY = "koordinator.sh/eviction-priority", "koordinator.sh/eviction-policy"


# -- allocation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "has_cpu"),
    [
        ({}, False),
        ({"cpu": "0"}, False),
        ({"cpu": "1m"}, True),
        ({"kubernetes.io/batch-cpu": 500}, True),
        ({"memory": "1Gi"}, False),
        ({"cpu": "much"}, False),
    ],
)
def test_a_share_of_a_numa_node_has_cpu_where_a_readable_amount_is_above_0(
    resources: dict[str, str | int | float], has_cpu: bool
) -> None:
    assert NumaAllocation(resources=resources).has_cpu is has_cpu


def test_the_nodes_of_an_allocation_are_those_with_cpu_in_its_order() -> None:
    shares = [(1, {"cpu": 2}), (2, {"memory": 1}), (0, {"cpu": 1})]
    stated = {"cpuset": "0-3", "numaNodeResources": [{"node": node, "resources": amounts} for node, amounts in shares]}
    status = resource_status({STATUS: json.dumps(stated)})
    assert (status.cpuset, status.cpu_nodes) == ("0-3", (1, 0))
    assert resource_status({}).cpu_nodes == ()


def test_a_pod_holds_cpus_where_its_annotation_names_some_and_can_be_read() -> None:
    assert holds_cpus({STATUS: '{"cpuset": "2"}'})
    assert [holds_cpus(each) for each in ({}, {STATUS: "{}"}, {STATUS: '{"cpuset": ""}'}, {STATUS: "{"})] == [False] * 4
    with pytest.raises(ValueError, match=rf"^annotation {STATUS}: "):
        resource_status({STATUS: "{"})


@pytest.mark.parametrize("text", ["{", '{"cpuset": "3-1"}'])
def test_an_allocation_that_cannot_be_read_is_a_problem_that_names_the_annotation_once(text: str) -> None:
    problem = pod_view(pod("a", "LS", annotations={STATUS: text})).problem
    assert problem.startswith(f"annotation {STATUS}: ")
    assert problem.count(STATUS) == 1


# -- eviction ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("5", 5), ("-5", -5), ("007", 7), ("2147483647", 2**31 - 1), ("-2147483648", -(2**31)),
        ("2147483648", 0), ("-2147483649", 0), ("99999999999", 0), ("9" * 5000, 0),
        ("", 0), ("-", 0), ("--5", 0), ("+5", 0), ("1.5", 0), (" 5", 0), ("5_0", 0), ("\N{ARABIC-INDIC DIGIT FIVE}", 0),
    ],
)  # fmt: skip
def test_an_eviction_priority_is_a_number_of_32_bits_or_0(text: str, rank: int) -> None:
    assert rank_of(9, {}, {PRIORITY: text}) == (rank, 9, 9)


def test_the_label_stands_before_the_priority_as_the_third_key() -> None:
    assert rank_of(9, {"koordinator.sh/priority": "3"}, {}) == (0, 9, 3)
    assert rank_of(9, {"koordinator.sh/priority": "x"}, {}) == (0, 9, 9)
    assert rank_of(None, {}, {}) == (0, 0, 0)


def test_a_pod_permits_eviction_by_its_label_and_by_the_features_that_it_names() -> None:
    assert [is_enabled({"koordinator.sh/eviction-enabled": each}) for each in ("true", "false", "True")] == [True, False, False]
    assert not is_enabled({})
    assert policies_of({}) is None
    assert policies_of({POLICY: '["a", "b"]'}) == frozenset({"a", "b"})
    assert [policies_of({POLICY: each}) for each in ("[]", "a", "[1]")] == [frozenset()] * 3


# -- figures ----------------------------------------------------------------------------------------------------------


def test_a_pods_figures_are_those_of_its_only_container_where_containers_are_not_measured() -> None:
    one = pod_view(batch("one"))
    two = pod_view(pod("two", "LS", containers=[container("a"), container("b")]))
    whole = usage(one.group, 700)
    reading = replace(snapshot(5000), pods={each.uid: PodSample(each.uid, BESTEFFORT, whole) for each in (one, two)})
    assert (len(one.groups), len(two.groups)) == (2, 3)
    assert container_usages(reading, one) == (whole,)
    assert container_usages(reading, two) == (None, None)
    assert [container_usages(snapshot(5000), each) for each in (one, two)] == [(None,), (None, None)]


def test_figures_of_containers_are_in_the_order_of_the_pods_groups() -> None:
    two = pod_view(pod("two", "LS", containers=[container("a"), container("b")]))
    a, b = (usage(group, milli) for group, milli in zip(two.groups[1:], (1, 2), strict=True))
    measured = PodSample(two.uid, BESTEFFORT, usage(two.group, 3), (ContainerUsage("b", b), ContainerUsage("a", a)))
    reading = replace(snapshot(5000), pods={two.uid: measured})
    assert container_usages(reading, two) == (a, b)
    only_b = replace(reading, pods={two.uid: replace(measured, containers=(ContainerUsage("b", b),))})
    assert container_usages(only_b, two) == (None, b)
    assert (pod_cpu_milli(reading, two.uid), pod_cpu_milli(reading, "other")) == (3, None)


def test_best_effort_uses_what_its_group_does_and_else_what_its_pods_do() -> None:
    pods = {
        uid: PodSample(uid, tier, usage(uid, milli))
        for uid, tier, milli in (("a", BESTEFFORT, 100), ("b", BESTEFFORT, None), ("c", BURSTABLE, 900), ("d", BESTEFFORT, 20))
    }
    reading = replace(snapshot(5000), pods=pods)
    assert best_effort_cpu_milli(reading) == 120
    for milli, found in ((150, 150), (0, 0), (None, 120)):
        assert best_effort_cpu_milli(replace(reading, tiers={BESTEFFORT: usage(BESTEFFORT, milli)})) == found


# -- values -----------------------------------------------------------------------------------------------------------


def test_64_scheduler_features_are_written() -> None:
    features = {f"F{number:02}": True for number in range(65)}
    words = system_values(SystemStrategy(sched_features=features), 1 << 30)[FEATURES].split()
    assert words == [f"F{number:02}" for number in range(64)]


def test_a_normalised_quota_is_rounded_up_and_off_sets_none() -> None:
    assert [normalized_quota_us(quota, 1.5) for quota in (150_000, 100_000, 1)] == [100_000, 66_667, 1]
    assert [normalized_quota_us(100_000, ratio) for ratio in (1.0, 0.5, OFF)] == [100_000, 100_000, None]
    assert [normalized_quota_us(quota, 1.5) for quota in (0, -1)] == [None, None]
