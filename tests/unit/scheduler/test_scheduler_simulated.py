"""The scheduler's service in a simulated cell: restarts, rivals, and every commit recomputed afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.engine.commit import Identity
from cotenant.engine.replay import verify
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import Write
from cotenant.model.subjects import executor_subject, node_subject, pod_subject, run_subject
from cotenant.simulation import START, ServiceParticipant, World
from cotenant_scheduler.definition import DEFINITION
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, node, pod

NODES = 5


def scheduler(replica: str) -> ServiceParticipant:
    return ServiceParticipant(
        DEFINITION, SchedulerConfig(), Identity(service="scheduler", replica=replica, core=DEFINITION.core_version)
    )


class Users:
    """Stores nodes, then creates pods, deletes old ones and creates some names again, all by the virtual clock."""

    name = "users"
    filters: tuple[str, ...] = ()
    usage_filters: tuple[str, ...] = ()

    def __init__(self, steps: int) -> None:
        self.step_number = 0
        self.steps = steps
        self.documents: dict[str, dict[str, object]] = {}

    def store(self, world: World, subject: str, document: dict[str, object] | None) -> None:
        data = ObjectDeleted() if document is None else ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
        ttl = 3600 if document is None else 0
        event = Event(
            subject=subject,
            data=data,
            time=world.now,
            id=f"user/{world.now}/{subject}",
            source="/user",
            tombstone=document is None,
            ttl_seconds=ttl,
        )
        world.append([Write(event=event)])

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        number = self.step_number
        self.step_number += 1
        if number == 0:
            for i in range(NODES):
                self.store(world, node_subject(f"n{i}"), node(f"n{i}", cpu="4"))
        elif number < self.steps:
            name = f"p{number % 30}"
            if number % 7 == 3:
                self.store(world, pod_subject("default", name), None)
            elif number % 11 == 5:
                # Deleted and created again within one hop.
                self.store(world, pod_subject("default", name), None)
                self.store(world, pod_subject("default", name), pod(name, uid=f"uid-{number}", cpu="700m"))
            else:
                self.store(world, pod_subject("default", name), pod(name, uid=f"uid-{number}", cpu=f"{200 + number % 9}m"))
        else:
            return None
        return now + timedelta(milliseconds=137)


class Executors:
    """Runs what is placed, and ends what is terminating a little later."""

    name = "executors"
    filters: tuple[str, ...] = ("node.*.placement.>",)
    usage_filters: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.started = False
        self.ending: list[tuple[datetime, Placement]] = []

    def report(self, world: World, data: Placement, phase: RunPhase) -> None:
        run = RunStatus(node=data.node, namespace=data.namespace, name=data.name, uid=data.uid, phase=phase)
        subject = run_subject(data.node, data.namespace, data.name)
        world.append([Write(event=Event(subject=subject, data=run, time=world.now, id=f"x/{world.now}", source="/exec"))])

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        if not self.started:
            self.started = True
            for i in range(NODES):
                data = ExecutorStatus(node=f"n{i}")
                event = Event(subject=executor_subject(f"n{i}"), data=data, time=now, id=f"e/{i}", source="/exec")
                world.append([Write(event=event)])
        for event in inbox:
            if isinstance(event.data, Placement) and not event.tombstone:
                if event.data.phase is PlacementPhase.TERMINATING:
                    self.ending.append((now + timedelta(milliseconds=300), event.data))
                else:
                    self.report(world, event.data, RunPhase.RUNNING)
        due = [entry for entry in self.ending if entry[0] <= now]
        self.ending = [entry for entry in self.ending if entry[0] > now]
        for _, ended in due:
            self.report(world, ended, RunPhase.STOPPED)
        return now + timedelta(milliseconds=100)


def history_is_sound(history: list[Event]) -> None:
    """At no moment two placements of one name, and never more on a node than it has."""
    story = Story()
    live: dict[tuple[str, str], dict[str, Placement]] = {}
    for event in history:
        data = event.data
        if not isinstance(data, Placement):
            continue
        nodes = live.setdefault((data.namespace, data.name), {})
        if event.tombstone:
            nodes.pop(data.node, None)
        else:
            nodes[data.node] = data
        assert len(nodes) <= 1, nodes
        if data.phase is PlacementPhase.BOUND:
            on_node = [found[data.node] for found in live.values() if data.node in found]
            assert sum(placement.requests["cpu"] for placement in on_node) <= 4000
    assert story.sequence == 0


def run(world: World, seconds: float) -> None:
    world.run_until(world.now + timedelta(seconds=seconds))


def test_a_scheduler_killed_between_any_two_steps_loses_and_doubles_nothing() -> None:
    world = World(keep_history=True)
    users = Users(150)
    world.add(users)
    world.add(Executors())
    for life in range(12):
        mine = scheduler(f"life-{life}")
        world.add(mine)
        run(world, 1.7 + 0.01 * life)
        world.remove(mine)
    world.add(scheduler("last"))
    run(world, 90)
    assert world.history is not None
    history_is_sound(world.history)
    report = verify(world.history, {"scheduler": DEFINITION})
    assert report.ok, report.first_difference
    assert report.verified == report.commits
    last = {event.subject: event for event in world.history}
    pods = [event for subject, event in last.items() if subject.startswith("objects.core.pods.") and not event.tombstone]
    placed = {
        (event.data.name, event.data.uid)
        for event in last.values()
        if isinstance(event.data, Placement) and not event.tombstone
    }
    wanted = set()
    for event in pods:
        assert isinstance(event.data, ObjectStored)
        metadata = msgspec.json.decode(event.data.object)["metadata"]
        wanted.add((metadata["name"], metadata["uid"]))
    assert placed == wanted
    assert len(placed) > 15


def test_two_schedulers_at_once_harm_nobody() -> None:
    world = World(keep_history=True)
    world.add(Users(80))
    world.add(Executors())
    world.add(scheduler("a"))
    world.add(scheduler("b"))
    run(world, 60)
    assert world.history is not None
    history_is_sound(world.history)
    report = verify(world.history, {"scheduler": DEFINITION})
    assert report.ok, report.first_difference


def test_one_seed_gives_one_history() -> None:
    def once() -> list[Event]:
        world = World(seed=7, start=START, keep_history=True)
        world.add(Users(60))
        world.add(Executors())
        world.add(scheduler("a"))
        run(world, 30)
        assert world.history is not None
        return world.history

    assert once() == once()
