"""An offer over time, by the formulas that the calculator runs.

In: a `MachineLoads`, an `OfferRule`, its forecasts. Out: each machine's published offer at each step.

There is a decision at each report (60 s), and for each pod that comes or goes:

    usage, maxUsageRequest   `formulas.batch.reclaimable`; where there is a forecast, what is known to be used counts at least
                             as much as the forecast, plus the requests of pods that have not been reported yet
    request                  the same formula; for CPU a strategy cannot choose it (it means usage there), it is shown to
                             compare
    mid                      `formulas.mid.calculate_mid`, with prod's reclaimable requests as predicted
    threshold                60 %, Koordinator's default, or `formulas.risk_budget` with the histories of all machines

It is published if it differs from the published one by more than 10 %, or after 300 s (`formulas.synchronise`, both the
defaults). CPU only: the trace says nothing of memory.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, margin_of
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchStrategy,
    CalculatePolicy,
    HighPriorityNeed,
    at_least,
    reclaimable,
)
from cotenant_batch_resource_calculator.formulas.evaluation import (
    DEFAULT_CPU_RECLAIM_PERCENT,
    DEFAULT_DIFF_THRESHOLD,
    DEFAULT_UPDATE_SECONDS,
)
from cotenant_batch_resource_calculator.formulas.mid import MidStrategy, calculate_mid
from cotenant_batch_resource_calculator.formulas.risk_budget import (
    RiskHistory,
    RiskPool,
    choose_margin,
    observed,
    pooled,
    threshold_of,
    unit_of,
)
from cotenant_batch_resource_calculator.formulas.synchronise import differs
from cotenant_verification.simulate.usage.forecasts import NONE, REPORT_SECONDS, Forecasts
from cotenant_verification.simulate.usage.load import REPORT_STEPS, MachineLoads
from cotenant_verification.simulate.usage.rates import STEP_SECONDS, Floats

MID = "mid"
POLICIES = (*(policy.value for policy in CalculatePolicy), MID)
_UPDATE_STEPS = DEFAULT_UPDATE_SECONDS // STEP_SECONDS


class OfferRule(msgspec.Struct, frozen=True):
    """How an offer is decided. `budget` None: the threshold is `percent`."""

    policy: str = CalculatePolicy.USAGE.value
    prediction: str = NONE
    budget: RiskBudget | None = None
    percent: int = DEFAULT_CPU_RECLAIM_PERCENT


UPSTREAM = OfferRule()
"""Koordinator's default: policy usage, reclaim threshold 60 %, no prediction."""


class MachineOffers(msgspec.Struct, frozen=True):
    """(machines, steps) in milli-CPUs. `thresholds`: in percent, the mean over machines of each report."""

    offered: Floats
    thresholds: Floats


class _Standing:
    """A machine's published offer, and its basis."""

    __slots__ = ("assumed", "at", "history", "offered")

    def __init__(self) -> None:
        self.offered: int | None = None
        self.at = -1
        self.assumed = 0
        self.history = RiskHistory()


def offer_of(load: MachineLoads, plan: OfferRule, forecasts: Forecasts, begin: float) -> MachineOffers:
    """The offer of each machine at each step."""
    machines, steps = load.real.shape
    offered = np.zeros((machines, steps))
    thresholds = np.zeros(load.minutes.shape[1])
    standings = [_Standing() for _ in range(machines)]
    came_or_went = np.diff(load.request, axis=1, prepend=0.0) != 0
    pool = RiskPool()
    hour = -1
    for step in range(steps):
        report = step // REPORT_STEPS
        if step % REPORT_STEPS:
            deciding = np.flatnonzero(came_or_went[:, step]).tolist()
        else:
            deciding = list(range(machines))
            if plan.budget is not None and report:
                _observe(load, standings, report, begin)
                now = int(begin + report * REPORT_SECONDS - 1) // 3600
                if now != hour:
                    hour, pool = now, pooled(standing.history for standing in standings)
        for machine in deciding:
            percent, amount, assumed = _decide(load, plan, forecasts, pool, machine, step)
            standing = standings[machine]
            thresholds[report] += percent / machines if step % REPORT_STEPS == 0 else 0.0
            old = standing.offered
            late = old != amount and step - standing.at > _UPDATE_STEPS
            if differs(old, amount, DEFAULT_DIFF_THRESHOLD) or late:
                offered[machine, max(standing.at, 0) : step] = old or 0
                standing.offered, standing.at, standing.assumed = amount, step, assumed
    for machine, standing in enumerate(standings):
        offered[machine, max(standing.at, 0) :] = standing.offered or 0
    return MachineOffers(offered, thresholds)


def _observe(load: MachineLoads, standings: list[_Standing], report: int, begin: float) -> None:
    seconds = int(begin + report * REPORT_SECONDS - 1)
    for machine, standing in enumerate(standings):
        needed = math.ceil(load.minutes[machine, report - 1]) - standing.assumed
        unit = unit_of(int(load.capacities[machine]), int(load.request[machine, report * REPORT_STEPS - 1]))
        standing.history = observed(standing.history, seconds, needed, unit)


def _decide(
    load: MachineLoads, plan: OfferRule, forecasts: Forecasts, pool: RiskPool, machine: int, step: int
) -> tuple[int, int, int]:
    """Return the threshold in percent, the amount, and the assumed usage of services."""
    capacity = int(load.capacities[machine])
    request = int(load.request[machine, step])
    used = math.ceil(load.used[machine, step])
    forecast = float(forecasts.peaks[machine, step // REPORT_STEPS])
    largest = math.ceil(load.max_used_request[machine, step])
    system = Amounts(int(load.system[machine]))
    if plan.policy == MID:
        mid = calculate_mid(
            capacity=Amounts(capacity),
            node_usage=Amounts(used) + system,
            prod_reclaimable=Amounts(int(forecasts.reclaimable[machine, step // REPORT_STEPS])),
            system_used=system,
            node_reserved=ZERO,
            prod_request=Amounts(request),
            strategy=MidStrategy(),
        )
        return 100, mid.mid.cpu, used
    need = HighPriorityNeed(Amounts(request), Amounts(used), Amounts(largest))
    if math.isfinite(forecast):
        need = at_least(need, int(forecast) + int(load.assumed[machine, step]))
    percent = plan.percent
    if plan.budget is not None:
        margin = choose_margin(plan.budget, pool).permille
        percent = threshold_of(plan.budget, margin, capacity, unit_of(capacity, request))
    amounts = reclaimable(
        Amounts(capacity),
        margin_of(Amounts(capacity), percent, 0),
        system,
        ZERO,
        need,
        BatchStrategy(percent, 0, CalculatePolicy(plan.policy)),
    )
    assumed = {CalculatePolicy.REQUEST: need.request, CalculatePolicy.MAX_USAGE_REQUEST: need.max_used_request}.get(
        CalculatePolicy(plan.policy), need.used
    )
    return percent, amounts.cpu, assumed.cpu
