"""Which members of a gang count, and for which gangs of its group."""

from __future__ import annotations

from typing import Any

from cotenant.events.node.runs import RunPhase
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.cycle.test_gangs import member, story_with


def test_members_that_have_gone_count_no_more() -> None:
    rules: dict[str, Any] = {"policy": "waiting-and-running", "mode": "NonStrict"}
    story = story_with(node("a", cpu="4"))
    story.pods(*(member(f"p{index}", **rules) for index in range(3)))
    story.settle()
    for name in ("p0", "p1"):
        story.run("a", name, RunPhase.STOPPED)
        story.pod_deleted(name)
    story.pod(pod("service", cpu="2", nodeName="a"))
    story.settle()
    story.pods(member("n0", **rules), member("n1", **rules))
    story.settle()
    assert story.placed().keys() == {"p2", "service"}, "one of two fits, and one is running: not three"


def test_a_gang_is_satisfied_by_members_of_another_one_of_its_group() -> None:
    groups: dict[str, Any] = {"groups": '["default/g", "default/h"]'}
    story = story_with(node("a", cpu="9"))
    names = ("g0", "g1", "h0", "h1")
    story.pods(*(member(name, gang=name[0], least=2, **groups) for name in names))
    story.settle()
    assert story.placed().keys() == set(names)
    for name in ("h0", "h1"):
        story.run("a", name, RunPhase.STOPPED)
        story.pod_deleted(name)
    story.settle()
    story.pod(member("h2", gang="h", least=2, **groups))
    story.settle()
    assert story.placed().keys() == {"g0", "g1", "h2"}
