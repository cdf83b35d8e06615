"""Where a pod goes that somebody has given a hint: the nodes that it names, the preferred ones first."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.scheduler.asking import Asking
from tests.unit.scheduler.builders_scheduler import Story, node, pod

HINT = "scheduling.koordinator.sh/scheduling-hint"
PLUGIN = "SchedulingHint"


def hinted(annotation: str = HINT, **hint: Any) -> dict[str, Any]:
    return {"annotations": {annotation: json.dumps(hint)}}


def asking() -> Asking:
    found = Asking()
    found.nodes(*(node(name) for name in "abcd"))
    return found


def test_only_the_named_nodes_are_left() -> None:
    world = asking()
    world.ask_for("p", **hinted(nodeNames=["c", "a", "nowhere"]))
    world.ask_for("free", **hinted(nodeNames=[]))
    assert world.refused(PLUGIN, "p") == {"b", "d"}
    assert world.refused(PLUGIN, "free") == set()
    assert world.reason(PLUGIN, "p", 1).text == "node(s) didn't match the pod's scheduling hint"


def test_preferred_nodes_score_by_their_place_in_the_list() -> None:
    world = asking()
    world.ask_for("p", **hinted(preferredNodeNames=["c", "nowhere", "a", "c"]))
    world.ask_for("plain")
    assert world.scores(PLUGIN, "p") == {"a": 98, "b": 0, "c": 100, "d": 0}
    assert world.scores(PLUGIN, "plain") == dict.fromkeys("abcd", 0)


def test_a_hundred_preferred_nodes_count() -> None:
    world = asking()
    world.ask_for("p", **hinted(preferredNodeNames=[*(f"n{i}" for i in range(99)), "a", "b"]))
    assert world.scores(PLUGIN, "p") == {"a": 1, "b": 0, "c": 0, "d": 0}


def test_the_internal_annotation_is_read_first() -> None:
    world = asking()
    both = {HINT: json.dumps({"nodeNames": ["a"]}), f"internal.{HINT}": json.dumps({"nodeNames": ["b"]})}
    world.ask_for("p", annotations=both)
    world.ask_for("q", annotations={**both, f"internal.{HINT}": ""})
    assert world.refused(PLUGIN, "p") == {"a", "c", "d"}
    assert world.refused(PLUGIN, "q") == {"b", "c", "d"}


def test_the_first_preferred_node_that_can_take_it_wins_against_every_score() -> None:
    story = Story()
    story.nodes(node("best", cpu="64"), node("full", cpu="1"), node("poor", cpu="2"))
    story.metric("poor", 1200)
    story.pods(pod("p", cpu="1500m", **hinted(preferredNodeNames=["full", "poor"])), pod("q", cpu="1500m"))
    story.settle()
    # `poor` is above its usage threshold, `full` is too small: none of the preferred ones can take it.
    assert (story.node_of("p"), story.node_of("q")) == ("best", "best")
    story.metric("poor", 0)
    story.pods(pod("r", cpu="100m", **hinted(preferredNodeNames=["full", "poor"])))
    story.settle()
    assert story.node_of("r") == "full"


def test_pods_with_other_hints_and_the_same_constraints_are_told_apart() -> None:
    story = Story()
    story.nodes(*(node(name) for name in "abcd"))
    story.pods(*(pod(f"p-{name}", cpu="100m", **hinted(preferredNodeNames=[name])) for name in "dbca"))
    story.settle()
    assert story.placed() == {f"p-{name}": name for name in "abcd"}


def test_a_pod_waits_for_a_hinted_node_and_goes_there_when_it_comes() -> None:
    story = Story()
    story.nodes(node("a"), node("b"))
    story.pod(pod("p", **hinted(nodeNames=["c"])))
    story.settle()
    waiting = story.waiting("p")
    assert waiting is not None
    assert [(reason.code, reason.count) for reason in waiting.reasons] == [("scheduling-hint", 2)]
    assert "2 node(s) didn't match the pod's scheduling hint" in waiting.message
    story.node(node("c"))
    story.settle()
    assert story.node_of("p") == "c"


def test_a_hint_that_cannot_be_read_is_the_reason_to_wait() -> None:
    story = Story()
    story.node(node("a"))
    story.pod(pod("p", annotations={HINT: "[1"}))
    story.settle()
    waiting = story.waiting("p")
    assert waiting is not None
    assert waiting.reasons[0].code == "malformed"
    assert HINT in waiting.message
