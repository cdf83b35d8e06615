"""The reclaim threshold from a risk budget: which share of node-hours may break, instead of a bare percentage.

In: for each node, report by report, the usage of services and the system that the published offer assumed, and their actual
peak; the budget. Out: the node's cpuReclaimThresholdPercent, with the figures that it follows from. Everything is an
integer and there is no state here: an event carries the `RiskHistory` from one decision to the next.

A node-hour breaks when real use exceeds at any moment the rest beside the offer. That is when the margin was smaller than

    needed    = real use - assumed use                       of one report, in steps of 1/50 of the unit, rounded up
    unit      = requests of the node's services, at least 5 % of its capacity
    worst     = the largest needed margin of a node-hour     (0: the assumption was enough by itself)

A margin relative to services' requests fits full and empty nodes alike, while one relative to capacity is wrong for one of
them. Node-hours of all nodes under one strategy are counted together (`pooled`), as one node has few.

    margin    = the smallest one for which (node-hours above it + 1) / (node-hours + 1) <= budget
                no such one: the worst ever counted and a quarter of it
    threshold = 100 - ceil(100 * margin * unit / capacity)   within the bounds
                before one node has `least_hours` hours: `start_percent`, within the bounds

The + 1 is the rule of succession: an hour worse than all before may come next. It also means that a small fleet starts with its
worst hour. Nodes that serve the same users break in the same hours, so a budget holds over days rather than in each hour.

Bounds: a history has 52 numbers; after 1,024 hours of a node (six weeks) all its counts are halved, rounded up, so that
rare values are not lost first. A clock that is set back continues in the hour it was set to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cotenant_batch_resource_calculator.config.risk import MOST_HOURS, RiskBudget

STEP_PERMILLE = 20
STEPS = 52
"""0, then up to 20, 40, ... 1000 thousandths of the unit; the last: more than that."""
LEAST_UNIT_PERCENT = 5
HOUR_SECONDS = 3600
NO_MARGIN = -1
BEYOND = (STEPS - 1) * STEP_PERMILLE


class RiskHistory(msgspec.Struct, frozen=True):
    """A node's hours. `hour`: the present one, hours since the epoch, -1 before the first; `worst`: its largest step so far;
    `counts`: of past hours, by step; empty before the first ended."""

    hour: int = -1
    worst: int = 0
    counts: tuple[int, ...] = ()


class RiskPool(msgspec.Struct, frozen=True):
    """Hours of many nodes. `hours`: of the node with most."""

    counts: tuple[int, ...] = (0,) * STEPS
    hours: int = 0


class RiskMargin(msgspec.Struct, frozen=True):
    """A margin and its inputs. `permille` of the unit, NO_MARGIN: not enough hours yet, BEYOND or more: more than the
    unit; `above`: how many of `node_hours` needed more."""

    permille: int
    node_hours: int
    above: int


def unit_of(capacity_milli: int, request_milli: int) -> int:
    """The unit of margins."""
    return max(request_milli, capacity_milli * LEAST_UNIT_PERCENT // 100, 1)


def step_of(needed_milli: int, unit_milli: int) -> int:
    """The step of a needed margin."""
    if needed_milli <= 0:
        return 0
    return min(-(-needed_milli * 1000 // (max(unit_milli, 1) * STEP_PERMILLE)), STEPS - 1)


def observed(history: RiskHistory, at_seconds: int, needed_milli: int, unit_milli: int) -> RiskHistory:
    """Return the history after a report: real use exceeded the assumed by `needed_milli` at most."""
    hour, step = at_seconds // HOUR_SECONDS, step_of(needed_milli, unit_milli)
    if history.hour < 0:
        return RiskHistory(hour, step, history.counts)
    if hour == history.hour:
        return history if step <= history.worst else msgspec.structs.replace(history, worst=step)
    counts = list(history.counts) if len(history.counts) == STEPS else [0] * STEPS
    counts[history.worst] += 1
    if sum(counts) >= MOST_HOURS:
        counts = [(count + 1) // 2 for count in counts]
    return RiskHistory(hour, step, tuple(counts))


def pooled(histories: Iterable[RiskHistory]) -> RiskPool:
    """Return the sum of nodes' histories; those of another length than STEPS are ignored."""
    total, hours = [0] * STEPS, 0
    for history in histories:
        if len(history.counts) == STEPS:
            total = [one + other for one, other in zip(total, history.counts, strict=True)]
            hours = max(hours, sum(history.counts))
    return RiskPool(tuple(total), hours)


def margin_step(counts: Sequence[int], broken_permille: int) -> int:
    """Return the smallest margin within the budget, as a step; STEPS - 1 or more: larger than the unit."""
    node_hours = sum(counts)
    above = node_hours
    for step, count in enumerate(counts):
        above -= count
        if (above + 1) * 1000 <= broken_permille * (node_hours + 1):
            return step
    worst = max((step for step, count in enumerate(counts) if count), default=0)
    return worst - (-worst // 4)


def choose_margin(budget: RiskBudget, pool: RiskPool) -> RiskMargin:
    """Return the margin that nodes with these hours need together."""
    node_hours = sum(pool.counts)
    if pool.hours < budget.least_hours:
        return RiskMargin(NO_MARGIN, node_hours, 0)
    step = margin_step(pool.counts, budget.broken_permille)
    return RiskMargin(min(step, STEPS - 1) * STEP_PERMILLE, node_hours, sum(pool.counts[step + 1 :]))


def threshold_of(budget: RiskBudget, margin_permille: int, capacity_milli: int, unit_milli: int) -> int:
    """Return a node's reclaim threshold in percent."""
    if margin_permille <= NO_MARGIN or capacity_milli <= 0:
        return _bounded(budget, budget.start_percent)
    if margin_permille >= BEYOND:
        return budget.lowest_percent
    return _bounded(budget, 100 + (-margin_permille * unit_milli // (10 * capacity_milli)))


def _bounded(budget: RiskBudget, percent: int) -> int:
    return min(max(percent, budget.lowest_percent), budget.highest_percent)
