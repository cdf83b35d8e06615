"""Gangs that shall be near to one another in the network, where reservations hold room for some of them: as the reference."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, network
from tests.unit.scheduler.reference.test_gathered_gangs import PLACES, Cluster, gang_named, one_gang, sizes, two_gangs

OWN = "own-name"
OWNERS = {"g": "train", "h": "train", "i": "serve", "k": ""}
"""By gang, the label of its pods."""
held = st.tuples(
    st.integers(0, 5), st.sampled_from(["2", "3", "5"]), st.sampled_from(["train", "serve"]),
    st.sampled_from(["", "Aligned", "Restricted"]), st.booleans(),
)
"""Node, cores, whose, policy, for one pod alone."""
nodes = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["4", "6", "8"])), min_size=6, max_size=9)
steps = st.one_of(
    st.tuples(st.just("gangs"), one_gang),
    st.tuples(st.just("gangs"), one_gang),
    st.tuples(st.just("gangs"), two_gangs),
    st.tuples(st.just("late"), st.sampled_from(sorted(OWNERS)), sizes),
    st.tuples(st.just("ends"), st.integers(0, 30)),
    st.tuples(st.just("node"), st.integers(6, 8), st.sampled_from(PLACES), st.sampled_from(["2", "4", "8"])),
    st.tuples(st.just("decide")),
)


class ReservedCluster(Cluster):
    """The same, with reservations on its first nodes."""

    def __init__(self, there: list[tuple[tuple[str, str], str]], rooms: list[tuple[int, str, str, str, bool]]) -> None:
        self.story = story = ReservedStory(SchedulerConfig(queue=QueueArgs(hold_after_seconds=0)))
        network(story)
        for number, (where, cpu) in enumerate(there):
            self.node(number, where, cpu)
        self.gangs: dict[str, list[dict[str, Any]]] = {}
        for count, (number, cpu, label, policy, once) in enumerate(rooms):
            owners = [{"labelSelector": {"matchLabels": {"job": label}}}]
            more: dict[str, Any] = {"allocatePolicy": policy} if policy else {}
            template = {"nodeSelector": {OWN: f"n{number}"}}
            story.reservation(
                reservation(f"r{count}", cpu=cpu, memory="64Mi", owners=owners, allocateOnce=once, template=template, **more)
            )
        story.settle()
        for count in range(len(rooms)):
            if story.share(f"r{count}") is None:
                story.reservation_deleted(f"r{count}")  # it would take the room that a used one leaves
        story.settle()

    def node(self, number: int, where: tuple[str, str], cpu: str) -> None:
        labels = {key: value for key, value in zip((SPINE, BLOCK), where, strict=True) if value}
        self.story.node(node(f"n{number}", cpu=cpu, labels=labels | {OWN: f"n{number}"}))
        self.story.executor(f"n{number}")

    def perform(self, step: tuple[Any, ...]) -> None:
        story = self.story
        match step:
            case ("gangs", list() as together) if not any(name in self.gangs for name in map(gang_named, together)):
                for documents in together:
                    name = gang_named(documents)
                    labelled = [
                        {**each, "metadata": {**each["metadata"], "labels": {"job": OWNERS[name]}}} for each in documents
                    ]
                    self.gangs[name] = labelled
                    story.pods(*labelled)
            case ("late", str() as name, str() as cpu) if name in self.gangs:
                own = self.gangs[name][0]["metadata"]
                late = f"{name}{len(self.gangs[name])}"
                document = pod(
                    late, cpu=cpu, memory="1Mi", annotations=own["annotations"], labels=own["labels"], preemptionPolicy="Never"
                )
                self.gangs[name].append(document)
                story.pod(document)
            case ("ends", int() as index) if placed := sorted(story.placed().items()):
                name, where = placed[index % len(placed)]
                story.run(where, name, RunPhase.SUCCEEDED)
            case ("node", int() as number, tuple() as where, str() as cpu):
                self.node(number, where, cpu)
            case ("decide",):
                self.check()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, st.lists(held, min_size=1, max_size=5), st.lists(steps, min_size=4, max_size=14))
def test_gangs_are_placed_in_the_domains_and_reservations_that_the_reference_takes(
    there: list[tuple[tuple[str, str], str]], rooms: list[tuple[int, str, str, str, bool]], script: list[tuple[Any, ...]]
) -> None:
    note(f"{there} {rooms} {script}")
    cluster = ReservedCluster(there, rooms)
    for step in script:
        cluster.perform(step)
    cluster.check()
