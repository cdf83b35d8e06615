"""The scheduling class of the threads of a control group: fair or real-time.

In: a group below the executor's root, `realtime` or `fair`. Out: the class that was last requested. The guard
(`runtime.realtime`), behind the protocol here, gives the class and revokes it in time. Its own demotions are in
`RealtimeState`: a strategy then requests `fair`, which an event shows.

Kernels with RT group scheduling (cgroup v1) let threads be real-time only in groups with a budget, `cpu.rt_runtime_us` of
`cpu.rt_period_us`, and the budgets of a group's children must fit into its own. Budgets here, in microseconds of a second on
each CPU: SUBTREE_US for the executor's subtree, of which GUARD_US for the guard, SERVICES_US for all pods, in equal parts. A
pod's budget has a period of POD_PERIOD_US, so that it lasts through bursts; SERVICES_US of each second is held on the level
of the directories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from cotenant_node_executor.targets.address import Attribute, NonCgroup, RealtimeThreads
from cotenant_node_executor.targets.interface import InvalidValueError

REALTIME, FAIR = "realtime", "fair"
SUBTREE_US, SERVICES_US, GUARD_US = 900_000, 850_000, 50_000
POD_PERIOD_US = 10_000_000
SECOND_US = 1_000_000
MOST_PODS = 8
"""With a budget; more pods would each get too little."""


class RealtimeState(Struct, frozen=True):
    """The state of the class. `taken`: groups that the guard demoted, with the reason; `refused`: why nothing can have it."""

    taken: Mapping[str, str] = {}
    refused: str = ""


NO_REALTIME = RealtimeState()


def pod_share_us(pods: int) -> int:
    """The budget of each of this many pods, of a second on each CPU."""
    return SERVICES_US // max(pods, 1)


class ClassGiver(Protocol):
    """Gives threads their class."""

    def class_of(self, group: str) -> str | None:
        """The class that was last requested; None if the group is gone."""
        ...

    def give(self, group: str) -> None:
        """Make the group's threads real-time from now on."""
        ...

    def take(self, group: str) -> None:
        """Make them fair."""
        ...


class RealtimeAccessor:
    """The class of groups, through the guard."""

    def __init__(self, giver: ClassGiver | None = None) -> None:
        self._giver = giver

    def read(self, place: NonCgroup, _attribute: Attribute) -> str | None:
        """The class; None where the group is gone, or there is no guard."""
        assert isinstance(place, RealtimeThreads)
        return None if self._giver is None else self._giver.class_of(place.group)

    def write(self, place: NonCgroup, _attribute: Attribute, value: str) -> None:
        """Request a class."""
        assert isinstance(place, RealtimeThreads)
        assert self._giver is not None
        if value not in (REALTIME, FAIR):
            raise InvalidValueError(f"class {value[:20]!r}: expected {REALTIME} or {FAIR}")
        (self._giver.give if value == REALTIME else self._giver.take)(place.group)

    def holds(self, _attribute: Attribute, wanted: str, present: str) -> bool:
        """Whether the class is the wanted one."""
        return wanted == present
