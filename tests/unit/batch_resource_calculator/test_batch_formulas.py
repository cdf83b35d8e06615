"""The formulas on their own; every expected figure is worked out by hand from the formula that it tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cotenant.domain.reservation import NodeReservation
from cotenant.model.tiers import PriorityClass
from cotenant.model.times import NEVER
from cotenant_batch_resource_calculator.config.colocation import STRATEGY_DEFAULTS, ColocationStrategy
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, divide, of_mapping, to_zone_level
from cotenant_batch_resource_calculator.formulas.batch import BatchStrategy, MeasuredUsage, PodNeed, sum_need
from cotenant_batch_resource_calculator.formulas.evaluation import (
    DEFAULT_DIFF_THRESHOLD,
    DEFAULT_UPDATE_SECONDS,
    NodeAmounts,
    NodeMeasurement,
    batch_strategy,
    calculate,
    degrade_minutes,
    demand_of,
    mid_strategy,
)
from cotenant_batch_resource_calculator.formulas.mid import MidStrategy, calculate_mid
from cotenant_batch_resource_calculator.formulas.numa import calculate_zones, zone_shares
from cotenant_batch_resource_calculator.formulas.placing import offer
from cotenant_batch_resource_calculator.formulas.synchronise import (
    any_differs,
    differs,
    due_from,
    is_due,
    is_stale,
    stale_from,
    within_band,
)

NODE = Amounts(100_000, 1000)
USED = Amounts(30_000, 300)
PREDICTED = Amounts(20_000, 250)
REQUESTED = Amounts(12_000, 200)


def mid(
    strategy: MidStrategy,
    *,
    usage: Amounts | None = USED,
    prediction: Amounts = PREDICTED,
    prod_request: Amounts = REQUESTED,
) -> Amounts:
    """Mid of a node of 100 CPUs and 1000 bytes whose system uses (5 CPUs, 100) and whose reserve is (8 CPUs, 50)."""
    return calculate_mid(
        capacity=NODE,
        node_usage=usage,
        prod_reclaimable=prediction,
        system_used=Amounts(5_000, 100),
        node_reserved=Amounts(8_000, 50),
        prod_request=prod_request,
        strategy=strategy,
    ).mid


def measured(key: str, cpu: int, memory: int = 0, priority: str = "") -> MeasuredUsage:
    return MeasuredUsage(key, Amounts(cpu, memory), priority)


# -- mid: base = min(prediction, capacity - usage); unallocated = capacity - max(system, reserve) - prod requests ----


def test_mid_adds_a_share_of_what_is_unallocated_to_the_prediction() -> None:
    # unallocated: 100 - max(5, 8) - 12 = 80 CPUs, 1000 - max(100, 50) - 200 = 700 bytes; half of it is 40 and 350
    assert mid(MidStrategy(unallocated_percent=50)) == Amounts(60_000, 600)


def test_mid_is_capped_by_the_thresholds() -> None:
    assert mid(MidStrategy(30, 40, unallocated_percent=50)) == Amounts(30_000, 400)


def test_the_prediction_is_within_what_is_unused() -> None:
    assert mid(MidStrategy(), prediction=Amounts(90_000, 900)) == Amounts(70_000, 700)


def test_without_usage_mid_is_the_unallocated_share_alone() -> None:
    assert mid(MidStrategy(unallocated_percent=50), usage=None) == Amounts(40_000, 350)


def test_requests_above_the_capacity_leave_nothing_unallocated() -> None:
    found = mid(MidStrategy(unallocated_percent=50), prod_request=Amounts(100_000, 1000))
    assert found == Amounts(20_000, 250)


def test_a_node_with_usage_above_capacity_has_no_mid() -> None:
    assert mid(MidStrategy(), usage=Amounts(101_000, 1001)) == ZERO


def test_by_default_mid_is_within_the_capacity_and_takes_nothing_unallocated() -> None:
    assert mid(MidStrategy(unallocated_percent=100), usage=ZERO, prediction=NODE) == NODE
    assert mid(MidStrategy()) == Amounts(20_000, 250)


def test_the_margin_of_a_risk_budget_is_not_unused() -> None:
    found = calculate_mid(
        capacity=NODE,
        node_usage=USED,
        prod_reclaimable=Amounts(90_000, 900),
        system_used=ZERO,
        node_reserved=ZERO,
        prod_request=REQUESTED,
        strategy=MidStrategy(),
        margin=Amounts(25_000),
    )
    # 100 - 25 - 30 CPUs, 1000 - 300 bytes
    assert (found.unused, found.mid) == (Amounts(45_000, 700), Amounts(45_000, 700))
    assert found.measured


def test_static_mid_is_a_share_of_the_capacity_within_the_thresholds() -> None:
    static = MidStrategy(20, 100, static=True, static_cpu_percent=25, static_memory_percent=35)
    assert mid(static, usage=None) == Amounts(20_000, 350)
    assert mid(MidStrategy(static=True)) == ZERO


# -- the strategy's defaults ---------------------------------------------------------------------------------------


def test_unset_fields_of_a_strategy_have_the_documented_default() -> None:
    nothing = ColocationStrategy()
    assert batch_strategy(nothing) == BatchStrategy(60, 65)
    assert mid_strategy(nothing) == MidStrategy(100, 100, 0, False, 0, 0)
    assert degrade_minutes(nothing) == 15
    assert (DEFAULT_UPDATE_SECONDS, DEFAULT_DIFF_THRESHOLD) == (300, 0.1)


def test_the_defaults_of_a_section_equal_those_of_the_formulas() -> None:
    given = msgspec.convert(STRATEGY_DEFAULTS, ColocationStrategy)
    assert batch_strategy(given) == batch_strategy(ColocationStrategy())
    assert mid_strategy(given) == mid_strategy(ColocationStrategy())


def test_set_fields_of_a_strategy_are_used() -> None:
    named = ColocationStrategy(
        mid_cpu_threshold_percent=1,
        mid_memory_threshold_percent=2,
        mid_unallocated_percent=3,
        mid_reclaim_mode="static",
        mid_static_cpu_reserved_percent=4,
        mid_static_memory_reserved_percent=5,
        degrade_time_minutes=6,
    )
    assert mid_strategy(named) == MidStrategy(1, 2, 3, True, 4, 5)
    assert degrade_minutes(named) == 6


# -- one node ------------------------------------------------------------------------------------------------------


def test_mid_of_a_node_counts_prod_pods_and_prod_host_applications_only() -> None:
    """Unallocated: 100 - (system 5 + prod host 3) - prod request 12 = 80 CPUs."""
    node = NodeAmounts({"cpu": 100_000}, {"cpu": 100_000}, NodeReservation())
    measurement = NodeMeasurement(
        update_time=datetime(2026, 1, 1, tzinfo=UTC),
        node_usage=None,
        system_usage=Amounts(5_000),
        host_applications=(measured("prod", 3_000, priority="koord-prod"), measured("mid", 7_000, priority="koord-mid")),
    )
    pods = [
        PodNeed("default/prod", PriorityClass.PROD, False, Amounts(12_000)),
        PodNeed("default/mid", PriorityClass.MID, False, Amounts(30_000)),
    ]
    found = calculate(node, demand_of(measurement, pods), ColocationStrategy(mid_unallocated_percent=100)).mid.mid
    assert found == Amounts(80_000)


@pytest.mark.parametrize("first", ["default/batch", "default/unmeasured", "default/prod"])
def test_every_pod_is_counted_whichever_comes_first(first: str) -> None:
    pods = [
        PodNeed("default/prod", PriorityClass.PROD, False, Amounts(4_000, 40)),
        PodNeed("default/batch", PriorityClass.BATCH, False, Amounts(100_000, 1000)),
        PodNeed("default/unmeasured", PriorityClass.MID, False, Amounts(2_000, 20)),
    ]
    pods.sort(key=lambda pod: pod.key != first)
    need = sum_need(pods, {"default/prod": measured("default/prod", 1_000, 50)})
    assert need.request == Amounts(6_000, 60)
    assert need.used == Amounts(3_000, 70)
    assert need.max_used_request == Amounts(6_000, 70)
    assert need.assumed == ("default/unmeasured",)


# -- zones ---------------------------------------------------------------------------------------------------------


def test_a_pod_counts_in_its_allocated_zones() -> None:
    whole = Amounts(9, 9)
    assert zone_shares(whole, (0,), 2) == [whole, ZERO]
    assert zone_shares(whole, (1, 2, -1), 2) == [ZERO, whole]
    assert zone_shares(whole, (2,), 2) == [Amounts(5, 5), Amounts(5, 5)]
    assert zone_shares(whole, (0, 0), 2) == [Amounts(5, 5), ZERO]


def test_zones_count_every_pod_and_every_measurement_without_one() -> None:
    """Two zones of 50 CPUs: each less half of the system's 8, less half of what is used by pods that are not listed (10), and
    zone 0 less the 6 CPUs of the pod that it was given."""
    pods = [
        PodNeed("default/batch", PriorityClass.BATCH, False, Amounts(20_000)),
        PodNeed("default/web", PriorityClass.PROD, False, Amounts(10_000), (0,)),
    ]
    metrics = {
        "default/a": measured("default/a", 40_000, priority="koord-batch"),
        "default/gone": measured("default/gone", 10_000),
        "default/web": measured("default/web", 6_000),
    }
    found = calculate_zones(
        capacities=[Amounts(50_000), Amounts(50_000)],
        node_reserved=ZERO,
        system_used=Amounts(8_000),
        pods=pods,
        metrics=metrics,
        strategy=BatchStrategy(100, 100),
    )
    assert found == [Amounts(35_000), Amounts(41_000)]


def test_a_zone_offers_no_more_than_the_batch_thresholds_of_its_capacity() -> None:
    found = calculate_zones(
        capacities=[Amounts(50_000, 1_001), Amounts(20_000, 400)],
        node_reserved=ZERO,
        system_used=Amounts(8_000),
        pods=[],
        metrics={},
        strategy=BatchStrategy(100, 100, cpu_threshold_percent=60, memory_threshold_percent=50),
    )
    assert found == [Amounts(30_000, 500_000), Amounts(12_000, 200_000)]


# -- amounts -------------------------------------------------------------------------------------------------------


def test_amounts_that_are_missing_are_zero() -> None:
    assert of_mapping({}) == ZERO
    assert of_mapping({"cpu": 3, "memory": 4, "pods": 5}) == Amounts(3, 4)


def test_zone_level_memory_is_in_thousandths_of_a_byte() -> None:
    assert to_zone_level(Amounts(7, 3)) == Amounts(7, 3000)


def test_dividing_by_nothing_changes_nothing() -> None:
    assert divide(5, 0) == 5
    assert divide(5, 2) == 3


# -- what is offered and published -----------------------------------------------------------------------------------


def test_without_a_foreign_share_the_origin_is_offered() -> None:
    found = offer(Amounts(10_001, 64), 1.0, {})
    assert found.origin == Amounts(10_001, 64)
    assert found.offered == Amounts(10_001, 64)


def test_a_figure_within_its_band_keeps_the_published_one() -> None:
    assert within_band(100, 110, 0.1) == 100
    assert within_band(100, 111, 0.1) == 111
    assert within_band(None, 110, 0.1) == 110


def test_a_figure_differs_by_more_than_a_share_of_the_old_one_or_by_being_there() -> None:
    assert [differs(1000, new, 0.1) for new in (900, 899, 1100, 1101)] == [False, True, False, True]
    assert [differs(None, None, 0.1), differs(None, 0, 0.1), differs(0, None, 0.1), differs(0, 0, 0.1)] == [
        False,
        True,
        True,
        False,
    ]
    assert differs(0, 1, 9.0)
    assert any_differs(("a", "b"), {"a": 10, "c": 1}, {"a": 11, "b": 1}, 0.1)
    assert not any_differs(("a", "b"), {"a": 10, "c": 1}, {"a": 11}, 0.1)


def test_an_event_is_due_and_a_metric_stale_after_their_bound_and_not_at_it() -> None:
    then, instant = datetime(2026, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    assert (due_from(then, 300), stale_from(then, 15)) == (then + timedelta(seconds=300), then + timedelta(minutes=15))
    assert [is_due(then, then + timedelta(seconds=300) + more, 300) for more in (-instant, instant * 0, instant)] == [
        False,
        False,
        True,
    ]
    assert [is_stale(then, then + timedelta(minutes=15) + more, 15) for more in (-instant, instant * 0, instant)] == [
        False,
        False,
        True,
    ]
    assert is_due(None, then, 300)
    assert is_stale(None, then, 15)


def test_a_bound_beyond_the_calendar_is_never() -> None:
    then = datetime(2026, 1, 1, tzinfo=UTC)
    assert due_from(then, 10**30) == due_from(then, 400 * 10**9) == stale_from(then, 10**30) == NEVER
