"""`cotenant simulate --usage`: small loads of which the offer is known, and what holds for every load."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.batch import MeasuredUsage, PodNeed, sum_need
from cotenant_console.commands.simulate import command
from cotenant_verification.simulate.openb import OpenbTrace, TraceNode, TracePod, read_trace
from cotenant_verification.simulate.usage.figures import HOUR_STEPS, OfferFigures, figures_of
from cotenant_verification.simulate.usage.forecasts import PREDICTIONS, SEASON, forecasts_of
from cotenant_verification.simulate.usage.load import REPORT_STEPS, WINDOW_STEPS, MachineLoads, load_of, use_of
from cotenant_verification.simulate.usage.offers import MID, POLICIES, UPSTREAM, MachineOffers, OfferRule, offer_of
from cotenant_verification.simulate.usage.population import (
    Population,
    ServicePod,
    generated_trace,
    populate,
)
from cotenant_verification.simulate.usage.rates import (
    DAY_STEPS,
    RateError,
    Rates,
    generated,
    read_rates,
    repeated,
)
from cotenant_verification.simulate.usage.report import usage_document, usage_lines
from cotenant_verification.simulate.usage.runs import PLANS, choose, run_usage

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
HOUR = HOUR_STEPS


def rates_of(*levels: float) -> Rates:
    """One service whose rate has each level for an hour; they are not normalised."""
    return Rates(("web",), np.repeat(np.array(levels), HOUR)[np.newaxis, :], np.array([0.01]), 0.0)


def one_machine(steps: int, request_milli: int = 8000, first: int = 0, end: int | None = None) -> Population:
    """Ten cores with one pod."""
    return Population(np.array([10_000]), (ServicePod(0, 0, request_milli, first, end or steps),))


def load_without_noise(rates: Rates, population: Population, u: float = 0.5) -> MachineLoads:
    return load_of(rates, population, u, seed=0, deviation=0.0)


def offered(load: MachineLoads, plan: OfferRule = UPSTREAM) -> MachineOffers:
    return offer_of(load, plan, forecasts_of(load, plan.prediction, 0.0), 0.0)


def figures(load: MachineLoads, plan: OfferRule) -> OfferFigures:
    return figures_of(load, offered(load, plan), 0, load.steps)


# -- known offers ---------------------------------------------------------------------------------------------------------


def test_upstreams_default_lends_sixty_percent_less_system_and_use() -> None:
    offer = offered(load_without_noise(rates_of(1.0), one_machine(HOUR))).offered[0]
    assert set(offer[:REPORT_STEPS]) == {0}  # nothing is known of the pod yet: it counts with its request
    assert set(offer[REPORT_STEPS:]) == {6000 - 200 - 4000}


def test_request_and_the_larger_of_both_count_the_request() -> None:
    load = load_without_noise(rates_of(1.0), one_machine(HOUR, request_milli=5000))
    assert offered(load, OfferRule("request")).offered[0, -1] == 6000 - 5000
    assert offered(load, OfferRule("maxUsageRequest")).offered[0, -1] == 6000 - 200 - 5000


def test_mid_lends_nothing_without_a_prediction_and_what_the_forecast_leaves_of_requests_with_one() -> None:
    load = load_without_noise(rates_of(1.0, 1.0, 1.0, 1.0), one_machine(4 * HOUR))
    assert offered(load, OfferRule(MID)).offered.max() == 0
    found = offered(load, OfferRule(MID, SEASON)).offered[0, -1]
    assert 8000 - 200 - 4000 * 1.05 * 1.1 - 100 < found < 8000 - 200 - 4000


def test_a_jump_breaks_the_promise_where_it_is_larger_than_the_margin() -> None:
    load = load_without_noise(rates_of(0.0, 1.0), one_machine(2 * HOUR))
    assert figures(load, OfferRule(percent=60)).broken_node_hours == 0
    assert figures(load, OfferRule(percent=61)).broken_node_hours == 1
    assert figures(load, OfferRule(percent=61)).node_hours == 2


def test_a_forecast_that_expects_the_jump_keeps_the_promise_at_every_threshold() -> None:
    day = [0.0] * 9 + [1.0] * 3 + [0.0] * 12
    load = load_without_noise(rates_of(*day, *day[:10]), one_machine(34 * HOUR))
    naive, seasonal = offered(load, OfferRule(percent=90)), offered(load, OfferRule("usage", SEASON, percent=90))
    assert figures_of(load, naive, 24 * HOUR, 34 * HOUR).broken_node_hours == 1
    assert figures_of(load, seasonal, 24 * HOUR, 34 * HOUR).broken_node_hours == 0


def test_a_pod_that_comes_takes_its_request_out_of_the_loan_at_once_and_gives_it_back_when_it_left() -> None:
    load = load_without_noise(rates_of(0.0), one_machine(HOUR, 4000, first=101, end=149))
    offer = offered(load).offered[0]
    assert [offer[100], offer[101], offer[103], offer[104], offer[160]] == [5800, 1800, 1800, 5800, 5800]


def test_what_differs_by_less_than_the_dead_band_is_published_after_five_minutes() -> None:
    population = one_machine(2 * HOUR)
    load = load_without_noise(rates_of(0.5, 0.55), population)
    offer = offered(load).offered[0]
    assert set(offer[HOUR - WINDOW_STEPS : HOUR + REPORT_STEPS]) == {3800}
    assert set(offer[HOUR + REPORT_STEPS : HOUR + REPORT_STEPS + WINDOW_STEPS]) == {3760}  # the last one was long ago
    assert set(offer[HOUR + 2 * REPORT_STEPS + WINDOW_STEPS :]) == {3600}


def test_figures_count_what_was_offered_used_withheld_and_taken_back() -> None:
    load = load_without_noise(rates_of(0.0, 1.0), one_machine(2 * HOUR))
    amounts = np.full((1, 2 * HOUR), 7000.0)
    amounts[0, HOUR + HOUR // 2 :] = 5000.0
    found = figures_of(load, MachineOffers(amounts, np.zeros(1)), 0, 2 * HOUR)
    assert found.lent_core_hours == pytest.approx(7 + 3.5 + 2.5)
    assert found.used_core_hours == pytest.approx(7 + 2.9 + 2.5)
    assert found.withheld_core_hours == pytest.approx(0.6)
    assert found.taken_back_an_hour == 0.5
    assert found.taken_back_percent == pytest.approx(20.0)
    assert found.broken_percent == 50.0


# -- what holds for every load -------------------------------------------------------------------------------------------


Case = tuple[Rates, Population, float]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Two machines with some pods, over an hour and a half."""
    steps = 360
    levels = draw(st.lists(st.floats(0, 1.1), min_size=6, max_size=6))
    rates = Rates(("web",), np.repeat(np.array(levels), steps // 6)[np.newaxis, :], np.array([0.01]), 0.0)
    pods, free = [], [16_000, 32_000]
    for number in range(draw(st.integers(0, 8))):
        node = draw(st.integers(0, 1))
        request = draw(st.integers(1, 8000))
        first = draw(st.integers(0, steps - 1))
        if request <= free[node]:
            free[node] -= request
            pods.append(ServicePod(number, node, request, first, draw(st.integers(first + 1, steps))))
    return rates, Population(np.array([16_000, 32_000]), tuple(pods)), draw(st.sampled_from([0.3, 0.7, 1.0]))


def loads() -> st.SearchStrategy[MachineLoads]:
    return cases().map(lambda case: load_of(*case, seed=0))


@given(loads(), st.sampled_from(POLICIES), st.sampled_from(PREDICTIONS), st.booleans())
@settings(max_examples=20)
def test_a_loan_is_never_negative_nor_more_than_the_machine_leaves_the_system(
    load: MachineLoads, policy: str, prediction: str, budgeted: bool
) -> None:
    offer = offered(load, OfferRule(policy, prediction, RiskBudget(least_hours=1) if budgeted else None))
    assert (offer.offered >= 0).all()
    assert (offer.offered <= (load.capacities - load.system)[:, np.newaxis]).all()


@given(st.integers(1, 99), st.integers(1, 99), st.floats(0, 1))
@settings(max_examples=25)
def test_a_higher_threshold_never_lends_less(one: int, other: int, level: float) -> None:
    low, high = sorted((one, other))
    load = load_without_noise(rates_of(level), one_machine(HOUR))
    assert (offered(load, OfferRule(percent=high)).offered >= offered(load, OfferRule(percent=low)).offered).all()


@given(cases())
@settings(max_examples=25)
def test_what_is_known_of_a_machine_is_what_the_formulas_sums_make_of_its_reports(case: Case) -> None:
    rates, population, u = case
    load = load_of(rates, population, u, seed=0)
    uses = {pod.number: use_of(pod, rates, u, seed=0) for pod in population.pods}
    for machine, pods in enumerate(load.pods):
        for step in range(0, load.steps, 37):
            report = step // REPORT_STEPS * REPORT_STEPS
            needs, metrics = [], {}
            for pod, _ in pods:
                key = f"default/{pod.number}"
                if pod.first <= step < pod.end:
                    needs.append(PodNeed(key, PriorityClass.PROD, False, Amounts(pod.request_milli)))
                if pod.first < report and pod.end > report - REPORT_STEPS:
                    window = uses[pod.number][max(report - WINDOW_STEPS - pod.first, 0) : report - pod.first]
                    metrics[key] = MeasuredUsage(key, Amounts(round(float(window.mean()))), PriorityClass.PROD)
            found = sum_need(needs, metrics)
            known = (load.request, load.used, load.max_used_request)
            for sums, expected in zip((found.request, found.used, found.max_used_request), known, strict=True):
                assert sums.cpu == pytest.approx(expected[machine, step], abs=len(pods) + 1)


# -- rates and population ------------------------------------------------------------------------------------------------


HEADER = "timestamp_anon,value,container_ip,request_type\n"


def test_containers_of_a_moment_are_summed_and_a_gap_is_no_load(tmp_path: Path) -> None:
    path = tmp_path / "qps.csv"
    path.write_text(HEADER + "0,1,a,x\n0,1,b,x\n60,4,a,x\n120,2,a,x\n600,2,a,x\n")
    rates = read_rates(path)
    assert rates.steps == 660 // 15
    assert [round(float(rates.rates[0, step] / rates.rates[0, 4]), 3) for step in (0, 4, 8, 11, 12, 39, 40)] == [
        0.5,
        1.0,
        0.5,
        0.5,
        0.0,
        0.0,
        0.5,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column timestamp_anon, value, request_type is missing"),
        (HEADER, "at least two moments"),
        (HEADER + "0,nan,,x\n", "value is 'nan'"),
        (HEADER + "0,-1,,x\n", "value is '-1'"),
        (HEADER + "zero,1,,x\n", "timestamp_anon is 'zero'"),
        (HEADER + "0,1,,x\n9000000,1,,x\n", "at most 60"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where_and_why(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "qps.csv"
    path.write_text(text)
    with pytest.raises(RateError, match=message):
        read_rates(path)


def test_days_that_are_made_have_the_traces_form_and_quiet_weekends() -> None:
    rates = repeated(generated(1), 7, seed=1)
    by_day = rates.rates[0].reshape(7, DAY_STEPS)
    assert by_day[:, 10 * HOUR : 11 * HOUR].mean() > 4 * by_day[:, 3 * HOUR : 4 * HOUR].mean()
    assert by_day[5:].mean() < by_day[:5].mean()


def test_services_never_request_more_than_their_machine_has_and_about_what_was_asked_for() -> None:
    trace = generated_trace(3, 5)
    population = populate(trace, 5, DAY_STEPS, seed=3, fill=0.6)
    requested = np.zeros((5, DAY_STEPS))
    for pod in population.pods:
        requested[pod.node, pod.first : pod.end] += pod.request_milli
    assert (requested <= population.capacities[:, np.newaxis]).all()
    assert 0.45 < requested.mean(axis=1).sum() / population.capacities.sum() <= 0.6


def test_best_effort_pods_are_no_services() -> None:
    machine = TraceNode("node", 8000, 1024, 0, "")
    pods = tuple(TracePod(f"pod-{qos}", 1000, 1, 0, 0, (), qos, 0, 60) for qos in ("LS", "BE"))
    assert len(populate(OpenbTrace((machine,), pods), 1, HOUR, seed=0).pods) == 1


# -- the table -----------------------------------------------------------------------------------------------------------


def test_one_seed_gives_the_same_table_twice_and_another_gives_another() -> None:
    def run(seed: int) -> str:
        rates = generated(seed, days=0.0625)
        population = populate(generated_trace(seed, 2), 2, rates.steps, seed)
        tables = run_usage(rates, population, seed, utilisations=(0.5,), plans=(UPSTREAM, *PLANS[5:9], PLANS[-1]))
        return json.dumps(usage_document(tables, rates, population, seed), sort_keys=True)

    first = run(7)
    assert run(7) == first
    assert run(8) != first


def test_the_chosen_plan_breaks_no_more_of_the_first_half_than_upstream_where_one_does() -> None:
    rates = generated(1, days=0.0625)
    tables = run_usage(rates, populate(generated_trace(1, 2), 2, rates.steps, 1), 1, utilisations=(0.7,))
    rows = tables[0].rows
    chosen = rows[choose(rows)]
    assert chosen.plan.prediction == SEASON
    assert chosen.plan.budget is not None
    assert chosen.plan.budget.broken_permille <= 10
    assert [row.plan for row in rows] == list(PLANS)


def test_it_is_said_where_no_budget_broke_as_little_as_upstream() -> None:
    rates = generated(1, days=0.0625)
    population = populate(generated_trace(1, 2), 2, rates.steps, 1)
    (table,) = run_usage(rates, population, 1, utilisations=(0.7,))
    upstream, chosen = table.rows[0], table.rows[table.chosen]

    def told(broken: int) -> str:
        first = msgspec.structs.replace(chosen.first, broken_node_hours=broken)
        rows = list(table.rows)
        rows[table.chosen] = msgspec.structs.replace(chosen, first=first)
        return "\n".join(usage_lines([msgspec.structs.replace(table, rows=tuple(rows))], rates, population, 100))

    allowed = upstream.first.broken_node_hours
    assert "No budget broke as little" not in told(allowed)
    assert f"upstream's default ({allowed} node-hours): the smallest was chosen ({allowed + 1})" in told(allowed + 1)


def test_the_command_prints_a_table_for_each_u_and_the_same_as_json(tmp_path: Path) -> None:
    path = tmp_path / "qps.csv"
    path.write_text(HEADER + "".join(f"{60 * minute},{1 + minute % 5},,x\n" for minute in range(20)))
    runner = CliRunner()
    text = runner.invoke(command, ["--usage", str(path), "--nodes", "2"])
    assert text.exit_code == 0, text.output
    assert text.output.count("u = 0.") == 3
    assert "offered by upstream's default" in text.output
    found = json.loads(runner.invoke(command, ["--usage", str(path), "--nodes", "2", "-o", "json"]).output)
    assert [table["u"] for table in found["tables"]] == [0.3, 0.5, 0.7]
    assert found["machines"] == 2


def test_a_trace_that_is_not_there_is_an_error_with_its_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["--usage", str(tmp_path / "none.csv")])
    assert result.exit_code == 1
    assert "none.csv: cannot be read" in result.output


@pytest.mark.skipif(not (DATA / "genai" / "qps.csv").exists(), reason="needs the rate trace and the openb trace")
def test_on_the_real_traces_a_budget_lends_a_quarter_more_than_upstream_and_breaks_no_more() -> None:
    rates = read_rates(DATA / "genai" / "qps.csv")
    population = populate(read_trace(DATA / "openb"), 8, rates.steps, seed=0)
    plans = (UPSTREAM, OfferRule("usage", SEASON, RiskBudget(broken_permille=10)))
    table = run_usage(rates, population, 0, utilisations=(0.5,), plans=plans)[0]
    assert table.holds
    assert table.ratio >= 1.25
