"""Groups that were refused are passed over while nothing changed that decides on them, and decided on as ever once it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.cycle.ordering.walk import Walk
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def waiting_story() -> Story:
    """Two full nodes and a quota that is used up: some pods wait for the nodes, some for the quota, and all were told."""
    story = Story()
    story.nodes(node("a", cpu="3"), node("b", cpu="3"))
    story.quota("team", max={"cpu": 1000})
    story.pods(pod("runs", cpu="2", labels={"app": "runs"}), pod("stays", cpu="2"))
    story.settle()
    story.pods(
        pod("big", cpu="4", priority=5000),
        pod("member", cpu="2", priority=5000, labels={"quota.scheduling.koordinator.sh/name": "team"}),
        pod("low", cpu="2", preemptionPolicy="Never"),
    )
    story.settle()
    story.later(60)
    story.settle()
    return story


CHANGES: dict[str, Callable[[Story], Any]] = {
    "a node has more": lambda story: story.node(node("a", cpu="9")),
    "a node comes": lambda story: story.node(node("c", cpu="4")),
    "a node ends": lambda story: story.node_deleted("a"),
    "a node is tainted": lambda story: story.condition("a", ("gone", "", "NoSchedule")),
    "a node is loaded": lambda story: story.metric("a", 2900),
    "a quota has more": lambda story: story.quota("team", max={"cpu": 3000}),
    "a quota says the same again": lambda story: story.quota("team", max={"cpu": 1000}),
    "a pod ended": lambda story: story.run(story.placed()["runs"], "runs", RunPhase.SUCCEEDED),
    "a pod is deleted": lambda story: story.pod_deleted("runs"),
    "a budget forbids": lambda story: story.budget("all", {"app": "runs"}, allowed=0),
    "small pods come between": lambda story: story.pods(*(pod(name, cpu="1", priority=4000) for name in ("s1", "s2"))),
    "small pods come first": lambda story: story.pods(*(pod(name, cpu="1", priority=9999) for name in ("s1", "s2"))),
    "one like those who wait comes": lambda story: story.pod(pod("lower", cpu="2", preemptionPolicy="Never")),
    "time passes": lambda story: story.later(3600),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_who_slept_decides_as_one_who_has_just_woken(change: Callable[[Story], Any]) -> None:
    story = waiting_story()
    change(story)
    for _ in range(3):
        assert story.reloaded().decide(story.now) == story.core.decide(story.now)
        story.decide()
        story.later(31)


def test_nobody_is_asked_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    story = waiting_story()
    asked = []
    top = Walk.top

    def note(self: Walk) -> object:
        found = top(self)
        if found is not None:
            asked.append(found[0].records[0].key[1])
        return found

    monkeypatch.setattr(Walk, "top", note)
    story.decide()
    story.later(1)
    story.decide()
    assert asked == []
    story.quota("team", max={"cpu": 1500})
    story.decide()
    assert asked == ["big", "member", "low"]
