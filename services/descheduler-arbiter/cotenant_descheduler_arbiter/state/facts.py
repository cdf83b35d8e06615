"""Facts about pods and nodes for the rules, combined from objects, placements, runs and executors.

Amounts: cpu in milli-cores, everything else in plain units.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cotenant.api.objects.metadata import OwnerReference
from cotenant.api.objects.node import Taint
from cotenant.api.objects.pod import Pod


def controller_of(owners: Sequence[OwnerReference]) -> OwnerReference | None:
    """Return the managing owner."""
    for owner in owners:
        if owner.controller:
            return owner
    return None


class ContainerFacts(msgspec.Struct, frozen=True):
    """A container of a pod. `waiting`: it has not started, or waits to be restarted; `reason`: why it waits or has ended."""

    init: bool = False
    restarts: int = 0
    waiting: bool = False
    reason: str = ""


class PodFacts(msgspec.Struct, frozen=True):
    """A pod and its node. `phase`: Pending, Running, Succeeded or Failed; empty means not ended. `reason`: of the phase.

    `prod`: its priority class (with defaults) is koord-prod.
    """

    pod: Pod
    node: str = ""
    phase: str = ""
    ready: bool = False
    amounts: tuple[tuple[str, int], ...] = ()
    """Effective requests, as (resource, amount); of a placed pod those that count, also while it is resized in place."""
    prod: bool = False
    reason: str = ""
    containers: tuple[ContainerFacts, ...] = ()

    @property
    def requests(self) -> dict[str, int]:
        """Effective requests by resource."""
        return dict(self.amounts)

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`"""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def terminating(self) -> bool:
        return self.pod.metadata.deletion_timestamp is not None

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    @property
    def available(self) -> bool:
        """Not ended, not terminating, and ready."""
        return self.ready and not self.ended and not self.terminating

    @property
    def controller(self) -> OwnerReference | None:
        """The managing owner."""
        return controller_of(self.pod.metadata.owner_references)

    @property
    def workload(self) -> str:
        """uid of the managing owner; empty for a bare pod."""
        controller = self.controller
        return controller.uid if controller is not None else ""


class NodeFacts(msgspec.Struct, frozen=True):
    """A node as a target for pods. `requested`: the sum over its pods that have not ended.

    `raw_allocatable`: the amounts of an amplified node before its amplification.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = {}
    pod_count: int = 0
    raw_allocatable: dict[str, int] = {}

    @property
    def capacity_for_load(self) -> dict[str, int]:
        """The amounts of which load percentages are taken."""
        return {**self.allocatable, **self.raw_allocatable}
