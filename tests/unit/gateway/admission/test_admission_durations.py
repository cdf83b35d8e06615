"""What admission functions take, by the labels of Koordinator's webhooks."""

from __future__ import annotations

import pytest

from cotenant_gateway.shell.durations import BOUNDS_MILLISECONDS, Durations, HistogramSeries
from cotenant_gateway.statuses import ApiError
from tests.builders import container
from tests.unit.gateway.builders_gateway import World, manifest


def watched() -> tuple[World, Durations]:
    world, durations = World(), Durations()
    world.core.stopwatch = durations
    return world, durations


def test_each_function_of_a_creation_is_counted_once() -> None:
    world, durations = watched()
    world.create("pods", manifest("web"))
    counts = {key: sum(series.counts) for key, series in durations.series.items()}
    assert counts["mutate", "pod", "CREATE", "ExtendedResourceSpec", "allowed"] == 1
    assert counts["mutate", "pod", "CREATE", "DeviceResourceSpec", "allowed"] == 1
    assert counts["validate", "pod", "CREATE", "ClusterColocationProfile", "allowed"] == 1
    assert {*counts.values()} == {1}
    world.patch("pods", "web", {"metadata": {"labels": {"a": "b"}}})
    assert ("validate", "pod", "UPDATE", "pod_update_is_allowed", "allowed") in durations.series


def test_what_is_refused_is_counted_as_rejected() -> None:
    world, durations = watched()
    amounts = {"koordinator.sh/gpu": "150"}
    with pytest.raises(ApiError):
        world.create("pods", manifest("web", containers=[container(image="app:1", requests=amounts, limits=amounts)]))
    with pytest.raises(ApiError):
        world.create("pods", manifest("web", priorityClassName="none-such"))
    rejected = {(key[0], key[3]) for key in durations.series if key[4] == "rejected"}
    assert ("validate", "devices_are_possible") in rejected


def test_buckets_are_cumulative_and_end_with_everything() -> None:
    durations = Durations()
    for seconds in (0.0, 0.000_001, 0.000_001_5, 10.0, 1e9):
        durations.took(("a",), seconds)
    series = durations.series["a",]
    shown = dict(series.up_to())
    assert (shown["0.001"], shown["0.002"], shown["524.288"], shown["+Inf"]) == (2, 3, 3, 5)
    assert len(shown) == len(BOUNDS_MILLISECONDS) + 1
    assert series.milliseconds == pytest.approx(1e12 + 10_000, rel=1e-9)
    assert [count for _, count in HistogramSeries().up_to()] == [0] * 21
