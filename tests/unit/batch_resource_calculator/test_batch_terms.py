"""The batch formula, ratios and a history's bound in figures that are worked out by hand from their rules."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.api.objects.device import decode_device
from cotenant.events.node.topology import CpuBasicInfo
from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.config.ratios import AmplificationStrategy, ModelRatios, NormalizationStrategy
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, margin_of, share
from cotenant_batch_resource_calculator.formulas.amplification import amplification
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchStrategy,
    BatchTerms,
    CalculatePolicy,
    HighPriorityNeed,
    MeasuredUsage,
    PodNeed,
    calculate_batch,
    effective_policies,
    needed_cpu,
    sum_need,
)
from cotenant_batch_resource_calculator.formulas.devices import device_totals
from cotenant_batch_resource_calculator.formulas.evaluation import NodeAmounts, NodeMeasurement, calculate, demand_of
from cotenant_batch_resource_calculator.formulas.normalization import RatioError, parse_ratio, ratio_from_model, ratio_moved
from cotenant_batch_resource_calculator.formulas.numa import calculate_zones, whole_bytes
from cotenant_batch_resource_calculator.formulas.risk_budget import HOUR_SECONDS, RiskHistory, observed

USAGE, REQUEST, LARGER = CalculatePolicy.USAGE, CalculatePolicy.REQUEST, CalculatePolicy.MAX_USAGE_REQUEST
NEED = HighPriorityNeed(
    request=Amounts(20_000, 200), used=Amounts(10_000, 150), max_used_request=Amounts(22_000, 220), beside_forecast_cpu=3_000
)
HOSTS = (MeasuredUsage("own", Amounts(2_000, 20)), MeasuredUsage("batch", Amounts(9_000, 90), "koord-batch"))


def batch(cpu: CalculatePolicy, memory: CalculatePolicy, need: HighPriorityNeed = NEED, **changes: int | None) -> BatchTerms:
    """A node of 100 CPUs and 1000 bytes, of which 60 and 65 % are reclaimable: its system uses (5 CPUs, 50), a host application
    of no tier (2, 20); its reserve is (4, 60)."""
    forecast = changes.pop("forecast", None)
    return calculate_batch(
        capacity=Amounts(100_000, 1000),
        node_reserved=Amounts(4_000, 60),
        system_usage=Amounts(5_000, 50),
        host_applications=HOSTS,
        need=need,
        strategy=msgspec.structs.replace(BatchStrategy(60, 65, cpu, memory), **changes),
        forecast=forecast,
    )


def test_batch_by_each_policy() -> None:
    # margin 40 CPUs, 350 bytes; S = max((7, 70), (4, 60)) = (7, 70)
    by_usage = batch(USAGE, USAGE)
    assert (by_usage.margin, by_usage.system_used) == (Amounts(40_000, 350), Amounts(7_000, 70))
    assert (by_usage.host_applications, by_usage.expected_cpu) == (Amounts(2_000, 20), 0)
    assert by_usage.batch == Amounts(100_000 - 40_000 - 7_000 - 10_000, 1000 - 350 - 70 - 150)
    assert batch(USAGE, REQUEST).batch == Amounts(43_000, 1000 - 350 - 60 - 200)
    assert batch(LARGER, LARGER).batch == Amounts(100_000 - 40_000 - 7_000 - 22_000, 1000 - 350 - 70 - 220)


def test_what_is_needed_beyond_the_capacity_leaves_nothing_and_no_debt() -> None:
    large = Amounts(200_000, 2000)
    need = HighPriorityNeed(request=large, used=large, max_used_request=large)
    for policy in CalculatePolicy:
        assert batch(USAGE, policy, need).batch == ZERO


def test_a_threshold_caps_its_resource_alone() -> None:
    assert batch(USAGE, USAGE, cpu_threshold_percent=30).batch == Amounts(30_000, 430)
    assert batch(USAGE, USAGE, memory_threshold_percent=20).batch == Amounts(43_000, 200)
    assert batch(USAGE, USAGE, cpu_threshold_percent=44, memory_threshold_percent=44).batch == Amounts(43_000, 430)


@pytest.mark.parametrize(
    ("forecast", "expected", "cpu"),
    [
        (0, 3_000, 43_000),
        (9_000, 3_000, 43_000),
        (9_001, 3_001, 43_000),
        # 23 - 9 + 3 = 17 CPUs are what the system and the services are known to use
        (23_000, 17_000, 43_000),
        (23_001, 17_001, 42_999),
        (40_000, 34_000, 26_000),
    ],
)
def test_a_forecast_counts_where_it_is_more_than_the_known_usage(forecast: int, expected: int, cpu: int) -> None:
    """Of the forecast, 9 CPUs are those of a host application on reclaimed capacity; 3 CPUs are used outside of it."""
    found = batch(USAGE, USAGE, forecast=forecast)
    assert (found.expected_cpu, found.batch) == (expected, Amounts(cpu, 430))
    assert needed_cpu(found, USAGE) == max(17_000, expected)
    assert needed_cpu(found, LARGER) == max(29_000, expected)
    by_larger = batch(LARGER, USAGE, forecast=forecast)
    assert by_larger.batch == Amounts(min(31_000, 60_000 - expected), 430)


def test_the_sums_of_high_priority_pods_by_rule() -> None:
    pods = [
        PodNeed("d/exclusive", PriorityClass.PROD, True, Amounts(8_000, 10)),
        PodNeed("d/mid", PriorityClass.MID, False, Amounts(4_000, 40)),
        PodNeed("d/new", PriorityClass.PROD, False, Amounts(500, 5)),
        PodNeed("d/batch", PriorityClass.BATCH, False, Amounts(90_000, 90)),
    ]
    metrics = {
        "d/exclusive": MeasuredUsage("d/exclusive", Amounts(3_000, 30)),
        "d/mid": MeasuredUsage("d/mid", Amounts(6_000, 20)),
        "d/batch": MeasuredUsage("d/batch", Amounts(70_000, 70)),
        "d/gone": MeasuredUsage("d/gone", Amounts(700, 7)),
        "d/gone-mid": MeasuredUsage("d/gone-mid", Amounts(60, 6), "koord-mid"),
        "d/gone-batch": MeasuredUsage("d/gone-batch", Amounts(50_000, 50), "koord-batch"),
    }
    # used: 8 CPUs of the exclusive pod's request, 6, 0.5 by request, 0.7 and 0.06 without a pod
    assert sum_need(pods, metrics) == HighPriorityNeed(
        request=Amounts(12_500, 55),
        used=Amounts(15_260, 30 + 20 + 5 + 7 + 6),
        max_used_request=Amounts(8_000 + 6_000 + 500 + 700 + 60, 30 + 40 + 5 + 7 + 6),
        # beside the forecast: 6 CPUs of mid, 5 idle ones of the exclusive pod, 0.5 of the new one, 0.06 of mid that is gone
        beside_forecast_cpu=6_000 + 5_000 + 500 + 60,
        assumed=("d/new",),
        dangling=("d/gone", "d/gone-mid"),
    )


def test_unknown_policies_mean_usage_and_cpu_has_no_request() -> None:
    assert effective_policies("maxUsageRequest", "maxUsageRequest") == (LARGER, LARGER)
    assert effective_policies("request", "request") == (USAGE, REQUEST)
    assert effective_policies("", "other") == effective_policies("usage", "usage") == (USAGE, USAGE)


def test_margins_and_shares_are_truncated() -> None:
    assert margin_of(Amounts(1_001, 1_001), 60, 65) == Amounts(400, 350)
    assert margin_of(Amounts(1_000, 1_000), 110, 120) == Amounts(-100, -200)
    assert share(Amounts(999, 999), 50) == Amounts(499, 499)


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        # margins 20 CPUs and 175 bytes a zone, half of max(system, reserve) 3 CPUs and 30 bytes, of the reserve 2 and 30
        (USAGE, USAGE, [(50_000 - 20_000 - 3_000 - 8_000 - 1_000 - 500, 500 - 175 - 30 - 30 - 10 - 20), (25_500, 265)]),
        (LARGER, REQUEST, [(17_500, 500 - 175 - 30 - 10 - 10), (25_500, 500 - 175 - 30 - 10)]),
        (LARGER, LARGER, [(17_500, 500 - 175 - 30 - 30 - 10 - 20), (25_500, 265)]),
    ],
)
def test_zones_by_each_policy(cpu: CalculatePolicy, memory: CalculatePolicy, expected: list[tuple[int, int]]) -> None:
    pods = [
        PodNeed("d/exclusive", PriorityClass.PROD, True, Amounts(8_000, 10), (0,)),
        PodNeed("d/new", PriorityClass.PROD, False, Amounts(2_000, 20)),
    ]
    metrics = {
        "d/exclusive": MeasuredUsage("d/exclusive", Amounts(3_000, 30)),
        "d/gone": MeasuredUsage("d/gone", Amounts(1_000, 40)),
        "d/gone-batch": MeasuredUsage("d/gone-batch", Amounts(7_000, 70), "koord-batch"),
    }
    found = calculate_zones(
        capacities=[Amounts(50_000, 500)] * 2,
        node_reserved=Amounts(4_000, 60),
        system_used=Amounts(6_000, 50),
        pods=pods,
        metrics=metrics,
        strategy=BatchStrategy(60, 65, cpu, memory),
    )
    assert found == [Amounts(of_cpu, of_memory * 1000) for of_cpu, of_memory in expected]
    assert [whole_bytes(each) for each in (0, 1, 1000, 1001)] == [0, 1, 1, 2]


def test_a_forecast_is_left_to_services_in_zones_where_nothing_is_used_yet() -> None:
    """A zone of 50 CPUs: less the margin of 20 and the forecast of 10."""
    found = calculate(
        NodeAmounts({"cpu": 50_000}, {"cpu": 50_000}),
        demand_of(NodeMeasurement(update_time=None, node_usage=None, prod_peak_cpu=10_000), []),
        ColocationStrategy(extensions={"forecast": msgspec.Raw(b'"timeOfDay"')}),
        [Amounts(50_000)],
    )
    assert found.terms is not None
    assert (found.terms.batch.cpu, found.terms.expected_cpu) == (20_000, 10_000)
    assert found.zones == (Amounts(20_000),)


# -- devices ----------------------------------------------------------------------------------------------------------


def test_a_device_adds_nothing_where_its_amount_is_0_or_less() -> None:
    devices = [
        {"type": "gpu", "health": True, "resources": {"koordinator.sh/gpu-core": amount, "koordinator.sh/gpu-memory": "8Gi"}}
        for amount in ("100", "0", "-5")
    ]
    found = device_totals(decode_device(msgspec.json.encode({"metadata": {"name": "n"}, "spec": {"devices": devices}})))
    assert found.amounts == {
        "koordinator.sh/gpu": 100,
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 3 * (8 << 30),
        "koordinator.sh/gpu.shared": 300,
    }


# -- ratios -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_cpu", "normalization", "expected"),
    [(None, None, {}), (2.0, None, 2.0), (None, 1.5, 1.5), (0.5, 3.0, 1.5), (1.2, 2.0, 2.4), (None, 1.0, {}), (1.0, None, 1.0)],
)
def test_cpu_is_amplified_by_both_ratios(of_cpu: float | None, normalization: float | None, expected: object) -> None:
    ratios = {} if of_cpu is None else {"cpu": of_cpu}
    found = amplification(AmplificationStrategy(enable=True, resource_amplification_ratio=ratios), normalization)
    assert found == ({"cpu": expected} if expected else {})


@pytest.mark.parametrize(
    ("threads", "turbo", "field"),
    [
        (True, True, "hyperThreadTurboEnabledRatio"),
        (True, False, "hyperThreadEnabledRatio"),
        (False, True, "turboEnabledRatio"),
        (False, False, "baseRatio"),
    ],
)
def test_a_model_without_the_ratio_of_its_state_is_told_by_the_fields_name(threads: bool, turbo: bool, field: str) -> None:
    info = CpuBasicInfo(cpu_model="m", hyper_thread_enabled=threads, turbo_enabled=turbo)
    with pytest.raises(RatioError, match=rf"ratioModel\[m\] has no {field}, and there is no defaultRatio"):
        ratio_from_model(info, NormalizationStrategy(ratio_model={"m": ModelRatios()}))


def test_a_stated_ratio_is_a_number_above_0() -> None:
    name = "node.koordinator.sh/cpu-normalization-ratio"
    assert [parse_ratio({name: text}) for text in ("1.5", "0.01", "1e3")] == [1.5, 0.01, 1000.0]
    assert parse_ratio({}) is None
    for text in ("0", "-1", "inf", "-inf", "nan", "x", ""):
        with pytest.raises(RatioError, match="must be a number above 0"):
            parse_ratio({name: text})


def test_ratios_that_differ_by_a_hundredth_are_equal() -> None:
    assert [ratio_moved(1.0, new) for new in (1.0, 1.01, 1.02, 0.98)] == [False, False, True, True]
    assert not ratio_moved(1.01, 1.0)
    assert [ratio_moved(None, None), ratio_moved(None, 1.0), ratio_moved(1.0, None)] == [False, True, True]


# -- the history of a risk budget -------------------------------------------------------------------------------------


def test_a_history_begins_with_nothing() -> None:
    assert RiskHistory() == RiskHistory(hour=-1, worst=0, counts=())


def test_after_1024_hours_the_counts_are_halved_and_not_before() -> None:
    history = RiskHistory()
    sums = []
    for hour in range(1026):
        history = observed(history, hour * HOUR_SECONDS, 0, 1000)
        sums.append(sum(history.counts))
    assert sums[1022:] == [1022, 1023, 512, 513]
