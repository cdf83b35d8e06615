"""What is counted on a row, and the interface by which plugins count there too.

The node table holds sums in columns (requests, load). Other counts (ports, the pods that a selector selects, the units of a
device) are held by plugins: a plugin is a `PodCounter`, and the table calls it for every pod that concerns it, whether the pod
was placed earlier, is placed by the present decision, or is removed for a what-if check.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from cotenant.events.allocations import Allocation
from cotenant.model.values import Value
from cotenant_scheduler.state.load.load_estimate import AssignedPod
from cotenant_scheduler.state.reading.shapes import Shape

PodKey = tuple[str, str]
"""Namespace and name."""


def held_key(key: PodKey) -> PodKey:
    """The key under which a nominated pod is counted on a node."""
    return ("", f"{key[0]}/{key[1]}")


def is_held(key: PodKey) -> bool:
    """Return whether a key is that of a nominated pod; namespaces are never empty."""
    return not key[0]


RESERVE_NAMESPACE = "~reservation"
"""Replaces the namespace in the keys of reserve pods, before the reservation's name; not a valid namespace."""


def is_reserve(key: PodKey) -> bool:
    """Return whether a key is that of a reserve pod."""
    return key[0] == RESERVE_NAMESPACE


def shown_name(key: PodKey) -> str:
    """Return a pod or reservation as users know it: `default/web`, `reservation r`."""
    return f"reservation {key[1]}" if is_reserve(key) else "/".join(key)


def quoted_name(key: PodKey) -> str:
    """Return the same as Koordinator's messages have it: `Pod "default/web"`, `Reservation "r"`."""
    return f'Reservation "{key[1]}"' if is_reserve(key) else f'Pod "{"/".join(key)}"'


class CountedPod(Value, frozen=True):
    """A pod on a row; equal pods share one."""

    shape: Shape
    assigned: AssignedPod
    allocation: Allocation | None = None
    """The units that the pod was assigned; None for a pod without any, or one that is only nominated."""


class PodCounter(ABC):
    """Base of plugins that count pods on rows.

    `count` and `uncount` undo each other exactly, in any order of pods. A counter is the state of one node table and is copied
    with it.
    """

    version = 0
    """A counter whose pods change the scores of other rows as well increments this with each pod; otherwise it stays 0."""

    @abstractmethod
    def counts(self, shape: Shape) -> bool:
        """Return whether pods of the shape are counted."""

    @abstractmethod
    def count(self, row: int, key: PodKey, pod: CountedPod) -> None:
        """Count a pod on a row."""

    @abstractmethod
    def uncount(self, row: int, key: PodKey, pod: CountedPod) -> None:
        """Stop counting a pod on a row."""
