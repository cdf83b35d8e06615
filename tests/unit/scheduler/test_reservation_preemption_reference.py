"""Preemption inside reservations against a plain reference, with batches that are not stored and after a restart."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Nomination, Placement, Victim
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node, pod
from tests.unit.scheduler.reference import reservations as reference

NODES = ("n1", "n2")
OFFERED = {name: {"cpu": 8000, "memory": 16 << 30} for name in NODES}
APPS = ("a", "a", "a", "b")
held = st.tuples(st.sampled_from(APPS), st.integers(1, 6), st.integers(1, 8), st.sampled_from(["Aligned", "Restricted"]))
"""App, cpu, memory in GiB, policy."""
users = st.tuples(st.sampled_from((*APPS, "none")), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2, 5, 9]))
"""App, cpu, memory in GiB, priority."""


class Cluster:
    """A log with one scheduler."""

    def __init__(self, rooms: list[tuple[str, int, int, str]]) -> None:
        self.story = ReservedStory(SchedulerConfig(reservation=ReservationArgs(enable_preemption=True)))
        self.objects: dict[str, dict[str, Any]] = {}
        for name in NODES:
            self.story.node(node(name, cpu="8", memory="16Gi"))
            self.story.executor(name)
        for number, (app, cpu, memory, policy) in enumerate(rooms):
            document = reservation(
                f"r{number}",
                app=app,
                cpu=str(cpu),
                memory=f"{memory}Gi",
                allocateOnce=False,
                allocatePolicy=policy,
                template={"preemptionPolicy": "Never"},
            )
            self.objects[f"r{number}"] = document
            self.story.reservation(document)
        self.story.settle()

    def user(self, name: str, app: str, cpu: int, memory: int, priority: int, **more: Any) -> dict[str, Any]:
        document = pod(name, cpu=str(cpu), memory=f"{memory}Gi", labels={"app": app}, priority=priority, **more)
        self.story.pod(document)
        return document

    def fill(self, early: list[tuple[str, int, int, int]]) -> None:
        """Users come one after the other; those that wait go again: they, too, might be first in the room that is made."""
        for number, (app, cpu, memory, priority) in enumerate(early):
            self.user(f"p{number:02}", app, cpu, memory, priority, preemptionPolicy="Never")
            self.story.later(1)
            self.story.settle()
        for number in range(len(early)):
            if self.story.node_of(f"p{number:02}") is None:
                self.story.pod_deleted(f"p{number:02}")

    def evict(self, nominations: list[Nomination]) -> None:
        story = self.story
        for nomination in nominations:
            for victim in nomination.victims:
                story.pod_deleted(victim.name)
                story.settle()
                story.run(nomination.node, victim.name, RunPhase.EVICTED, uid=victim.uid)

    def refused(self) -> None:
        """A batch that is not stored, with another decision behind it, leaves nothing."""
        core = self.story.core
        batch = [msgspec.structs.replace(event, time=self.story.now) for event in core.decide(self.story.now)]
        core.assume(batch)
        core.decide(self.story.now)
        core.withdraw()
        assert as_stored(core.decide(self.story.now)) == as_stored(self.story.reloaded().decide(self.story.now))


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)
@given(
    st.lists(held, min_size=1, max_size=4),
    st.lists(users, min_size=4, max_size=12),
    st.tuples(st.sampled_from(("a", "b")), st.integers(2, 6), st.integers(2, 8), st.sampled_from([5, 10])),
    st.booleans(),
)
def test_a_pod_makes_those_leave_that_the_reference_says(
    rooms: list[tuple[str, int, int, str]],
    early: list[tuple[str, int, int, int]],
    late: tuple[str, int, int, int],
    is_refused: bool,
) -> None:
    cluster = Cluster(rooms)
    story = cluster.story
    cluster.fill(early)
    document = cluster.user("late", *late, annotations=wants())
    if is_refused:
        cluster.refused()
    expected = reference.usable(story, cluster.objects, OFFERED, document)
    leaves = None if expected else reference.makes_leave(story, cluster.objects, OFFERED, document)
    story.settle()
    if expected:
        assert story.used("late") in expected
        return
    assert story.node_of("late") is None
    nomination = story.nominated().get("late")
    found = (nomination.node, [victim.name for victim in nomination.victims]) if nomination is not None else None
    assert found == leaves
    if nomination is None:
        return
    cluster.evict([nomination])
    if is_refused:
        cluster.refused()
    story.settle()
    assert story.node_of("late") == nomination.node
    assert story.used("late")


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=set(Phase) - {Phase.explain},
)
@given(
    st.lists(held, min_size=1, max_size=4),
    st.lists(users, min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=2, max_size=4),
    st.sampled_from([5, 10]),
    st.booleans(),
)
def test_a_gang_makes_those_leave_that_the_reference_says_member_by_member_or_nobody(
    rooms: list[tuple[str, int, int, str]],
    early: list[tuple[str, int, int, int]],
    members: list[tuple[int, int]],
    priority: int,
    is_refused: bool,
) -> None:
    cluster = Cluster(rooms)
    story = cluster.story
    cluster.fill(early)
    own = wants() | {ANNOTATION_GANG_NAME: "g", ANNOTATION_GANG_MIN: str(len(members))}
    documents = [
        cluster.user(f"g{index}", "a", cpu, memory, priority, annotations=own)
        for index, (cpu, memory) in enumerate(members)
    ]
    if is_refused:
        cluster.refused()
    there = reference.placements(story)
    story.settle()
    placed = {name for name in story.placed() if name.startswith("g")}
    nominated = story.nominated()
    assert placed in (set(), {document["metadata"]["name"] for document in documents})
    made_room = False
    for document in documents:
        name = document["metadata"]["name"]
        usable = reference.usable(story, cluster.objects, OFFERED, document, there)
        if name in placed:
            placement = story.placement(name)
            assert placement is not None
            assert story.used(name) in usable
            there.append(placement)
            continue
        leaves = None if usable else reference.makes_leave(story, cluster.objects, OFFERED, document, there)
        if not usable and leaves is None:
            assert not nominated, f"{name} gets no room, so nobody of the gang may"
            return
        if nominated:
            nomination = nominated[name]
        else:
            room = the_only_room(cluster, document, there, usable, leaves)
            if room is None:
                return  # which of several rooms the core gave it is not said: the gang may have failed behind any
            nomination = room
        assert nomination.reservation is not None
        if usable:
            assert (nomination.victims, usable[nomination.reservation.name][0]) == ((), nomination.node)
        else:
            assert (nomination.node, [victim.name for victim in nomination.victims]) == leaves
            made_room = True
        gone = {victim.uid for victim in nomination.victims}
        there = [*(other for other in there if other.uid not in gone), member_there(document, nomination)]
    if placed:
        return
    assert made_room == bool(nominated), "a gang that fits is placed, and one that gets room is nominated"
    cluster.evict(list(nominated.values()))
    if is_refused:
        cluster.refused()
    story.settle()
    assert all(story.used(name) for name in nominated)
    assert not story.nominated()


def the_only_room(
    cluster: Cluster,
    document: dict[str, Any],
    there: list[Placement],
    usable: dict[str, tuple[str, int]],
    leaves: tuple[str, list[str]] | None,
) -> Nomination | None:
    """The nomination that a member must get; None if several reservations may take it."""
    story = cluster.story
    victims: tuple[Victim, ...] = ()
    if leaves is not None:
        node_of, names = leaves
        gone = sorted((placed for placed in there if placed.name in names), key=lambda placed: names.index(placed.name))
        left = [placed for placed in there if placed not in gone]
        found = reference.usable(story, cluster.objects, OFFERED, document, left)
        usable = {name: room for name, room in found.items() if room[0] == node_of}
        victims = tuple(Victim(namespace="default", name=placed.name, uid=placed.uid) for placed in gone)
    if len(usable) != 1:
        return None
    ((name, (node_of, _)),) = usable.items()
    share = story.share(name)
    assert share is not None
    used = ReservationUsed(name=name, uid=share.uid)
    return Nomination(node=node_of, at=story.now, victims=victims, reservation=used)


def member_there(document: dict[str, Any], nomination: Nomination) -> Placement:
    """A nominated member as if it had been placed in its room."""
    metadata = document["metadata"]
    return Placement(
        node=nomination.node,
        namespace="default",
        name=metadata["name"],
        uid=metadata["uid"],
        pod=msgspec.Raw(msgspec.json.encode(document)),
        requests=reference.pod_requests(document),
        bound_at=nomination.at,
        allocation=Allocation(reservation=nomination.reservation),
    )
