"""What prod pods will not need of their requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import MAX_AMOUNT
from cotenant_metrics_ingest.prediction.predictors import PodRequest, Prediction, predict

DAY = 86_400
GIB = 1 << 30


def usage(cpu: int, memory: int = 0) -> Usage:
    return Usage(cpu_milli=cpu, memory_bytes=memory)


def request(uid: str, cpu: int, *, age: float = 2 * DAY, prod: bool = True, ended: bool = False) -> PodRequest:
    return PodRequest(uid=uid, prod=prod, age_seconds=age, request=usage(cpu, GIB), ended=ended)


def predicted(
    pods: list[PodRequest], peaks: dict[str, Usage], tiers: Usage | None = None, allocatable: Usage | None = None
) -> Prediction:
    return predict(
        pods,
        peaks,
        {"tiers": tiers if tiers is not None else usage(0)},
        allocatable=allocatable or usage(1 << 40, 1 << 50),
        cold_start_seconds=DAY,
        margin_percent=10,
    )


def test_a_pod_lends_what_its_peak_with_the_margin_leaves_of_its_request() -> None:
    found = predicted([request("a", 2000)], {"a": usage(500, GIB)})
    assert found.reclaimable == usage(1450, 0)


def test_a_cold_pod_lends_nothing_and_its_request_is_part_of_the_peak() -> None:
    found = predicted([request("a", 2000, age=DAY)], {"a": usage(1)})
    assert found.reclaimable == usage(0)
    assert found.pod_peak.cpu_milli == 2000
    assert found.cold == ("a",)


def test_a_pod_without_a_model_takes_part_in_neither_predictor() -> None:
    found = predicted([request("a", 2000), request("b", 9000)], {"a": usage(1000)})
    assert found.priority is not None
    assert found.priority.request.cpu_milli == 2000
    assert found.unpredicted == ("b",)


def test_a_pod_that_comes_twice_counts_once() -> None:
    found = predicted([request("a", 2000), request("a", 2000)], {"a": usage(1000)})
    assert found.reclaimable == usage(900, GIB)
    assert found.unpredicted == ("a",)


def test_pods_of_other_tiers_and_ended_ones_do_not_count() -> None:
    found = predicted([request("a", 2000, prod=False), request("b", 2000, ended=True)], {"a": usage(1), "b": usage(1)})
    assert found.reclaimable == usage(0)
    assert found.pod_peak == usage(0)


def test_the_smaller_predictor_wins_for_each_resource() -> None:
    found = predicted([request("a", 2000)], {"a": usage(100, GIB)}, usage(1500, 0))
    assert found.reclaimable == usage(350, 0)


def test_an_overcommitted_node_lends_no_more_than_its_allocatable_leaves() -> None:
    found = predicted([request("a", 10_000)], {"a": usage(1000)}, usage(0), usage(3000, GIB))
    assert found.reclaimable is not None
    assert found.reclaimable.cpu_milli == 1900


def test_without_allocatable_or_a_tier_there_is_no_result_but_a_reason() -> None:
    missing = predict([], {}, {"__node-sys__": None}, allocatable=usage(1), cold_start_seconds=DAY, margin_percent=10)
    unknown = predict([], {}, {}, allocatable=None, cold_start_seconds=DAY, margin_percent=10)
    assert (missing.reclaimable, unknown.reclaimable) == (None, None)
    assert "__node-sys__" in missing.error
    assert "allocatable" in unknown.error


def test_sums_of_the_largest_amounts_stay_within_the_bounds_of_events() -> None:
    pods = [request(str(number), MAX_AMOUNT) for number in range(20)]
    found = predicted(pods, {pod.uid: usage(MAX_AMOUNT) for pod in pods})
    assert found.pod is not None
    assert found.pod.request.cpu_milli == found.pod.peak.cpu_milli == MAX_AMOUNT


amounts = st.integers(min_value=0, max_value=1 << 45)


@given(st.lists(st.tuples(amounts, amounts), max_size=8), amounts, amounts)
def test_never_more_than_requests_or_allocatable_and_less_with_more_use(
    pods: list[tuple[int, int]], tiers: int, allocatable: int
) -> None:
    requests = [request(str(number), asked) for number, (asked, _) in enumerate(pods)]
    peaks = {str(number): usage(peak) for number, (_, peak) in enumerate(pods)}
    found = predicted(requests, peaks, usage(tiers), usage(allocatable, 1 << 50)).reclaimable
    more = predicted(requests, {uid: usage(peak.cpu_milli + 1000) for uid, peak in peaks.items()}, usage(tiers + 1000),
                     usage(allocatable, 1 << 50)).reclaimable
    assert found is not None
    assert more is not None
    assert 0 <= more.cpu_milli <= found.cpu_milli <= min(sum(asked for asked, _ in pods), allocatable)
