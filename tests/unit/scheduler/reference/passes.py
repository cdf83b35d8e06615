"""The plain scheduler's passes over the queue.

A pass asks every pod in queue order, or the pods of a gang together: they are placed, or nominated, or wait. Passes follow each
other until one changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from cotenant.api.objects.pod import Pod
from cotenant.events.envelope import Event
from cotenant.events.placements import Nomination
from tests.unit.scheduler.reference import gangs, gathering
from tests.unit.scheduler.reference.preemption import nominate
from tests.unit.scheduler.reference.queue_head import keep_room
from tests.unit.scheduler.reference.quotas import Quotas
from tests.unit.scheduler.reference.reserved import is_used_up
from tests.unit.scheduler.reference.scheduler import choose
from tests.unit.scheduler.reference.world import World, priority_of

PASSES = 50


class Outcome(NamedTuple):
    """What is placed, pod to node; who is nominated; whom room is kept for, on which node and since when; for pods that are
    near to their gang, the layer, the domain, pods, slots, and how many domains of the layer have room for all."""

    placed: dict[str, str]
    nominated: dict[str, Nomination]
    kept: dict[str, tuple[str, datetime]]
    gathered: dict[str, tuple[str, str, int, int, int]]
    uses: dict[str, str]
    """By pod, the uid of the reservation that it is in."""


class Pass:
    """One pass."""

    def __init__(self, world: World) -> None:
        world.bound_in_this_pass = set()
        world.nominated_in_this_pass = []
        world.given_up_in_this_pass = {}
        world.head = None
        world.shares = [share for share in world.shares if not is_used_up(world, share)]
        self.world = world
        self.quotas = Quotas(world)
        self.nominated_before = dict(world.nominations)
        self.queue = gangs.entries(world)
        self.index = 0
        self.made: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Ask every pod that wants a node; return pod to node of those placed."""
        world = self.world
        while self.index < len(self.queue):
            entry = self.queue[self.index]
            if gangs.is_group(world, entry):
                self.ask_group(entry)
            else:
                self.ask(entry[0])
        world.kept_rooms = {world.head[0]: world.head[1:]} if world.head is not None else {}
        world.head = None
        return self.made

    def begin_again(self) -> None:
        """A room that is not held any longer goes to the first who wants it."""
        self.index = 0
        self.world.head = None

    def node_for(self, pod: Pod) -> str | None:
        return choose(self.world, pod) if self.quotas.admits(pod) else None

    def ask_group(self, entry: list[Pod]) -> None:
        made = self.place_group(entry) if gangs.is_complete(self.world, entry) else {}
        if not made:
            self.index += 1
            return
        self.made.update(made)
        self.world.bound_in_this_pass.update(made)
        del self.queue[self.index]
        if any(attracts(pod) for pod in entry):
            self.index = 0

    def place_group(self, entry: list[Pod]) -> dict[str, str]:
        world = self.world
        if not gangs.gathers(world, gangs.group_of(entry[0])):
            return gangs.place_group(world, entry, self.node_for)
        if gathering.layers(world) is None:
            return {} if gathering.rules(world, entry).must else gangs.place_group(world, entry, self.node_for)
        made, plan = gathering.place(world, entry)
        if plan is not None:
            world.gathered |= dict.fromkeys(made, (plan.layer, gathering.shown(plan), plan.pods, plan.slots, plan.alike))
        return made

    def ask(self, pod: Pod) -> None:
        world, name = self.world, pod.metadata.name
        if world.head is not None and world.head[0] == name:
            world.head = None  # It is asked again, and does not keep itself out.
        if not self.quotas.admits(pod):
            self.give_up(name)
            return
        node = choose(world, pod)
        if node is not None:
            self.place(pod, node)
            return
        nomination = nominate(world, pod)
        if nomination is None:
            if name not in world.nominations:
                keep_room(world, pod, self.nominated_before)
            self.give_up(name)
        elif world.nominations.get(name) == nomination:
            self.index += 1
        else:
            # It is asked again by the next pass.
            before = world.nominations.get(name)
            world.nominations[name] = nomination
            world.nominated_in_this_pass.append((nomination.node, priority_of(pod)))
            del self.queue[self.index]
            if before is not None and before.node != nomination.node:
                self.begin_again()

    def place(self, pod: Pod, node: str) -> None:
        world, name = self.world, pod.metadata.name
        self.made[name] = node
        world.bound_in_this_pass.add(name)
        world.placements[name] = (node, pod, world.now)
        held = world.nominations.pop(name, None)
        del self.queue[self.index]
        if attracts(pod):
            # What was refused before may be feasible next to this pod.
            self.index = 0
        elif held is not None and held.node != node:
            self.begin_again()

    def give_up(self, name: str) -> None:
        """The pod waits, and is nominated no longer."""
        if name in self.world.nominations:
            self.world.given_up_in_this_pass[name] = self.world.nominations.pop(name)
            self.begin_again()
        else:
            self.index += 1


def attracts(pod: Pod) -> bool:
    return "app" in pod.metadata.labels or bool(pod.spec.affinity or pod.spec.topology_spread_constraints)


def schedule(events: Iterable[Event], now: datetime, *, keeps_rooms: bool = True) -> Outcome:
    """Return what is decided once nothing follows any more. `keeps_rooms` False: the head of the queue is kept none."""
    world = World(events, now)
    world.keeps_rooms = keeps_rooms
    placed: dict[str, str] = {}
    for _ in range(PASSES):
        before = dict(world.nominations), world.kept_rooms
        made = Pass(world).run()
        placed.update(made)
        if not made and (world.nominations, world.kept_rooms) == before:
            return Outcome(placed, world.nominations, world.kept_rooms, world.gathered, world.uses)
    raise AssertionError("the reference does not come to rest")
