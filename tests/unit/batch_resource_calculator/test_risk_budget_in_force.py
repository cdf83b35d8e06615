"""A risk budget in the configuration: what the calculator remembers, what it lends, and what it says of it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events import NodeResources
from cotenant.events.node.metrics import AggregatedUsage, NodeMetricComputed, PodMetric
from cotenant.events.node.resources import NodeRisk
from cotenant_batch_resource_calculator.config.in_force import load_configuration
from cotenant_batch_resource_calculator.config.risk import RiskBudget
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.deciding import offered_by, offered_under
from cotenant_batch_resource_calculator.risk import RiskPools, history_of, services_milli
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import NOON, Bench, last_per_subject, used

BUDGET: dict[str, object] = {"brokenPercent": 1, "leastHours": 3}
ANSWER = timedelta(minutes=1)


def with_budget(budget: object = BUDGET, **strategy: object) -> str:
    return json.dumps({"enable": True, "cpuReclaimThresholdPercent": 60, "extensions": {"riskBudget": budget}, **strategy})


def bench_of(*nodes: str, budget: object = BUDGET) -> Bench:
    bench = Bench()
    bench.configure(with_budget(budget))
    for name in nodes or ("a",):
        bench.node(name)
        bench.place(f"web-{name}", node=name, cpu="50", memory="50Gi")
    return bench


def hours(bench: Bench, *real_cores: float, node: str = "a", since: datetime = NOON) -> datetime:
    """An hour for each figure: a quiet report, then one in which the service uses so many cores; returns the time after."""
    now = since
    for real in real_cores:
        for cores in (20.0, real):
            bench.metric(node, pods={f"web-{node}": used(cores, 10)}, at=now)
            bench.decide(now)
            now += ANSWER
        bench.metric(node, pods={f"web-{node}": used(20, 10)}, at=now)
        bench.decide(now)
        now += timedelta(hours=1) - 2 * ANSWER
    return now


def risk(bench: Bench, node: str = "a") -> NodeRisk:
    found = bench.resources(node).risk
    assert found is not None
    return found


def test_without_a_budget_nothing_is_remembered() -> None:
    bench = Bench()
    bench.configure()
    bench.node()
    hours(bench, 30, 30)
    assert bench.resources().risk is None


def test_until_a_node_has_seen_enough_hours_the_configured_threshold_counts() -> None:
    bench = bench_of()
    hours(bench, 30, 30, 30)
    assert (risk(bench).percent, risk(bench).margin_permille) == (60, -1)
    said = "no node has seen 3 hours yet, so the reclaim threshold is 60 %, as configured within the bounds"
    assert said in bench.resources().message


def test_the_margin_follows_from_what_the_worst_reports_needed_of_the_request() -> None:
    bench = bench_of()
    hours(bench, 20, 20, 20, 20, 20)
    # Nothing was ever above what the loan assumed: the highest threshold.
    assert (risk(bench).margin_permille, risk(bench).percent) == (0, 95)
    # 30 cores where 20 were assumed: 10 of 50 requested, and a quarter of it as no hour may break yet: 250 of 1000, as 260.
    hours(bench, 30, 20, since=NOON + timedelta(hours=6))
    assert risk(bench).margin_permille == 260
    # 26 % of 50 cores of 100.
    assert risk(bench).percent == 87
    resources = bench.resources()
    assert resources.batch_cpu_milli == 87_000 - 20_000
    assert "margin 26 % of what services request, which 0 of 6 node-hours exceeded" in resources.message


def test_a_report_is_compared_with_what_the_published_loan_assumed() -> None:
    bench = bench_of()
    now = hours(bench, 20)
    bench.metric(pods={"web-a": used(33, 10)}, at=now)
    bench.decide(now)
    terms = {term.name: term for term in bench.resources().terms}
    assert (terms["risk-assumed"].cpu_milli, terms["risk-real"].cpu_milli) == (20_000, 33_000)
    assert terms["risk-assumed"].source.startswith("LOG:")
    # 13 of 50 cores, in steps of 2 %.
    assert risk(bench).worst == 13


def test_a_metric_counts_once() -> None:
    bench = bench_of()
    bench.metric(pods={"web-a": used(20, 10)})
    bench.decide()
    later = NOON + ANSWER
    bench.metric(pods={"web-a": used(40, 10)}, at=later)
    bench.decide(later)
    assert risk(bench).worst == 20
    bench.place("late", cpu="40", memory="1Gi")
    assert [event.data for event in bench.decide(later) if isinstance(event.data, NodeResources)]
    assert risk(bench).worst == 20


def test_hours_of_all_nodes_of_a_group_count_together_and_no_others() -> None:
    bench = Bench()
    entry = {"name": "blue", "nodeSelector": {"matchLabels": {"pool": "blue"}}}
    bench.configure(with_budget(nodeConfigs=[entry]))
    for name, labels in (("a", {}), ("b", {"pool": "blue"}), ("c", {"pool": "blue"})):
        bench.node(name, labels=labels)
        bench.place(f"web-{name}", node=name, cpu="50", memory="50Gi")
    hours(bench, 20, 20, 20, 20, node="c")
    hours(bench, 20, 20, 20, 20, node="b")
    hours(bench, 40, 40, 40, 40, 40, node="a")
    assert [risk(bench, name).group for name in "abc"] == ["", "blue", "blue"]
    hours(bench, 20, 20, node="b", since=NOON + timedelta(hours=5))
    # Its own five hours, and the three that c has ended.
    assert (risk(bench, "b").node_hours, risk(bench, "b").margin_permille) == (8, 0)
    assert (risk(bench, "a").node_hours, risk(bench, "a").margin_permille) == (4, 500)


def test_a_restart_goes_on_where_it_was() -> None:
    bench = bench_of("a", "b")
    now = max(hours(bench, 30, 26, 20, 34, node=node) for node in "ab")
    restarted = Bench()
    restarted.core, restarted.log = BatchResourceCalculator(), list(bench.log)
    for event in last_per_subject(bench.log):
        restarted.core.apply(event)
    for each in (bench, restarted):
        hours(each, 28, 20, node="a", since=now)
    assert risk(restarted) == risk(bench)
    assert restarted.resources() == bench.resources()


def test_a_silent_node_and_one_that_lends_nothing_keep_their_history() -> None:
    bench = bench_of()
    now = hours(bench, 30, 30)
    known = risk(bench)
    bench.metric(pods={"web-a": used(90, 10)}, at=now, unknown_since=now)
    bench.decide(now)
    assert (bench.resources().reason, risk(bench)) == ("MetricUnknown", known)
    late = now + timedelta(hours=2)
    bench.decide(late)
    assert bench.resources().withdrawn
    assert (risk(bench).counts, risk(bench).worst, risk(bench).hour) == (known.counts, known.worst, known.hour)


def test_a_budget_that_is_taken_away_leaves_the_configured_threshold_at_once() -> None:
    bench = bench_of()
    now = hours(bench, 20, 20, 20, 20, 20)
    assert bench.resources().batch_cpu_milli == 75_000
    bench.configure(with_budget(None))
    bench.decide(now - timedelta(minutes=57))
    assert (bench.resources().risk, bench.resources().batch_cpu_milli) == (None, 40_000)


def test_a_change_of_the_budget_counts_at_once() -> None:
    bench = bench_of()
    now = hours(bench, 20, 20, 20, 20, 20) - timedelta(minutes=57)
    bench.configure(with_budget({**BUDGET, "highestPercent": 80}))
    bench.decide(now)
    assert (risk(bench).percent, bench.resources().batch_cpu_milli) == (80, 60_000)


def test_a_dry_run_shows_what_a_budget_would_offer() -> None:
    bench = bench_of()
    now = hours(bench, 20, 20, 20, 20, 20) - timedelta(minutes=57)
    tried = load_configuration({"colocation-config": with_budget({**BUDGET, "highestPercent": 80})})
    state = bench.core.node("a")
    assert state is not None
    offered = [offered_by(state, bench.core.wanted(state, now)[0])]
    offered += [offered_under(state, other, bench.core.pools, now) for other in (tried, load_configuration(None))]
    assert [found["kubernetes.io/batch-cpu"] for found in offered] == [75_000, 60_000, 0]
    assert bench.core.decide(now) == []


def test_mid_leaves_the_margin_too() -> None:
    bench = bench_of()
    now = hours(bench, 20, 20, 20, 30, 20, 20) - timedelta(minutes=57)
    later = now + ANSWER
    bench.metric(pods={"web-a": used(20, 10)}, at=later, prod_reclaimable=used(75, 10))
    bench.decide(later)
    # 100 cores, less 26 % of the 50 requested, less 20 in use.
    assert (risk(bench).margin_permille, bench.resources().mid_cpu_milli) == (260, 67_000)


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({"brokenPercent": -1}, "brokenPercent is -1: must be 0 to 100, in tenths"),
        ({"brokenPercent": 0.05}, "brokenPercent is 0.05: must be 0 to 100, in tenths"),
        ({"brokenPercent": 1e18}, "must be 0 to 100, in tenths"),
        ({"brokenPercent": "1"}, "brokenPercent"),
        ({"lowestPercent": 90, "highestPercent": 80}, "must be ordered and within 0 to 100"),
        ({"leastHours": 0}, "must be 1 to 512"),
        ({"leastHours": 10**18}, "must be 1 to 512"),
        ([1], "expected a JSON object"),
        ("1 %", "expected a JSON object"),
    ],
)
def test_a_budget_that_cannot_be_rejects_the_section_and_says_why(budget: object, said: str) -> None:
    bench = Bench()
    bench.configure()
    bench.node()
    bench.metric(pods={"web-a": used(20, 10)})
    bench.decide()
    before = bench.resources()
    bench.configure(with_budget(budget))
    bench.decide()
    resources = bench.resources()
    assert (resources.reason, resources.batch_cpu_milli, resources.risk) == ("ConfigRejected", before.batch_cpu_milli, None)
    assert "extensions.riskBudget" in resources.message
    assert said in resources.message


def test_member_names_match_in_any_case() -> None:
    bench = bench_of(budget={"BROKENpercent": 0.5, "LeastHours": 7})
    hours(bench, 20)
    assert (risk(bench).broken_permille, risk(bench).least_hours, risk(bench).highest_percent) == (5, 7, 95)


def test_a_budget_without_members_is_one_percent() -> None:
    bench = bench_of(budget={})
    hours(bench, 20)
    assert (risk(bench).broken_permille, risk(bench).start_percent) == (10, 60)


def test_the_measured_peak_of_services_counts_before_any_estimate() -> None:
    metric = NodeMetricComputed(node="a", node_usage=used(50, 1), services_peak=used(31, 1))
    assert services_milli(metric) == 31_000


def test_without_a_measured_peak_the_means_of_services_and_the_spread_of_the_node_count() -> None:
    pods = (
        PodMetric(namespace="d", name="web", priority="koord-prod", usage=used(10, 1)),
        PodMetric(namespace="d", name="job", priority="koord-batch", usage=used(30, 1)),
    )
    windows = (
        AggregatedUsage(duration_seconds=600, p99=used(90, 1), avg=used(40, 1)),
        AggregatedUsage(duration_seconds=300, p99=used(48, 1), avg=used(42, 1)),
    )
    metric = NodeMetricComputed(
        node="a", node_usage=used(42, 1), system_usage=used(2, 1), pods=pods, aggregated_node_usages=windows
    )
    assert services_milli(metric) == 10_000 + 2_000 + 6_000


def test_nothing_is_known_of_a_node_without_usage() -> None:
    assert services_milli(NodeMetricComputed(node="a")) is None


counts = st.lists(st.integers(0, 9), max_size=60).map(tuple)
risks = st.none() | st.builds(NodeRisk, group=st.sampled_from(["", "blue"]), counts=counts)


@given(st.lists(st.tuples(st.sampled_from("abc"), risks), max_size=20))
def test_pools_are_the_sum_of_the_last_events(changes: list[tuple[str, NodeRisk | None]]) -> None:
    pools, last = RiskPools(), dict[str, NodeRisk | None]()
    for node, found in changes:
        pools.replace(last.get(node), found)
        last[node] = found
    fresh = RiskPools()
    for found in last.values():
        fresh.replace(None, found)
    for group in ("", "blue"):
        for own in last.values():
            known = history_of(own) if own is not None else history_of(NodeRisk())
            assert pools.pool(group, own, known) == fresh.pool(group, own, known)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 120), min_size=4, max_size=8), st.integers(0, 1000))
def test_a_node_never_lends_more_than_it_can_give(cores: list[float], permille: int) -> None:
    bench = bench_of(budget={"brokenPercent": permille / 10, "leastHours": 1, "lowestPercent": 0, "highestPercent": 100})
    hours(bench, *cores)
    resources = bench.resources()
    free = 100_000 - 20_000
    assert 0 <= resources.batch_cpu_milli <= free


def test_the_start_percentage_is_bounded() -> None:
    bench = Bench()
    bench.configure(with_budget(cpuReclaimThresholdPercent=10**15))
    bench.node()
    hours(bench, 20)
    assert risk(bench).percent == RiskBudget().highest_percent


def test_an_event_without_a_budget_is_as_before() -> None:
    assert b"risk" not in msgspec.json.encode(NodeResources(node="a"))
