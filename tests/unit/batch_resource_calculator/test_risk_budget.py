"""The reclaim threshold from a risk budget: what node-hours have needed, and what a budget makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_batch_resource_calculator.formulas.risk_budget import (
    HOUR_SECONDS,
    MOST_HOURS,
    STEP_PERMILLE,
    STEPS,
    RiskBudget,
    RiskHistory,
    RiskPool,
    choose_threshold,
    margin_step,
    observed,
    pooled,
    step_of,
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
    choice = choose_threshold(budget, pooled([history_of(*[0] * 5)] * 100), CAPACITY, UNIT)
    assert (choice.percent, choice.margin_permille) == (60, None)


def test_hours_that_needed_nothing_allow_the_highest_threshold() -> None:
    assert choose_threshold(RiskBudget(), pooled([history_of(*[0] * 10)] * 20), CAPACITY, UNIT).percent == 95


def test_a_budget_of_one_percent_leaves_out_the_worst_of_two_hundred() -> None:
    quiet, bad = history_of(*[1000] * 10), history_of(*[1000] * 9, 5000)
    pool = pooled([*[quiet] * 19, bad])
    choice = choose_threshold(RiskBudget(broken_permille=10), pool, CAPACITY, UNIT)
    assert (choice.margin_permille, choice.above, choice.node_hours) == (100, 1, 200)
    assert choice.percent == 95
    assert choose_threshold(RiskBudget(broken_permille=10), pool, UNIT, UNIT).percent == 90


def test_too_few_hours_for_the_budget_need_the_worst_and_a_quarter() -> None:
    pool = pooled([history_of(*[0] * 9, 2000)])
    assert choose_threshold(RiskBudget(broken_permille=10), pool, UNIT, UNIT).margin_permille == 260


def test_hours_beyond_the_unit_leave_the_lowest_threshold() -> None:
    choice = choose_threshold(RiskBudget(), pooled([history_of(*[20_000] * 10)]), CAPACITY, UNIT)
    assert (choice.percent, choice.margin_permille) == (40, None)


def test_an_empty_machine_is_measured_by_a_part_of_its_capacity() -> None:
    assert unit_of(100_000, 0) == 5000
    assert unit_of(100_000, 80_000) == 80_000
    assert unit_of(0, 0) == 1


def test_a_machine_without_capacity_gets_the_threshold_to_start_with() -> None:
    assert choose_threshold(RiskBudget(), pooled([history_of(*[0] * 10)]), 0, 1).percent == 60


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
    choice = choose_threshold(budget, pool, capacity, unit_of(capacity, request))
    assert budget.lowest_percent <= choice.percent <= budget.highest_percent


@given(counts, st.integers(0, 1000), st.integers(0, 1000))
def test_a_larger_budget_never_asks_for_a_larger_margin(of: list[int], one: int, other: int) -> None:
    small, large = sorted((one, other))
    if margin_step(of, small) < STEPS - 1:
        assert margin_step(of, large) <= margin_step(of, small) or margin_step(of, large) <= max(
            (step for step, count in enumerate(of) if count), default=0
        ) * 5 // 4 + 1


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
