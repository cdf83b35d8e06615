"""Pre-allocation: a reservation takes room that pods use already, and these become its owners.

In: a reservation with `preAllocation` that no node takes as it is (or that may take nothing else), the results of its shape,
the pods on the nodes. Out: a node and pods there; or none. The rules:

    who         policy Restricted; pods that the reservation's owners match, that stay where they are and use no reservation
    how many    one pod; with `preAllocationPolicy.enableMultiple` as many as it takes, at most MOST_TAKEN, the largest first
    how much    what the pods request fits into what the reservation holds of each resource
    fits        without their requests and their load on the node every filter accepts the reservation: its load would be
                theirs
    choice      the fewest pods (Koordinator: score 100 / (1 + pods)), then the node's name
    required    with the label `pre-allocation-required: "true"` it never takes free room alone
When such a pod ends, its room belongs to the reservation. Source: Koordinator's pre-allocation, mode Default.

Cost: looks at all placed pods, some 0.3 us each, whenever the state has changed while such a reservation waits.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

import msgspec

from cotenant.domain.reservations.names import LABEL_PRE_ALLOCATION_REQUIRED, POLICY_RESTRICTED
from cotenant.domain.reservations.owners import PodIdentity, owners_match
from cotenant.events.allocations import ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.placements import PlacementPhase
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.reservations.records import ReserveRecord
from cotenant_scheduler.state.reservations.rules import owner_references

MOST_TAKEN = 16
"""Pods that one reservation takes."""

Given = Callable[[PodRecord, str, ReservationUsed, tuple[str, ...]], Event]

_BOUND = PlacementPhase.BOUND


class TakesPods(msgspec.Struct, frozen=True):
    """The demands of a pre-allocating reservation; equal ones are alike. `owners`: the number of their list of owners; `only`:
    it takes no room that is free; `many`: it may take several pods."""

    owners: int
    only: bool
    many: bool


def takes_pods(record: ReserveRecord) -> TakesPods | None:
    """Return a reservation's demands; None if it pre-allocates nothing."""
    reservation = record.reservation
    if reservation is None or not reservation.spec.pre_allocation or reservation.spec.allocate_policy != POLICY_RESTRICTED:
        return None
    policy = reservation.spec.pre_allocation_policy
    only = reservation.metadata.labels.get(LABEL_PRE_ALLOCATION_REQUIRED) == "true"
    return TakesPods(record.owners, only, policy is not None and policy.enable_multiple)


class Taken(msgspec.Struct, frozen=True, eq=False):
    """The row that takes a reservation, and the pods there that become its owners."""

    row: int
    pods: tuple[PodRecord, ...]


