"""Resources that a pod's annotation asks to be replaced, and the extended resources' annotation of a live pod."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant_gateway.admission.pods.replaced_resources import ANNOTATION_REPLACE_RESOURCES, read_pairs
from cotenant_gateway.planning.updates import plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.builders import container
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind, manifest

EXTENDED = "node.koordinator.sh/extended-resource-spec"
FIELD = f"metadata.annotations[{ANNOTATION_REPLACE_RESOURCES}]"


def pod(pairs: str | None, requests: dict[str, str], limits: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    containers = [container(image="app:1", requests=requests, limits=limits or requests)]
    return manifest(annotations=None if pairs is None else {ANNOTATION_REPLACE_RESOURCES: pairs}, containers=containers, **spec)


def resources(world: World, section: str = "requests") -> dict[str, str]:
    found: dict[str, str] = world.show("pods", "web")["spec"]["containers"][0]["resources"][section]
    return found


def test_a_resource_gets_another_name_and_keeps_its_amount() -> None:
    world = World()
    world.create("pods", pod("example.com/gpu:example.com/card", {"cpu": "1", "example.com/gpu": "2"}))
    assert resources(world) == {"cpu": "1", "example.com/card": "2"}
    assert resources(world, "limits") == {"cpu": "1", "example.com/card": "2"}


def test_an_empty_target_erases_and_what_is_not_asked_for_does_not_matter() -> None:
    world = World()
    world.create("pods", pod("example.com/gpu:, example.com/other:example.com/card", {"cpu": "1", "example.com/gpu": "2"}))
    assert resources(world) == {"cpu": "1"}


def test_init_containers_and_overhead_are_replaced_too() -> None:
    world = World()
    first = container("first", image="app:1", requests={"example.com/gpu": "1"}, limits={"example.com/gpu": "1"})
    document = pod("example.com/gpu:example.com/card", {"cpu": "1"}, initContainers=[first], overhead={"example.com/gpu": "1"})
    world.create("pods", document)
    spec = world.show("pods", "web")["spec"]
    assert spec["initContainers"][0]["resources"]["requests"] == {"example.com/card": "1"}
    assert spec["overhead"] == {"example.com/card": "1"}


def test_the_manifest_of_a_live_pod_can_be_applied_again() -> None:
    world = World()
    document = pod("example.com/gpu:example.com/card", {"cpu": "1", "example.com/gpu": "2"})
    world.create("pods", document)
    applied = {"spec": {"containers": document["spec"]["containers"]}, "metadata": {"labels": {"more": "yes"}}}
    world.patch("pods", "web", applied)
    assert resources(world) == {"cpu": "1", "example.com/card": "2"}


@pytest.mark.parametrize(
    "pairs", ["cpu", ":cpu", "a b:cpu", "cpu:a b", "cpu:a,cpu:b", "cpu:cpu", "a:b,b:c", ",".join(f"r{n}:" for n in range(101))]
)
def test_pairs_that_cannot_be_read_are_refused(pairs: str) -> None:
    with pytest.raises(ApiError) as caught:
        World().create("pods", pod(pairs, {"cpu": "1"}))
    assert [*causes(caught.value)] == [FIELD]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text(alphabet="ab:,/.", max_size=40))
def test_whatever_the_annotation_says_is_read_or_refused(text: str) -> None:
    pairs, errors = read_pairs(text)
    assert not (pairs and errors)
    assert not {*pairs} & {*pairs.values()}


def test_a_megabyte_of_pairs_is_refused() -> None:
    assert read_pairs("a:b," * 250_000)[1]


# -- the annotation of extended resources ------------------------------------------------------------------------------------


def batch_pod(world: World) -> dict[str, Any]:
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    document = pod(None, amounts, priorityClassName="koord-batch")
    document["metadata"]["labels"] = {"koordinator.sh/qosClass": "BE"}
    world.create("pods", document)
    return document


def written(world: World) -> object:
    return json.loads(world.show("pods", "web")["metadata"]["annotations"][EXTENDED])


def test_a_manifest_put_in_a_live_pods_place_does_not_lose_the_annotation() -> None:
    world = World()
    document = batch_pod(world)
    before = written(world)
    document["metadata"]["labels"]["more"] = "yes"
    world.store(plan_replacement(world.core, kind("pods"), "default", "web", as_json(document)).plan)
    assert world.show("pods", "web")["metadata"]["labels"]["more"] == "yes"
    assert written(world) == before


def test_a_live_pods_annotation_cannot_be_made_to_say_something_else() -> None:
    world = World()
    batch_pod(world)
    before = written(world)
    other = json.dumps({"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1"}}}})
    world.patch("pods", "web", {"metadata": {"annotations": {EXTENDED: other}}})
    assert written(world) == before
    with pytest.raises(ApiError, match="cannot be read"):
        world.patch("pods", "web", {"metadata": {"annotations": {EXTENDED: "{"}}})
