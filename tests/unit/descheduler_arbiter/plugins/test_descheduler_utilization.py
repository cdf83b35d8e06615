"""LowNodeUtilization and HighNodeUtilization on facts; node fit, and selectors written as text."""


from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from cotenant.domain.selectors import selects
from cotenant_descheduler_arbiter.config.selector_text import both, parse_selector
from cotenant_descheduler_arbiter.state.facts import ContainerFacts
from tests.unit.descheduler_arbiter.plugins.builders_plugins import node, pod, run

# -- utilisation ----------------------------------------------------------------------------------------------------------

LOW = {"thresholds": {"cpu": 20, "pods": 20}, "targetThresholds": {"cpu": 50, "pods": 50}}


def test_a_node_above_its_target_is_relieved_until_it_is_no_longer_above() -> None:
    pods = [pod(f"p{index}", "n1", cpu="1") for index in range(8)]
    assert run("LowNodeUtilization", LOW, [node("n1"), node("n2")], pods) == ["p0", "p1", "p2"]


def test_what_the_destinations_have_room_for_is_the_most_that_goes() -> None:
    small = node("n2", allocatable={"cpu": 4_000, "memory": 100 << 30, "pods": 110})
    pods = [pod(f"p{index}", "n1", cpu="1") for index in range(9)]
    assert run("LowNodeUtilization", LOW, [node("n1"), small], pods) == ["p0", "p1"], "half of 4 cores"


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ({"numberOfNodes": 1}, ["n1", "n2"]),
        ({"evictableNamespaces": {"exclude": ["default"]}}, ["n1", "n2"]),
        ({}, ["n1"]),
    ],
)
def test_nothing_is_relieved(more: Mapping[str, Any], nodes: list[str]) -> None:
    pods = [pod(f"p{index}", "n1", cpu="1") for index in range(8)]
    assert run("LowNodeUtilization", {**LOW, **more}, [node(name) for name in nodes], pods) == []


def test_an_unschedulable_node_takes_nothing() -> None:
    pods = [pod(f"p{index}", "n1", cpu="1") for index in range(8)]
    assert run("LowNodeUtilization", LOW, [node("n1"), node("n2", unschedulable=True)], pods) == []
    high = {"thresholds": {"cpu": 20}}
    thin = [pod("a", "n1", cpu="1"), pod("b", "n2", cpu="5")]
    assert run("HighNodeUtilization", high, [node("n1"), node("n2", unschedulable=True)], thin) == []


def test_deviation_thresholds_are_around_the_mean() -> None:
    args = {"thresholds": {"cpu": 10}, "targetThresholds": {"cpu": 10}, "useDeviationThresholds": True}
    pods = [pod(f"p{index}", "n1", cpu="1") for index in range(6)]
    assert run("LowNodeUtilization", args, [node("n1"), node("n2")], pods) == ["p0", "p1"], "the mean is 30 %, 40 % is allowed"


def test_thinly_used_nodes_are_emptied_least_used_first() -> None:
    pods = [pod("a", "n1", cpu="1"), pod("b", "n2", cpu="500m"), pod("c", "n3", cpu="5")]
    nodes = [node("n1"), node("n2"), node("n3")]
    assert run("HighNodeUtilization", {"thresholds": {"cpu": 20}}, nodes, pods) == ["b", "a"]
    assert run("HighNodeUtilization", {"thresholds": {"cpu": 5}}, nodes, pods) == ["b"]
    tight = node("n3", allocatable={"cpu": 5_000, "memory": 100 << 30, "pods": 110})
    assert run("HighNodeUtilization", {"thresholds": {"cpu": 20}}, [*nodes[:2], tight], pods) == [], "it is full"


# -- the evictor, selectors ---------------------------------------------------------------------------------------------


def test_with_node_fit_another_node_has_to_take_the_pod() -> None:
    pods = [pod("a", "n1", containers=(ContainerFacts(restarts=9),), cpu="2")]
    args = {"podRestartThreshold": 1}
    small = node("n2", allocatable={"cpu": 1_000, "pods": 10})
    assert run("RemovePodsHavingTooManyRestarts", args, [node("n1"), small], pods) == ["a"]
    assert run("RemovePodsHavingTooManyRestarts", args, [node("n1"), small], pods, node_fit=True) == []
    assert run("RemovePodsHavingTooManyRestarts", args, [node("n1"), node("n2")], pods, node_fit=True) == ["a"]


@pytest.mark.parametrize(
    ("text", "labels", "expected"),
    [
        ("pool=web", {"pool": "web"}, True),
        ("pool==web", {"pool": "api"}, False),
        ("pool!=web", {}, True),
        ("pool in (web, api),zone", {"pool": "api", "zone": "x"}, True),
        ("pool in (web, api),zone", {"pool": "api"}, False),
        ("pool notin (web)", {"pool": "web"}, False),
        ("!spot", {"spot": ""}, False),
        ("", {}, True),
    ],
)
def test_selectors_as_text(text: str, labels: dict[str, str], expected: bool) -> None:
    assert selects(parse_selector(text), labels, absent=True) is expected


@pytest.mark.parametrize("text", ["a=b c", "=", "a in b", "a,,b", "a in (b", "!"])
def test_text_that_is_no_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a label selector"):
        parse_selector(text)


def test_both_selectors_have_to_select() -> None:
    joined = both(parse_selector("a=1"), parse_selector("b=2"))
    assert selects(joined, {"a": "1", "b": "2"}, absent=True)
    assert not selects(joined, {"a": "1"}, absent=True)
    assert both(None, None) is None
