"""What is kept of the nodes for a shape is what a fresh look at all of them gives, however they changed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant_scheduler.framework import row_keys
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.static_results import StaticResults
from cotenant_scheduler.state import changed_columns
from cotenant_scheduler.state.changed_columns import ChangedColumns
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod

NODES = 24
SOFT = [{"key": "spot", "value": "", "effect": "PreferNoSchedule"}]
HARD = [{"key": "dedicated", "value": "", "effect": "NoSchedule"}]
WISH = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}}
        ]
    }
}
TOLERATION = [{"key": "dedicated", "operator": "Exists"}]


@pytest.fixture(autouse=True)
def small_bounds() -> Iterator[None]:
    """Bounds that a small cluster reaches."""
    before = changed_columns.KEPT, changed_columns.KEPT_BEHIND, row_keys.FEW_REPEATS, row_keys.FEW_ROWS
    changed_columns.KEPT, changed_columns.KEPT_BEHIND, row_keys.FEW_REPEATS, row_keys.FEW_ROWS = 40, 12, 20, 3
    yield
    changed_columns.KEPT, changed_columns.KEPT_BEHIND, row_keys.FEW_REPEATS, row_keys.FEW_ROWS = before


def kept_is_fresh(story: Story) -> None:
    results = story.core.placing._results
    nodes, profile = story.core.nodes, story.core.profile
    for shape, kept in results._evaluations.items():
        kept.refresh()
        fresh = Evaluation(nodes, shape, profile, StaticResults(nodes, shape, profile), ChangedColumns(nodes))
        fresh.refresh()
        assert kept.codes.tolist() == fresh.codes.tolist()
        best = kept.best()
        assert best == fresh.best()
        for row in np.flatnonzero(fresh.codes == 0).tolist():
            assert kept.total(row) == fresh.total(row) == sum(kept.scores(row))


def document(number: int, kind: int) -> dict[str, Any]:
    cpu, memory = f"{100 + 400 * (kind % 5)}m", f"{128 * (1 + kind % 7)}Mi"
    extra: dict[str, Any] = {}
    if kind % 4 == 1:
        extra["affinity"] = WISH
    if kind % 4 == 2:
        extra["tolerations"] = TOLERATION
    return pod(f"p{number:03}", cpu=cpu, memory=memory, **extra)


changes = st.lists(
    st.one_of(
        st.tuples(st.just("pods"), st.lists(st.integers(0, 11), min_size=1, max_size=12)),
        st.tuples(st.just("metric"), st.integers(0, NODES - 1)),
        st.tuples(st.just("gone"), st.integers(0, 40)),
        st.tuples(st.just("cordon"), st.integers(0, NODES - 1)),
    ),
    min_size=2,
    max_size=8,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(changes, st.integers(0, 3))
def test_what_is_kept_for_a_shape_is_what_a_fresh_look_gives(steps: list[tuple[str, object]], soft: int) -> None:
    story = Story()
    documents = {}
    for i in range(NODES):
        taints = SOFT if i % 4 < soft else HARD if i % 6 == 5 else []
        documents[i] = node(f"n{i:02}", cpu=str(1 + i % 3), memory="4Gi", pods="4", labels={"zone": "ab"[i % 2]}, taints=taints)
        story.node(documents[i])
        story.metric(f"n{i:02}", 100 + i, GIB)
    number = 0
    for kind, what in steps:
        if isinstance(what, list):
            for shape in what:
                story.pod(document(number, shape))
                number += 1
        elif kind == "metric":
            story.metric(f"n{what:02}", 3000, 4 * GIB)
        elif kind == "cordon":
            assert isinstance(what, int)
            story.node({**documents[what], "spec": {**documents[what]["spec"], "unschedulable": True}})
        elif number:
            assert isinstance(what, int)
            story.pod_deleted(f"p{what % number:03}")
        story.settle()
        kept_is_fresh(story)
