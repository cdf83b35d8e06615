"""Gangs that shall be near to one another in the network, beside other pods: what the plain reference decides."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import object_subject
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, as_stored, node, pod
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, TOPOLOGIES, member, network, rules
from tests.unit.scheduler.reference.passes import schedule

GROUPS = {"g": ("g",), "h": ("h", "i"), "i": ("h", "i"), "k": ("k",)}
"""By gang, the gangs that it is placed with."""
PLACES = [*((f"s{spine}", f"s{spine}b{block}") for spine in (1, 2) for block in (1, 2)), ("s1", ""), ("", "s1b1"), ("", "")]
"""Spine and block; without one of the labels a node is in no domain."""
LAYERS = ("SpineLayer", "BlockLayer", "NodeTopologyLayer", "ClusterTopologyLayer")
gathers = st.builds(
    lambda chosen, multiples: rules(*(f"{name}{'!' if must else ''}" for name, must in chosen.items()), multiples=multiples),
    st.dictionaries(st.sampled_from((*LAYERS, "RackLayer")), st.sampled_from([False, False, True]), min_size=1, max_size=3),
    st.one_of(st.just({}), st.just({}), st.dictionaries(st.sampled_from(LAYERS), st.integers(2, 3), max_size=2)),
)
sizes = st.sampled_from(["1", "2", "3"])
selectors = st.sampled_from(["", "", "app"])


def gang_of(
    gang: str, cpus: list[str], order: list[int | None], gather: str, least: int, strict: bool, selector: str
) -> list[dict[str, Any]]:
    found = []
    for number, cpu in enumerate(cpus):
        more = {"mode": "Strict" if strict else "NonStrict", "groups": json.dumps([f"default/{one}" for one in GROUPS[gang]])}
        index = order[number % len(order)]
        if index is not None:
            more["index"] = str(index)
        if selector:
            more["selector"] = selector
        document = member(f"{gang}{number}", gather, gang, least=min(least, len(cpus)), cpu=cpu, **more)
        document["spec"]["preemptionPolicy"] = "Never"
        found.append(document)
    return found


members = st.lists(sizes, min_size=1, max_size=5)
orders = st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=5)
one_gang = st.builds(
    lambda name, *more: [gang_of(name, *more)],
    st.sampled_from(["g", "k"]), members, orders, gathers, st.integers(1, 5), st.booleans(), selectors,
)
two_gangs = st.builds(
    lambda first, second, order, gather, least, strict, selector: [
        gang_of(name, cpus, order, gather, least, strict, selector) for name, cpus in (("h", first), ("i", second))
    ],
    members, members, orders, gathers, st.integers(1, 4), st.booleans(), selectors,
)
nodes = st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(["2", "4", "6", "8"])), min_size=3, max_size=9)
steps = st.one_of(
    st.tuples(st.just("gangs"), one_gang),
    st.tuples(st.just("gangs"), one_gang),
    st.tuples(st.just("gangs"), two_gangs),
    st.tuples(st.just("pod"), st.integers(0, 9), sizes),
    st.tuples(st.just("late"), st.sampled_from(sorted(GROUPS)), sizes),
    st.tuples(st.just("ends"), st.integers(0, 30)),
    st.tuples(st.just("node"), st.integers(0, 8), st.sampled_from(PLACES), st.sampled_from(["2", "4", "8"])),
    st.tuples(st.just("node goes"), st.integers(0, 8)),
    st.tuples(st.just("topology"), st.booleans()),
    st.tuples(st.just("decide")),
)


class Cluster:
    """A log with one scheduler; gangs by name as they came."""

    def __init__(self, there: list[tuple[tuple[str, str], str]]) -> None:
        self.story = Story(SchedulerConfig(queue=QueueArgs(hold_after_seconds=0)))
        network(self.story)
        for number, (where, cpu) in enumerate(there):
            self.node(number, where, cpu)
        self.gangs: dict[str, list[dict[str, Any]]] = {}

    def node(self, number: int, where: tuple[str, str], cpu: str) -> None:
        labels = {key: value for key, value in zip((SPINE, BLOCK), where, strict=True) if value}
        self.story.node(node(f"n{number}", cpu=cpu, labels=labels))
        self.story.executor(f"n{number}")

    def perform(self, step: tuple[Any, ...]) -> None:
        story = self.story
        match step:
            case ("gangs", list() as together) if not any(name in self.gangs for name in map(gang_named, together)):
                for documents in together:
                    self.gangs[gang_named(documents)] = list(documents)
                    story.pods(*documents)
            case ("late", str() as name, str() as cpu) if name in self.gangs:
                first = self.gangs[name][0]
                late = f"{name}{len(self.gangs[name])}"
                own = first["metadata"]["annotations"]
                document = pod(late, cpu=cpu, memory="1Mi", annotations=own, preemptionPolicy="Never")
                self.gangs[name].append(document)
                story.pod(document)
            case ("pod", int() as number, str() as cpu):
                name = f"p{number}"
                if story.node_of(name) is None:
                    story.pod(pod(name, cpu=cpu, memory="1Mi", preemptionPolicy="Never"))
            case ("ends", int() as index) if placed := sorted(story.placed().items()):
                name, where = placed[index % len(placed)]
                story.run(where, name, RunPhase.SUCCEEDED)
            case ("node", int() as number, tuple() as where, str() as cpu):
                self.node(number, where, cpu)
            case ("node goes", int() as number) if f"n{number}" in story.core.nodes.rows:
                story.node_deleted(f"n{number}")
            case ("topology", True):
                network(story)
            case ("topology", False):
                story.say(object_subject(*TOPOLOGIES, "", "default"), ObjectDeleted(), tombstone=True)
            case ("decide",):
                self.check()

    def check(self) -> None:
        story = self.story
        expected = schedule(story.last.values(), story.now, keeps_rooms=False)
        before = story.placed()
        assert as_stored(story.core.decide(story.now)) == as_stored(story.reloaded().decide(story.now))
        made = [
            event.data
            for event in story.settle()
            if isinstance(event.data, Placement)
            and event.data.phase is PlacementPhase.BOUND
            and event.data.name not in before
        ]
        assert {placed.name: placed.node for placed in made} == expected.placed
        for placed in made:
            used = placed.allocation.reservation if placed.allocation is not None else None
            assert (used.uid if used is not None else "") == expected.uses.get(placed.name, "")
        gathered = {}
        for placed in made:
            found = placed.allocation.gathered if placed.allocation is not None else None
            if found is not None:
                gathered[placed.name] = (found.layer, found.domain, found.pods, found.slots, found.domains)
        assert gathered == expected.gathered


def gang_named(documents: list[dict[str, Any]]) -> str:
    name: str = documents[0]["metadata"]["annotations"]["gang.scheduling.koordinator.sh/name"]
    return name


ON_NODES_WITHOUT_LABELS: list[tuple[Any, ...]] = [
    ("gangs", [gang_of("g", ["1", "3", "1", "1", "1"], [0], rules("SpineLayer"), 1, False, "")]),
    ("decide",),
]
"""The second member fits nowhere, so those behind it are placed once the first is: beside it first."""


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, st.lists(steps, min_size=4, max_size=20))
@example([(("", "s1b1"), "2"), (("", "s1b1"), "2"), (("s1", "s1b1"), "2")], ON_NODES_WITHOUT_LABELS)
def test_gangs_are_placed_in_the_domains_that_the_reference_takes(
    there: list[tuple[tuple[str, str], str]], script: list[tuple[Any, ...]]
) -> None:
    note(f"{there} {script}")
    cluster = Cluster(there)
    for step in script:
        cluster.perform(step)
    cluster.check()
