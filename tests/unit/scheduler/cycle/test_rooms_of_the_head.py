"""Room for the queue's head: what is published and placed when another pod becomes the head or the head asks for something
else, and none where affinity refuses it."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant_scheduler.cycle.ordering.queue_head import QueueHead
from cotenant_scheduler.cycle.queue import QueueEntry
from cotenant_scheduler.cycle.waiting import WAITING_PAUSE
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import ReservedStory
from tests.unit.scheduler.builders_scheduler import Story, as_stored, node
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


# -- pods that were refused beside other rooms ------------------------------------------------------------------------


def decides_as_a_fresh_core(story: Story) -> bool:
    """Whether a decision follows from what is stored alone: a core that has just loaded it decides the same, and so does this
    one when it decides again."""
    first, again = (as_stored(story.core.decide(story.now)) for _ in range(2))
    return first == again == as_stored(story.reloaded().decide(story.now))


def with_head(memory: str = "20Gi", used: str = "1Gi") -> ReservedStory:
    """A job uses 3 of 4 CPUs, a service some of 32 GiB, and the head is kept room beside them: first in, first out."""
    story = ReservedStory(SchedulerConfig(queue=QueueArgs(order=QueueOrder.FIFO)))
    story.node(node("a", cpu="4", memory="32Gi"))
    story.pods(job("running", "3", nodeName="a"), service("stays", requests={"memory": used}, nodeName="a"))
    story.settle()
    story.pod(headed(memory))
    story.settle()
    assert kept(story) == ["a"]
    return story


def headed(memory: str) -> dict[str, Any]:
    return job("head", requests={"cpu": "4", "memory": memory})


def rest(story: Story, decisions: int) -> None:
    """Come to rest, and decide so many times more that nothing follows."""
    story.settle()
    for _ in range(decisions):
        assert story.decide() == []


more_decisions = pytest.mark.parametrize("decisions", [0, 1])


@more_decisions
def test_pods_behind_the_head_are_tried_again_when_it_asks_for_less_on_the_same_node(decisions: int) -> None:
    story = with_head()
    story.pod(service("behind", requests={"memory": "20Gi"}, created="2026-01-01T11:59:59Z"))
    rest(story, decisions)
    assert story.node_of("behind") is None
    story.pod(headed("1Gi"))
    assert decides_as_a_fresh_core(story)
    story.settle()
    assert kept(story) == ["a"]
    assert story.node_of("behind") == "a"


@more_decisions
def test_pods_are_tried_again_that_were_behind_the_head_and_are_before_the_next_one(decisions: int) -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("running", "3", nodeName="a"))
    story.settle()
    story.pods(
        job("head", "4", priority=9, preemptionPolicy="Never"),
        service("between", priority=5, created="2026-01-01T11:59:59Z", preemptionPolicy="Never"),
        job("next", "4"),
    )
    rest(story, decisions)
    assert kept(story, "head", "between", "next") == ["a", None, None]
    story.pod_deleted("head")
    assert decides_as_a_fresh_core(story)
    story.settle()
    assert story.node_of("between") == "a"


@more_decisions
def test_equal_pods_are_tried_again_when_the_one_before_the_head_goes(decisions: int) -> None:
    story = with_head("1Gi", used="20Gi")
    wanted = {"cpu": "1", "memory": "20Gi"}
    story.pods(
        service("before", requests=wanted, created="2026-01-01T10:59:59Z"),
        service("behind", requests=wanted, created="2026-01-01T11:59:59Z"),
    )
    story.settle()
    assert reason(story) == "0/1 nodes are available: 1 Insufficient memory."
    story.later(WAITING_PAUSE.total_seconds())
    rest(story, decisions)
    story.pod_deleted("before")
    assert decides_as_a_fresh_core(story)
    story.settle()
    assert reason(story) == "0/1 nodes are available: 1 Insufficient cpu.", "all of which the head is kept"


def test_decisions_in_which_nothing_changes_try_the_head_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its room is counted and taken back each time, which changes nothing for those that are refused beside it."""
    story = with_head()
    story.pods(*(service(f"p{index}", f"{index + 1}", created="2026-01-01T11:59:59Z") for index in range(9)))
    story.settle()
    tried: list[str] = []
    refused = QueueHead.refused

    def counted(self: QueueHead, entry: QueueEntry, *more: Any) -> bool:
        tried.append(entry.records[0].key[1])
        return refused(self, entry, *more)

    monkeypatch.setattr(QueueHead, "refused", counted)
    rest(story, 4)
    assert set(tried[-3:]) == {"head"}, tried


def reason(story: Story) -> str:
    waiting = story.waiting("behind")
    assert waiting is not None
    return waiting.message
