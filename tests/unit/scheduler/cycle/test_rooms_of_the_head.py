"""What is published of the room that the queue's head is kept, when another pod is the head."""

from __future__ import annotations

from cotenant_scheduler.cycle.waiting import WAITING_PAUSE
from tests.unit.scheduler.builders_scheduler import node
from tests.unit.scheduler.cycle.test_queue_head import job, kept, story_of


def test_a_pod_that_is_the_head_no_longer_says_so_at_once_and_again_when_it_is() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("running", "3", nodeName="a"))
    story.settle()
    story.pod(job("head", "4"))
    story.settle()
    assert kept(story, "head") == ["a"]
    story.later(WAITING_PAUSE.total_seconds() / 2)
    story.pod(job("boss", "4", priority=9, preemptionPolicy="Never"))
    story.settle()
    assert kept(story, "boss", "head") == ["a", None]
    story.pod_deleted("boss")
    story.settle()
    assert kept(story, "head") == ["a"]
