"""The room that is kept for the queue's head where reservations match it: as the reference says, and nobody takes it."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node, pod
from tests.unit.scheduler.reference import reservations as reference

NODES = ("n1", "n2", "n3")
OFFERED = {name: {"cpu": 8000, "memory": 16 << 30} for name in NODES}
LATER = "2026-01-01T11:30:00Z"
held = st.tuples(
    st.sampled_from(("a", "a", "b")), st.integers(1, 6), st.integers(1, 8),
    st.sampled_from(["", "Aligned", "Restricted"]), st.booleans(),
)
"""App, cpu, memory in GiB, policy, for one pod alone."""
pods = st.tuples(
    st.sampled_from(("a", "a", "b", "none")), st.integers(1, 4), st.integers(1, 6),
    st.booleans(), st.sampled_from([True, True, False]),
)
"""App, cpu, memory in GiB, whether it goes into reservations only, whether it is a job."""


class Cluster:
    """A log with one scheduler."""

    def __init__(self, rooms: list[tuple[str, int, int, str, bool]]) -> None:
        self.story = ReservedStory(SchedulerConfig(queue=QueueArgs()))
        self.objects: dict[str, dict[str, Any]] = {}
        self.jobs: set[str] = set()
        for name in NODES:
            self.story.node(node(name, cpu="8", memory="16Gi"))
            self.story.executor(name)
        for number, (app, cpu, memory, policy, once) in enumerate(rooms):
            more: dict[str, Any] = {"allocatePolicy": policy} if policy else {}
            document = reservation(f"r{number}", app=app, cpu=str(cpu), memory=f"{memory}Gi", allocateOnce=once, **more)
            self.objects[f"r{number}"] = document
            self.story.reservation(document)
            self.story.settle()
            if self.story.share(f"r{number}") is None:
                del self.objects[f"r{number}"]  # it would take the room that the head waits for
                self.story.reservation_deleted(f"r{number}")
                self.story.settle()

    def come(self, name: str, app: str, cpu: int, memory: int, required: bool, ends: bool, **more: Any) -> dict[str, Any]:
        annotations = wants() if required else {}
        more |= {"restartPolicy": "Never"} if ends else {}
        document = pod(name, cpu=str(cpu), memory=f"{memory}Gi", labels={"app": app}, annotations=annotations, **more)
        if ends:
            self.jobs.add(name)
        self.story.pod(document)
        return document

    def fill(self, early: list[tuple[str, int, int, bool, bool]]) -> None:
        """Pods come one after the other; those that wait go again."""
        for number, each in enumerate(early):
            self.come(f"p{number:02}", *each)
            self.story.settle()
            if self.story.node_of(f"p{number:02}") is None:
                self.story.pod_deleted(f"p{number:02}")
                self.story.settle()

    def room(self, name: str) -> tuple[str, str] | None:
        """The node and the reservation in which a pod is kept room."""
        waiting = self.story.waiting(name)
        hold = waiting.hold if waiting is not None else None
        used = hold.reservation if hold is not None else None
        return (hold.node, used.name if used is not None else "") if hold is not None else None

    def rooms_of(self, document: dict[str, Any], required: bool) -> list[tuple[str, str]]:
        found = reference.coming_rooms(self.story, self.objects, OFFERED, document, self.jobs, required=required)
        return [(where, name) for _, _, where, name in found]


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=set(Phase) - {Phase.explain},
)
@given(
    st.lists(held, min_size=1, max_size=5),
    st.lists(pods, min_size=4, max_size=14),
    st.tuples(st.sampled_from(("a", "b")), st.integers(2, 8), st.integers(2, 12), st.booleans()),
    st.lists(pods, max_size=8),
)
@example(
    [("a", 1, 1, "", False), ("a", 1, 1, "", False), ("a", 6, 1, "", True), ("a", 5, 2, "", False)],
    [*[("a", 1, 1, False, True)] * 2, *[("b", 1, 1, False, True)] * 2, ("b", 3, 1, False, True)],
    ("b", 3, 2, False),
    [("a", 1, 1, False, True)],
)
def test_the_head_is_kept_the_room_that_the_reference_says_and_gets_it(
    rooms: list[tuple[str, int, int, str, bool]],
    early: list[tuple[str, int, int, bool, bool]],
    wanted: tuple[str, int, int, bool],
    behind: list[tuple[str, int, int, bool, bool]],
) -> None:
    note(f"{rooms} {early} {wanted} {behind}")
    cluster = Cluster(rooms)
    story = cluster.story
    cluster.fill(early)
    document = cluster.come("head", *wanted, ends=True)
    required = wanted[3]
    expected = cluster.rooms_of(document, required)
    story.settle()
    if story.node_of("head") is not None:
        return
    assert cluster.room("head") == (expected[0] if expected else None)
    assert as_stored(story.core.decide(story.now)) == as_stored(story.reloaded().decide(story.now)) == []
    if not expected:
        return
    for number, each in enumerate(behind):
        cluster.come(f"q{number}", *each, created=LATER)
        story.settle()
        if story.node_of("head") is not None:
            assert "Succeeded" in map(story.phase, cluster.objects), "a reservation that was used up has left it room"
            return
        assert cluster.room("head") == expected[0]
        assert expected[0] in cluster.rooms_of(document, required), "nobody behind it takes the room"
    for name, where in sorted(story.placed().items()):
        if where == expected[0][0] and name in cluster.jobs and name != "head":
            story.run(where, name, RunPhase.SUCCEEDED)
    story.settle()
    assert story.node_of("head") is not None