class PreAllocation:
    """Chooses; see the module."""

    def __init__(self, nodes: NodeTable, pods: PodCache, unsettled: Container[PodKey], given: Given) -> None:
        """`unsettled`: pods whose placements may be stored again by this decision; `given` returns a placement that names a
        reservation."""
        self._nodes = nodes
        self._pods = pods
        self._unsettled = unsettled
        self._given = given
        self._taken: set[PodKey] = set()
        """Pods that the current decision has made owners."""

    def begin(self) -> None:
        """Start a decision: drop what the previous one took (it is folded by now, or was not stored)."""
        self._taken.clear()

    def room(
        self, record: ReserveRecord, asks: TakesPods, evaluation: Evaluation, free: int
    ) -> tuple[int, tuple[PodRecord, ...]]:
        """Return the row of a reservation, -1 for none, and the pods whose room it takes there; `free`: one with free room, or
        -1."""
        if free >= 0 and not asks.only:
            return free, ()
        found = self.choose(record, asks, evaluation)
        return (found.row, found.pods) if found is not None else (-1, ())

    def owners(self, record: PodRecord, row: int, taken: Sequence[PodRecord]) -> list[Event]:
        """Return the placements of pods that become owners of the reservation that has just been placed on a row."""
        if not taken or not isinstance(record, ReserveRecord):
            return []
        used = ReservationUsed(name=record.name, uid=record.uid)
        causes = (f"LOG:{record.object_sequence}",)
        self._taken.update(pod.key for pod in taken)
        return [self._given(pod, self._nodes.names[row], used, causes) for pod in taken]

    def choose(self, record: ReserveRecord, asks: TakesPods, evaluation: Evaluation) -> Taken | None:
        """Return where a reservation gets room that pods use; None if nowhere."""
        found: Taken | None = None
        held = evaluation.shape.requests
        for node in sorted(self._pods.on_node):
            row = self._nodes.rows.get(node)
            if row is None:
                continue
            pods = [pod for key in sorted(self._pods.on_node[node]) if (pod := self._usable(record, key, node, held))]
            if not pods:
                continue
            taken = self._many(row, pods, held, evaluation) if asks.many else self._one(row, pods, held, evaluation)
            if taken and (found is None or len(taken) < len(found.pods)):
                found = Taken(row, tuple(taken))
                if len(taken) == 1:
                    break
        return found

    def _usable(self, record: ReserveRecord, key: PodKey, node: str, held: Mapping[str, int]) -> PodRecord | None:
        """Return a pod's record if it may become an owner."""
        pod = self._pods.records[key]
        facts, placed, reservation = pod.facts, pod.placements[node], record.reservation
        assert reservation is not None
        if facts is None or facts.shape is None or placed.charge is None:
            return None
        if not any(_may_mean(rule.label_selector, facts.labels) for rule in reservation.spec.owners):
            return None
        data = placed.data
        used = data.allocation.reservation if data.allocation is not None else None
        if data.phase is not _BOUND or data.uid != facts.uid or used is not None:
            return None
        if key in self._unsettled or key in self._taken:
            return None
        if facts.traits.acts or len(pod.placements) > 1 or not _within(held, [pod]):
            return None
        identity = PodIdentity(facts.namespace, facts.name, facts.uid, facts.labels, owner_references(pod))
        return pod if owners_match(reservation.spec.owners, identity) else None

    def _one(
        self, row: int, pods: list[PodRecord], held: Mapping[str, int], evaluation: Evaluation
    ) -> list[PodRecord] | None:
        return next(([pod] for pod in pods if self._fits(row, [pod], held, evaluation)), None)

    def _many(
        self, row: int, pods: list[PodRecord], held: Mapping[str, int], evaluation: Evaluation
    ) -> list[PodRecord] | None:
        largest = sorted(pods, key=lambda pod: (-_size(pod, held), pod.key))
        taken: list[PodRecord] = []
        for pod in largest:
            if len(taken) >= MOST_TAKEN or not _within(held, [*taken, pod]):
                continue
            taken.append(pod)
            if self._fits(row, taken, held, evaluation):
                return taken
        return None

    def _fits(self, row: int, pods: list[PodRecord], held: Mapping[str, int], evaluation: Evaluation) -> bool:
        """Return whether the row takes the reservation once pods use what it holds, which is enough for them; the table is as
        before afterwards."""
        nodes = self._nodes
        changes = [
            (nodes.dims[name], sum(_requests(pod).get(name, 0) for pod in pods)) for name in held if name in nodes.dims
        ]
        for dim, amount in changes:
            nodes.requested[dim, row] -= amount
        # The reservation's own load is that of its owners.
        nodes.load_without(row, {pod.key for pod in pods})
        try:
            code, _ = evaluation.judged(row)
        finally:
            nodes.load_without(row, ())
            for dim, amount in changes:
                nodes.requested[dim, row] += amount
        return not code


def _may_mean(selector: object, labels: Mapping[str, str]) -> bool:
    """Whether a rule may match a pod: checked first, as it costs little."""
    wanted = getattr(selector, "match_labels", None)
    return not wanted or all(labels.get(name) == value for name, value in wanted.items())


def _requests(pod: PodRecord) -> Mapping[str, int]:
    assert pod.facts is not None
    assert pod.facts.shape is not None
    return pod.facts.shape.requests


def _size(pod: PodRecord, held: Mapping[str, int]) -> float:
    requests = _requests(pod)
    return max((requests.get(name, 0) / amount for name, amount in held.items() if amount), default=0.0)


def _within(held: Mapping[str, int], pods: list[PodRecord]) -> bool:
    return all(sum(_requests(pod).get(name, 0) for pod in pods) <= amount for name, amount in held.items())
