"""A pod that is resized in place: until its node has done it, its request is what the scheduler counts."""

from __future__ import annotations

import msgspec
import pytest

from cotenant.events import Placement
from cotenant.events.node.metrics import Usage
from cotenant.events.resizes import PlacementResize
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import GIB, Bench, used

BY_REQUEST = '{"enable": true, "cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "request"}'


def place_resized(bench: Bench, *, asked: int, counted: int) -> None:
    """A pod whose manifest asks for so many CPUs and GiB, while others count for it."""
    placed = bench.place("web", cpu=str(asked), memory=f"{asked}Gi")
    assert isinstance(placed.data, Placement)
    resized = msgspec.structs.replace(
        placed.data,
        requests={"cpu": counted * 1000, "memory": counted * GIB},
        resize=PlacementResize(sequence=placed.sequence),
    )
    bench.store(placed.subject, resized)


def high_priority_request(bench: Bench) -> Usage:
    bench.decide()
    term = next(term for term in bench.resources().terms if term.name == "high-priority-request")
    return Usage(cpu_milli=term.cpu_milli, memory_bytes=term.memory_bytes)


@pytest.fixture
def bench() -> Bench:
    """A node that lends by requests."""
    bench = Bench()
    bench.configure(BY_REQUEST)
    bench.node()
    bench.metric(pods={"web": used(1, 1)})
    return bench


@pytest.mark.parametrize(("asked", "counted"), [(2, 6), (6, 8)], ids=["shrinks", "grows after an earlier resize"])
def test_a_pod_that_is_resized_counts_with_the_requests_of_its_placement(bench: Bench, asked: int, counted: int) -> None:
    place_resized(bench, asked=asked, counted=counted)
    assert high_priority_request(bench) == used(counted, counted)


def test_a_refused_resize_counts_with_what_was_admitted(bench: Bench) -> None:
    place_resized(bench, asked=50, counted=4)
    assert high_priority_request(bench) == used(4, 4)


def test_what_the_manifest_asks_for_counts_once_the_resize_is_done(bench: Bench) -> None:
    place_resized(bench, asked=2, counted=30)
    before = high_priority_request(bench)
    bench.place("web", cpu="2", memory="2Gi")
    assert (before, high_priority_request(bench)) == (used(30, 30), used(2, 2))
