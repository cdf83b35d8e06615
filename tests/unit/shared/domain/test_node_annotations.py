"""What a node's annotations reserve, lend and share."""

from __future__ import annotations

import pytest

from cotenant.domain.reservation import (
    NodeReservation,
    kubelet_reserved,
    node_reserved,
    parse_cpu_list,
    parse_reservation,
    trim_allocatable,
)
from cotenant.domain.third_party import (
    ThirdPartyAllocation,
    ThirdPartyError,
    batch_total,
    parse_allocations,
    parse_origin,
    write_allocation,
    write_origin,
)

GIB = 1 << 30
RESERVATION = "node.koordinator.sh/reservation"
THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"


def reserved(text: str) -> NodeReservation:
    return parse_reservation({RESERVATION: text})


def test_reserved_cpus_replace_the_quantity() -> None:
    found = reserved('{"resources": {"cpu": "5", "memory": "2Gi"}, "reservedCPUs": "0-2,6"}')
    assert found.resources == {"cpu": 4000, "memory": 2 * GIB}
    assert found.reserved_cpus == {0, 1, 2, 6}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"reservedCPUs": "a"}', '{"reservedCPUs": "3-1"}', '{"resources": {"cpu": "1x"}}']
)
def test_what_cannot_be_read_reserves_nothing_and_says_so(text: str) -> None:
    found = reserved(text)
    assert found.resources == {}
    assert RESERVATION in found.error


def test_a_cpu_list_is_bounded() -> None:
    assert parse_cpu_list(" 1 , 3-4") == {1, 3, 4}
    with pytest.raises(ValueError, match="below 8192"):
        parse_cpu_list("0-9999999999")


def test_the_reserve_is_the_larger_one_for_each_resource() -> None:
    kubelet = kubelet_reserved({"cpu": 8000, "memory": 16 * GIB}, {"cpu": 7500, "memory": 12 * GIB})
    assert kubelet == {"cpu": 500, "memory": 4 * GIB}
    assert node_reserved(kubelet, reserved('{"resources": {"cpu": "1", "memory": "1Gi"}}')) == {"cpu": 1000, "memory": 4 * GIB}


def test_a_resource_that_allocatable_does_not_name_is_wholly_allocatable() -> None:
    assert kubelet_reserved({"cpu": 8000, "memory": GIB}, {}) == {"cpu": 0, "memory": 0}


def test_trimming_leaves_batch_and_stops_at_zero() -> None:
    allocatable = {"cpu": 4000, "memory": GIB, "kubernetes.io/batch-cpu": 100, "nvidia.com/gpu": 8}
    found = reserved('{"resources": {"cpu": "6", "memory": "512Mi", "kubernetes.io/batch-cpu": "50"}}')
    trimmed, changed = trim_allocatable(allocatable, found)
    assert changed
    assert trimmed == {"cpu": 0, "memory": GIB // 2, "kubernetes.io/batch-cpu": 100, "nvidia.com/gpu": 8}


def test_reserved_cpus_only_trims_nothing() -> None:
    found = reserved('{"resources": {"cpu": "6"}, "applyPolicy": "ReservedCPUsOnly"}')
    assert trim_allocatable({"cpu": 4000}, found) == ({"cpu": 4000}, False)


def test_only_batch_allocations_are_summed_and_one_name_can_be_left_out() -> None:
    text = (
        '{"allocations": [{"name": "a", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": "2k"}},'
        ' {"name": "b", "priority": "koord-batch", "resources": {"kubernetes.io/batch-cpu": 500}},'
        ' {"name": "c", "priority": "koord-mid", "resources": {"kubernetes.io/batch-cpu": "9"}}]}'
    )
    found = parse_allocations({THIRD_PARTY: text})
    assert batch_total(found) == {"kubernetes.io/batch-cpu": 2500}
    assert batch_total(found, replaced="a") == {"kubernetes.io/batch-cpu": 500}


def test_writing_replaces_the_entry_of_the_name_and_keeps_the_rest() -> None:
    first = write_allocation({"x": "y"}, ThirdPartyAllocation("a", "koord-batch", {"r": "1"}))
    second = write_allocation(first, ThirdPartyAllocation("b", "koord-mid", {"s": "2"}))
    third = write_allocation(second, ThirdPartyAllocation("a", "koord-batch", {"r": "3"}))
    assert third["x"] == "y"
    assert [(entry.name, entry.resources) for entry in parse_allocations(third)] == [("a", {"r": "3"}), ("b", {"s": "2"})]


def test_the_origin_is_laid_over_what_was_there_and_nonsense_is_replaced() -> None:
    written = write_origin({ORIGIN: '{"resources": {"other": "7"}}'}, {"kubernetes.io/batch-cpu": "50k"})
    assert parse_origin(written) == {"kubernetes.io/batch-cpu": "50k", "other": "7"}
    assert parse_origin(write_origin({ORIGIN: "?"}, {"r": "1"})) == {"r": "1"}
    assert parse_origin({ORIGIN: "{}"}) is None
    assert parse_origin({}) is None


@pytest.mark.parametrize("text", ["?", "[]", '{"allocations": [{"name": "a", "resources": {"r": "1x"}}]}'])
def test_annotations_that_cannot_be_read_are_errors(text: str) -> None:
    with pytest.raises(ThirdPartyError, match="thirdPartyAllocations"):
        parse_allocations({THIRD_PARTY: text})
