"""All features at once: whatever comes in whatever order, what is decided rests on the last messages alone, and is allowed.

Gangs with and without a network topology, reservations (pre-allocation too), quotas, resizes, gates, relations with label keys,
pods that are not preemptible, budgets, other schedulers' nominations, every order of the queue with rooms for its head, batches
that are stored late or refused (`happenings`). After each, a core that loads the last messages decides the same. What is
decided overfills no node, places no half gang, makes no protected pod leave, and lets no plain pod wait that fits.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from cotenant.api.objects.pod import decode_pod
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import as_stored
from tests.unit.scheduler.happenings import GANG, GROUPS, NODES, QUOTA, Happenings, configs, cpu_of, early, steps
from tests.unit.scheduler.reference import reservations as reference


class Cluster(Happenings):
    """The same with decisions, and what must hold of them."""

    def __init__(self, config: SchedulerConfig, chance: random.Random) -> None:
        super().__init__(config)
        self.chance = chance
        self.batch: list[Event] | None = None
        """What is being stored."""

    def perform(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("being stored",):
                self.begin()
            case ("stored" | "refused" as how,):
                if self.batch is not None:
                    self.end(refused=how == "refused")
            case ("settle",):
                self.settle()
            case _:
                super().perform(step)

    def loaded(self, prior: int = 0) -> list[tuple[object, ...]]:
        """What a core decides that has loaded the last messages, in any order."""
        subjects = sorted(self.story.last)
        self.chance.shuffle(subjects)
        return as_stored(self.story.reloaded(subjects).decide(self.story.now), prior)

    def begin(self) -> None:
        if self.batch is None:
            self.batch = self.story.begin_storing() or None

    def end(self, *, refused: bool) -> None:
        story, batch = self.story, self.batch
        assert batch is not None
        self.batch = None
        ahead = story.core.decide(story.now)
        if refused:
            story.core.withdraw()
        else:
            first = story.end_storing(batch)
            assert as_stored(ahead, first - 1) == self.loaded(), "decided ahead"
        self.check()

    def check(self) -> None:
        assert as_stored(self.story.core.decide(self.story.now)) == self.loaded()

    def settle(self) -> None:
        """Nothing is being stored any more, nothing follows, and all that was decided is allowed."""
        if self.batch is not None:
            self.end(refused=False)
        self.check()
        for _ in range(200):
            before = [
                event.data
                for event in self.story.last.values()
                if isinstance(event.data, Placement) and event.data.phase is not PlacementPhase.GONE
            ]
            stored = self.story.decide()
            if not stored:
                break
            self.allowed(stored, before)
        else:
            raise AssertionError("the scheduler does not come to rest")
        assert self.loaded() == []
        self.nobody_waits_who_fits()

    def allowed(self, stored: list[Event], before: list[Placement]) -> None:
        there = {placed.uid for placed in before}
        new = [
            event.data
            for event in stored
            if isinstance(event.data, Placement) and event.data.phase is PlacementPhase.BOUND and event.data.uid not in there
        ]
        for name in sorted({placed.node for placed in new}):
            taken = reference.taken(self.story, name, "cpu")
            offered = self.offered(name)
            assert taken <= offered, f"{taken} of {offered} on {name}"
        self.no_half_gang(new, before)
        for event in stored:
            if isinstance(event.data, Waiting) and event.data.nomination is not None and not event.tombstone:
                for victim in event.data.nomination.victims:
                    marks = self.documents.get(victim.name, {}).get("metadata", {}).get("labels", {})
                    assert marks.get(f"{QUOTA}/preemptible") != "false", f"{victim.name} is not preemptible"
                    assert victim.priority < self.documents[event.data.name]["spec"]["priority"]

    def offered(self, name: str) -> int:
        nodes = self.story.core.nodes
        return int(nodes.allocatable[nodes.dims["cpu"], nodes.rows[name]])

    def nobody_waits_who_fits(self) -> None:
        """Of plain pods alone: they belong to no gang or quota, and nothing but cpu keeps them from a node."""
        story = self.story
        kept = dict.fromkeys(NODES, 0)
        for name, document in self.documents.items():
            waiting, asked = story.waiting(name), cpu_of(document)
            nomination = waiting.nomination if waiting is not None else None
            hold = waiting.hold if waiting is not None else None
            for node_name in {found.node for found in (nomination, hold) if found is not None}:
                kept[node_name] += asked
            if theirs := document.get("status", {}).get("nominatedNodeName"):
                kept[theirs] += asked
        for name, asked in self.reserved_cpu.items():
            status = story.status(name)
            if status is not None and status.nomination is not None:
                kept[status.nomination.node] += asked
        placed = story.placed()
        for name, document in self.documents.items():
            if name in placed or name in self.over or not self.is_plain(document):
                continue
            for node_name, row in story.core.nodes.rows.items():
                room = self.offered(node_name) - reference.taken(story, node_name, "cpu") - kept[node_name]
                fits = cpu_of(document) <= room and not story.core.nodes.unschedulable[row]
                assert not fits, f"{name} waits although it fits {node_name}"

    def is_plain(self, document: dict[str, Any]) -> bool:
        metadata = document["metadata"]
        free = not metadata.get("annotations") and "deletionTimestamp" not in metadata
        labels_of = metadata.get("labels", {})
        plain = set(document["spec"]) <= {"containers", "priority", "preemptionPolicy"}
        return free and plain and labels_of.get("app") != "a" and f"{QUOTA}/name" not in labels_of

    def no_half_gang(self, new: list[Placement], before: list[Placement]) -> None:
        def gang_of(placed: Placement) -> str:
            return decode_pod(placed.pod).metadata.annotations.get(f"{GANG}/name", "")

        had = {gang_of(placed) for placed in before}
        for gang in sorted({gang_of(placed) for placed in new} - {""}):
            if not had.intersection(GROUPS[gang]):
                for other in GROUPS[gang]:
                    members = [placed for placed in new if gang_of(placed) == other]
                    assert members, f"{gang} is placed without {other}"
                    least = decode_pod(members[0].pod).metadata.annotations[f"{GANG}/min-available"]
                    assert len(members) >= int(least)


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
    phases=set(Phase) - {Phase.explain},
)
@given(configs, early, st.lists(steps, min_size=20, max_size=60), st.randoms(use_true_random=False))
def test_what_is_decided_follows_from_the_last_messages_and_is_allowed(
    config: SchedulerConfig, first: list[tuple[Any, ...]], script: list[tuple[Any, ...]], chance: random.Random
) -> None:
    note(f"{config.queue} {config.reservation} {config.quota_runtime_limits} {config.quota_check_ancestors} {first} {script}")
    cluster = Cluster(config, chance)
    for number, (cpu, priority, marks) in enumerate(first):
        cluster.store(cluster.looking(f"e{number:02}", cpu, ("", priority, marks, {}), {}))
    cluster.settle()
    for step in script:
        cluster.perform(step)
    cluster.settle()
    cluster.story.later(40)
    cluster.settle()
