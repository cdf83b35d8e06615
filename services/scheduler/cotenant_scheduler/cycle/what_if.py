"""What would fit on a node without some of its pods.

In: a row, the shape to place there, the pods that may leave. Out: the pods that have to leave. Sums that filters compare with
limits (resources) are added up; what counters hold is uncounted and counted again, and the ordinary filters run on the result,
so that a filter is written once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import groupby
from typing import Protocol

from cotenant.model.values import Value
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.state.counting import CountedPod, PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape


class RowPod(Value, frozen=True):
    """A pod on a row, as far as preemption needs to know it."""

    key: PodKey
    counted: CountedPod
    shape: Shape
    bound_us: int
    uid: str
    labels: Mapping[str, str]
    ending: bool
    protected: bool


class Asking:
    """Who needs the space: the shape, and the filters whose refusals can be lifted by ending pods."""

    def __init__(self, nodes: NodeTable, evaluation: Evaluation) -> None:
        self.nodes = nodes
        self.shape = evaluation.shape
        self._sums, self.others = evaluation.preemptibility.liftable()
        self._gives_back: dict[Shape, tuple[int, ...]] = {}
        self.answers: dict[tuple[Hashable, ...], list[int] | None] = {}
        """What `victims` found by amounts: rows that are full of equal pods ask the same. At most one a row."""

    def room(self, row: int) -> list[int]:
        """Return the headroom under each limit on a row with the shape there; below 0 it does not fit."""
        left: list[int] = []
        for plugin in self._sums:
            left += plugin.room(self.nodes, self.shape, row)
        return left

    def gives_back(self, pod: RowPod) -> tuple[int, ...]:
        """Return what ending a pod adds to the headroom under each limit."""
        found = self._gives_back.get(pod.shape)
        if found is None:
            found = self._gives_back[pod.shape] = tuple(
                amount for plugin in self._sums for amount in plugin.gives_back(self.shape, pod.shape)
            )
        return found

    def kinds(self, pods: list[RowPod]) -> list[Hashable]:
        """Return for each pod what `gives_back` depends on."""
        return [pod.shape for pod in pods]


class _WhatIf:
    """A row without some of its pods: does the shape fit? Counters change while it is open; `close` restores them exactly."""

    def __init__(self, asking: Asking, row: int) -> None:
        self._asking = asking
        self._row = row
        self._left = asking.room(row)
        self._versions = [(counter, counter.version) for counter in asking.nodes.counters]
        self._gone: dict[PodKey, RowPod] = {}
        self._refused: bool | None = None
        """The last results of the other filters; None if what they look at has changed since."""

    def take(self, pod: RowPod) -> None:
        """Take a pod away."""
        self._gone[pod.key] = pod
        self._add(pod, 1)
        for counter in self._asking.nodes.counters_of(pod.shape):
            counter.uncount(self._row, pod.key, pod.counted)
            self._refused = None

    def put_back(self, pod: RowPod) -> None:
        """Put back a pod that was taken away."""
        del self._gone[pod.key]
        self._add(pod, -1)
        for counter in self._asking.nodes.counters_of(pod.shape):
            counter.count(self._row, pod.key, pod.counted)
            self._refused = None

    def _add(self, pod: RowPod, sign: int) -> None:
        left = self._left
        for index, amount in enumerate(self._asking.gives_back(pod)):
            left[index] += amount * sign

    def fits(self) -> bool:
        """Return whether the shape fits now."""
        if min(self._left, default=0) < 0:
            return False
        if self._refused is None:
            self._refused = any(refuses(self._row) for refuses in self._asking.others)
        return not self._refused

    def close(self) -> None:
        """Put all pods back."""
        for pod in list(self._gone.values()):
            self.put_back(pod)
        for counter, version in self._versions:
            counter.version = version


class Trial(Protocol):
    """A row from which pods are taken away, and to which they are put back."""

    def take(self, pod: RowPod) -> None:
        """Take a pod away."""

    def put_back(self, pod: RowPod) -> None:
        """Put back a pod that was taken away."""

    def fits(self) -> bool:
        """Return whether the shape fits now."""

    def close(self) -> None:
        """Put all pods back."""


def victims(asking: Asking, row: int, ending: list[RowPod], order: list[RowPod]) -> list[int] | None:
    """Return which pods of an order cannot stay beside the shape, given that those that are `ending` leave: as few as the order
    allows, keeping its first ones first. None if the shape does not fit without all of them."""
    if asking.others:
        return fewest(_WhatIf(asking, row), ending, order)
    room = asking.room(row)
    question = (*room, len(order), *asking.kinds(order), *asking.kinds(ending))
    answers = asking.answers
    if question not in answers:
        taken = [asking.gives_back(pod) for pod in (*order, *ending)]
        answers[question] = _victims_by_amount(room, taken, len(order))
    return answers[question]


def fewest(what_if: Trial, ending: list[RowPod], order: list[RowPod]) -> list[int] | None:
    """Return which pods of an order cannot be put back, None if the shape does not fit without all of them; close the trial.
    """
    try:
        for pod in (*ending, *order):
            what_if.take(pod)
        if not what_if.fits():
            return None
        victims = []
        for index, pod in enumerate(order):
            what_if.put_back(pod)
            if not what_if.fits():
                what_if.take(pod)
                victims.append(index)
        return victims
    finally:
        what_if.close()


def _victims_by_amount(left: list[int], amounts: list[tuple[int, ...]], count: int) -> list[int] | None:
    """Return which of the first `count` pods cannot be put back, where only amounts matter; None if it does not fit without
    all of them."""
    if not amounts:
        return None
    free = [room + sum(freed) for room, freed in zip(left, zip(*amounts, strict=True), strict=True)]
    if min(free) < 0:
        return None
    victims: list[int] = []
    index = 0
    for wanted, run in groupby(amounts[:count]):
        # Of pods that take the same, the first ones stay as far as there is headroom; the others cannot.
        size = len(list(run))
        stay = min((room // amount for room, amount in zip(free, wanted, strict=True) if amount > 0), default=size)
        if stay < size:
            victims.extend(range(index + stay, index + size))
        stay = min(stay, size)
        free = [room - amount * stay for room, amount in zip(free, wanted, strict=True)]
        index += size
    return victims
