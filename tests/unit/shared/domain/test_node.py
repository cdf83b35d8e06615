"""A node as every service derives it from its object, its executor's report, its overcommitment and its condition."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.api.objects.node import Node, Taint
from cotenant.domain.node import NodeSources, estimate_node_allocatable, overcommitted_amounts
from cotenant.events import ExecutorStatus, NodeResources
from cotenant.events.node.conditions import NodeCondition
from cotenant.model.quantities import QuantityError
from tests.builders import node_document

RAW = "node.koordinator.sh/raw-allocatable"
RESERVATION = "node.koordinator.sh/reservation"
RESOURCES = NodeResources(node="a", batch_cpu_milli=1000, batch_memory_bytes=2000, mid_cpu_milli=3000, mid_memory_bytes=4000)
OVERCOMMITTED = {
    "kubernetes.io/batch-cpu": 1000,
    "kubernetes.io/batch-memory": 2000,
    "kubernetes.io/mid-cpu": 3000,
    "kubernetes.io/mid-memory": 4000,
}


def node(
    *,
    capacity: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    labels = {"zone": "z1", "pool": "x"}
    document = node_document("a", labels=labels, annotations=annotations, capacity=capacity, allocatable=allocatable, **spec)
    return msgspec.convert(document, Node)


# -- amounts -------------------------------------------------------------------------------------------------------


def test_the_executors_report_overlays_the_objects_capacity() -> None:
    declared = node(capacity={"cpu": "4", "memory": "64"})
    assert NodeSources(declared).capacity() == {"cpu": 4000, "memory": 64}
    reported = ExecutorStatus(node="a", capacity={"cpu": 8000, "pods": 9})
    assert NodeSources(declared, reported).capacity() == {"cpu": 8000, "memory": 64, "pods": 9}
    assert NodeSources(None, reported).capacity() == {}


def test_allocatable_stands_before_capacity_and_110_pods_before_nothing() -> None:
    assert NodeSources(node(capacity={"cpu": "4", "pods": "8"})).offered() == {"cpu": 4000, "pods": 8}
    assert NodeSources(node(capacity={"cpu": "4"}, allocatable={"cpu": "3500m"})).offered() == {"cpu": 3500, "pods": 110}


def test_what_the_executor_reports_is_laid_over_the_object() -> None:
    report = ExecutorStatus(node="a", allocatable={"cpu": 3000, "memory": 64})
    found = NodeSources(node(allocatable={"cpu": "4", "pods": "8"}), report).offered()
    assert found == {"cpu": 3000, "memory": 64, "pods": 8}


def test_deprecated_names_are_read_as_the_new_ones_unless_those_are_there() -> None:
    old = node(allocatable={"koordinator.sh/batch-cpu": "5", "pods": "1"})
    assert NodeSources(old).offered() == {"koordinator.sh/batch-cpu": 5, "kubernetes.io/batch-cpu": 5, "pods": 1}
    both = node(allocatable={"koordinator.sh/batch-cpu": "5", "kubernetes.io/batch-cpu": "6"})
    assert NodeSources(both).offered()["kubernetes.io/batch-cpu"] == 6


def test_overcommitted_resources_are_offered_beside_the_others_and_are_zero_while_withdrawn() -> None:
    assert overcommitted_amounts(RESOURCES) == OVERCOMMITTED
    withdrawn = msgspec.structs.replace(RESOURCES, withdrawn=True)
    assert overcommitted_amounts(withdrawn) == dict.fromkeys(OVERCOMMITTED, 0)
    assert NodeSources(node(allocatable={"cpu": "1"}), resources=RESOURCES).offered() == {
        "cpu": 1000,
        "pods": 110,
        **OVERCOMMITTED,
    }


def test_a_reservation_is_taken_off_what_is_offered() -> None:
    reserved = node(allocatable={"cpu": "4", "pods": "8"}, annotations={RESERVATION: '{"resources": {"cpu": "1"}}'})
    assert NodeSources(reserved).offered() == {"cpu": 4000, "pods": 8}
    assert NodeSources(reserved).allocatable() == {"cpu": 3000, "pods": 8}


def test_load_is_compared_with_the_raw_amounts_of_an_amplified_node() -> None:
    amplified = NodeSources(node(allocatable={"cpu": "6", "memory": "64"}, annotations={RAW: '{"cpu": "4"}'}))
    assert amplified.raw_allocatable() == {"cpu": 4000}
    assert amplified.capacity_for_load(amplified.allocatable()) == {"cpu": 4000, "memory": 64, "pods": 110}


@pytest.mark.parametrize("text", ["", "{", '{"cpu": "4x"}', "[]"])
def test_raw_amounts_that_cannot_be_read_count_as_none(text: str) -> None:
    assert estimate_node_allocatable({"cpu": "6"}, {RAW: text}) == {"cpu": "6"}


def test_an_amount_that_is_no_quantity_is_an_error() -> None:
    with pytest.raises(QuantityError, match="expected a number"):
        NodeSources(node(allocatable={"cpu": "many"})).allocatable()


# -- labels, taints, existence -----------------------------------------------------------------------------------


def test_the_objects_labels_stand_before_the_executors() -> None:
    report = ExecutorStatus(node="a", labels={"zone": "z2", "arch": "arm64"})
    assert NodeSources(node(), report).labels() == {"zone": "z1", "pool": "x", "arch": "arm64"}
    assert NodeSources(node()).labels() == {"zone": "z1", "pool": "x"}


def test_taints_of_object_executor_and_condition_are_each_there_once() -> None:
    declared = node(taints=[{"key": "a", "effect": "NoSchedule"}])
    report = ExecutorStatus(node="a", taints=(("a", "", "NoSchedule"), ("b", "1", "NoExecute")))
    condition = NodeCondition(node="a", taints=(("b", "1", "NoExecute"), ("c", "", "NoExecute")))
    expected = (
        Taint(key="a", effect="NoSchedule"),
        Taint(key="b", value="1", effect="NoExecute"),
        Taint(key="c", effect="NoExecute"),
    )
    assert NodeSources(declared, report, condition=condition).taints() == expected
    assert NodeSources(declared).taints() == expected[:1]
    assert NodeSources(declared, condition=condition).taints() == expected


def test_a_node_is_cordoned_where_its_object_says_so() -> None:
    assert NodeSources(node(unschedulable=True)).unschedulable()
    assert not NodeSources(node()).unschedulable()


def test_without_its_object_a_node_has_nothing() -> None:
    known = NodeSources(
        None,
        ExecutorStatus(node="a", labels={"zone": "z1"}, allocatable={"cpu": 1000}, taints=(("a", "", "NoSchedule"),)),
        RESOURCES,
        NodeCondition(node="a", taints=(("b", "", "NoExecute"),)),
    )
    assert not known.labels()
    assert known.offered() == known.allocatable() == known.raw_allocatable() == {}
    assert known.taints() == ()
    assert not known.unschedulable()


# -- what the calculator adds --------------------------------------------------------------------------------------

GPUS = {"koordinator.sh/gpu": 100}
AMPLIFIED = NodeResources(node="a", withdrawn=True, amplification={"cpu": 1.5, "pods": 2.0}, devices=GPUS)


def test_cpu_and_memory_are_amplified_for_whoever_places_pods_and_raw_for_load() -> None:
    report = ExecutorStatus(node="a", allocatable={"cpu": 3000})
    found = NodeSources(node(allocatable={"cpu": "4", "memory": "64", "pods": "8"}), report, AMPLIFIED)
    assert found.offered() == {"cpu": 4500, "memory": 64, "pods": 8, **GPUS, **dict.fromkeys(OVERCOMMITTED, 0)}
    assert found.raw_allocatable() == {"cpu": 3000, "memory": 64}
    assert found.capacity_for_load(found.allocatable())["cpu"] == 3000
    assert found.amplification() == {"cpu": 1.5, "pods": 2.0}


def test_a_reservation_is_taken_off_the_amplified_amount() -> None:
    reserved = node(allocatable={"cpu": "4"}, annotations={RESERVATION: '{"resources": {"cpu": "1"}}'})
    assert NodeSources(reserved, resources=AMPLIFIED).allocatable()["cpu"] == 5000


def test_an_object_that_is_amplified_already_is_not_amplified_twice() -> None:
    twice = node(allocatable={"cpu": "8"}, annotations={RAW: '{"cpu": "4"}'})
    assert NodeSources(twice, resources=AMPLIFIED).offered()["cpu"] == 6000


def test_the_ratios_of_another_control_plane_are_those_of_the_annotation() -> None:
    annotation = "node.koordinator.sh/resource-amplification-ratio"
    assert NodeSources(node(annotations={annotation: '{"cpu":1.22}'})).amplification() == {"cpu": 1.22}
    assert NodeSources(node(annotations={annotation: "{"})).amplification() == {}


def test_labels_of_devices_stand_behind_all_others() -> None:
    resources = NodeResources(node="a", device_labels={"zone": "of the device", "model": "A100"})
    assert NodeSources(node(), resources=resources).labels() == {"zone": "z1", "pool": "x", "model": "A100"}
