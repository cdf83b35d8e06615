"""What a node's executor did last, as events of the node."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cotenant.api.definitions import FIELD_LABELS
from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant.kinds.events import DEFINITION
from cotenant_gateway.http.facts.node_actions import TOPICS, action, node_of
from cotenant_gateway.read_model.selectors import parse_field_selector
from cotenant_node_executor.strategies.registry import STRATEGIES

AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_every_strategys_topic_is_shown() -> None:
    assert {each.topic for each in STRATEGIES} <= set(TOPICS)


def test_an_action_is_an_event_of_the_node_as_kubelets_are() -> None:
    said = Execution(node="node-1", topic="memory-evict", summary="default/job: evicted by memory-evict: full")
    made = action(Event(subject="execution.node-1.memory-evict", data=said, time=AT, sequence=9), 77)
    document = json.loads(made.document)
    assert document["metadata"]["name"] == "node-1.node.memory-evict"
    assert document["metadata"]["resourceVersion"] == "77"
    assert document["involvedObject"] == {"kind": "Node", "apiVersion": "v1", "name": "node-1", "uid": "node-1"}
    assert (document["reason"], document["type"], document["count"]) == ("MemoryEvict", "Warning", 1)
    assert document["message"] == said.summary
    assert document["source"] == {"component": "node-executor"}


@pytest.mark.parametrize(
    ("asked", "node"),
    [
        ("involvedObject.kind=Node,involvedObject.name=node-1,involvedObject.uid=node-1", "node-1"),
        ("involvedObject.name=node-1,involvedObject.kind==Node", "node-1"),
        ("involvedObject.kind=Pod,involvedObject.name=node-1", ""),
        ("involvedObject.kind=Node", ""),
        ("involvedObject.kind!=Node,involvedObject.name=node-1", ""),
        ("", ""),
    ],
)
def test_they_are_read_for_one_node_only(asked: str, node: str) -> None:
    assert node_of(parse_field_selector(asked, FIELD_LABELS | DEFINITION.field_labels)) == node
