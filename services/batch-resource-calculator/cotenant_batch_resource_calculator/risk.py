"""A node under a risk budget: the needed margins of its last hours, and the margin from those of all nodes of its group.

In: the node's last event, its newest metric, the budget, the hours of the other nodes. Out: the `NodeRisk` of its event.

    assumed   max(system, node reserve) + services' need by the node's CPU policy, as in the last event; the
              forecast if that is larger
    real      servicesPeak of the metric; if that was not measured the mean usage of services and the system, and as much
              above it as the node's 99th percentile is above the node's mean (batch work that varies counts as services there)
    needed    real - assumed, once for each metric

A metric that the last event was based on, a silent node and a node without an offer add nothing: no offer was tested. The
history is a field of the event and changes it at once when an hour begins or needs a larger margin: a restart continues where
it was.

The margin is chosen when a node's hour begins, or when its budget or group changes, and stays until the next hour: nodes do not
change with each hour of another one. Bound: a group holds STEPS counts, and one figure for each number of hours.
"""

from __future__ import annotations

from collections import Counter

from cotenant.events.node.resources import NodeResources, NodeRisk
from cotenant.model.values import Value
from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.formulas.batch import CalculatePolicy, is_reclaimed
from cotenant_batch_resource_calculator.formulas.risk_budget import (
    BEYOND,
    NO_MARGIN,
    STEPS,
    RiskHistory,
    RiskPool,
    choose_margin,
    observed,
    pooled,
    threshold_of,
    unit_of,
)
from cotenant_batch_resource_calculator.metric_view import ReadMetric
from cotenant_batch_resource_calculator.node_state import NodeSettings, NodeState

_NEEDS = {
    CalculatePolicy.USAGE.value: "high-priority-used",
    CalculatePolicy.REQUEST.value: "high-priority-request",
    CalculatePolicy.MAX_USAGE_REQUEST.value: "high-priority-max-used-request",
}


class _Group:
    """Hours of the nodes of one group. Mutable."""

    __slots__ = ("counts", "hours")

    def __init__(self) -> None:
        self.counts = [0] * STEPS
        self.hours: Counter[int] = Counter()

    def add(self, history: RiskHistory, sign: int) -> None:
        for step, count in enumerate(history.counts):
            self.counts[step] += sign * count
        seen = sum(history.counts)
        self.hours[seen] += sign
        if not self.hours[seen]:
            del self.hours[seen]


class RiskPools:
    """The hours of all nodes by group, from their last events."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}

    def replace(self, old: NodeRisk | None, new: NodeRisk | None) -> None:
        """Replace a node's last event by its new one."""
        if old is not None and new is not None and (old.group, old.counts) == (new.group, new.counts):
            return
        if old is not None and old.counts:
            self._groups[old.group].add(history_of(old), -1)
            if not self._groups[old.group].hours:
                del self._groups[old.group]
        if new is not None and new.counts:
            self._groups.setdefault(new.group, _Group()).add(history_of(new), 1)

    def pool(self, group: str, last: NodeRisk | None, own: RiskHistory) -> RiskPool:
        """Return a group's hours, with a node's own history instead of that in its last event."""
        found = self._groups.get(group)
        if found is None:
            return pooled([own])
        counts, hours = list(found.counts), Counter(found.hours)
        known = history_of(last) if last is not None and last.group == group else RiskHistory()
        for history, sign in ((known, -1), (own, 1)):
            if history.counts:
                counts = [count + sign * more for count, more in zip(counts, history.counts, strict=True)]
                hours[sum(history.counts)] += sign
        return RiskPool(tuple(counts), max((seen for seen, nodes in hours.items() if nodes > 0), default=0))


class Risk(Value, frozen=True):
    """The risk part of the node's event; whether its margin is chosen now. `assumed_milli`, `real_milli`: of the observation;
    None: nothing was observed."""

    data: NodeRisk
    chooses: bool = False
    assumed_milli: int | None = None
    real_milli: int | None = None


def history_of(risk: NodeRisk) -> RiskHistory:
    """Return the history that an event carries; counts of another number of steps are ignored."""
    counts = risk.counts if len(risk.counts) <= STEPS else ()
    padded = (*counts, *(0,) * (STEPS - len(counts))) if counts else ()
    return RiskHistory(risk.hour, min(risk.worst, STEPS - 1), padded)


