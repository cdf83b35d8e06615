"""batch-cpu where the strategy goes by the forecast of the peak of services: `extensions.forecast` is `timeOfDay`."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events import NodeResources
from cotenant.events.node.metrics import HostApplicationMetric, Usage
from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.config.colocation import ColocationStrategy
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.batch import (
    BatchTerms,
    MeasuredUsage,
    PodNeed,
    calculate_batch,
    needed_cpu,
    sum_need,
)
from cotenant_batch_resource_calculator.formulas.evaluation import NodeAmounts, NodeMeasurement, calculate, demand_of
from cotenant_batch_resource_calculator.risk import assumed_milli
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, NOON, Bench, used
from tests.unit.batch_resource_calculator.test_batch_properties import loads

UNHURRIED = settings(deadline=None)
FORECASTS = st.integers(0, 300_000) | st.sampled_from([10**18, 2**63 - 1])
LEFT = 60_000
"""milli-CPUs of the node of 100 CPUs that may be used in all."""


def bench_with(forecast: object = "timeOfDay", **strategy: object) -> Bench:
    bench = Bench()
    extensions = {"extensions": {"forecast": forecast}} if forecast is not None else {}
    bench.configure(json.dumps({"enable": True, **strategy, **extensions}))
    bench.node()
    bench.place("web")
    return bench


def decided(bench: Bench, **metric: object) -> NodeResources:
    """The node's event after a metric in which the system uses 5 CPUs and web 7."""
    bench.metric(**{"system": used(5, 6), "pods": {"web": used(7, 9)}, **metric})  # type: ignore[arg-type]
    bench.decide()
    return bench.resources()


def test_what_is_used_counts_at_least_as_much_as_the_forecast() -> None:
    resources = decided(bench_with(), prod_peak=used(30, 99))
    assert resources.batch_cpu_milli == LEFT - 30_000
    assert resources.batch_memory_bytes == 65 * GIB - 6 * GIB - 9 * GIB
    assert "system and pods together at least 30 by the forecast" in resources.message
    assert {term.name: term.cpu_milli for term in resources.terms}["forecast-need"] == 30_000


@pytest.mark.parametrize("forecast", [None, "histogram"])
def test_without_that_choice_the_forecast_does_not_count(forecast: object) -> None:
    resources = decided(bench_with(forecast), prod_peak=used(30, 99))
    assert resources.batch_cpu_milli == LEFT - 5_000 - 7_000
    assert "forecast" not in resources.message


@pytest.mark.parametrize("peak", [None, used(11, 0), Usage()])
def test_without_a_prediction_or_with_a_lower_one_the_plain_policy_counts(peak: Usage | None) -> None:
    assert decided(bench_with(), prod_peak=peak).batch_cpu_milli == LEFT - 5_000 - 7_000


def test_a_node_entry_may_take_the_forecast_away() -> None:
    entry = {"nodeSelector": {}, "extensions": {"forecast": None}}
    resources = decided(bench_with(nodeConfigs=[entry]), prod_peak=used(30, 0))
    assert resources.batch_cpu_milli == LEFT - 5_000 - 7_000


def test_pods_that_have_not_reported_count_beside_the_forecast_with_their_request() -> None:
    bench = bench_with()
    bench.place("new", cpu="10")
    assert decided(bench, prod_peak=used(30, 0)).batch_cpu_milli == LEFT - 30_000 - 10_000


def test_mid_pods_are_no_services_and_count_beside_the_forecast_with_their_use() -> None:
    bench = bench_with()
    bench.place("lent", cpu="0", priority=7500)
    pods = {"web": used(7, 9), "lent": used(4, 1), "left": used(2, 1)}
    resources = decided(bench, prod_peak=used(30, 0), pods=pods, tiers={"lent": "koord-mid", "left": "koord-mid"})
    assert resources.batch_cpu_milli == LEFT - 30_000 - 4_000 - 2_000


