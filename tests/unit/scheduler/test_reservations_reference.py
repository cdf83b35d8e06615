"""Reservations against a plain reference: whatever happens in whatever order, and after a restart."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import PlacementPhase
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod
from tests.unit.scheduler.reference import reservations as reference

NODES = ("n1", "n2", "n3")
APPS = ("a", "b", "c")
NAMES = tuple(f"r{i}" for i in range(4))
PODS = tuple(f"p{i}" for i in range(8))
POLICIES = ("", "Aligned", "Restricted")
CPU, MEMORY = 8, 16


class Reservations(RuleBasedStateMachine):
    """A log with one scheduler; one step a change."""

    def __init__(self) -> None:
        super().__init__()
        self.story = ReservedStory()
        self.objects: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.offered: dict[str, dict[str, int]] = {}
        self.uids = 0

    @initialize()
    def machines(self) -> None:
        for name in NODES[:2]:
            self.node_comes(name)

    @rule(name=st.sampled_from(NODES))
    def node_comes(self, name: str) -> None:
        self.story.node(node(name, cpu=str(CPU), memory=f"{MEMORY}Gi"))
        self.offered[name] = {"cpu": 1000 * CPU, "memory": MEMORY << 30}
        self.settle()

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        if name in self.offered and len(self.offered) > 1:
            self.story.node_deleted(name)
            del self.offered[name]
            self.settle()

    @rule(
        name=st.sampled_from(NAMES),
        app=st.sampled_from(APPS),
        cpu=st.integers(1, 6),
        memory=st.integers(1, 8),
        once=st.booleans(),
        policy=st.sampled_from(POLICIES),
        same=st.booleans(),
    )
    def reservation_is_written(self, name: str, app: str, cpu: int, memory: int, once: bool, policy: str, same: bool) -> None:
        before = self.objects.get(name)
        if before is None or not same:
            self.uids += 1
            uid = f"uid-{self.uids}"
        else:
            uid, policy = before["metadata"]["uid"], before["spec"]["allocatePolicy"]
        document = reservation(
            name, app=app, cpu=str(cpu), memory=f"{memory}Gi", uid=uid, allocateOnce=once, allocatePolicy=policy, ttl="0s"
        )
        self.objects[name] = document
        self.story.reservation(document)
        self.settle()

    @rule(name=st.sampled_from(NAMES))
    def reservation_is_deleted(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.story.reservation_deleted(name)
            self.settle()

    @rule(name=st.sampled_from(PODS), app=st.sampled_from((*APPS, "none")), cpu=st.integers(1, 5), memory=st.integers(1, 6))
    def pod_comes(self, name: str, app: str, cpu: int, memory: int) -> None:
        if name in self.pods or self.story.placement(name) is not None:
            return
        self.uids += 1
        document = pod(name, uid=f"uid-{self.uids}", cpu=str(cpu), memory=f"{memory}Gi", labels={"app": app})
        self.pods[name] = document
        self.story.pod(document)
        expected = reference.usable(self.story, self.objects, self.offered, document)
        self.settle()
        placement = self.story.placement(name)
        if placement is None:
            assert not expected, f"{name} waits although it may use {expected}"
            return
        used = self.story.used(name)
        best = max((score for _, score in expected.values()), default=0)
        if not used:
            assert not best, f"{name} uses none of {expected}"  # full ones score 0: a better node without them is taken
            return
        assert used in expected, f"{name} uses {used or 'nothing'} and may use {expected}"
        node_of, score = expected[used]
        assert placement.node == node_of
        assert score == best, f"{name} uses {used} of {expected}"

    @rule(name=st.sampled_from(PODS))
    def pod_goes(self, name: str) -> None:
        if self.pods.pop(name, None) is not None:
            self.story.pod_deleted(name)
            self.settle()

    @rule(name=st.sampled_from(PODS))
    def pod_ends(self, name: str) -> None:
        placement = self.story.placement(name)
        if placement is not None and name in self.pods:
            self.story.run(placement.node, name, RunPhase.SUCCEEDED, uid=placement.uid)
            self.settle()

    @rule(order=st.randoms(use_true_random=False))
    def restart(self, order: Any) -> None:
        subjects = sorted(self.story.last)
        order.shuffle(subjects)
        before = self.counted()
        self.story.core = self.story.reloaded(subjects)
        self.settle()
        assert self.counted() == before

    @rule()
    def time_passes(self) -> None:
        self.story.later(120)
        self.settle()

    def settle(self) -> None:
        self.story.settle()

    def counted(self) -> dict[str, dict[str, int]]:
        return {name: {r: self.story.requested(name, r) for r in reference.RESOURCES} for name in self.offered}

    @invariant()
    def nodes_count_what_the_reference_counts(self) -> None:
        for name in self.offered:
            for resource in reference.RESOURCES:
                assert self.story.requested(name, resource) == reference.taken(self.story, name, resource)

    @invariant()
    def no_reservation_is_over_allocated_or_leaked(self) -> None:
        by_uid: dict[str, int] = {}
        for share in reference.shares(self.story):
            document = self.objects.get(share.name)
            assert document is not None, f"{share.name} holds room and has no object"
            assert document["metadata"]["uid"] == share.uid
            assert share.node in self.offered
            by_uid[share.uid] = by_uid.get(share.uid, 0) + 1
            if document["spec"]["allocatePolicy"] == "Restricted":
                for resource in reference.RESOURCES:
                    assert reference.allocated(self.story, share.uid, resource) <= share.allocatable[resource]
        assert all(count == 1 for count in by_uid.values())
        for name in self.objects:
            assert self.story.phase(name) in ("Available", "Pending", "Succeeded", "Failed")
        assert {record.name for record in self.story.core.reservations.by_name.values()} == set(self.objects)

    @invariant()
    def what_is_placed_is_bound_or_ends(self) -> None:
        for placed in reference.placements(self.story):
            assert placed.phase in (PlacementPhase.BOUND, PlacementPhase.TERMINATING)


class TestReservations(Reservations.TestCase):  # type: ignore[misc,valid-type]
    settings = settings(
        max_examples=120, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
