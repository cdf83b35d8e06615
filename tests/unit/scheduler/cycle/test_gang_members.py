"""Which members of a gang count, and for which gangs of its group."""

from __future__ import annotations

from cotenant.events.node.runs import RunPhase
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.cycle.test_gangs import member, story_with


def test_members_that_have_gone_count_no_more() -> None:
    rules = {"policy": "waiting-and-running", "mode": "NonStrict"}
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
