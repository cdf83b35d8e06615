"""Every seam of the framework, by two small plugins: host ports, and tickets that have numbers (`tickets`)."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from cotenant.events.allocations import Allocation, DeviceShare, Gathered, NumaShare, ReservationUsed, VolumeGiven, merged
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from tests.unit.scheduler import tickets
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.tickets import tickets_of
from tests.unit.scheduler.trials import tried_members


def asking(name: str, count: int, *, group: str = "", **more: Any) -> dict[str, Any]:
    annotations = {"tickets": str(count)} | ({"group": group} if group else {})
    return pod(name, cpu="100m", memory="1Mi", annotations=annotations, **more)


def with_port(name: str, port: int, **more: Any) -> dict[str, Any]:
    document = pod(name, cpu="100m", memory="1Mi", **more)
    document["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return document


def ticket_node(name: str, count: int, **more: Any) -> dict[str, Any]:
    return node(name, labels={"tickets": str(count)}, **more)


def story_with(*nodes: dict[str, Any]) -> Story:
    story = Story(profile=tickets.profile)
    story.nodes(*nodes)
    return story


def held(story: Story) -> dict[str, Counter[int]]:
    """By node, who holds which ticket."""
    found: dict[str, Counter[int]] = {}
    for event in story.last.values():
        data = event.data
        if isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
            run = story.last.get(f"node.{data.node}.run.{data.namespace}.{data.name}")
            if run is None or getattr(run.data, "phase", None) is not RunPhase.SUCCEEDED:
                found.setdefault(data.node, Counter()).update(tickets_of(data))
    return found


def test_each_pod_is_given_tickets_of_its_own_and_the_placement_names_them() -> None:
    story = story_with(ticket_node("a", 2), ticket_node("b", 3))
    story.pods(asking("one", 1), asking("two", 2), pod("none"), asking("last", 2))
    story.settle()
    assert held(story) == {"a": Counter({0: 1, 1: 1}), "b": Counter({0: 1, 1: 1, 2: 1})}
    none = story.placement("none")
    assert none is not None
    assert none.allocation is None
    assert b"allocation" not in msgspec.json.encode(none)
    story.pod(asking("more", 1))
    story.settle()
    waiting = story.waiting("more")
    assert waiting is not None
    assert "2 Insufficient tickets" in waiting.message


def test_tickets_of_pods_that_end_are_given_again() -> None:
    story = story_with(ticket_node("a", 3))
    story.executor("a")
    story.pods(*(asking(name, 1, created=f"2026-01-01T11:00:0{i}Z") for i, name in enumerate("pqr")))
    story.settle()
    assert [tickets_of(story.placement(name)) for name in "pqr"] == [[0], [1], [2]]
    story.run("a", "q", RunPhase.SUCCEEDED)
    story.pod(asking("s", 1))
    story.settle()
    assert tickets_of(story.placement("s")) == [1]
    story.pod_deleted("p")
    story.settle()
    story.run("a", "p", RunPhase.SUCCEEDED)
    story.pod(asking("t", 1))
    story.settle()
    assert tickets_of(story.placement("t")) == [0]


def test_a_restarted_scheduler_knows_who_holds_what() -> None:
    story = story_with(ticket_node("a", 3))
    story.pods(asking("p", 1), asking("q", 1))
    story.settle()
    story.core = story.reloaded()
    story.pods(asking("r", 1), asking("s", 1))
    story.settle()
    assert held(story) == {"a": Counter({0: 1, 1: 1, 2: 1})}
    assert story.waiting("s") is not None


def test_a_placement_stored_again_keeps_its_tickets_and_other_tickets_count_as_such() -> None:
    story = story_with(ticket_node("a", 3))
    story.executor("a")
    story.pod(asking("p", 2))
    story.settle()
    story.pod(asking("p", 2, labels={"stage": "new"}))
    story.settle()
    placement = story.placement("p")
    assert tickets_of(placement) == [0, 1]
    # Another scheduler has stored it with others.
    assert placement is not None
    other = Allocation(devices=(DeviceShare(type="tickets", minor=2),))
    event = story.placement_event("a", "p")
    story.say(event.subject, msgspec.structs.replace(placement, allocation=other))
    story.pod(asking("q", 2))
    story.settle()
    assert tickets_of(story.placement("q")) == [0, 1]


def test_pods_of_lower_priority_make_room_for_tickets() -> None:
    story = story_with(ticket_node("a", 4), ticket_node("b", 2))
    story.executor("a")
    story.executor("b")
    for name, count, priority in (("l1", 1, 10), ("l2", 1, 20), ("l3", 2, 30), ("l4", 2, 5000)):
        story.pod(asking(name, count, priority=priority, nodeSelector={"tickets": "2" if name == "l4" else "4"}))
    story.settle()
    story.pod(asking("high", 2, priority=1000))
    story.settle()
    nomination = story.nominated()["high"]
    assert nomination.node == "a"
    assert {victim.name for victim in nomination.victims} == {"l1", "l2"}
    # What is held for it is nobody else's, though it has no numbers yet.
    for name in ("l1", "l2"):
        story.pod_deleted(name)
        story.settle()
        story.run("a", name, RunPhase.SUCCEEDED)
    story.pod(asking("late", 1, priority=500))
    story.settle()
    assert sorted(tickets_of(story.placement("high")) + tickets_of(story.placement("l3"))) == [0, 1, 2, 3]
    assert story.placement("late") is None


def test_pods_of_lower_priority_make_room_for_ports() -> None:
    story = story_with(node("a"), node("b"))
    story.pods(with_port("l1", 80, priority=10), with_port("l2", 80, priority=5000), with_port("l3", 81, priority=10))
    story.settle()
    story.pod(with_port("high", 80, priority=1000))
    story.settle()
    assert [victim.name for victim in story.nominated()["high"].victims] == ["l1"]


def test_asking_what_would_fit_changes_nothing() -> None:
    story = story_with(ticket_node("a", 2), ticket_node("b", 2))
    story.pods(*(asking(f"l{i}", 1, priority=10) for i in range(4)), with_port("web", 80, priority=10))
    story.settle()
    story.pods(asking("high", 2, priority=1000), with_port("next", 80, priority=2000))
    before = deepcopy(story.core)
    before.settle()
    state = before.nodes.state
    decided = before.decide(story.now)
    before.take_back()
    again = before.decide(story.now)
    assert decided == again == story.core.decide(story.now)
    assert state[:1] == before.nodes.state[:1]


@pytest.mark.parametrize("reloaded", [False, True])
def test_a_group_is_placed_whole_or_not_at_all(reloaded: bool) -> None:
    story = story_with(ticket_node("a", 2), ticket_node("b", 1))
    story.pods(*(asking(f"g{i}", 1, group="g/4") for i in range(3)))
    story.settle()
    waiting = story.waiting("g0")
    assert waiting is not None
    assert waiting.message == "3 of 4 pods of group g are there"
    story.pod(asking("g3", 1, group="g/4"))
    story.later(1)
    story.settle()
    assert not story.placed(), "three tickets are there, four are asked for"
    waiting = story.waiting("g0")
    assert waiting is not None
    assert "Insufficient tickets" in waiting.message
    # What was tried was taken back: the very first tickets are free.
    story.pod(asking("alone", 1, nodeSelector={"tickets": "1"}))
    story.settle()
    assert tickets_of(story.placement("alone")) == [0]
    if reloaded:
        story.core = story.reloaded()
    story.node(ticket_node("c", 2))
    stored = story.decide()
    placed = [event.data.name for event in stored if isinstance(event.data, Placement)]
    assert placed == ["g0", "g1", "g2", "g3"], "by one decision, which one batch stores"
    assert held(story)["a"] == held(story)["c"] == Counter({0: 1, 1: 1})


def test_a_group_that_does_not_fit_is_not_tried_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    story = story_with(ticket_node("a", 2))
    story.pods(*(asking(f"{name}{i}", 1, group=f"{name}/3") for name in "gh" for i in range(3)), asking("p", 3))
    story.settle()
    story.later(60)
    story.settle()
    tried = tried_members(monkeypatch)
    story.decide()
    assert not tried
    story.node(ticket_node("a", 3))
    story.decide()
    # The second time for its reason, which is stored, as figures have changed.
    assert tried == ["g0", "g1", "g2", "h0", "h0"]


def test_pods_behind_a_group_that_does_not_fit_are_placed() -> None:
    story = story_with(ticket_node("a", 3, cpu="2"))
    group = [asking(f"g{i}", 1, group="g/2", priority=100) for i in range(2)]
    group[1]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    story.pods(*group, asking("p", 3))
    story.settle()
    assert story.placed() == {"p": "a"}
    story.pod_deleted("p")
    story.settle()
    story.pod(asking("g1", 1, group="g/2", priority=100))
    story.settle()
    assert set(story.placed()) == {"g0", "g1"}


def test_a_group_larger_than_a_usual_decision_is_one_batch() -> None:
    """It waits first, each pod with an event: those end behind it."""
    story = story_with(ticket_node("a", 900, pods="2000", cpu="400"))
    story.pods(*(asking(f"g{i:04}", 1, group="big/1200") for i in range(1200)), asking("p", 1))
    story.settle()
    assert set(story.placed()) == {"p"}
    assert story.waiting("g1199") is not None
    story.later(60)
    story.settle()
    story.node(ticket_node("a", 1300, pods="2000", cpu="400"))
    batch = story.decide()
    assert len([event for event in batch if isinstance(event.data, Placement)]) == 1200
    story.settle()
    assert len(story.placed()) == 1201
    assert all(story.waiting(f"g{i:04}") is None for i in range(1200))


def test_a_group_that_no_batch_holds_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.MOST_TOGETHER", 850)
    story = story_with(ticket_node("a", 2000, pods="2000", cpu="400"))
    story.pods(*(asking(f"g{i:04}", 1, group="big/900") for i in range(900)), asking("p", 1))
    story.settle()
    assert set(story.placed()) == {"p"}
    waiting = story.waiting("g0000")
    assert waiting is not None
    assert "the group has 900 pods, and one batch holds the placements of 850" in waiting.message
    assert [(reason.code, reason.count) for reason in waiting.reasons] == [("group", 0)]


@pytest.mark.parametrize("seed", range(25))
def test_each_ticket_is_given_once_and_a_restart_changes_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.WORTHWHILE", 2)
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", 2)
    chance = random.Random(seed)
    story = story_with(*(ticket_node(f"n{i}", 2 + i) for i in range(3)))
    for i in range(3):
        story.executor(f"n{i}")
    given = 0
    for _ in range(60):
        for _ in range(chance.randrange(4)):
            number = chance.randrange(14)
            name = f"p{number}"
            match chance.randrange(6):
                case 0 | 1 | 2 if story.placement(name) is None:
                    group = f"g{number % 2}/3" if number < 6 else ""
                    priority = chance.choice([10, 10, 1000])
                    if chance.random() < 0.7:
                        story.pod(asking(name, chance.choice([1, 2]), group=group, priority=priority))
                    else:
                        story.pod(with_port(name, 80, priority=priority))
                case 3:
                    story.pod_deleted(name)
                case 4:
                    place = story.node_of(name)
                    if place is not None:
                        story.run(place, name, RunPhase.SUCCEEDED)
                case 5:
                    i = chance.randrange(3)
                    story.node(ticket_node(f"n{i}", 2 + i, unschedulable=chance.random() < 0.2))
        story.later(chance.choice([0, 1, 5]))
        batch = [msgspec.structs.replace(event, time=story.now) for event in story.core.decide(story.now)]
        assert batch == [msgspec.structs.replace(e, time=story.now) for e in story.reloaded().decide(story.now)]
        if batch and chance.random() < 0.3:
            story.core.assume(batch)
            story.core.decide(story.now)
            story.core.withdraw()
        story.decide()
        holders = held(story)
        given += sum(count.total() for count in holders.values())
        for name, count in holders.items():
            assert not count or max(count.values()) == 1, (name, count)
            assert not count or max(count) < 2 + int(name[1:])
    assert given > 20


def test_fragments_make_one_allocation() -> None:
    cpus = Allocation(cpus=(0, 1), numa=(NumaShare(node=0, resources={"cpu": 2000}),))
    gpu = Allocation(devices=(DeviceShare(type="gpu", minor=1),))
    rdma = Allocation(devices=(DeviceShare(type="rdma", minor=0),), gang="default/g")
    whole = merged([cpus, gpu, rdma])
    assert whole == Allocation(
        cpus=(0, 1), numa=cpus.numa, devices=(*gpu.devices, *rdma.devices), gang="default/g"
    )
    assert merged([]) is None
    taken = Allocation(reservation=ReservationUsed(name="r"))
    with pytest.raises(ValueError, match="given its reservation twice"):
        merged([taken, Allocation(reservation=ReservationUsed(name="s"))])


def test_a_whole_placement_survives_being_stored_and_read() -> None:
    story = story_with(ticket_node("a", 3))
    story.executor("a")
    story.pod(asking("p", 2))
    story.settle()
    placement = story.placement("p")
    assert placement is not None
    whole = msgspec.structs.replace(
        placement,
        reason="r",
        allocation=Allocation(
            cpus=(1, 5),
            numa=(NumaShare(node=1, resources={"cpu": 2000}),),
            devices=(DeviceShare(type="gpu", minor=3, resources={"memory": 1}),),
            reservation=ReservationUsed(name="r", uid="u"),
            gang="default/g",
            volumes=(VolumeGiven(claim="data", volume="pv"),),
                gathered=Gathered(layer="BlockLayer", domain="s1/b1", pods=2, slots=3, domains=1),
        ),
    )
    assert all(getattr(whole.allocation, field.name) for field in msgspec.structs.fields(Allocation))
    event = story.placement_event("a", "p")
    story.say(event.subject, whole)
    for core in (story.core, story.reloaded()):
        record = core.pods.records["default", "p"].placements["a"]
        assert record.stored.whole() == whole


def test_a_score_that_no_column_holds_keeps_pods_from_being_placed_in_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.WORTHWHILE", 2)
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", 2)
    monkeypatch.setattr("cotenant_scheduler.cycle.binding.RowSeries", lambda *_: pytest.fail("placed in series"))
    story = story_with(ticket_node("a", 3))
    story.pods(*(pod(f"p{i}", cpu="100m") for i in range(8)))
    story.settle()
    assert len(story.placed()) == 8
