"""How much one decision takes, one by one or at once, and that it is the same either way."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events.envelope import Event
from cotenant_scheduler.framework.series import WORTHWHILE
from tests.unit.scheduler.builders_scheduler import GIB, Story, node, pod

SMALL: dict[str, Any] = {"cpu": "1m", "memory": "1Mi"}
SMALLER: dict[str, Any] = {"cpu": "1m", "memory": "2Mi"}


def spacious(story: Story) -> None:
    story.nodes(node("a", cpu="10000", memory="100Ti", pods="100000"))


def kinds(batch: list[Event]) -> Counter[str]:
    return Counter(type(event.data).__name__ + (" ended" if event.tombstone else "") for event in batch)


def test_pods_that_differ_fill_a_batch_to_its_last_event() -> None:
    story = Story()
    spacious(story)
    # Of two shapes by turns: no two equal pods follow each other.
    story.pods(*(pod(f"p{i:04}", **(SMALL if i % 2 else SMALLER)) for i in range(1_100)))
    assert kinds(story.decide()) == {"Placement": MAX_EVENTS_PER_DECISION}
    assert kinds(story.decide()) == {"Placement": 1_100 - MAX_EVENTS_PER_DECISION}
    assert story.decide() == []


def test_pods_that_waited_take_two_events_each() -> None:
    story = Story()
    story.pods(*(pod(f"p{i:04}", **SMALL) for i in range(600)))
    assert kinds(story.decide()) == {"Waiting": 600}
    spacious(story)
    assert kinds(story.decide()) == {"Placement": 499, "Waiting ended": 499}
    assert kinds(story.decide()) == {"Placement": 101, "Waiting ended": 101}


def test_waiting_events_take_what_placements_leave() -> None:
    story = Story()
    story.nodes(node("a", cpu="10", memory="100Ti", pods="500"))
    story.pods(*(pod(f"p{i:04}", **SMALL) for i in range(500)))
    story.pods(*(pod(f"q{i:04}", cpu="20") for i in range(600)))
    assert kinds(story.decide()) == {"Placement": 500, "Waiting": 499}
    assert kinds(story.decide()) == {"Waiting": 101}


def test_a_series_stops_at_a_pod_that_the_nodes_report_knows() -> None:
    count = WORTHWHILE + 12
    for known in (0, 1, 30, count - 1):
        story = Story()
        story.nodes(node("a", cpu="1000", memory="1000Gi"))
        known_pod: Any = {f"p{known:03}": (3_000, 2 * GIB)}
        story.metric("a", 5_000, 5 * GIB, **known_pod)
        story.pods(*(pod(f"p{i:03}") for i in range(count)))
        story.settle()
        assert len(story.placed()) == count
        fresh = story.reloaded()
        fresh.decide(story.now)
        views = [core.nodes.load.node_view[:, core.nodes.rows["a"]].tolist() for core in (story.core, fresh)]
        assert views[0] == views[1]
        # A pod of 1 core and 1 Gi is taken to use 850 milli-cores and 70 %, unless the report has it: that one uses more.
        assert views[0] == [5_000 + 850 * (count - 1), 5 * GIB + 751_619_277 * (count - 1)]


def test_who_follows_is_placed_with_its_leader_in_one_decision() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": "host"}
    after = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    story = Story()
    story.nodes(node("a", labels={"host": "a"}), node("b", labels={"host": "b"}))
    story.pod(pod("follower", priority=9, affinity=after))
    story.pod(pod("leader", labels={"app": "leader"}))
    assert kinds(story.decide()) == {"Placement": 2}
    assert story.node_of("follower") == story.node_of("leader")
