"""What the read model keeps of objects that have ended, and what a creation of such a name expects of the log."""

from __future__ import annotations

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import PlacementPhase
from cotenant.kinds.pods import PODS
from cotenant.kinds.priority_classes import PRIORITY_CLASSES
from cotenant.log.contract import Head, Refused
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.model.subjects import object_subject, pod_subject, run_subject
from cotenant_gateway.loop.requests import storing
from cotenant_gateway.loop.steps import GetLast, Request, Store
from cotenant_gateway.planning.built_in import missing_built_ins
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.read_model import ended
from cotenant_gateway.read_model.core import GatewayCore
from tests.unit.gateway.builders_gateway import World, as_json, manifest


@pytest.fixture
def short_memory(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(ended, "REMEMBERED_POSITIONS", 20)
    return 20


def live_and_die(world: World, name: str) -> None:
    """A pod from its creation to the end of its report."""
    world.create("pods", manifest(name))
    world.place(name)
    report = world.run(name)
    uid = world.uid_of(name)
    world.place(name, phase=PlacementPhase.GONE)
    world.put(pod_subject("default", name), ObjectDeleted(uid=uid), tombstone=True)
    world.put(report.subject, report.data, tombstone=True)


def test_pods_that_have_ended_leave_nothing_in_the_read_model(short_memory: int) -> None:
    world = World()
    for number in range(100):
        live_and_die(world, f"web-{number}")
    assert len(world.core.collections[PODS].slots) <= short_memory / 6 + 1


def test_the_end_of_a_pod_is_remembered_as_long_as_it_may_be_created_again_at_once(short_memory: int) -> None:
    world = World()
    live_and_die(world, "web")
    ended_at = world.core.own_sequence(PODS, "default", "web")
    assert ended_at > 0
    planned = plan_creation(world.core, PODS, "default", as_json(manifest("web")), world.now, "u", lambda: "x")
    assert planned.plan is not None
    assert planned.plan.writes[0].expected == ended_at
    for number in range(short_memory):
        live_and_die(world, f"other-{number}")
    assert world.core.own_sequence(PODS, "default", "web") == 0


def test_a_load_forgets_what_it_brings_of_long_ago(short_memory: int) -> None:
    world = World()
    for number in range(2 * short_memory):
        live_and_die(world, f"web-{number}")
    again = GatewayCore()
    for event in reversed([*{event.subject: event for event in world.events}.values()]):
        again.apply(event)
    again.loaded()
    assert len(again.collections[PODS].slots) <= short_memory / 6 + 1


def test_a_pod_that_came_again_is_not_forgotten_with_its_former_end(short_memory: int) -> None:
    world = World()
    live_and_die(world, "web")
    world.create("pods", manifest("web"))
    for number in range(short_memory):
        live_and_die(world, f"other-{number}")
    assert world.show("pods", "web")["status"]["phase"] == "Pending"


def test_a_report_that_outlives_its_pod_is_kept_until_it_ends(short_memory: int) -> None:
    world = World()
    world.create("pods", manifest("web"))
    report = world.run("web", RunPhase.RUNNING)
    world.put(pod_subject("default", "web"), ObjectDeleted(), tombstone=True)
    for number in range(short_memory):
        live_and_die(world, f"other-{number}")
    assert report.subject in world.core.collections[PODS].slots["default", "web"].parts
    world.put(run_subject("n1", "default", "web"), report.data, tombstone=True)
    assert ("default", "web") not in world.core.collections[PODS].slots


def test_a_built_in_object_that_a_user_deleted_stays_deleted(short_memory: int) -> None:
    world = World()
    subject = object_subject(PRIORITY_CLASSES.group, PRIORITY_CLASSES.plural, "", "koord-free")
    world.put(subject, ObjectDeleted(), tombstone=True)
    for number in range(short_memory):
        live_and_die(world, f"web-{number}")
    assert list(missing_built_ins(world.core)) == []


FOLDED = 8
"""What the read model has folded when it plans a creation."""


def answered(request: Request[Outcome], reply: Outcome | Head | None) -> object:
    """The next step of a request, or its result."""
    try:
        return request.send(reply)
    except StopIteration as over:
        return over.value


def created_over(standing: Head | None, expected: int) -> tuple[int, bool]:
    """What a creation expects at last, where the log refuses it for the name stands so; and whether it is stored."""
    world = World()
    planned = plan_creation(world.core, PODS, "default", as_json(manifest("web")), world.now, "u", lambda: "x")
    assert planned.plan is not None
    [write] = planned.plan.writes
    first = Plan((type(write)(write.subject, write.payload, expected, write.tombstone, write.causes),), creates=True)
    request = storing(first, FOLDED)
    assert next(request) == Store(first)
    step = request.send(Refused(f"wrong last sequence: {standing.sequence if standing else 0}"))
    assert step == GetLast(write.subject)
    again = answered(request, standing)
    if isinstance(again, Refused):
        return expected, False
    assert isinstance(again, Store)
    return again.plan.writes[0].expected or 0, answered(request, Written((99,))) == Written((99,))


@pytest.mark.parametrize(
    ("standing", "expected", "then", "is_stored"),
    [
        (None, 7, 0, True),  # the tombstone has expired
        (Head(7, "", tombstone=True), 0, 7, True),  # it is forgotten here, and stands
        (Head(9, ""), 0, 0, False),  # somebody created it
        (Head(9, ""), 7, 7, False),
        (Head(4, ""), 0, 4, True),  # it was folded, and is no object: nobody can read it
        (None, 0, 0, False),  # refused for what is gone already: planned again
    ],
)
def test_a_creation_that_is_refused_asks_the_log_how_its_name_stands(
    standing: Head | None, expected: int, then: int, is_stored: bool
) -> None:
    assert created_over(standing, expected) == (then, is_stored)
