"""What fuzzing found: requests and documents that made the gateway raise, or store the same again and again."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.events.migrations import EvictionRequest
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.kinds.nodes import NODES
from cotenant.model.subjects import condition_subject, executor_subject, metrics_subject, object_subject
from cotenant_gateway.planning.budgets import budget_updates
from cotenant_gateway.planning.endings import registrations
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError
from tests.unit.gateway.builders_gateway import World, kind, manifest, raw, refusal_of


@pytest.mark.parametrize(("namespace", "name"), [("", "web"), ("default", "")])
def test_an_eviction_that_names_no_pod_is_refused(namespace: str, name: str) -> None:
    world = World()
    request = EvictionRequest(namespace=namespace, name=name, uid="u", job="job-1")
    with pytest.raises(ApiError) as refused:
        plan_eviction(world.core, request, world.now)
    assert refused.value.code == 400


def test_the_status_of_a_budget_whose_selector_cannot_be_read_is_left_alone() -> None:
    world = World()
    selector = {"matchExpressions": [{"key": "app", "operator": "Lt", "values": ["1"]}]}
    document = {"metadata": {"name": "b", "namespace": "default", "uid": "u", "generation": 1}, "spec": {"selector": selector}}
    world.put(object_subject("policy", "poddisruptionbudgets", "default", "b"), ObjectStored(object=raw(document)))
    assert list(budget_updates(world.core, world.now)) == []


def test_a_node_whose_condition_has_ended_looks_as_after_a_load() -> None:
    world = World()
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"))
    (plan,) = registrations(world.core)
    world.store(plan)
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"), tombstone=True)
    world.put(condition_subject("n1"), NodeCondition(node="n1"), tombstone=True)
    fresh = GatewayCore()
    for event in world.standing():
        fresh.apply(event)
    fresh.loaded()
    live, loaded = world.core.get(NODES, "", "n1"), fresh.get(NODES, "", "n1")
    assert live is not None
    assert loaded is not None
    assert msgspec.json.decode(live.document).get("status") == msgspec.json.decode(loaded.document).get("status")


def test_an_older_message_that_comes_again_after_the_end_brings_nothing_back() -> None:
    world = World()
    metric = world.put(metrics_subject("n1"), NodeMetricComputed(node="n1"))
    world.put(metrics_subject("n1"), NodeMetricComputed(node="n1"), tombstone=True)
    world.core.apply(metric)
    with pytest.raises(AssertionError, match="does not exist"):
        world.show("nodemetrics", "n1")


@pytest.mark.parametrize(
    ("group", "plural", "namespace", "document"),
    [
        ("", "persistentvolumes", "", {"spec": {"capacity": {"storage": True}}}),
        ("", "persistentvolumes", "", {"spec": {"claimRef": []}}),
        ("", "persistentvolumeclaims", "default", {"spec": {"resources": {"requests": {"storage": []}}}}),
        ("", "persistentvolumeclaims", "default", {"status": 1.5}),
        ("scheduling.k8s.io", "priorityclasses", "", {"value": 10**30}),
        ("scheduling.k8s.io", "priorityclasses", "", {"value": "high"}),
        ("node.k8s.io", "runtimeclasses", "", {"overhead": {"podFixed": {"cpu": None}}}),
        ("node.k8s.io", "runtimeclasses", "", {"scheduling": 1}),
    ],
)
def test_a_stored_object_that_cannot_be_read_is_not_shown_and_keeps_no_pod_out(
    group: str, plural: str, namespace: str, document: dict[str, object]
) -> None:
    world = World()
    stored = {"metadata": {"name": "odd", "namespace": namespace, "uid": "u"}, **document}
    world.put(object_subject(group, plural, namespace, "odd"), ObjectStored(object=raw(stored)))
    assert world.core.get(kind(plural), namespace, "odd") is None
    assert [finding.event.data.TYPE for finding in world.core.unreadable.take()] == [ObjectStored.TYPE]
    world.create("pods", manifest("plain"))
    if plural in ("priorityclasses", "runtimeclasses"):
        named = {"priorityClassName": "odd"} if plural == "priorityclasses" else {"runtimeClassName": "odd"}
        refused = refusal_of(lambda: world.create("pods", manifest("named", **named)))
        assert refused is not None
        assert refused.code == 422
