"""The goals of a case, and those that a measurement missed.

In: a case, a class, figures. Out: a line for each missed goal. `over_alone`, `over_ideal`: the largest ratio of p99 to that
of the service alone, and to that of the ideal queue; `busy`: the least share of all CPUs that is used meanwhile.
"""

from __future__ import annotations

from msgspec import Struct


class Goal(Struct, frozen=True):
    """None: no goal."""

    over_alone: float | None = None
    over_ideal: float | None = None
    busy: float | None = None


BURNERS = {
    "fair": Goal(over_alone=1.05, over_ideal=1.10, busy=0.95),
    "realtime": Goal(over_ideal=1.05, busy=0.99),
}
CROWDED = Goal(over_alone=1.15, busy=0.95)
SHARED = Goal(over_alone=1.25)
_OF_CASE = {"cpu": BURNERS, "step": BURNERS}
_CROWDED = ("threads", "load60", "pods50", "fork")


def goal_of(case: str, protection: str) -> Goal:
    """The goal of a case in a class."""
    if case in _OF_CASE:
        return _OF_CASE[case][protection]
    return CROWDED if case in _CROWDED else SHARED


def missed(goal: Goal, over_alone: float | None, over_ideal: float | None, busy: float | None) -> tuple[str, ...]:
    """The missed goals; a missing figure counts as missed."""
    found: list[str] = []
    for most, value, name in ((goal.over_alone, over_alone, "that alone"), (goal.over_ideal, over_ideal, "the ideal queue's")):
        if most is not None and (value is None or value > most):
            found.append(f"p99 is {'unknown' if value is None else f'{value:.2f}'} x {name}, the goal is at most {most:.2f}")
    if goal.busy is not None and (busy is None or busy < goal.busy):
        text = "unknown" if busy is None else f"{100 * busy:.0f} %"
        found.append(f"{text} of all CPUs were used, the goal is at least {100 * goal.busy:.0f} %")
    return tuple(found)