def test_idle_cpus_of_an_lse_pod_are_not_lent_beside_the_forecast() -> None:
    bench = bench_with()
    bench.place("pinned", cpu="8", qos="LSE")
    pods = {"web": used(7, 9), "pinned": used(1, 1)}
    assert decided(bench, prod_peak=used(30, 0), pods=pods).batch_cpu_milli == LEFT - 30_000 - 7_000


def test_what_yarn_uses_now_is_not_taken_off_twice() -> None:
    yarn = HostApplicationMetric(name="hadoop-yarn", priority="koord-batch", usage=used(8, 1))
    assert decided(bench_with(), prod_peak=used(30, 0), hosts=(yarn,)).batch_cpu_milli == LEFT - 30_000 + 8_000


def test_the_largest_of_use_request_and_forecast_counts_by_that_policy() -> None:
    policy = {"cpuCalculatePolicy": "maxUsageRequest"}
    assert decided(bench_with(**policy), prod_peak=used(14, 0)).batch_cpu_milli == LEFT - 5_000 - 10_000
    assert decided(bench_with(**policy), prod_peak=used(30, 0)).batch_cpu_milli == LEFT - 30_000


def test_a_risk_budget_knows_that_the_forecast_was_left_to_services() -> None:
    assert assumed_milli(decided(bench_with(), prod_peak=used(30, 0))) == 30_000
    assert assumed_milli(decided(bench_with(), prod_peak=used(3, 0))) == 12_000


def test_zones_leave_what_the_node_leaves() -> None:
    zones = (Amounts(50_000, 50 * GIB), Amounts(50_000, 50 * GIB))
    node = NodeAmounts({"cpu": 100_000, "memory": 100 * GIB}, {"cpu": 100_000, "memory": 100 * GIB})
    services = MeasuredUsage("default/web", Amounts(7_000, 9 * GIB))
    metric = NodeMeasurement(NOON, Amounts(12_000), Amounts(5_000), (services,), prod_peak_cpu=30_000)
    pods = [PodNeed("default/web", PriorityClass.PROD, False, Amounts(10_000))]
    chosen = ColocationStrategy(extensions={"forecast": msgspec.Raw(b'"timeOfDay"')})
    for strategy, left in ((ColocationStrategy(), LEFT - 12_000), (chosen, LEFT - 30_000)):
        found = calculate(node, demand_of(metric, pods), strategy, zones)
        assert found.terms is not None
        assert found.terms.batch.cpu == sum(zone.cpu for zone in found.zones) == left


def with_forecast(load: dict[str, object], forecast: int | None) -> BatchTerms:
    rest = {name: value for name, value in load.items() if name not in ("pods", "metrics")}
    need = sum_need(load["pods"], load["metrics"])  # type: ignore[arg-type]
    return calculate_batch(**rest, need=need, forecast=forecast)  # type: ignore[arg-type]


@UNHURRIED
@given(loads(), FORECASTS, FORECASTS)
def test_a_forecast_never_lends_more_and_a_higher_one_never_more_than_a_lower_one(
    load: dict[str, object], one: int, other: int
) -> None:
    plain, low, high = (with_forecast(load, value) for value in (None, min(one, other), max(one, other)))
    assert 0 <= high.batch.cpu <= low.batch.cpu <= plain.batch.cpu
    assert high.batch.memory == plain.batch.memory
    assert msgspec.structs.replace(low, batch=plain.batch, expected_cpu=0) == plain


@UNHURRIED
@given(loads(), FORECASTS)
def test_what_is_lent_and_what_is_needed_fit_the_node_without_its_margin(load: dict[str, object], forecast: int) -> None:
    terms = with_forecast(load, forecast)
    strategy = load["strategy"]
    left = terms.capacity.cpu - terms.margin.cpu - needed_cpu(terms, strategy.cpu_policy)  # type: ignore[attr-defined]
    assert terms.batch.cpu <= max(left, 0)
    assert needed_cpu(terms, strategy.cpu_policy) >= forecast + terms.need.beside_forecast_cpu  # type: ignore[attr-defined]
