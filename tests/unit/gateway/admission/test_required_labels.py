"""Labels that the ConfigMap pod-enhanced-validator-config demands of pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.objects import ObjectStored
from cotenant.model.subjects import object_subject
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, causes, manifest, raw, refusal_of

NAME = "pod-enhanced-validator-config"
RULE = {"name": "owned", "requiredLabels": ["team"], "namespaceWhitelist": ["kube-system"]}


def config(rules: object, enable: str = "true") -> dict[str, Any]:
    data = {"enable": enable, "rules": rules if isinstance(rules, str) else json.dumps(rules)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data}


def world_with(*rules: object, enable: str = "true") -> World:
    world = World()
    world.create("configmaps", config(list(rules), enable), namespace="koordinator-system")
    return world


def test_a_pod_without_a_demanded_label_is_refused_and_names_the_rule() -> None:
    with pytest.raises(ApiError) as caught:
        world_with(RULE).create("pods", manifest(labels={}))
    assert "rule owned of the ConfigMap" in causes(caught.value)["metadata.labels[team]"]


def test_every_missing_label_is_told() -> None:
    with pytest.raises(ApiError) as caught:
        world_with(RULE, {"name": "billed", "requiredLabels": ["cost", "team"]}).create("pods", manifest(labels={}))
    assert [*causes(caught.value)] == ["metadata.labels[team]", "metadata.labels[cost]"]


def test_pods_that_have_it_are_taken_and_exempt_namespaces_too() -> None:
    world = world_with(RULE)
    world.create("pods", manifest(labels={"team": "a"}))
    world.create("pods", manifest(labels={}), namespace="kube-system")


def test_pods_of_the_control_plane_are_left_alone() -> None:
    world = world_with(RULE)
    labelled = {"name": "system", "labels": {"control-plane": "koordinator"}}
    world.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    world.create("pods", manifest(labels={}), namespace="system")


def test_a_pod_that_says_so_is_left_alone() -> None:
    world = world_with(RULE)
    world.create("pods", manifest(labels={"pod.koordinator.sh/skip-enhanced-validation": "true"}))


@pytest.mark.parametrize("enable", ["false", "", "False"])
def test_rules_that_are_off_demand_nothing(enable: str) -> None:
    world_with(RULE, enable=enable).create("pods", manifest(labels={}))


def test_a_live_pod_keeps_its_label_but_one_from_before_the_rule_stays_writable() -> None:
    world = World()
    world.create("pods", manifest(labels={"team": "a"}))
    old: Any = manifest(labels={})
    old["metadata"]["name"] = "old"
    world.create("pods", old)
    world.create("configmaps", config([RULE]), namespace="koordinator-system")
    with pytest.raises(ApiError, match="requires this label"):
        world.patch("pods", "web", {"metadata": {"labels": {"team": None}}})
    world.patch("pods", "old", {"metadata": {"labels": {"app": "b"}}})


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ("{", "data[rules]"),
        ("{}", "data[rules]"),
        ([{"requiredLabels": ["a"]}], "data[rules][0].name"),
        ([{"name": "x", "requiredLabels": "a"}], "data[rules][0]"),
        ([RULE, {"name": "x", "requiredLabels": ["a b"]}], "data[rules][1].requiredLabels[0]"),
        ([RULE] * 101, "data[rules]"),
        ([{"name": "x", "requiredLabels": ["a"] * 1_001}], "data[rules][0]"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: object, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        World().create("configmaps", config(rules), namespace="koordinator-system")
    assert [*causes(caught.value)] == [field]


def test_a_switch_that_is_no_boolean_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        world_with(RULE, enable="yes")
    assert [*causes(caught.value)] == ["data[enable]"]


def test_broken_rules_of_another_writer_demand_nothing() -> None:
    world = World()
    broken = config("[")
    broken["metadata"]["namespace"] = "koordinator-system"
    world.put(object_subject("", "configmaps", "koordinator-system", NAME), ObjectStored(object=raw(broken)))
    world.create("pods", manifest(labels={}))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40) | st.sampled_from(["[" * 50_000, "[null]", "[[]]", '[{"name": 1}]', "9" * 5_000, '["\\ud800"]']))
def test_whatever_the_rules_say_is_taken_or_refused_with_a_field(rules: str) -> None:
    error = refusal_of(lambda: World().create("configmaps", config(rules), namespace="koordinator-system"))
    assert error is None or error.code == 422
    assert error is None or all(field.startswith("data[rules]") for field in causes(error))
