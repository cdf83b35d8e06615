"""What the nodes offer to quotas, as the scheduler sums it: terminating nodes do not count (quota-tree 9)."""

from __future__ import annotations

import pytest

from cotenant.events import Event, NodeResources
from cotenant.model.subjects import node_subject, resources_subject
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from tests.builders import node_document, stored

ALIVE = node_document("n", allocatable={"cpu": "4", "memory": "8Gi"})
ENDING = node_document("n", allocatable={"cpu": "4", "memory": "8Gi"}, deleted="2026-01-01T00:00:00Z")
TOTAL = {"cpu": 4000, "memory": 8 << 30, "pods": 110}


@pytest.fixture
def cache() -> NodeCache:
    args = LoadAwareArgs().defaulted()
    return NodeCache(NodeTable(args), args, lambda _node: None)


def total_after(cache: NodeCache, *documents: dict[str, object]) -> dict[str, int]:
    for sequence, document in enumerate(documents, 1):
        cache.fold_object("n", Event(subject=node_subject("n"), data=stored(document), sequence=sequence))
        cache.settle()
    return cache.totals.total


def test_a_node_that_is_terminating_when_first_seen_does_not_count(cache: NodeCache) -> None:
    assert total_after(cache, ENDING) == {}


def test_a_node_stops_counting_when_its_deletion_begins(cache: NodeCache) -> None:
    assert total_after(cache, ALIVE) == TOTAL
    assert total_after(cache, ENDING) == {}


def test_what_else_is_written_about_a_terminating_node_changes_nothing(cache: NodeCache) -> None:
    total_after(cache, ENDING)
    data = NodeResources(node="n", batch_cpu_milli=2000)
    cache.fold_part("n", "resources", Event(subject=resources_subject("n"), data=data, sequence=9))
    cache.settle()
    assert cache.totals.total == {}
