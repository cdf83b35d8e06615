"""Whatever a decision stores beside new placements, these leave it room: pods that are resized, that name their node, that end,
that begin and cease to act as reservations, several changes of one pod at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.resizing import stated
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ContainerRun, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resizes import ResizeState, ResizeStatus
from cotenant.model.subjects import run_subject
from cotenant_scheduler.cycle.endings.endings import NAMED_BY_POD
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory
from tests.unit.scheduler.builders_scheduler import GIB, node, pod
from tests.unit.scheduler.test_operating_pods import WEB, acting

MODE = f"{GROUP}/operating-mode"
OFFERED = {"a": {"cpu": 4000, "memory": 4 * GIB}, "b": {"cpu": 6000, "memory": 6 * GIB}}
AMOUNTS = st.tuples(st.integers(1, 3), st.integers(1, 3))
"""CPUs and GiB."""
KINDS = st.sampled_from(["plain", "plain", "plain", "acts", "acts", "for", "for", "a", "b"])
changes = st.fixed_dictionaries(
    {},
    optional={
        "reports": st.sampled_from([ResizeState.DONE, ResizeState.DONE, ResizeState.INFEASIBLE]),
        "asks": AMOUNTS,
        "mode": st.sampled_from(["Reservation", "Runnable"]),
        "deleted": st.just(True),
    },
)
steps = st.tuples(
    st.lists(st.tuples(st.integers(0, 20), changes), max_size=2), st.lists(st.tuples(KINDS, AMOUNTS), max_size=3)
)
"""Changes of pods, and pods that come: what is known when a decision is made."""
MODE_TAKEN_BACK: list[tuple[Any, ...]] = [
    ([], [("acts", (3, 1))]),
    ([(0, {})], []),
    ([], [("for", (3, 1))]),
    ([(0, {"mode": "Runnable"})], [("plain", (3, 1)), ("plain", (3, 1))]),
]
GIVES_AND_TAKES: list[tuple[Any, ...]] = [
    ([], [("plain", (1, 3))]),
    ([(0, {"asks": (1, 1)})], []),
    ([(0, {"reports": ResizeState.DONE, "asks": (2, 1)})], [("plain", (1, 3)), ("plain", (1, 3)), ("plain", (1, 2))]),
]


class Cluster:
    """Two nodes with executors, and documents of pods by name."""

    def __init__(self) -> None:
        self.story = ReservedStory()
        for name, offered in OFFERED.items():
            self.story.node(node(name, cpu=str(offered["cpu"] // 1000), memory=f"{offered['memory'] // GIB}Gi"))
            self.story.executor(name)
        self.documents: dict[str, dict[str, Any]] = {}

    def perform(self, changed: Sequence[tuple[int, Mapping[str, Any]]], come: Sequence[tuple[str, tuple[int, int]]]) -> None:
        for number, change in changed:
            if self.documents:
                self.change(sorted(self.documents)[number % len(self.documents)], change)
        for kind, (cpu, memory) in come:
            name = f"p{self.story.sequence:03}"
            build: Any = acting if kind == "acts" else pod
            more: dict[str, Any] = {"labels": WEB} if kind == "for" else {"nodeName": kind} if kind in OFFERED else {}
            self.documents[name] = build(name, cpu=str(cpu), memory=f"{memory}Gi", **more)
            self.story.pod(self.documents[name])

    def change(self, name: str, change: Mapping[str, Any]) -> None:
        document, placed = self.documents[name], self.story.placement(name)
        metadata, container = document["metadata"], document["spec"]["containers"][0]
        if placed is not None:
            self.report(placed, change.get("reports", ResizeState.DEFERRED))
        if "asks" in change:
            cpu, memory = change["asks"]
            wanted = {"cpu": str(cpu), "memory": f"{memory}Gi"}
            container["resources"] = {"requests": wanted, "limits": wanted}
        if MODE in metadata.get("labels", {}):
            metadata["labels"][MODE] = change.get("mode", "Reservation")
        if "deleted" in change:
            metadata["deletionTimestamp"] = "2026-01-01T12:00:00Z"
            del self.documents[name]
        self.story.pod(document)

    def report(self, placed: Placement, state: ResizeState) -> None:
        """The pod runs; what became of its resize."""
        resize = None
        if placed.resize is not None:
            done = state is ResizeState.DONE
            admitted = stated(decode_pod(placed.pod).spec) if done else placed.resize.admitted
            resize = ResizeStatus(sequence=placed.resize.sequence, state=state, admitted=admitted)
        status = RunStatus(
            node=placed.node,
            namespace=placed.namespace,
            name=placed.name,
            uid=placed.uid,
            phase=RunPhase.RUNNING,
            containers=(ContainerRun(name="main", state="running", ready=True),),
            resize=resize,
        )
        self.story.say(run_subject(placed.node, placed.namespace, placed.name), status)

    def placements(self) -> list[Placement]:
        return [event.data for event in self.story.last.values() if isinstance(event.data, Placement) and not event.tombstone]

    def decide(self) -> None:
        """On no node do the pods that are given it count more than it has beside the others, as those were or as they are."""
        before = {data.uid: data for data in self.placements()}
        loaded = self.story.reloaded()
        first = decided(self.story.core.decide(self.story.now))
        assert decided(self.story.decide()) == first, "what was counted for a decision is taken back"
        assert decided(loaded.decide(self.story.now)) == first, "it follows from what is stored alone"
        for name in OFFERED:
            there = [data for data in self.placements() if data.node == name]
            others = [data for data in there if data.uid in before or data.reason == NAMED_BY_POD]
            for resource, offered in OFFERED[name].items():
                most = max(offered, counted(others, before, resource))
                assert counted(there, before, resource) <= most, (name, resource)
        for data in self.placements():
            if data.phase is PlacementPhase.TERMINATING and len(self.documents) % 2:
                self.story.run(data.node, data.name, RunPhase.STOPPED, uid=data.uid)
        self.story.later(1)


def decided(events: Sequence[Event]) -> list[tuple[object, ...]]:
    return [(event.subject, event.data, event.causes, event.tombstone) for event in events]


def counted(there: Sequence[Placement], before: Mapping[str, Placement], resource: str) -> int:
    """What placements on a node count: of one that acts as a reservation and its users the larger amount."""
    amounts = {data.uid: max(data.requests[resource], before.get(data.uid, data).requests[resource]) for data in there}
    rooms: dict[str, dict[str, int]] = {}
    alone = 0
    for data in there:
        used = data.allocation.reservation if data.allocation is not None else None
        if used is None:
            alone += amounts[data.uid]
        else:
            rooms.setdefault(used.uid, {})[data.uid] = amounts[data.uid]
    return alone + sum(max(of.get(room, 0), sum(of.values()) - of.get(room, 0)) for room, of in rooms.items())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=4, max_size=16))
@example(MODE_TAKEN_BACK)
@example(GIVES_AND_TAKES)
def test_new_placements_leave_room_for_all_that_their_decision_stores(script: list[tuple[Any, ...]]) -> None:
    cluster = Cluster()
    for changed, come in script:
        cluster.perform(changed, come)
        cluster.decide()
    for _ in range(3):
        cluster.decide()
