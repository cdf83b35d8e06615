"""Where room is kept for the head of the queue, for how long, and who is the head: the rules at their bounds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Hold
from cotenant_scheduler.cycle.ordering.coming_rooms import CANDIDATES
from cotenant_scheduler.cycle.ordering.queue_head import MEMBERS
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.cycle.test_gangs import member

OLD = "2026-01-01T11:00:00Z"
TICKET = "example.com/ticket"


def story_of(*nodes: dict[str, Any]) -> ReservedStory:
    story = ReservedStory(SchedulerConfig(queue=QueueArgs()))
    story.nodes(*nodes)
    return story


def job(name: str, cpu: str = "1", created: str = OLD, **more: Any) -> dict[str, Any]:
    """A pod that ends by itself."""
    return pod(name, cpu=cpu, memory="1Mi", created=created, restartPolicy="Never", **more)


def tickets(count: int) -> dict[str, Any]:
    """What a node offers beside CPU and memory."""
    return {TICKET: str(count)}


def service(name: str, cpu: str = "1", **more: Any) -> dict[str, Any]:
    return pod(name, cpu=cpu, memory="1Mi", **more)


def hold(story: Story, name: str = "head") -> Hold | None:
    waiting = story.waiting(name)
    return waiting.hold if waiting is not None else None


def kept(story: Story, *names: str) -> list[str | None]:
    """The nodes on which pods are kept room."""
    return [found.node if (found := hold(story, name)) is not None else None for name in names or ("head",)]


def after(story: Story, *documents: dict[str, Any]) -> list[str | None]:
    """Where the head is kept room when these pods run and it comes."""
    story.pods(*documents)
    story.settle()
    story.pod(job("head", "4"))
    story.settle()
    return kept(story)


# -- where room comes -------------------------------------------------------------------------------------------------


def test_room_comes_from_jobs_behind_services() -> None:
    story = story_of(node("a", cpu="6"))
    assert after(story, service("s", "2", nodeName="a"), job("j", "4", nodeName="a")) == ["a"]
    story = story_of(node("a", cpu="6"))
    assert after(story, service("s", "3", nodeName="a"), job("j", "3", nodeName="a")) == [None], "one CPU will be short"


def test_room_comes_from_a_service_that_ends_already_and_from_a_job_that_this_decision_starts() -> None:
    story = story_of(node("a", cpu="4"))
    assert after(story, service("s", "3", nodeName="a")) == [None]
    story.run("a", "s", RunPhase.RUNNING)
    story.pod(service("s", "3", nodeName="a", deleting=True))
    story.settle()
    assert kept(story) == ["a"]
    story = story_of(node("a", cpu="4"))
    story.pods(job("first", "3", priority=9), job("head", "4"))
    story.decide()
    assert kept(story) == ["a"]


@pytest.mark.parametrize(("of_service", "found"), [(0, "a"), (1, None)])
def test_the_last_unit_that_is_short_counts(of_service: int, found: str | None) -> None:
    story = story_of(node("a", **tickets(2)))
    one = {"cpu": "1", TICKET: "1"}
    story.pods(
        *(service(f"s{index}", requests=one, nodeName="a") for index in range(of_service)),
        job("j", requests=one, nodeName="a"),
    )
    story.settle()
    story.pod(job("head", requests={"cpu": "1", TICKET: "2"}))
    story.settle()
    assert kept(story) == [found]


def test_all_that_is_short_must_come_back() -> None:
    story = story_of(node("a", cpu="4", **tickets(1)))
    story.pods(
        job("j", "3", nodeName="a"), service("s", requests={"cpu": "0", TICKET: "1"}, nodeName="a")
    )
    story.settle()
    story.pod(job("head", requests={"cpu": "4", TICKET: "1"}))
    story.settle()
    assert kept(story) == [None]


@pytest.mark.parametrize("cpu", ["2", "3"])
def test_no_room_is_kept_on_a_node_that_refuses_for_anything_but_resources(cpu: str) -> None:
    ports: dict[str, Any] = {"ports": [{"containerPort": 80, "hostPort": 80}]}
    story = story_of(node("a", cpu="4"))
    runs, head = job("j", "1", nodeName="a"), job("head", cpu)
    for document in (runs, head):
        document["spec"]["containers"][0] |= ports
    story.pod(runs)
    story.settle()
    story.pod(head)
    story.settle()
    assert story.node_of("head") is None
    assert kept(story) == [None]


def test_no_room_is_kept_for_what_no_node_offers() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("j", "3", nodeName="a"))
    story.settle()
    for name, requests in (("x", {"cpu": "4", TICKET: "1"}), ("y", {TICKET: "1"}), ("z", {"cpu": "5"})):
        story.pod(job(name, requests=requests))
    story.settle()
    assert kept(story, "x", "y", "z") == [None] * 3
    empty = story_of()
    empty.pod(job("head"))
    empty.settle()
    assert kept(empty) == [None]


@pytest.mark.parametrize("others", range(1, 9))
def test_no_room_is_kept_for_what_no_node_offers_whatever_else_they_offer(others: int) -> None:
    more: dict[str, Any] = {f"example.com/{index}": "10" for index in range(others)}
    story = story_of(node("a", cpu="4", **more))
    assert after(story, job("j", "3", nodeName="a")) == ["a"]
    story.pod(job("first", requests={"cpu": "4", TICKET: "1"}, priority=9))
    story.settle()
    assert kept(story, "first", "head") == [None, "a"]


# -- which node -------------------------------------------------------------------------------------------------------


def test_the_part_that_is_short_is_compared_however_small() -> None:
    story = story_of(node("a", cpu="4"), node("b", cpu="16"))
    assert after(story, job("ja", "2", nodeName="a"), job("jb", "15", nodeName="b")) == ["b"], "2 of 4, 3 of 16"
    story = story_of(node("a", cpu="200"), node("b", cpu="200"))
    assert after(story, job("ja", "197500m", nodeName="a"), job("jb", "197", nodeName="b")) == ["b"], "1.5 and 1 of 200"


def test_the_largest_part_of_any_resource_counts() -> None:
    story = story_of(node("a", cpu="10", **tickets(1)), node("b", cpu="10", **tickets(10)))
    story.pods(
        job("ja", requests={"cpu": "1", TICKET: "1"}, nodeName="a"),
        job("jb", requests={"cpu": "10", TICKET: "10"}, nodeName="b"),
    )
    story.settle()
    story.pod(job("head", requests={"cpu": "7", TICKET: "1"}))
    story.settle()
    assert kept(story) == ["b"], "the only one of 1, 7 of 10"


def test_nodes_that_are_too_small_are_not_looked_at() -> None:
    story = story_of(*(node(f"n{index:02}", cpu="3") for index in range(CANDIDATES + 1)), node("z", cpu="4"))
    assert after(story, job("j", "4", nodeName="z")) == ["z"]


@pytest.mark.parametrize(("others", "found"), [(31, "z"), (32, None)])
def test_thirty_two_nodes_are_looked_at(others: int, found: str | None) -> None:
    names = [f"n{index:02}" for index in range(others)]
    story = story_of(*(node(name, cpu="4") for name in names), node("z", cpu="4"))
    running = [service(f"s-{name}", "3", nodeName=name) for name in names]
    assert after(story, *running, job("j", "4", nodeName="z")) == [found]


# -- how long ---------------------------------------------------------------------------------------------------------


def crowded() -> ReservedStory:
    """Two nodes of four CPUs with a job of three each, and the head that wants four, on a."""
    story = story_of(node("a", cpu="4"), node("b", cpu="4"))
    assert after(story, job("ja", "3", nodeName="a"), job("jb", "3", nodeName="b")) == ["a"]
    return story


def test_nodes_are_chosen_again_after_thirty_seconds() -> None:
    story = crowded()
    began = story.now
    again = began + timedelta(seconds=30)
    for seconds, at in ((29.0, began), (0.9, began), (0.1, again), (1.0, again)):
        story.later(seconds)
        story.settle()
        found = hold(story)
        assert found is not None
        assert found.at == at
        assert found.node == "a"


@pytest.mark.parametrize("why", ["deleted", "cordoned", "service"])
def test_nodes_are_chosen_again_when_room_no_longer_comes(why: str) -> None:
    story = crowded()
    story.later(5)
    if why == "deleted":
        story.pod_deleted("ja")
        story.node_deleted("a")
    elif why == "cordoned":
        story.node(node("a", cpu="4", unschedulable=True))
    else:
        story.pod(service("s", "1", nodeName="a"))
    story.settle()
    found = hold(story)
    assert found is not None
    assert (found.node, found.at) == ("b", story.now)


def test_a_pod_of_the_same_name_is_another_one() -> None:
    story = crowded()
    story.later(5)
    story.pod_deleted("head")
    story.pod(job("head", "4", uid="another"))
    story.settle()
    found = hold(story)
    assert found is not None
    assert found.at == story.now


# -- who is the head --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("created", "found"), [("2026-01-01T11:59:30Z", "a"), ("2026-01-01T11:59:31Z", None)])
def test_the_head_has_waited_for_thirty_seconds(created: str, found: str | None) -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("j", "3", nodeName="a"))
    story.settle()
    story.pod(job("head", "4", created=created))
    story.settle()
    assert kept(story) == [found]


def test_a_gang_has_waited_since_its_last_pod_came() -> None:
    story = story_of(node("a", cpu="4"), node("b", cpu="4"))
    story.pods(job("ja", "3", nodeName="a"), job("jb", "3", nodeName="b"))
    story.settle()
    second = member("m1", least=2, cpu="4")
    second["metadata"]["creationTimestamp"] = "2026-01-01T11:59:50Z"
    story.pods(member("m0", least=2, cpu="4"), second)
    story.settle()
    assert kept(story, "m0", "m1") == [None, None]
    story.later(20)
    story.settle()
    assert kept(story, "m0", "m1") == ["a", "b"]


def test_two_that_have_waited_long_enough_at_once_are_both_looked_at_by_one_decision() -> None:
    new = "2026-01-01T11:59:59Z"
    story = story_of(node("a", cpu="4"), node("c", cpu="8", **tickets(1)))
    story.pods(job("ja", "3", nodeName="a"), service("s", "8", nodeName="c"))
    story.settle()
    # The first waits for the service, which does not end.
    story.pods(job("first", requests={"cpu": "1", TICKET: "1"}, created=new, priority=5), job("head", "4", created=new))
    story.settle()
    assert kept(story, "first", "head") == [None, None]
    story.later(31)
    story.decide()
    assert kept(story, "first", "head") == [None, "a"]


def test_one_that_waits_for_a_reservation_is_not_the_head() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("j", "3", nodeName="a"))
    story.settle()
    story.reservation(reservation("r", cpu="4", created="2026-01-01T10:00:00Z"))
    wanting = job("wants", "2", created="2026-01-01T10:30:00Z", labels={"app": "web"}, annotations=wants(name="r"))
    story.pods(wanting, job("head", "4"))
    story.settle()
    assert kept(story, "wants", "head") == [None, "a"]


def test_an_owner_of_a_reservation_that_may_run_elsewhere_may_be_the_head() -> None:
    story = story_of(node("a", cpu="8"))
    story.reservation(reservation("r", cpu="4", allocateOnce=False))
    story.settle()
    story.pods(job("j", "4", labels={"app": "web"}), job("k", "4"))
    story.settle()
    story.pod(job("head", "6", labels={"app": "web"}))
    story.settle()
    assert story.node_of("head") is None
    assert kept(story) == ["a"]


# -- gangs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "found"), [("Strict", [None, None, None]), ("NonStrict", ["a", None, "b"])])
def test_a_member_that_fits_nowhere_gives_a_strict_gang_up(mode: str, found: list[str | None]) -> None:
    story = story_of(node("a", cpu="4"), node("b", cpu="4"))
    story.pods(job("ja", "3", nodeName="a"), job("jb", "3", nodeName="b"))
    story.settle()
    story.pods(*(member(f"m{index}", least=2, cpu="9" if index == 1 else "4", mode=mode) for index in range(3)))
    story.settle()
    assert kept(story, "m0", "m1", "m2") == found
    if mode == "NonStrict":
        first = [hold(story, name) for name in ("m0", "m2")]
        story.later(5)
        story.settle()
        assert [hold(story, name) for name in ("m0", "m2")] == first, "they are kept, though one has none"


def test_when_one_room_of_a_gang_no_longer_comes_all_are_chosen_again() -> None:
    names = ("m0", "m1", "m2")
    story = story_of(*(node(name, cpu="4") for name in "abcd"))
    story.pods(*(job(f"j{name}", "3", nodeName=name) for name in "abcd"))
    story.settle()
    story.pods(*(member(name, least=2, cpu="4") for name in names))
    story.settle()
    assert kept(story, *names) == ["a", "b", "c"]
    story.later(5)
    story.node(node("a", cpu="4", unschedulable=True))
    story.settle()
    assert kept(story, *names) == ["b", "c", "d"]


def test_members_of_a_gang_may_share_a_node() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("j", "3", nodeName="a"))
    story.settle()
    story.pods(*(member(f"m{index}", least=2, cpu="2") for index in range(2)))
    story.settle()
    assert kept(story, "m0", "m1") == ["a", "a"]
    story = story_of(node("a", cpu="4"))
    story.pod(job("j", "3", nodeName="a"))
    story.settle()
    story.pods(*(member(f"m{index}", least=2, cpu="3") for index in range(2)))
    story.settle()
    assert kept(story, "m0", "m1") == [None, None], "the room of one is none for the other"


@pytest.mark.parametrize(("count", "found"), [(749, "a"), (750, None)])
def test_a_gang_of_749_is_kept_room(count: int, found: str | None) -> None:
    assert MEMBERS == 749
    story = story_of(node("a", cpu="8", pods="1000"))
    story.pod(job("j", "8", nodeName="a"))
    story.settle()
    story.pods(*(member(f"m{index:03}", least=count, cpu="10m") for index in range(count)))
    story.decide()
    story.settle()
    assert kept(story, "m000", f"m{count - 1}") == [found] * 2


@pytest.mark.parametrize("why", ["deleted", "services"])
def test_when_the_head_goes_or_room_comes_no_more_those_behind_it_have_the_room(why: str) -> None:
    story = story_of(node("a", cpu="4"))
    assert after(story, job("j", "3", nodeName="a")) == ["a"]
    story.pod(job("small", created="2026-01-01T11:59:59Z"))
    story.settle()
    assert story.node_of("small") is None
    if why == "deleted":
        story.pod_deleted("head")
    else:
        story.pod(service("j", "3", nodeName="a"))
    story.settle()
    assert story.node_of("small") == "a"


def test_a_pod_is_not_said_to_be_kept_room_once_room_comes_no_more() -> None:
    story = story_of(node("a", cpu="4"))
    assert after(story, job("j", "3", nodeName="a")) == ["a"]
    story.pod(service("j", "3", nodeName="a"))  # as much as before is used and short
    story.settle()
    assert story.waiting("head") is not None
    assert kept(story) == [None]


def test_a_pod_that_was_kept_room_is_deleted_while_others_wait() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("other", "5"))
    assert after(story, job("j", "3", nodeName="a")) == ["a"]
    story.pod_deleted("head")
    story.settle()
    assert story.waiting("head") is None
    assert story.waiting("other") is not None


def test_no_two_changes_of_the_rooms_have_the_same_version() -> None:
    story = story_of(node("a", cpu="4"))
    story.pod(job("other", "5"))
    head = story.core.placing.head
    versions = [head.version]
    assert after(story, job("j", "3", nodeName="a")) == ["a"]
    versions.append(head.version)
    story.pod_deleted("head")
    story.settle()
    versions.append(head.version)
    story.pod(job("head", "4", uid="another"))
    story.settle()
    versions.append(head.version)
    assert versions == sorted(set(versions)), "incremented with each"
