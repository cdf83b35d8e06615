"""The table: every policy and prediction on one load, with offers and risks.

In: rates, machines and pods, a seed. Out: a `BudgetTable` for each u. The first half of the trace is for choosing, the second
one for judging:

    upstream   Koordinator's default (`offers.UPSTREAM`)
    chosen     policy usage with the forecast by time of day and a risk budget of 2, 5 or 10 thousandths: of those that broke no
               more node-hours of the first half than upstream the one that offered most there; 20 thousandths are shown, not
               chosen
    ratio      what the chosen one offered in the second half, by what upstream offered there

The threshold of a risk budget follows from history so far, also during the second half; nothing depends on the
ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.formulas.batch import CalculatePolicy
from cotenant_metrics_ingest.prediction.forecast_choice import Accuracy
from cotenant_verification.simulate.usage.figures import OfferFigures, figures_of
from cotenant_verification.simulate.usage.forecasts import HISTOGRAM, NONE, PREDICTIONS, SEASON, forecasts_of
from cotenant_verification.simulate.usage.load import MachineLoads, load_of
from cotenant_verification.simulate.usage.offers import MID, UPSTREAM, MachineOffers, OfferRule, offer_of
from cotenant_verification.simulate.usage.population import Population
from cotenant_verification.simulate.usage.rates import Floats, Rates

UTILISATIONS = (0.3, 0.5, 0.7)
BUDGETS_PERMILLE = (2, 5, 10, 20)
LARGEST_BUDGET_PERMILLE = 10
USAGE, REQUEST, LARGER = (policy.value for policy in CalculatePolicy)

PLANS: tuple[OfferRule, ...] = (
    UPSTREAM,
    OfferRule(REQUEST),
    OfferRule(LARGER),
    *(OfferRule(MID, prediction) for prediction in PREDICTIONS),
    OfferRule(USAGE, HISTOGRAM),
    OfferRule(USAGE, SEASON),
    *(OfferRule(USAGE, prediction, RiskBudget(broken_permille=LARGEST_BUDGET_PERMILLE)) for prediction in (NONE, HISTOGRAM)),
    *(OfferRule(USAGE, SEASON, RiskBudget(broken_permille=permille)) for permille in BUDGETS_PERMILLE),
)


class Row(msgspec.Struct, frozen=True):
    """One plan: figures of both halves."""

    plan: OfferRule
    first: OfferFigures
    second: OfferFigures
    threshold_percent: float
    """The mean of the second half."""


class BudgetTable(msgspec.Struct, frozen=True):
    """All rows at one u. `chosen`: the index of the chosen one. `seasonal`: how many machines use the forecast by time of day
    at the end; costs are means over machines, in milli-CPUs. `course`: percent of the capacity of all machines at each step:
    services, offered by upstream, offered by the chosen plan."""

    u: float
    rows: tuple[Row, ...]
    chosen: int
    seasonal: int
    season_cost: int
    histogram_cost: int
    course: tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]

    @property
    def ratio(self) -> float:
        """What the chosen plan offers, divided by what upstream's default offers."""
        upstream = self.rows[0].second.lent_core_hours
        return self.rows[self.chosen].second.lent_core_hours / upstream if upstream else 0.0

    @property
    def ratio_of_all(self) -> float:
        """The same of both halves together, the hours in which the budget had nothing to go by included."""
        upstream, chosen = (
            row.first.lent_core_hours + row.second.lent_core_hours for row in (self.rows[0], self.rows[self.chosen])
        )
        return chosen / upstream if upstream else 0.0

    @property
    def holds(self) -> bool:
        """Whether the chosen plan broke no more node-hours than upstream's default."""
        return self.rows[self.chosen].second.broken_node_hours <= self.rows[0].second.broken_node_hours


def run_usage(
    rates: Rates,
    population: Population,
    seed: int,
    progress: Callable[[float], None] = lambda _: None,
    utilisations: Sequence[float] = UTILISATIONS,
    plans: Sequence[OfferRule] = PLANS,
) -> list[BudgetTable]:
    """The tables, by u; `progress` gets the completed fraction. The first plan must be upstream's."""
    tables = []
    predictions = [prediction for prediction in PREDICTIONS if any(plan.prediction == prediction for plan in plans)]
    total = len(utilisations) * (len(plans) + len(predictions))
    done = 0
    for u in utilisations:
        load = load_of(rates, population, u, seed)
        forecasts = {}
        for prediction in predictions:
            mid = any((plan.policy, plan.prediction) == (MID, prediction) for plan in plans)
            forecasts[prediction] = forecasts_of(load, prediction, rates.begin, mid=mid)
            done += 1
            progress(done / total)
        middle = load.steps // 2
        rows: list[Row] = []
        offers: list[MachineOffers] = []
        for plan in plans:
            offer = offer_of(load, plan, forecasts[plan.prediction], rates.begin)
            thresholds = offer.thresholds[len(offer.thresholds) // 2 :]
            first, second = figures_of(load, offer, 0, middle), figures_of(load, offer, middle, load.steps)
            rows.append(Row(plan, first, second, float(thresholds.mean())))
            offers.append(offer)
            done += 1
            progress(done / total)
        chosen = choose(rows)
        tables.append(_table(u, load, rows, offers, chosen, forecasts[SEASON].accuracy if SEASON in forecasts else ()))
    return tables


def choose(rows: Sequence[Row]) -> int:
    """The row of a risk budget and the forecast by time of day that offered most in the first half without breaking more of it
    than the first row; the one with the smallest budget where all break more."""
    candidates = [place for place, row in enumerate(rows) if _is_candidate(row.plan)]
    if not candidates:
        return 0
    allowed = rows[0].first.broken_node_hours
    within = [place for place in candidates if rows[place].first.broken_node_hours <= allowed]
    return max(within, key=lambda place: (rows[place].first.lent_core_hours, -place)) if within else candidates[0]


def _is_candidate(plan: OfferRule) -> bool:
    return plan.budget is not None and plan.budget.broken_permille <= LARGEST_BUDGET_PERMILLE and plan.prediction == SEASON


def _table(
    u: float, load: MachineLoads, rows: list[Row], offers: list[MachineOffers], chosen: int, accuracy: tuple[Accuracy, ...]
) -> BudgetTable:
    room = float(load.capacities.sum()) / 100
    machines = max(len(accuracy), 1)
    return BudgetTable(
        u=u,
        rows=tuple(rows),
        chosen=chosen,
        seasonal=sum(each.by_season for each in accuracy),
        season_cost=sum(each.season_cost for each in accuracy) // machines,
        histogram_cost=sum(each.histogram_cost for each in accuracy) // machines,
        course=(_percent(load.real, room), _percent(offers[0].offered, room), _percent(offers[chosen].offered, room)),
    )


def _percent(amounts: Floats, room: float) -> tuple[float, ...]:
    """For each step, the sum over all machines, in percent of their capacity (`room`: a hundredth of it)."""
    found: list[float] = (amounts.sum(axis=0) / room).tolist()
    return tuple(found)
