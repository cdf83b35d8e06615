"""A plugin that uses every seam of the scheduler's framework: tickets, of which a node has a few, each with its own number.

A node offers as many as its label `tickets` says, numbered from 0. A pod asks for some by its annotation; its placement names
those that it got. Pods with the annotation `group` (`name/size`) are placed together or not at all.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Collection

import msgspec
import numpy as np

from cotenant.api.objects.pod import Pod
from cotenant.events.allocations import Allocation, DeviceShare
from cotenant.events.placements import Placement
from cotenant_scheduler.framework.plugin import Normalise, Refusal, row_count, row_numbers
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.counting import CountedPod, PodCounter, PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_reader import ShapeError
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

TICKETS = "tickets"


class Tickets(PodCounter):
    """Reader, counter, filter, score and allocator."""

    name = "Tickets"
    annotations: tuple[str, ...] = (TICKETS,)
    static = False
    spanning = False
    in_columns = False
    preemptible = True
    weight = 1
    normalise = Normalise.PLAIN
    wakes_on = ("node.*.placement.>",)

    def __init__(self) -> None:
        self.taken: dict[int, Tally[int]] = {}
        """By row: each ticket, and how many pods hold it."""
        self.nameless: Tally[int] = Tally()
        """By row: tickets of pods that have no numbers: those nominated, and those that their user put on the node."""

    def asks(self, pod: Pod) -> int | None:
        text = pod.metadata.annotations.get(TICKETS)
        if text is None:
            return None
        if not text.isdigit():
            raise ShapeError(f"annotation {TICKETS}: {text!r} is no number")
        return int(text)

    def counts(self, shape: Shape) -> bool:
        return self.name in shape.asks

    def count(self, row: int, key: PodKey, pod: CountedPod) -> None:
        numbers = numbers_of(pod.allocation)
        self.taken.setdefault(row, Tally()).update(numbers)
        self.nameless[row] += self._wanted(pod.shape) if not numbers else 0

    def uncount(self, row: int, key: PodKey, pod: CountedPod) -> None:
        numbers = numbers_of(pod.allocation)
        self.taken[row].subtract(numbers)
        self.taken[row] = +self.taken[row]
        self.nameless[row] -= self._wanted(pod.shape) if not numbers else 0

    def concerns(self, shape: Shape) -> bool:
        return self.name in shape.asks

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(row_count(rows), dtype=np.int32)
        for index, row in enumerate(row_numbers(rows)):
            codes[index] = self._left(nodes, row) < self._wanted(shape)
        return codes

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        wanted = 10 if self.name in shape.asks else 0
        return np.array([wanted * min(max(self._left(nodes, row), 0), 10) for row in row_numbers(rows)], dtype=np.int64)

    def allocate(self, nodes: NodeTable, shape: Shape, row: int) -> Allocation | None:
        if self.name not in shape.asks:
            return None
        taken = self.taken.get(row, Tally())
        free = [number for number in range(int(nodes.labels[row].get(TICKETS, "0"))) if not taken[number]]
        return Allocation(devices=tuple(DeviceShare(type=TICKETS, minor=number) for number in free[: self._wanted(shape)]))

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:
        return Refusal("insufficient", "Insufficient tickets", TICKETS)

    def _wanted(self, shape: Shape) -> int:
        wanted = shape.asks.get(self.name, 0)
        assert isinstance(wanted, int)
        return wanted

    def _left(self, nodes: NodeTable, row: int) -> int:
        return int(nodes.labels[row].get(TICKETS, "0")) - self.taken.get(row, Tally()).total() - self.nameless[row]


class AllOf(msgspec.Struct, frozen=True):
    """A group that is placed whole once `size` of its pods are present."""

    name: str
    size: int

    def missing(self, members: Collection[PodKey]) -> str:
        """See `Together`."""
        return f"{len(members)} of {self.size} pods of group {self.name} are there" if len(members) < self.size else ""

    def enough(self, placed: Collection[PodKey], members: Collection[PodKey]) -> bool:
        """See `Together`."""
        return len(placed) == len(members)

    def gives_up(self, refused: PodKey) -> bool:
        """See `Together`."""
        return True

    def gang_of(self, pod: PodKey) -> str:
        """See `Together`."""
        return ""


class ByAnnotation:
    """Grouping by the annotation `group`."""

    def together(self, key: PodKey, facts: ParsedPod) -> AllOf | None:
        name, _, size = facts.annotations.get("group", "").partition("/")
        return AllOf(name, int(size)) if name else None


def numbers_of(allocation: Allocation | None) -> list[int]:
    """The tickets of an allocation."""
    return [share.minor for share in allocation.devices] if allocation is not None else []


def tickets_of(placement: Placement | None) -> list[int]:
    """The tickets that a placement names."""
    assert placement is not None
    return numbers_of(placement.allocation)


def profile() -> Profile:
    """The default profile with tickets and groups."""
    default, tickets = default_profile(SchedulerConfig()), Tickets()
    return Profile(
        filters=(*default.filters, tickets),
        scores=(*default.scores, tickets),
        spanning_scores=[score for score, _ in default.spanning_scores],
        counters=(*default.counters, tickets),
        allocators=(tickets,),
        readers=(tickets,),
        grouping=ByAnnotation(),
    )
