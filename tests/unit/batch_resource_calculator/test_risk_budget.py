"""The reclaim threshold from a risk budget: what node-hours have needed, and what a budget makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_batch_resource_calculator.config.risk import MOST_HOURS, RiskBudget
from cotenant_batch_resource_calculator.formulas.risk_budget import (
    BEYOND,
    HOUR_SECONDS,
    NO_MARGIN,
    STEP_PERMILLE,
    STEPS,
    RiskHistory,
    RiskPool,
    choose_margin,
    margin_step,
    observed,
    pooled,
    step_of,
    threshold_of,
    unit_of,
)

UNIT = 10_000
CAPACITY = 20_000


def history_of(*needed_by_hour: int) -> RiskHistory:
    """A node whose hours needed these margins; the last hour has only begun."""
    history = RiskHistory()
    for hour, needed in enumerate((*needed_by_hour, 0)):
        history = observed(history, hour * HOUR_SECONDS, needed, UNIT)
    return history


def percent_of(budget: RiskBudget, pool: RiskPool, capacity: int, unit: int) -> int:
    return threshold_of(budget, choose_margin(budget, pool).permille, capacity, unit)


def test_steps_are_rounded_up_so_that_a_margin_covers_what_was_needed() -> None:
    assert [step_of(needed, UNIT) for needed in (-5, 0, 1, 200, 201, 10_000, 10_001, 99_999)] == [0, 0, 1, 1, 2, 50, 51, 51]


def test_an_hour_counts_with_its_worst_report() -> None:
    history = RiskHistory()
    for seconds, needed in ((0, 100), (60, 900), (120, 50), (HOUR_SECONDS, 0)):
        history = observed(history, seconds, needed, UNIT)
    assert [step for step, count in enumerate(history.counts) if count] == [step_of(900, UNIT)]


def test_hours_without_reports_are_no_hours() -> None:
    history = observed(observed(RiskHistory(), 0, 100, UNIT), 50 * HOUR_SECONDS, 0, UNIT)
    assert sum(history.counts) == 1


def test_a_clock_that_is_put_back_goes_on_in_the_hour_it_was_put_to() -> None:
    history = observed(observed(RiskHistory(), 10 * HOUR_SECONDS, 100, UNIT), 3 * HOUR_SECONDS, 0, UNIT)
    assert (history.hour, sum(history.counts)) == (3, 1)


def test_before_enough_hours_the_threshold_is_the_one_to_start_with() -> None:
    budget = RiskBudget(least_hours=6)
    pool = pooled([history_of(*[0] * 5)] * 100)
    assert (percent_of(budget, pool, CAPACITY, UNIT), choose_margin(budget, pool).permille) == (60, NO_MARGIN)


def test_hours_that_needed_nothing_allow_the_highest_threshold() -> None:
    assert percent_of(RiskBudget(), pooled([history_of(*[0] * 10)] * 20), CAPACITY, UNIT) == 95


def test_a_budget_of_one_percent_leaves_out_the_worst_of_two_hundred() -> None:
    quiet, bad = history_of(*[1000] * 10), history_of(*[1000] * 9, 5000)
    pool = pooled([*[quiet] * 19, bad])
    budget = RiskBudget(broken_permille=10)
    choice = choose_margin(budget, pool)
    assert (choice.permille, choice.above, choice.node_hours) == (100, 1, 200)
    assert (percent_of(budget, pool, CAPACITY, UNIT), percent_of(budget, pool, UNIT, UNIT)) == (95, 90)


def test_too_few_hours_for_the_budget_need_the_worst_and_a_quarter() -> None:
    pool = pooled([history_of(*[0] * 9, 2000)])
    assert choose_margin(RiskBudget(broken_permille=10), pool).permille == 260


@pytest.mark.parametrize(("node_hours", "step"), [(98, 5), (99, 4)])
def test_one_percent_is_kept_from_99_hours_on_as_the_next_one_may_be_worse(node_hours: int, step: int) -> None:
    """(0 + 1) / (99 + 1) is 1 %, (0 + 1) / (98 + 1) is more: the worst step, 4, and a quarter of it."""
    assert margin_step([0, 0, 0, 0, node_hours], 10) == step


def test_hours_beyond_the_unit_leave_the_lowest_threshold() -> None:
    pool = pooled([history_of(*[20_000] * 10)])
    assert (percent_of(RiskBudget(), pool, CAPACITY, UNIT), choose_margin(RiskBudget(), pool).permille) == (40, BEYOND)


def test_an_empty_machine_is_measured_by_a_part_of_its_capacity() -> None:
    assert unit_of(100_000, 0) == 5000
    assert unit_of(100_000, 80_000) == 80_000
    assert unit_of(0, 0) == 1


def test_a_machine_without_capacity_gets_the_threshold_to_start_with() -> None:
    assert percent_of(RiskBudget(), pooled([history_of(*[0] * 10)]), 0, 1) == 60


def test_a_history_of_another_length_counts_nothing() -> None:
    assert pooled([RiskHistory(counts=(1, 2, 3))]) == RiskPool()
    assert sum(observed(RiskHistory(0, 0, (1, 2, 3)), HOUR_SECONDS, 0, UNIT).counts) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"broken_permille": -1},
        {"broken_permille": 1001},
        {"lowest_percent": 90, "highest_percent": 80},
        {"highest_percent": 101},
        {"least_hours": 0},
    ],
)
def test_a_budget_that_cannot_be_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RiskBudget(**fields)


counts = st.lists(st.integers(0, 40), min_size=STEPS, max_size=STEPS)


@given(counts, st.integers(0, 1000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_threshold_is_within_its_bounds(of: list[int], permille: int, capacity: int, request: int) -> None:
    budget = RiskBudget(broken_permille=permille)
    pool = RiskPool(tuple(of), 100)
    percent = percent_of(budget, pool, capacity, unit_of(capacity, request))
    assert budget.lowest_percent <= percent <= budget.highest_percent


@given(counts, st.integers(0, 1000), st.integers(0, 1000))
def test_a_larger_budget_never_asks_for_a_larger_margin(of: list[int], one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert margin_step(of, large) <= margin_step(of, small)


@given(counts, st.integers(0, 1000), st.integers(0, STEPS - 1), st.integers(0, STEPS - 1), st.integers(0, 10**6))
def test_an_hour_that_needed_less_never_makes_a_node_lend_less(
    of: list[int], permille: int, one: int, other: int, request: int
) -> None:
    less, more = sorted((one, other))
    better, worse = list(of), list(of)
    better[less] += 1
    worse[more] += 1
    budget, unit = RiskBudget(broken_permille=permille), unit_of(CAPACITY, request)
    pools = [RiskPool(tuple(each), 100) for each in (better, worse)]
    lent = [percent_of(budget, pool, CAPACITY, unit) for pool in pools]
    assert lent[0] >= lent[1]


@given(counts, st.integers(0, 1000), st.integers(0, STEPS - 1), st.integers(0, 10**6))
def test_without_its_worst_hour_a_node_never_lends_less(of: list[int], permille: int, worst: int, request: int) -> None:
    with_it = list(of)
    with_it[max(worst, max((step for step, count in enumerate(of) if count), default=0))] += 1
    budget, unit = RiskBudget(broken_permille=permille), unit_of(CAPACITY, request)
    lent = [percent_of(budget, RiskPool(tuple(each), 100), CAPACITY, unit) for each in (of, with_it)]
    assert lent[0] >= lent[1]


@given(counts, st.integers(0, 1000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_services_that_request_more_never_make_a_node_lend_more(of: list[int], permille: int, one: int, other: int) -> None:
    budget, pool = RiskBudget(broken_permille=permille), RiskPool(tuple(of), 100)
    small, large = (unit_of(CAPACITY, request) for request in sorted((one, other)))
    assert percent_of(budget, pool, CAPACITY, large) <= percent_of(budget, pool, CAPACITY, small)


@given(counts, st.integers(1, 1000))
def test_the_margin_keeps_the_budget_on_what_was_seen(of: list[int], permille: int) -> None:
    step = margin_step(of, permille)
    assert sum(of[step + 1 :]) * 1000 <= permille * (sum(of) + 1)


@given(st.lists(st.integers(-(10**6), 10**6), max_size=100))
def test_the_margin_of_one_hour_covers_each_report_in_it(needed: list[int]) -> None:
    history = RiskHistory()
    for place, each in enumerate(needed):
        history = observed(history, place % HOUR_SECONDS, each, UNIT)
    margin = history.worst * STEP_PERMILLE * UNIT // 1000
    assert all(each <= margin for each in needed) or history.worst == STEPS - 1


def test_a_history_is_bounded_and_what_is_rare_is_not_forgotten_first() -> None:
    history = history_of(9000, *[0] * (3 * MOST_HOURS))
    assert sum(history.counts) < MOST_HOURS
    assert history.counts[step_of(9000, UNIT)] == 1


def test_the_order_of_nodes_changes_nothing() -> None:
    one, other = history_of(1, 2, 3), history_of(5000, 0)
    assert pooled([one, other]) == pooled([other, one])
