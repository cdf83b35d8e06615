"""A gang that must be in one domain of the network preempts inside reservations: where and whom the reference says."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_INDEX, ANNOTATION_TOPOLOGY_SPEC
from cotenant.events.allocations import ReservationUsed
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Nomination, Placement, Victim
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node, pod
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, network, rules
from tests.unit.scheduler.reference import reservations as reference
from tests.unit.scheduler.test_reservation_preemption_reference import member_there

OFFERED = {"cpu": 8000, "memory": 16 << 30}
held = st.tuples(st.integers(2, 6), st.integers(2, 8), st.sampled_from(["Aligned", "Restricted"]))
"""Cpu, memory in GiB and policy of the reservation of a block."""
users = st.tuples(st.sampled_from(("a", "a", "none")), st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2, 5, 9]))
"""App, cpu, memory in GiB, priority."""


class Try(NamedTuple):
    """What becomes of a gang in a block: what it costs, and by member where it goes and who leaves."""

    cost: tuple[int, int, int]
    members: dict[str, Nomination]


class Cluster:
    """A log with one scheduler; a block is one node, with one reservation."""

    def __init__(self, rooms: list[tuple[int, int, str]]) -> None:
        self.story = ReservedStory(SchedulerConfig(reservation=ReservationArgs(enable_preemption=True)))
        self.objects: dict[str, dict[str, Any]] = {}
        self.nodes = [f"n{number}" for number in range(len(rooms))]
        network(self.story)
        for number, (cpu, memory, policy) in enumerate(rooms):
            labels = {SPINE: "s1", BLOCK: f"s1b{number}", "own": f"n{number}"}
            self.story.node(node(f"n{number}", cpu="8", memory="16Gi", labels=labels))
            self.story.executor(f"n{number}")
            document = reservation(
                f"r{number}",
                app="a",
                cpu=str(cpu),
                memory=f"{memory}Gi",
                allocateOnce=False,
                allocatePolicy=policy,
                template={"preemptionPolicy": "Never", "nodeSelector": {"own": f"n{number}"}},
            )
            self.objects[f"r{number}"] = document
            self.story.reservation(document)
        self.story.settle()

    def user(self, name: str, app: str, cpu: int, memory: int, priority: int, **more: Any) -> dict[str, Any]:
        document = pod(name, cpu=str(cpu), memory=f"{memory}Gi", labels={"app": app}, priority=priority, **more)
        self.story.pod(document)
        return document

    def fill(self, early: list[tuple[str, int, int, int]]) -> None:
        """Users come one after the other; those that wait go again."""
        for number, each in enumerate(early):
            self.user(f"p{number:02}", *each, preemptionPolicy="Never")
            self.story.later(1)
            self.story.settle()
        for number in range(len(early)):
            if self.story.node_of(f"p{number:02}") is None:
                self.story.pod_deleted(f"p{number:02}")

    def tried(self, where: str, documents: list[dict[str, Any]]) -> Try | None:
        """The gang on the node of one block; None where it gets no room."""
        story, there = self.story, reference.placements(self.story)
        priorities = {placed.uid: decode_pod(placed.pod).spec.priority or 0 for placed in there}
        used = next(ReservationUsed(name=share.name, uid=share.uid) for share in reference.shares(story) if share.node == where)
        members: dict[str, Nomination] = {}
        victims: list[int] = []
        for document in documents:
            usable = reference.usable(story, self.objects, {where: OFFERED}, document, there)
            gone: list[Placement] = []
            if not usable:
                found = reference.makes_leave(story, self.objects, {where: OFFERED}, document, there)
                if found is None:
                    return None
                gone = [placed for placed in there if placed.name in found[1]]
                victims += [priorities[placed.uid] for placed in gone]
            names = tuple(Victim(namespace="default", name=placed.name, uid=placed.uid) for placed in gone)
            nomination = Nomination(node=where, at=story.now, victims=names, reservation=used)
            members[document["metadata"]["name"]] = nomination
            there = [*(placed for placed in there if placed not in gone), member_there(document, nomination)]
            priorities[document["metadata"]["uid"]] = document["spec"]["priority"]
        cost = max(victims, default=-1), sum(priority + (1 << 31) for priority in victims), len(victims)
        return Try(cost, members)

    def room(self, where: str, documents: list[dict[str, Any]]) -> int:
        """How many of the members that request the same a block takes as it is, those of each kind by themselves."""
        total = 0
        kinds = {str(document["spec"]["containers"]): document for document in documents}
        for kind, document in kinds.items():
            there = reference.placements(self.story)
            for _ in range(sum(str(each["spec"]["containers"]) == kind for each in documents)):
                usable = reference.usable(self.story, self.objects, {where: OFFERED}, document, there)
                if not usable:
                    break
                ((name, _),) = usable.items()
                share = self.story.share(name)
                assert share is not None
                used = ReservationUsed(name=name, uid=share.uid)
                there.append(member_there(document, Nomination(node=where, at=self.story.now, reservation=used)))
                total += 1
        return total


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=set(Phase) - {Phase.explain},
)
@given(
    st.lists(held, min_size=2, max_size=3),
    st.lists(users, min_size=4, max_size=12),
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=2, max_size=3),
    st.sampled_from([5, 10]),
)
def test_a_gang_preempts_in_the_domain_where_its_victims_weigh_least(
    rooms: list[tuple[int, int, str]],
    early: list[tuple[str, int, int, int]],
    members: list[tuple[int, int]],
    priority: int,
) -> None:
    note(f"{rooms} {early} {members} {priority}")
    cluster = Cluster(rooms)
    story = cluster.story
    cluster.fill(early)
    own = wants() | {
        ANNOTATION_GANG_NAME: "g",
        ANNOTATION_GANG_MIN: str(len(members)),
        ANNOTATION_TOPOLOGY_SPEC: rules("BlockLayer!"),
    }
    documents = [
        cluster.user(f"g{index}", "a", cpu, memory, priority, annotations=own | {ANNOTATION_TOPOLOGY_INDEX: str(index)})
        for index, (cpu, memory) in enumerate(members)
    ]
    found = {where: tried for where in cluster.nodes if (tried := cluster.tried(where, documents)) is not None}
    slots = {where: cluster.room(where, documents) for where in cluster.nodes}
    story.settle()
    assert as_stored(story.core.decide(story.now)) == as_stored(story.reloaded().decide(story.now)) == []
    placed = {name: where for name, where in story.placed().items() if name.startswith("g")}
    free = [where for where, tried in found.items() if not tried.cost[2]]
    if free:
        assert len(placed) == len(documents)
        assert set(placed.values()) <= set(free)
        return
    assert not placed
    nominated = story.nominated()
    if not found:
        assert not nominated
        return
    best = min(found, key=lambda where: (found[where].cost, -slots[where], where))
    shown = {name: (each.node, each.reservation, {victim.name for victim in each.victims}) for name, each in nominated.items()}
    assert shown == {
        name: (each.node, each.reservation, {victim.name for victim in each.victims})
        for name, each in found[best].members.items()
    }
    for nomination in nominated.values():
        for victim in nomination.victims:
            story.pod_deleted(victim.name)
            story.settle()
            story.run(nomination.node, victim.name, RunPhase.EVICTED, uid=victim.uid)
    story.settle()
    assert {story.node_of(name) for name in nominated} == {best}
    assert not story.nominated()
