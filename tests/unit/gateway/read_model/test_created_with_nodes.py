"""NodeSLO, NodeMetric and NodeResourceTopology without a document are as old as their node."""

from __future__ import annotations

import gc
import itertools
import json
import weakref
from typing import Any

import pytest

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.topology import MachineTopology
from cotenant.events.objects import ObjectDeleted
from cotenant.model.subjects import metrics_subject, node_subject, slo_subject, topology_subject
from cotenant_gateway.read_model.core import GatewayCore
from tests.builders import node_document, stored
from tests.unit.gateway.builders_gateway import World, kind

CREATED = "2025-11-03T08:00:00Z"
PLURALS = ("nodeslos", "nodemetrics", "noderesourcetopologies")


def register(world: World, created: str = CREATED) -> Event:
    document: dict[str, Any] = node_document("n1")
    document["metadata"]["creationTimestamp"] = created
    return world.put(node_subject("n1"), stored(document))


def report(world: World) -> None:
    world.put(slo_subject("n1"), NodeSLORendered(node="n1"))
    world.put(metrics_subject("n1"), NodeMetricComputed(node="n1", update_time=world.now))
    world.put(topology_subject("n1"), MachineTopology(node="n1"))


def created(core: GatewayCore, plural: str) -> str | None:
    snapshot = core.get(kind(plural), "", "n1")
    assert snapshot is not None
    found: str | None = json.loads(snapshot.document)["metadata"].get("creationTimestamp")
    return found


@pytest.mark.parametrize("plural", PLURALS)
def test_they_have_their_nodes_creation_timestamp_whatever_came_first(plural: str) -> None:
    world = World()
    report(world)
    assert created(world.core, plural) is None
    register(world)
    assert created(world.core, plural) == CREATED
    report(world)
    assert created(world.core, plural) == CREATED


@pytest.mark.parametrize("plural", PLURALS)
def test_a_restarted_gateway_shows_the_same_in_any_order(plural: str) -> None:
    world = World()
    register(world)
    report(world)
    facts = [event for event in world.events if event.subject.split(".")[-1] == "n1" or event.subject.startswith("node.n1.")]
    assert len(facts) == 4
    for order in itertools.permutations(facts):
        core = GatewayCore()
        for event in order:
            core.apply(event)
        core.loaded()
        assert created(core, plural) == CREATED


def test_a_node_that_is_created_again_makes_them_new() -> None:
    world = World()
    register(world)
    report(world)
    world.put(node_subject("n1"), ObjectDeleted(), tombstone=True)
    assert created(world.core, "nodeslos") is None
    register(world, "2026-02-01T00:00:00Z")
    assert created(world.core, "nodeslos") == "2026-02-01T00:00:00Z"


def test_a_change_of_the_node_is_no_change_of_theirs() -> None:
    world = World()
    register(world)
    report(world)
    before = world.core.get(kind("nodeslos"), "", "n1")
    register(world)
    assert world.core.get(kind("nodeslos"), "", "n1") is before


def test_a_document_keeps_the_timestamp_that_was_shown_without_it() -> None:
    world = World()
    register(world)
    report(world)
    world.patch("nodeslos", "n1", {"spec": {"extensions": {"third-party": {}}}})
    assert created(world.core, "nodeslos") == CREATED
    register(world, "2026-02-01T00:00:00Z")
    assert created(world.core, "nodeslos") == CREATED


def test_a_read_model_that_is_replaced_is_freed() -> None:
    world = World()
    register(world)
    report(world)
    replaced = weakref.ref(world.core)
    world.core = GatewayCore()
    gc.collect()
    assert replaced() is None
