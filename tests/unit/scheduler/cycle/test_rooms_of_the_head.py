"""Room for the queue's head: what is published when another pod becomes the head, and none where affinity refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant_scheduler.cycle.waiting import WAITING_PAUSE
from tests.unit.scheduler.builders_scheduler import node
from tests.unit.scheduler.cycle.test_queue_head import job, kept, service, story_of


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


def needing(app: str) -> dict[str, Any]:
    """Affinity to pods of an app in the same zone."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@pytest.mark.parametrize(("beside", "found"), [("web", "a"), ("db", None)])
def test_no_room_is_kept_where_pods_are_missing_that_the_head_must_be_with(beside: str, found: str | None) -> None:
    """The node refuses it for resources first; the end of the job would not lift the other refusal."""
    story = story_of(node("a", cpu="4", labels={"zone": "x"}))
    story.pods(job("j", "3", nodeName="a"), service("s", "0", nodeName="a", labels={"app": beside}))
    story.settle()
    story.pod(job("head", "4", affinity=needing("web")))
    story.settle()
    assert kept(story) == [found]


def test_the_first_pod_of_an_app_is_not_bound_to_the_node_of_one_that_can_start_nowhere() -> None:
    """Found by `cotenant simulate --chaos --seed 2 --nodes 3`: `head` waits for pods of `db`, and none is there."""
    story = story_of(node("a", cpu="4", labels={"zone": "x"}), node("b", cpu="1", labels={"zone": "y"}))
    story.pod(job("j", "4", nodeName="a"))
    story.settle()
    story.pods(
        job("head", "2", priority=9, labels={"app": "web"}, affinity=needing("db")),
        service("first", "1", labels={"app": "web"}, affinity=needing("web")),
    )
    story.settle()
    assert kept(story) == [None]
    assert story.node_of("first") == "b"
