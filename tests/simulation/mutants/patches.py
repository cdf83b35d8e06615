"""Deliberate defects: a small change of behaviour that a promise must notice.

In: a name, what is replaced by what, the promises that may notice it, the seeds within which one must. Out: a Mutant that
is in force inside `with mutant.at_work():`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cotenant_verification.workload.schedule import ScheduleEntry

Replacement = tuple[object, str, Callable[..., object]]
"""Owner, attribute, and a function that is given the present one and returns the defect."""


@dataclass(frozen=True)
class Mutant:
    """A defect. `caught_by`: numbers of promises; `seeds`: at least one of them must show it."""

    name: str
    changes: tuple[Replacement, ...]
    caught_by: tuple[int, ...]
    seeds: tuple[int, ...] = (1, 2, 3)
    minutes: int = 4
    nodes: int = 3
    faults: tuple[ScheduleEntry, ...] = ()
    """Beside those of the seed."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Put the defect in force, and take it out again."""
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in self.changes]
        try:
            for owner, name, change in self.changes:
                setattr(owner, name, change(getattr(owner, name)))
            yield
        finally:
            for owner, name, present in before:
                setattr(owner, name, present)
