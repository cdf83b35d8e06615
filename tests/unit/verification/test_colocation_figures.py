"""The figures of `bench colocation`: the ideal queue, percentiles, medians over pairs, the load's plan."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant_verification.bench.colocation.cases import CASES
from cotenant_verification.bench.colocation.figures import (
    CaseFigures,
    LatencyWindow,
    medians,
    over_ideal,
    ratio,
    table,
    window,
)
from cotenant_verification.bench.colocation.ideal_queue import ideal_latencies
from cotenant_verification.bench.colocation.service import arrivals


def test_a_thread_serves_one_request_after_the_other() -> None:
    assert ideal_latencies([[(0.0, 2.0), (1.0, 2.0), (10.0, 1.0)]], cpus=2) == [[2.0, 3.0, 1.0]]


def test_threads_on_enough_cpus_do_not_wait_for_one_another() -> None:
    assert ideal_latencies([[(0.0, 5.0), (0.0, 5.0)], [(1.0, 1.0)]], cpus=2) == [[5.0, 10.0], [1.0]]


def test_threads_on_one_cpu_are_served_in_the_order_of_arrival() -> None:
    assert ideal_latencies([[(0.0, 4.0), (1.0, 1.0)], [(2.0, 1.0)]], cpus=1) == [[4.0, 4.0], [4.0]]


requests = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=12).map(
    lambda found: sorted((float(arrival), float(cost)) for arrival, cost in found)
)


@given(threads=st.lists(requests, max_size=4), cpus=st.integers(1, 3))
def test_the_ideal_queue_serves_everything_and_no_faster_than_it_costs(
    threads: list[list[tuple[float, float]]], cpus: int
) -> None:
    found = ideal_latencies(threads, cpus)
    assert [len(each) for each in found] == [len(each) for each in threads]
    spans: list[tuple[float, float]] = []
    for asked, latencies in zip(threads, found, strict=True):
        ends = [arrival + latency for (arrival, _), latency in zip(asked, latencies, strict=True)]
        begins = [end - cost for end, (_, cost) in zip(ends, asked, strict=True)]
        assert all(begin >= arrival for begin, (arrival, _) in zip(begins, asked, strict=True))
        assert all(one <= other for one, other in zip(ends, begins[1:], strict=False)), "one at a time"
        spans += zip(begins, ends, strict=True)
    for moment in {begin for begin, _ in spans}:
        assert sum(begin <= moment < end for begin, end in spans) <= cpus


@given(threads=st.lists(requests, min_size=1, max_size=3))
def test_with_a_cpu_for_each_thread_the_ideal_is_its_own_first_come_first_served_queue(
    threads: list[list[tuple[float, float]]],
) -> None:
    for asked, latencies in zip(threads, ideal_latencies(threads, len(threads)), strict=True):
        free = 0.0
        for (arrival, cost), latency in zip(asked, latencies, strict=True):
            free = max(free, arrival) + cost
            assert latency == free - arrival


def of(p99: float, ideal: float = 5.0) -> LatencyWindow:
    return LatencyWindow(p50_ms=2.0, p99_ms=p99, p999_ms=p99 + 1, ideal_p99_ms=ideal, utilisation=0.5, requests=100)


def test_one_spoiled_pair_does_not_decide() -> None:
    alone = [of(6.0), of(6.0), of(60.0)]
    beside = [of(6.3), of(600.0), of(6.3)]
    assert ratio(beside, alone) == 1.05
    found = medians(beside)
    assert found is not None
    assert (found.p99_ms, found.requests, found.lost) == (6.3, 300, 0)


def test_windows_in_which_a_service_ended_are_counted_and_left_out() -> None:
    found = medians([of(6.0), None, of(8.0)])
    assert found is not None
    assert (found.p99_ms, found.lost) == (7.0, 1)
    assert ratio([of(6.0), None], [None, of(6.0)]) is None
    assert over_ideal([None]) is None
    assert medians([None]) is None


def test_a_window_has_the_percentiles_of_all_threads_in_milliseconds() -> None:
    first = [(at * 10_000, at * 10_000 + 2_000, 2_000) for at in range(99)]
    second = [(0, 500_000, 2_000)]
    found = window([[first, second]], cpus=2, utilisation=0.25)
    assert found is not None
    assert (found.p50_ms, found.p99_ms, found.requests) == (2.0, 500.0, 100)
    assert found.ideal_p99_ms == 2.0
    assert window([[[]]], cpus=2, utilisation=0.1) is None


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_load_of_a_case_fills_the_window(name: str) -> None:
    plan = CASES[name].plan(20.0)
    assert sum(seconds for seconds, _ in plan) == pytest.approx(20.0)
    assert {rate for _, rate in plan} == set(CASES[name].rates)


def test_arrivals_follow_the_plan_and_the_seed() -> None:
    plan: list[list[float]] = [[50.0, 50.0], [50.0, 250.0]]
    found = arrivals(plan, random.Random("0/0"))
    assert found == arrivals(plan, random.Random("0/0"))
    assert all(one <= other for one, other in pairwise(found))
    slow = sum(at < 50 for at in found)
    assert 2200 < slow < 2800
    assert 11_800 < len(found) - slow < 13_200
    assert arrivals([[5.0, 0.0]], random.Random(0)) == []


def test_the_table_says_where_nothing_was_measured() -> None:
    figures = CaseFigures(
        case="mem",
        class_="fair",
        alone=medians([of(6.0)]),
        beside=None,
        uncontrolled=None,
        p99_over_alone=None,
        p99_over_ideal=None,
        uncontrolled_over_alone=None,
        utilisation=None,
        pairs=1,
        seconds=20.0,
        services_ended=1,
        neighbours_ended=2,
        executor={"memory-evict": 2},
    )
    lines = table([figures])
    assert lines[1].split()[:5] == ["mem", "fair", "alone", "2.00", "6.00"]
    assert lines[2].split() == ["mem", "fair", "beside", *"------", "0"]
    assert lines[4] == "mem: the executor reported memory-evict 2; 2 neighbours and 1 services ended"