def risk_of(state: NodeState, situation: NodeSettings, pools: RiskPools, capacity_milli: int, *, offers: bool) -> Risk | None:
    """Return the node's part in its budget, None without one. `offers`: the formula applies, so an offer is tested."""
    budget = situation.budget
    if budget is None:
        return None
    published = state.published
    last = published.risk if published is not None else None
    history = before = history_of(last) if last is not None else RiskHistory()
    demand = state.demand()
    unit = unit_of(capacity_milli, demand.need.request.cpu if demand is not None else 0)
    assumed = real = None
    if offers and published is not None and state.metric is not None and state.metric.update_time is not None:
        if published.update_time != state.metric.update_time:
            assumed, real = assumed_milli(published), services_milli(state.metric)
        if assumed is not None and real is not None:
            history = observed(history, int(state.metric.update_time.timestamp()), real - assumed, unit)
    chooses = last is None or before.hour != history.hour or _budget_of(last) != budget or last.group != situation.group
    if chooses or last is None:
        margin = choose_margin(budget, pools.pool(situation.group, last, history))
        chosen = (margin.permille, margin.node_hours, margin.above)
    else:
        chosen = (last.margin_permille, last.node_hours, last.above)
    counts = list(history.counts)
    while counts and not counts[-1]:
        counts.pop()
    data = NodeRisk(
        group=situation.group,
        broken_permille=budget.broken_permille,
        lowest_percent=budget.lowest_percent,
        highest_percent=budget.highest_percent,
        start_percent=budget.start_percent,
        least_hours=budget.least_hours,
        hour=history.hour,
        worst=history.worst,
        counts=tuple(counts),
        margin_permille=chosen[0],
        node_hours=chosen[1],
        above=chosen[2],
        percent=threshold_of(budget, chosen[0], capacity_milli, unit),
    )
    return Risk(data, chooses, assumed, real)


def budget_text(risk: NodeRisk) -> str:
    """Return a budget's effect on a node as text."""
    budget = f"risk budget of {risk.broken_permille / 10:g} % of node-hours"
    whose = f" of {risk.group}" if risk.group else ""
    if risk.margin_permille <= NO_MARGIN:
        return (
            f"{budget}: no node{whose} has seen {risk.least_hours} hours yet,"
            f" so the reclaim threshold is {risk.percent} %, as configured within the bounds"
        )
    margin = f"{risk.margin_permille / 10:g} %" if risk.margin_permille < BEYOND else "more than all"
    return (
        f"{budget}: margin {margin} of what services request, which {risk.above} of {risk.node_hours} node-hours{whose}"
        f" exceeded, so the reclaim threshold is {risk.percent} %"
    )


def assumed_milli(published: NodeResources) -> int | None:
    """Return the CPU that a published offer left to services and the system by its terms; None if nothing was offered."""
    if published.withdrawn:
        return None
    cpu = {term.name: term.cpu_milli for term in published.terms}
    need = _NEEDS.get(published.cpu_policy, "")
    if not {"system-used", "node-reserved", need} <= cpu.keys():
        return None
    return max(max(cpu["system-used"], cpu["node-reserved"]) + cpu[need], cpu.get("forecast-need", 0))


def source_of(published: NodeResources | None, term: str) -> str:
    """Return the event that a term of a published offer came from; empty without such a term."""
    terms = published.terms if published is not None else ()
    return next((found.source for found in terms if found.name == term), "")


def services_milli(metric: ReadMetric) -> int | None:
    """Return the CPU that services and the system have used at most; None where the node's use was not measured."""
    if metric.services_peak is not None:
        return metric.services_peak.cpu_milli
    if not metric.node_usage.cpu_milli and not metric.node_usage.memory_bytes:
        return None
    mean = metric.system_usage.cpu_milli
    mean += sum(pod.usage.cpu_milli for pod in metric.pods if not is_reclaimed(pod.priority))
    mean += sum(host.usage.cpu_milli for host in metric.host_applications if not is_reclaimed(host.priority))
    shortest = min(metric.aggregated_node_usages, key=lambda window: window.duration_seconds, default=None)
    return mean if shortest is None else mean + max(shortest.p99.cpu_milli - shortest.avg.cpu_milli, 0)


def _budget_of(risk: NodeRisk) -> RiskBudget | None:
    try:
        return RiskBudget(
            risk.broken_permille, risk.lowest_percent, risk.highest_percent, risk.start_percent, risk.least_hours
        )
    except ValueError:
        return None
