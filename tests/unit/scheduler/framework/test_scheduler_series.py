"""Equal pods that follow each other are placed at once, exactly as one after the other: here also as few as two."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.events.placements import Placement
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod
from tests.unit.scheduler.reference.passes import schedule


@pytest.fixture(autouse=True, scope="module")
def _worthwhile_from_two() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cotenant_scheduler.cycle.placing.WORTHWHILE", 2)
        yield


SOFT = [{"key": "spot", "value": "", "effect": "PreferNoSchedule"}, {"key": "old", "value": "", "effect": "PreferNoSchedule"}]
PREFERENCE = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 7, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}},
            {"weight": 3, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}},
        ]
    }
}
parts = st.tuples(
    st.sampled_from(["2", "6", "16", "300"]),
    st.sampled_from(["3Gi", "24Gi", "900Gi"]),
    st.sampled_from(["2", "110"]),
    st.sampled_from("abc"),
    st.integers(0, 2),
    st.none() | st.tuples(st.integers(0, 4000), st.integers(0, 20)),
)
requests = st.tuples(st.sampled_from(["10m", "100m", "900m", "3"]), st.sampled_from(["10Mi", "300Mi", "4Gi"]), st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(parts, min_size=1, max_size=9), st.lists(st.tuples(requests, st.integers(1, 40)), min_size=1, max_size=3))
def test_runs_of_equal_pods_go_where_the_reference_puts_them(
    nodes: list[tuple[str, str, str, str, int, tuple[int, int] | None]], runs: list[tuple[tuple[str, str, bool], int]]
) -> None:
    story = Story()
    for i, (cpu, memory, pods, zone, taints, metric) in enumerate(nodes):
        story.node(node(f"n{i}", cpu=cpu, memory=memory, pods=pods, labels={"zone": zone}, taints=SOFT[:taints]))
        if metric is not None:
            story.metric(f"n{i}", metric[0], metric[1] * GIB)
    number = 0
    for (cpu, memory, prefers), count in runs:
        for _ in range(count):
            number += 1
            spec: dict[str, Any] = {"affinity": PREFERENCE} if prefers else {}
            story.pod(pod(f"p{number:03}", cpu=cpu, memory=memory, **spec))
    expected = schedule(story.last.values(), story.now)
    made = {e.data.name: e.data.node for e in story.settle() if isinstance(e.data, Placement)}
    assert made == expected.placed
    assert story.nominated() == expected.nominated
    assert story.kept() == expected.kept


def test_a_run_stops_where_its_quota_is_full() -> None:
    story = Story()
    story.nodes(*(node(f"n{i}") for i in range(4)))
    story.quota("red", max={"cpu": 9000})
    story.pods(*(pod(f"p{i:02}", cpu="500m", labels={"quota.scheduling.koordinator.sh/name": "red"}) for i in range(30)))
    story.settle()
    assert sorted(story.placed()) == [f"p{i:02}" for i in range(18)]
    assert story.waiting("p18") is not None


def test_what_a_refused_decision_assumed_is_gone_and_the_next_one_is_the_same() -> None:
    story = Story()
    story.nodes(*(node(f"n{i}") for i in range(4)))
    story.pods(*(pod(f"p{i:02}") for i in range(20)))
    first = story.core.decide(story.now)
    story.pod(pod("late"))
    story.core.decide(story.now)
    story.pod_deleted("late")
    assert list(story.core.decide(story.now)) == list(first)
    assert list(story.reloaded().decide(story.now)) == list(first)
