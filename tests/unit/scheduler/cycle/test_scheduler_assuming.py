"""What a decision assumes until it is stored: it names itself, it can be taken back, and a rival's placement undoes it."""

from __future__ import annotations

import pytest

from cotenant.domain.quota.membership import Membership
from cotenant.engine.commit import CommitPlace, Decision, commit_batch
from cotenant.events.envelope import Event
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.placements import Placement
from cotenant.model.subjects import placement_subject
from tests.unit.scheduler.builders_scheduler import IDENTITY, NOW, Story, as_stored, node, pod

OF_TEAM = {"quota.scheduling.koordinator.sh/name": "team"}


def used(story: Story) -> int:
    """What the quota `team` is charged with, in milli-cores."""
    return story.core.ledger.chain(Membership("team", ""))[0].used.get("cpu", 0)


def requested(story: Story, name: str) -> int:
    """What is requested on a node, in milli-cores."""
    return int(story.core.nodes.requested[0, story.core.nodes.rows[name]])


def with_quota(cpu_milli: int = 100_000) -> Story:
    story = Story()
    story.nodes(node("a"), node("b"))
    story.quota("team", max={"cpu": cpu_milli})
    return story


def test_what_is_taken_back_is_charged_to_nobody() -> None:
    story = with_quota()
    story.pods(*(pod(f"p{i}", labels=OF_TEAM) for i in range(3)), pod("big", cpu="2", labels=OF_TEAM), pod("alone"))
    story.core.decide(NOW)
    assert used(story) == 5_000
    assert requested(story, "a") + requested(story, "b") == 6_000
    story.core.take_back()
    assert used(story) == 0
    assert requested(story, "a") == requested(story, "b") == 0
    story.core.take_back()
    assert used(story) == 0


def test_many_equal_pods_are_charged_one_by_one() -> None:
    story = with_quota()
    story.pods(*(pod(f"p{i:02}", cpu="100m", labels=OF_TEAM) for i in range(40)))
    story.core.decide(NOW)
    assert used(story) == 4_000
    story.core.take_back()
    assert used(story) == 0


def test_what_is_stored_as_it_was_decided_stays_charged_once() -> None:
    story = with_quota()
    story.pods(*(pod(f"p{i}", labels=OF_TEAM) for i in range(3)))
    story.settle()
    assert used(story) == 3_000
    assert requested(story, "a") + requested(story, "b") == 3_000


def test_a_rivals_placement_counts_in_place_of_what_was_assumed() -> None:
    story = with_quota()
    web = story.pod(pod("web", labels=OF_TEAM))
    [decided] = story.core.decide(NOW)
    assert isinstance(decided.data, Placement)
    assert decided.data.node == "a"
    rival = Placement(
        node="b", namespace="default", name="web", uid="uid-web", pod=decided.data.pod, object_sequence=web.sequence,
        requests={"cpu": 1_000, "memory": 1 << 30}, quota="team", bound_at=NOW,
    )  # fmt: skip
    story.say(placement_subject("b", "default", "web"), rival)
    story.settle()
    assert (requested(story, "a"), requested(story, "b"), used(story)) == (0, 1_000, 1_000)


def test_what_is_decided_ahead_names_what_is_being_stored_as_its_cause() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    story.pods(pod("web"), pod("db"))
    batch = story.core.decide(NOW)
    story.core.assume(batch)
    story.pod_deleted("web")
    ahead = story.core.decide(NOW)
    [ending] = ahead
    number = [event.subject for event in batch].index(ending.subject) + 1
    assert f"LOG:-{number}" in ending.causes
    committed = commit_batch(Decision(events=ahead, folded=9, now=NOW, took_us=0), IDENTITY, "", CommitPlace(100, 100))
    assert f"LOG:{100 + number}" in committed.events[1].causes
    story.core.confirm(101)
    [again] = story.core.decide(NOW)
    assert (again.subject, again.data, again.causes) == (ending.subject, ending.data, committed.events[1].causes)


def test_one_batch_is_assumed_at_a_time() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("web"))
    batch = story.core.decide(NOW)
    story.core.assume(batch)
    with pytest.raises(ValueError, match="confirm or withdraw it first"):
        story.core.assume(batch)


def test_a_payload_that_the_scheduler_does_not_read_can_be_stored_with_the_others() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("web"))
    batch = [*story.core.decide(NOW), Event(subject="gangs.default.web", data=NodeCondition(node="a"))]
    story.core.assume(batch)
    assert not story.core.decide(NOW)
    story.core.withdraw()
    assert as_stored(story.core.decide(NOW)) == as_stored(batch[:-1])


def test_an_event_of_another_service_is_refused() -> None:
    story = Story()
    with pytest.raises(ValueError, match=r"node\.a\.condition is not written by the scheduler"):
        story.core.assume([Event(subject="node.a.condition", data=NodeCondition(node="a"))])
