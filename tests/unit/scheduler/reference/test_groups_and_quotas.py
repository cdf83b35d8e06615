"""Gangs and single pods in quotas, with preemption and batches that are not stored: what the plain reference decides.

A batch that is refused leaves nothing behind: the core decides afterwards as one that never tried, and as one that has just
folded the log.

Each quota's pods have one priority, so none preempts within its quota; pods of gangs do not preempt, and may be preempted.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, PlacementPhase
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, as_stored, node, pod
from tests.unit.scheduler.reference.passes import schedule

NODES = ("a", "b", "c")
QUOTA = "quota.scheduling.koordinator.sh/name"
PRIORITIES = {"red": 5, "red-1": 9, "red-2": 5, "blue": 1, "": 3}
"""By quota."""
GROUPS = {"g": ("g",), "h": ("h", "i"), "i": ("h", "i")}
"""By gang, the gangs that it is placed with."""
cpus = st.sampled_from([500, 1000, 1500, 2500])
quotas = st.sampled_from(sorted(PRIORITIES))


def document(name: str, quota: str, cpu: int, protected: bool, **more: Any) -> dict[str, Any]:
    labels = {QUOTA: quota} if quota else {}
    if protected:
        labels["quota.scheduling.koordinator.sh/preemptible"] = "false"
    return pod(name, cpu=f"{cpu}m", memory="64Mi", priority=PRIORITIES[quota], labels=labels, **more)


def member(gang: str, number: int, quota: str, cpu: int, strict: bool, least: int) -> dict[str, Any]:
    annotations = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": str(least),
        "gang.scheduling.koordinator.sh/mode": "Strict" if strict else "NonStrict",
        "gang.scheduling.koordinator.sh/groups": json.dumps([f"default/{name}" for name in GROUPS[gang]]),
    }
    return document(f"{gang}{number}", quota, cpu, False, preemptionPolicy="Never", annotations=annotations)


def gang_of(gang: str, count: int, least: int, strict: bool, shapes: list[tuple[str, int]]) -> list[dict[str, Any]]:
    # The mode is the group's; the least differs with the gang alone, as all members have to state the same.
    return [member(gang, i, *shapes[i % len(shapes)], strict, least) for i in range(count)]


shapes = st.lists(st.tuples(quotas, cpus), min_size=1, max_size=2)
counts, leasts = st.integers(2, 5), st.integers(1, 4)
gangs = st.one_of(
    st.builds(lambda *gang: [gang_of("g", *gang)], counts, leasts, st.booleans(), shapes),
    st.builds(
        lambda count, least, others, other_least, strict, kinds: [
            gang_of("h", count, least, strict, kinds), gang_of("i", others, other_least, strict, kinds)
        ],
        counts, leasts, counts, leasts, st.booleans(), shapes,
    ),
)
singles = st.builds(
    lambda number, quota, cpu, protected: [[document(f"p{number:02}", quota, cpu, protected)]],
    st.integers(0, 30),
    quotas,
    cpus,
    st.sampled_from([False, False, True]),
)
early = st.lists(st.tuples(st.sampled_from(["blue", "blue", "", "red-2"]), cpus), min_size=4, max_size=12)
"""Pods that are there first: quota and milli-cores."""
amounts = st.sampled_from([0, 1000, 3000, 5000, 7000, 20_000, 20_000])
declared = st.fixed_dictionaries({"max": amounts, "min": amounts, "weight": st.integers(0, 4)})
steps = st.one_of(
    st.tuples(st.just("pods"), singles),
    st.tuples(st.just("pods"), singles),
    st.tuples(st.just("pods"), gangs),
    st.tuples(st.just("quota"), st.sampled_from(["red", "red-1", "red-2", "blue"]), declared),
    st.tuples(st.just("quota ends"), st.sampled_from(["red", "red-2", "blue"])),
    st.tuples(st.just("names"), st.integers(0, 30), quotas),
    st.tuples(st.just("node"), st.sampled_from(NODES), st.sampled_from(["2", "4", "6"])),
    st.tuples(st.just("node goes"), st.just("c")),
    st.tuples(st.just("ends"), st.integers(0, 30)),
    st.tuples(st.just("is deleted"), st.integers(0, 30)),
    st.tuples(st.just("later"), st.sampled_from([1, 3, 9])),
    st.tuples(st.just("refused"), st.booleans()),
    st.tuples(st.just("decide")),
    st.tuples(st.just("decide")),
)


class Cluster:
    """A log with one scheduler, and the documents on it by name."""

    def __init__(self) -> None:
        self.story = Story(SchedulerConfig(queue=QueueArgs(hold_after_seconds=0)))
        for name in NODES:
            self.story.node(node(name, cpu="4"))
            self.story.executor(name)
        self.declared: set[str] = set()
        self.documents: dict[str, dict[str, Any]] = {}
        self.gangs: set[str] = set()
        self.uids = 0

    def perform(self, step: tuple[Any, ...]) -> None:
        story = self.story
        match step:
            case ("pods", list() as together):
                for documents in together:
                    self.bring(documents)
            case ("quota", str() as name, dict() as amounts):
                parent = "red" if "-" in name else ""
                least = min(amounts["min"], amounts["max"])
                story.quota(
                    name, max={"cpu": amounts["max"]}, min={"cpu": least}, weight={"cpu": amounts["weight"]}, parent=parent
                )
                self.declared.add(name)
            case ("quota ends", str() as name) if name in self.declared:
                self.declared.discard(name)
                story.quota_deleted(name)
            case ("names", int() as index, str() as quota) if self.documents:
                self.name_quota(sorted(self.documents)[index % len(self.documents)], quota)
            case ("node", str() as name, str() as cpu):
                story.node(node(name, cpu=cpu))
            case ("node goes", str() as name):
                story.node_deleted(name)
            case ("ends", int() as index) if placed := sorted(story.placed().items()):
                name, where = placed[index % len(placed)]
                story.run(where, name, RunPhase.SUCCEEDED)
            case ("is deleted", int() as index) if self.documents:
                name = sorted(self.documents)[index % len(self.documents)]
                del self.documents[name]
                story.pod_deleted(name)
            case ("later", int() as seconds):
                story.later(seconds)
            case ("refused", bool() as behind):
                self.refused(behind)
            case ("decide",):
                self.check()

    def bring(self, documents: list[dict[str, Any]]) -> None:
        """All pods of a gang, or none where it was there before: its members state the same."""
        gang = documents[0]["metadata"].get("annotations", {}).get("gang.scheduling.koordinator.sh/name", "")
        if gang in self.gangs or documents[0]["metadata"]["name"] in self.documents or self.is_there(documents):
            return
        if gang:
            self.gangs.add(gang)
        for one in documents:
            self.documents[one["metadata"]["name"]] = one
            self.story.pod(one)

    def name_quota(self, name: str, quota: str) -> None:
        """A single pod, placed or not, names another quota of the same priority; or none."""
        document = self.documents[name]
        labels = document["metadata"].get("labels", {})
        if name[0] not in "pe" or PRIORITIES[labels.get(QUOTA, "")] != PRIORITIES[quota]:
            return
        named = {**labels, QUOTA: quota} if quota else {key: value for key, value in labels.items() if key != QUOTA}
        self.documents[name] = {**document, "metadata": {**document["metadata"], "labels": named}}
        self.story.pod(self.documents[name])

    def is_there(self, documents: list[dict[str, Any]]) -> bool:
        return any(one["metadata"]["name"] in self.story.placed() for one in documents)

    def refused(self, behind: bool) -> None:
        """A decision that is assumed, perhaps with another one behind it, and not stored."""
        core = self.story.core
        batch = [msgspec.structs.replace(event, time=self.story.now) for event in core.decide(self.story.now)]
        if not batch:
            return
        core.assume(batch)
        if behind:
            core.decide(self.story.now)
        core.withdraw()
        assert as_stored(core.decide(self.story.now)) == as_stored(self.story.reloaded().decide(self.story.now))

    def check(self) -> None:
        story = self.story
        expected = schedule(story.last.values(), story.now, keeps_rooms=False)
        before = story.placed()
        made = {
            event.data.name: event.data.node
            for event in story.settle()
            if isinstance(event.data, Placement)
            and event.data.phase is PlacementPhase.BOUND
            and event.data.name not in before
        }
        assert made == expected.placed
        assert story.nominated() == expected.nominated


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(early, st.lists(steps, min_size=8, max_size=40))
def test_gangs_and_quotas_are_decided_as_by_the_reference_whatever_batches_are_refused(
    first: list[tuple[str, int]], script: list[tuple[Any, ...]]
) -> None:
    cluster = Cluster()
    for number, (quota, cpu) in enumerate(first):
        cluster.perform(("pods", [[document(f"e{number:02}", quota, cpu, False)]]))
    cluster.check()
    for step in script:
        cluster.perform(step)
    cluster.refused(True)
    cluster.check()
    cluster.story.later(11)
    cluster.check()
