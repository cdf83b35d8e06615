"""The tables of `cotenant simulate --usage` as text, or as JSON.

In: tables, the rates and the population. Out: lines with a table and a chart for each u, and the ratio; or a document whose
keys are sorted, so that equal runs give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant_console.api.client import Document, Json
from cotenant_verification.simulate.chart import BLOCKS, axis_top, column_means, span
from cotenant_verification.simulate.usage.figures import OfferFigures
from cotenant_verification.simulate.usage.population import Population
from cotenant_verification.simulate.usage.rates import STEP_SECONDS, Rates
from cotenant_verification.simulate.usage.runs import BudgetTable, Row

GOAL = 1.25
_CHART_HEIGHT = 5
_TITLES = ("services use", "offered by upstream's default", "offered by the chosen plan")
_HEAD = (
    f"  {'policy':15} {'prediction':11} {'threshold':>11} {'offered':>9} {'':>6} {'ratio':>6} {'used':>9} {'taken back':>16}"
    f" {'broken':>8} {'half 1: offered':>15} {'broken':>8}"
)
_UNITS = (
    f"  {'':15} {'':11} {'':>11} {'core-h':>9} {'%':>6} {'':>6} {'core-h':>9} {'a node-hour, by':>16}"
    f" {'%':>8} {'%':>15} {'%':>8}"
)


def usage_lines(tables: Sequence[BudgetTable], rates: Rates, population: Population, width: int) -> list[str]:
    """The result for a terminal."""
    capacity = int(population.capacities.sum()) / 1000
    lines = [
        f"{len(population.capacities)} machines, {capacity:.0f} cores; {len(population.pods)} pods of services"
        f" ({population.unplaced} more fitted nowhere) over {span(rates.steps * STEP_SECONDS)},"
        f" load: {', '.join(rates.services)}",
        "Chosen on the first half, evaluated on the second: figures are of the second half unless stated otherwise.",
    ]
    for table in tables:
        lines += ["", f"u = {table.u:g}", _HEAD, _UNITS]
        lines += [_line(row, table.rows[0], place == table.chosen) for place, row in enumerate(table.rows)]
        lines += ["", *_verdict(table), ""]
        for title, points in zip(_TITLES, table.course, strict=True):
            lines += _chart(title, points, max(20, min(width - 12, 100)))
    return lines


def _line(row: Row, upstream: Row, chosen: bool) -> str:
    second, first = row.second, row.first
    ratio = second.lent_core_hours / upstream.second.lent_core_hours if upstream.second.lent_core_hours else 0.0
    budget = row.plan.budget
    threshold = f"{row.threshold_percent:.0f} %"
    if budget is not None:
        threshold = f"{budget.broken_permille / 10:g} %: {threshold}"
    elif row.plan.policy == "mid":
        threshold = ""
    taken = f"{second.taken_back_an_hour:.1f}, {second.taken_back_percent:.1f} %"
    return (
        f"{'*' if chosen else ' '} {row.plan.policy:15} {row.plan.prediction:11} {threshold:>11}"
        f" {second.lent_core_hours:9.0f} {second.lent_percent:6.1f} {ratio:6.2f} {second.used_core_hours:9.0f} {taken:>16}"
        f" {second.broken_percent:8.3f} {first.lent_percent:15.1f} {first.broken_percent:8.3f}"
    )


def _verdict(table: BudgetTable) -> list[str]:
    upstream, chosen = table.rows[0].second, table.rows[table.chosen].second
    reached = "reached" if table.ratio >= GOAL and table.holds else "not reached"
    broke, allowed = (table.rows[place].first.broken_node_hours for place in (table.chosen, 0))
    smallest = (
        f"  No budget broke as little of the first half as upstream's default ({allowed} node-hours): the smallest was chosen"
        f" ({broke})."
    )
    return [
        *([smallest] if broke > allowed else []),
        f"  * offers {table.ratio:.2f} times what upstream's default offers; it broke {chosen.broken_node_hours} of"
        f" {chosen.node_hours} node-hours, upstream's default {upstream.broken_node_hours}: the goal of {GOAL} at the same or a"
        f" lower rate is {reached}.",
        f"  Over the whole trace, first hours without a history included, it offers {table.ratio_of_all:.2f} times as much.",
        f"  Services got less than they had requested and wanted in {_starved(table)} node-hours, under all plans together.",
        f"  By time of day on {table.seasonal} machines at the end; cost of both forecasts there: {table.season_cost}"
        f" and {table.histogram_cost} (histogram) milli-CPUs a machine.",
    ]


def _starved(table: BudgetTable) -> int:
    return sum(row.first.starved_node_hours + row.second.starved_node_hours for row in table.rows)


def _chart(title: str, points: Sequence[float], width: int) -> list[str]:
    means = column_means(list(enumerate(points)), 0.0, float(len(points)), width)
    top = axis_top(max(means, default=0.0))
    lines = [f"  {title}, percent of the capacity"]
    for row in range(_CHART_HEIGHT - 1, -1, -1):
        label = f"{top * (row + 1) / _CHART_HEIGHT:5.0f} %" if row in (_CHART_HEIGHT - 1, 0) else " " * 7
        cells = "".join(BLOCKS[max(0, min(8, round((mean / top * _CHART_HEIGHT - row) * 8)))] for mean in means)
        lines.append(f"{label} |{cells}".rstrip())
    last = span(len(points) * STEP_SECONDS)
    return [*lines, f"{'':7} +{'-' * width}", f"{'':7}  0{last:>{width - 1}}"]


def usage_document(tables: Sequence[BudgetTable], rates: Rates, population: Population, seed: int) -> Document:
    """The result for programs."""
    found: list[Json] = [_table_document(table) for table in tables]
    return {
        "capacityMilli": int(population.capacities.sum()),
        "machines": len(population.capacities),
        "pods": len(population.pods),
        "unplaced": population.unplaced,
        "services": list(rates.services),
        "spanSeconds": rates.steps * STEP_SECONDS,
        "seed": seed,
        "tables": found,
    }


def _table_document(table: BudgetTable) -> Document:
    return {
        "u": table.u,
        "chosen": table.chosen,
        "ratio": round(table.ratio, 4),
        "ratioOfAll": round(table.ratio_of_all, 4),
        "holds": table.holds,
        "seasonalMachines": table.seasonal,
        "seasonCostMilli": table.season_cost,
        "histogramCostMilli": table.histogram_cost,
        "rows": [
            {
                "policy": row.plan.policy,
                "prediction": row.plan.prediction,
                "budgetPermille": row.plan.budget.broken_permille if row.plan.budget is not None else None,
                "thresholdPercent": round(row.threshold_percent, 2),
                "first": _figures_document(row.first),
                "second": _figures_document(row.second),
            }
            for row in table.rows
        ],
    }


def _figures_document(figures: OfferFigures) -> Document:
    return {
        "lentCoreHours": round(figures.lent_core_hours, 2),
        "lentPercent": round(figures.lent_percent, 3),
        "usedCoreHours": round(figures.used_core_hours, 2),
        "withheldCoreHours": round(figures.withheld_core_hours, 3),
        "takenBackPerNodeHour": round(figures.taken_back_an_hour, 3),
        "takenBackPercent": round(figures.taken_back_percent, 3),
        "nodeHours": figures.node_hours,
        "brokenNodeHours": figures.broken_node_hours,
        "starvedNodeHours": figures.starved_node_hours,
    }
