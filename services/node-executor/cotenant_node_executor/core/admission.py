"""Whether a pod that names this node itself fits here: kubelet's admission check.

In: its requests, those of the pods before it, and the node's allocatable: the executor's own report, the calculator's
amplification ratios, and its batch and mid resources. Out: None, or reason and message as kubelet
writes them. The scheduler places such a pod without a check. Pods for which the scheduler has chosen the node are
not checked.

A resource that the executor does not know is not checked, as kubelet ignores extended resources that the node lacks.
Labels and taints are not checked either: an executor does not read those of the Node object.

Source: kubelet's canAdmitPod and its predicate admit handler; messages of lifecycle.InsufficientResourceError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum

from msgspec import Struct

from cotenant.domain.amplification import amplified
from cotenant.domain.node import overcommitted_amounts
from cotenant.events.node.resources import NodeResources
from cotenant.events.reservations import ReservationShare
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_node_executor.core.placed import DecodedPlacement, Key, sequence_of

FIRST = (RESOURCE_PODS, CPU, MEMORY)
"""The order in which kubelet compares; others follow by name."""


class AdmissionRefusal(Struct, frozen=True):
    """Why a pod is not run here."""

    reason: str
    message: str


class RunState(Enum):
    """Progress of a placed pod: neither reported nor started; admitted before; ended for good."""

    NEW = "new"
    BEGUN = "begun"
    OVER = "over"


class Admission:
    """The pods to check, and the node's allocatable. Bound: the placed pods."""

    def __init__(self) -> None:
        self.allocatable: Mapping[str, int] = {}
        """As the executor reports it."""
        self.overcommitted: Mapping[str, int] = {}
        """Batch and mid resources; empty before they are known."""
        self.amplification: Mapping[str, float] = {}
        """The calculator's amplification ratios of the reported amounts."""
        self.reserved: dict[str, ReservationShare] = {}
        """Reservations on this node, by name. A pod that is resized in place does not take their room."""
        self.waiting: set[Key] = set()
        """Pods that name this node and have not been checked."""

    def lend(self, resources: NodeResources | None) -> None:
        """Take over the node's batch and mid resources; None: unknown."""
        self.overcommitted = {} if resources is None else overcommitted_amounts(resources)
        self.amplification = {} if resources is None else resources.amplification

    def reserve(self, share: ReservationShare, *, ended: bool) -> None:
        """Take over the room that a reservation holds here."""
        if ended:
            self.reserved.pop(share.name, None)
        else:
            self.reserved[share.name] = share

    @property
    def offer(self) -> Mapping[str, int]:
        """What the node has for pods."""
        return {**self.allocatable, **amplified(self.allocatable, self.amplification), **self.overcommitted}

    def refusals(
        self, pods: Mapping[Key, DecodedPlacement], run_of: Callable[[Key, str], RunState]
    ) -> Iterator[tuple[Key, AdmissionRefusal]]:
        """Yield the waiting pods that do not fit, in order of arrival. `run_of`: the progress of the pod of that name and
        uid.

        A pod with a report or containers was admitted before. A later pod that the scheduler placed here does not count
        against an earlier one: the scheduler knew of that one.
        """
        asked = {key for key in self.waiting if key in pods and pods[key].names_node}
        self.waiting.clear()
        allocatable = self.offer
        used: dict[str, int] = {}
        new: list[tuple[int, Key]] = []
        for key, placed in pods.items():
            state = RunState.OVER if placed.refusal else run_of(key, placed.placement.uid)
            if state is RunState.BEGUN:
                take_room(used, placed.placement.requests)
            elif state is RunState.NEW:
                new.append((sequence_of(placed.ref), key))
        for _, key in sorted(new):
            requests = pods[key].placement.requests
            found = refusal(requests, used, allocatable) if key in asked else None
            if found is None:
                take_room(used, requests)
            else:
                yield key, found


def take_room(used: dict[str, int], requests: Mapping[str, int]) -> None:
    """Count one more pod."""
    for name, amount in requests.items():
        used[name] = used.get(name, 0) + amount
    used[RESOURCE_PODS] = used.get(RESOURCE_PODS, 0) + 1


def refusal(requests: Mapping[str, int], used: Mapping[str, int], allocatable: Mapping[str, int]) -> AdmissionRefusal | None:
    """Return why a pod does not fit beside what is used. Amounts are those of placements: cpu in milli-cores, else units."""
    wanted = {**requests, RESOURCE_PODS: 1}
    for name in (*FIRST, *sorted(wanted.keys() - set(FIRST))):
        requested, capacity = wanted.get(name, 0), allocatable.get(name)
        if requested > 0 and capacity is not None and used.get(name, 0) + requested > capacity:
            figures = f"requested: {requested}, used: {used.get(name, 0)}, capacity: {capacity}"
            return AdmissionRefusal(f"OutOf{name}", f"Pod was rejected: Node didn't have enough resource: {name}, {figures}")
    return None
