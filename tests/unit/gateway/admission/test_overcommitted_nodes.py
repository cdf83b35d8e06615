"""A Node as the API shows it because of what the calculator decided, and what a client that writes it back declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.events import ExecutorStatus, NodeResources
from cotenant.events.node.metrics import Usage
from cotenant.kinds.nodes import NODES
from cotenant.model.subjects import executor_subject, node_subject, resources_subject
from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from tests.builders import node_document, stored
from tests.unit.gateway.builders_gateway import World, as_json

PREFIX = "node.koordinator.sh/"
ORIGIN = f"{PREFIX}originExtendedAllocatable"
THIRD_PARTY = f"{PREFIX}thirdPartyAllocations"
NORMALIZATION = f"{PREFIX}cpu-normalization-ratio"
AMPLIFICATION = f"{PREFIX}resource-amplification-ratio"
RAW = f"{PREFIX}raw-allocatable"
MERGE = "application/merge-patch+json"
LENDS = NodeResources(
    node="n1",
    batch_cpu_milli=3_000,
    batch_memory_bytes=2_000,
    mid_cpu_milli=1_000,
    mid_memory_bytes=500,
    origin=Usage(cpu_milli=5_000, memory_bytes=4_000),
    third_party=Usage(cpu_milli=2_000, memory_bytes=2_000),
    yarn=Usage(cpu_milli=1_500, memory_bytes=1_000),
    cpu_normalization="1.20",
    amplification={"cpu": 1.5, "memory": 1.25},
    devices={"koordinator.sh/gpu": 200},
    device_labels={f"{PREFIX}gpu-model": "A100", "pool": "of the device"},
)


@pytest.fixture
def world() -> World:
    """A node of 4 CPUs and 8000 bytes that no executor reports."""
    world = World()
    declared = {THIRD_PARTY: json.dumps({"allocations": [{"name": "other", "priority": "koord-batch", "resources": {}}]})}
    amounts = {"cpu": "4", "memory": "8000", "pods": "20"}
    document = node_document("n1", labels={"pool": "x"}, annotations=declared, capacity=amounts, allocatable=amounts)
    world.put(node_subject("n1"), stored(document))
    return world


def shown(world: World) -> dict[str, Any]:
    snapshot = world.core.get(NODES, "", "n1")
    assert snapshot is not None
    found: dict[str, Any] = json.loads(snapshot.document)
    return found


def declared(world: World) -> dict[str, Any]:
    snapshot = world.core.get(NODES, "", "n1")
    assert snapshot is not None
    assert snapshot.stored is not None
    found: dict[str, Any] = json.loads(bytes(snapshot.stored.raw))
    return found


def test_amplified_and_raw_amounts_devices_and_ratios_are_shown(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    node = shown(world)
    assert node["status"]["allocatable"] == {
        "cpu": "6",
        "memory": "10000",
        "pods": "20",
        "koordinator.sh/gpu": "200",
        "kubernetes.io/batch-cpu": "3k",
        "kubernetes.io/batch-memory": "2000",
        "kubernetes.io/mid-cpu": "1k",
        "kubernetes.io/mid-memory": "500",
    }
    assert node["status"]["capacity"]["cpu"] == "4"
    assert node["status"]["capacity"]["koordinator.sh/gpu"] == "200"
    annotations = node["metadata"]["annotations"]
    assert annotations[AMPLIFICATION] == '{"cpu":1.50,"memory":1.25}'
    assert json.loads(annotations[RAW]) == {"cpu": "4", "memory": "8000"}
    assert annotations[NORMALIZATION] == "1.20"
    assert node["metadata"]["labels"] == {"pool": "x", f"{PREFIX}gpu-model": "A100"}


def test_foreign_shares_and_the_origin_are_shown_as_their_operators_write_them(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    annotations = shown(world)["metadata"]["annotations"]
    assert json.loads(annotations[ORIGIN]) == {
        "resources": {"kubernetes.io/batch-cpu": "5k", "kubernetes.io/batch-memory": "4000"}
    }
    names = [entry["name"] for entry in json.loads(annotations[THIRD_PARTY])["allocations"]]
    assert names == ["other", "hadoop-yarn"]


def test_a_node_that_lends_nothing_because_its_metric_is_old_has_an_origin_of_zero(world: World) -> None:
    world.put(resources_subject("n1"), NodeResources(node="n1", withdrawn=True, degraded=True))
    origin = json.loads(shown(world)["metadata"]["annotations"][ORIGIN])
    assert origin["resources"] == {"kubernetes.io/batch-cpu": "0", "kubernetes.io/batch-memory": "0"}


def test_a_node_without_colocation_is_shown_as_it_was_declared(world: World) -> None:
    before = shown(world)
    world.put(resources_subject("n1"), NodeResources(node="n1", withdrawn=True))
    after = shown(world)
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert after["status"] == before["status"]


def test_amounts_of_an_executor_are_amplified_too(world: World) -> None:
    report = {"cpu": 8_000, "memory": 16_000}
    world.put(executor_subject("n1"), ExecutorStatus(node="n1", capacity=report, allocatable=report))
    world.put(resources_subject("n1"), LENDS)
    node = shown(world)
    assert (node["status"]["allocatable"]["cpu"], node["status"]["allocatable"]["memory"]) == ("12", "20000")
    assert json.loads(node["metadata"]["annotations"][RAW]) == {"cpu": "8", "memory": "16000"}


def test_an_object_that_is_written_back_declares_nothing_of_it(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    before = declared(world)
    document = shown(world)
    assert plan_replacement(world.core, NODES, "", "n1", as_json(document)).plan is None
    document["metadata"]["labels"]["new"] = "y"
    world.store(plan_replacement(world.core, NODES, "", "n1", as_json(document)).plan)
    assert declared(world)["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert declared(world)["status"] == before["status"]


def test_a_status_that_is_written_back_keeps_the_raw_amounts(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    document = shown(world)
    document["status"]["phase"] = "Running"
    world.store(plan_replacement(world.core, NODES, "", "n1", as_json(document), subresource="status").plan)
    assert declared(world)["status"]["allocatable"]["cpu"] == "4"
    assert declared(world)["status"]["allocatable"]["memory"] == "8000"
    assert shown(world)["status"]["allocatable"]["cpu"] == "6"


def test_devices_that_were_written_back_go_with_their_device(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    patch = as_json({"status": {"phase": "Running"}})
    world.store(plan_patch(world.core, NODES, "", "n1", MERGE, patch, subresource="status").plan)
    world.put(resources_subject("n1"), NodeResources(node="n1"))
    assert "koordinator.sh/gpu" not in shown(world)["status"]["allocatable"]
    assert "koordinator.sh/gpu" not in shown(world)["status"]["capacity"]


def test_a_new_amount_is_raw_and_the_others_stay(world: World) -> None:
    world.put(resources_subject("n1"), LENDS)
    patch = as_json({"status": {"allocatable": {"memory": "4000"}}})
    world.store(plan_patch(world.core, NODES, "", "n1", MERGE, patch, subresource="status").plan)
    assert declared(world)["status"]["allocatable"]["cpu"] == "4"
    assert shown(world)["status"]["allocatable"]["cpu"] == "6"
    assert shown(world)["status"]["allocatable"]["memory"] == "5000"
    assert json.loads(shown(world)["metadata"]["annotations"][RAW]) == {"cpu": "4", "memory": "4000"}


def test_a_node_that_another_control_plane_amplifies_is_left_alone(world: World) -> None:
    annotations = {AMPLIFICATION: '{"cpu":2.00}', RAW: '{"cpu":"4"}'}
    amounts = {"cpu": "8", "memory": "8000"}
    world.put(node_subject("n1"), stored(node_document("n1", annotations=annotations, capacity=amounts, allocatable=amounts)))
    world.put(resources_subject("n1"), NodeResources(node="n1"))
    patch = as_json({"status": {"phase": "Running"}})
    world.store(plan_patch(world.core, NODES, "", "n1", MERGE, patch, subresource="status").plan)
    assert amounts.items() <= declared(world)["status"]["allocatable"].items()
    assert shown(world)["status"]["allocatable"]["cpu"] == "8"
