"""Preemption inside reservations against a plain reference, with batches that are not stored and after a restart."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
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
    for number, (app, cpu, memory, priority) in enumerate(early):
        cluster.user(f"p{number:02}", app, cpu, memory, priority, preemptionPolicy="Never")
        story.later(1)
        story.settle()
    for number in range(len(early)):
        if story.node_of(f"p{number:02}") is None:
            story.pod_deleted(f"p{number:02}")  # one that waits, too, might be first in the room that is made
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
    for victim in nomination.victims:
        story.pod_deleted(victim.name)
        story.settle()
        story.run(nomination.node, victim.name, RunPhase.EVICTED, uid=victim.uid)
    if is_refused:
        cluster.refused()
    story.settle()
    assert story.node_of("late") == nomination.node
    assert story.used("late")
