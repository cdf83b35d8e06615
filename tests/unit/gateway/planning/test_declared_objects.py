"""NodeSLO and NodeMetric when users write them: what is rendered wins, what they declare beside it stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.objects import ObjectDeleted
from cotenant.model.subjects import metrics_subject, node_subject, object_subject, slo_subject
from cotenant_gateway.loop.duties import Cadence, Duties
from cotenant_gateway.planning.declared import documents_of_no_node
from cotenant_gateway.planning.endings import MAX_PLANS
from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from cotenant_gateway.statuses import ApiError
from tests.builders import node_document, stored
from tests.unit.gateway.builders_gateway import World, as_json, causes, kind, raw

MERGE = "application/merge-patch+json"
RENDERED = {"cpuBurstStrategy": {"policy": "none"}, "resourceUsedThresholdWithBE": {"enable": True}}
EXTENSIONS = {"spec": {"extensions": {"third-party": {"ratio": 1.50}}}}


def render(world: World, spec: object = RENDERED) -> None:
    world.put(slo_subject("n1"), NodeSLORendered(node="n1", spec=raw(spec)))


def world_with_slo() -> World:
    world = World()
    world.put(node_subject("n1"), stored(node_document("n1")))
    render(world)
    return world


def slo(world: World) -> dict[str, Any]:
    return world.show("nodeslos", "n1")


def test_extensions_are_declared_on_what_is_rendered() -> None:
    world = world_with_slo()
    world.patch("nodeslos", "n1", EXTENSIONS)
    assert slo(world)["spec"] == {**RENDERED, **EXTENSIONS["spec"]}
    render(world, {"cpuBurstStrategy": {"policy": "auto"}})
    assert slo(world)["spec"] == {"cpuBurstStrategy": {"policy": "auto"}, **EXTENSIONS["spec"]}


def test_what_is_rendered_is_not_stored_as_if_the_user_had_declared_it() -> None:
    world = world_with_slo()
    world.patch("nodeslos", "n1", EXTENSIONS)
    snapshot = world.core.get(kind("nodeslos"), "", "n1")
    assert snapshot is not None
    assert snapshot.stored is not None
    assert json.loads(bytes(snapshot.stored.raw))["spec"] == EXTENSIONS["spec"]


def test_an_object_that_was_read_can_be_put_back_with_extensions() -> None:
    world = world_with_slo()
    document = slo(world)
    document["spec"] |= EXTENSIONS["spec"]
    document["metadata"]["labels"] = {"a": "b"}
    planned = plan_replacement(world.core, kind("nodeslos"), "", "n1", as_json(document))
    assert planned.warnings == ()
    world.store(planned.plan)
    assert slo(world)["spec"] == {**RENDERED, **EXTENSIONS["spec"]}
    assert slo(world)["metadata"]["labels"] == {"a": "b"}


def test_a_section_that_is_rendered_can_be_written_and_loses_with_a_warning() -> None:
    world = world_with_slo()
    planned = world.patch("nodeslos", "n1", {"spec": {"cpuBurstStrategy": {"policy": "auto"}}})
    (told,) = planned.warnings
    assert told.startswith("spec.cpuBurstStrategy: is rendered from the configuration, which takes precedence")
    assert slo(world)["spec"] == RENDERED


def test_a_write_that_declares_nothing_stores_nothing() -> None:
    world = world_with_slo()
    assert world.patch("nodeslos", "n1", {"spec": RENDERED}).plan is None


def test_a_stale_version_is_refused() -> None:
    world = world_with_slo()
    old = slo(world)["metadata"]["resourceVersion"]
    render(world, {"cpuBurstStrategy": {"policy": "auto"}})
    with pytest.raises(ApiError) as caught:
        world.patch("nodeslos", "n1", {**EXTENSIONS, "metadata": {"resourceVersion": old}})
    assert caught.value.code == 409


def test_a_deleted_document_leaves_what_is_rendered_under_another_uid() -> None:
    world = world_with_slo()
    world.patch("nodeslos", "n1", EXTENSIONS)
    uid = slo(world)["metadata"]["uid"]
    world.delete("nodeslos", "n1")
    assert slo(world)["spec"] == RENDERED
    assert slo(world)["metadata"]["uid"] != uid
    world.patch("nodeslos", "n1", EXTENSIONS)
    assert slo(world)["metadata"]["uid"] != uid


def test_what_has_no_document_cannot_be_deleted() -> None:
    with pytest.raises(ApiError) as caught:
        world_with_slo().delete("nodeslos", "n1")
    assert caught.value.code == 405


def test_one_can_be_created_before_anything_is_rendered_but_not_without_its_node() -> None:
    world = World()
    document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": "n1"}, **EXTENSIONS}
    with pytest.raises(ApiError) as caught:
        world.create("nodeslos", document)
    assert "create the node first" in causes(caught.value)["metadata.name"]
    world.put(node_subject("n1"), stored(node_document("n1")))
    world.create("nodeslos", document)
    render(world)
    assert slo(world)["spec"] == {**RENDERED, **EXTENSIONS["spec"]}


def test_a_document_ends_with_its_node() -> None:
    world = world_with_slo()
    world.patch("nodeslos", "n1", EXTENSIONS)
    assert not [*documents_of_no_node(world.core)]
    world.put(node_subject("n1"), ObjectDeleted(), tombstone=True)
    world.put(slo_subject("n1"), NodeSLORendered(node="n1"), tombstone=True)
    for plan in [*documents_of_no_node(world.core)]:
        world.store(plan)
    assert world.core.get(kind("nodeslos"), "", "n1") is None
    assert not world.core.declared


def test_a_document_ends_with_its_node_however_many_others_have_one() -> None:
    world = World()
    for number in range(MAX_PLANS + 1):
        world.put(node_subject(f"n{number}"), stored(node_document(f"n{number}")))
        document = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": f"n{number}"}}
        world.create("nodeslos", document | EXTENSIONS)
    duties = Duties(lambda: world.core, lambda: "uid", Cadence(None))
    assert not [*duties.due(world.now)]
    world.put(node_subject(f"n{MAX_PLANS}"), ObjectDeleted(), tombstone=True)
    world.pass_seconds(1)
    [[plan]] = duties.due(world.now)
    assert plan.writes[0].subject == object_subject("slo.koordinator.sh", "nodeslos", "", f"n{MAX_PLANS}")
    assert plan.writes[0].tombstone


def test_labels_and_annotations_of_a_node_metric_are_declared_and_its_figures_stay() -> None:
    world = World()
    world.put(node_subject("n1"), stored(node_document("n1")))
    world.put(metrics_subject("n1"), NodeMetricComputed(node="n1", update_time=world.now))
    before = world.show("nodemetrics", "n1")
    status = {"status": {"updateTime": "1999-01-01T00:00:00Z"}, "metadata": {"annotations": {"a": "b"}}}
    assert world.patch("nodemetrics", "n1", status).warnings == ()
    after = world.show("nodemetrics", "n1")
    assert after["metadata"]["annotations"] == {"a": "b"}
    assert (after["status"], after["spec"]) == (before["status"], before["spec"])


def test_a_status_that_is_written_loses_against_the_samples_with_a_warning() -> None:
    world = World()
    world.put(node_subject("n1"), stored(node_document("n1")))
    world.put(metrics_subject("n1"), NodeMetricComputed(node="n1", update_time=world.now))
    patch = as_json({"status": {"podsMetric": [{"name": "a"}]}})
    planned = plan_patch(world.core, kind("nodemetrics"), "", "n1", MERGE, patch, subresource="status")
    (told,) = planned.warnings
    assert told.startswith("status.podsMetric: is computed from the node's samples")
    world.store(planned.plan)
    snapshot = world.core.get(kind("nodemetrics"), "", "n1")
    assert snapshot is not None
    assert snapshot.stored is not None
    assert json.loads(bytes(snapshot.stored.raw))["status"] == {"podsMetric": [{"name": "a"}]}
    assert world.show("nodemetrics", "n1")["status"]["podsMetric"] == []


@pytest.mark.parametrize("spec", [{"extensions": []}, {"extensions": "x"}, [], 7, "x"])
def test_what_is_no_spec_is_refused_with_its_field(spec: object) -> None:
    with pytest.raises(ApiError) as caught:
        world_with_slo().patch("nodeslos", "n1", {"spec": spec})
    assert caught.value.code == 400


def test_a_json_patch_is_of_the_object_as_it_is_shown() -> None:
    world = world_with_slo()
    patch = [
        {"op": "test", "path": "/spec/cpuBurstStrategy/policy", "value": "none"},
        {"op": "add", "path": "/spec/extensions", "value": {"a": 1}},
    ]
    planned = plan_patch(world.core, kind("nodeslos"), "", "n1", "application/json-patch+json", as_json(patch))
    world.store(planned.plan)
    assert slo(world)["spec"]["extensions"] == {"a": 1}
