"""The arbiter sees a node as the scheduler does: no pod is moved to a node that the scheduler would refuse."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.api.objects.node import decode_node
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.objects import ObjectStored
from cotenant.model.quantities import QuantityError
from cotenant.model.subjects import condition_subject, executor_subject, node_subject, resources_subject
from cotenant_descheduler_arbiter.state.facts import NodeFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.node_views import node_facts
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.node_facts import NodeMessages as SchedulerFacts
from cotenant_scheduler.state.node_facts import describe
from tests.unit.descheduler_arbiter.builders_descheduler_arbiter import configuration, hot_and_cold

START = datetime(2026, 1, 1, tzinfo=UTC)
AT_ONCE = {"anomalyCondition": {"consecutiveAbnormalities": 1}}
EXECUTOR = ExecutorStatus(
    node="n",
    allocatable={"cpu": 6000, "pods": 32},
    labels={"kubernetes.io/hostname": "n", "zone": "a"},
    taints=(("runtime", "process", "NoSchedule"),),
)
OFFER = NodeResources(node="n", batch_cpu_milli=1500, batch_memory_bytes=1 << 30, mid_cpu_milli=7)
LOST = NodeCondition(node="n", status="Unknown", taints=(("node.kubernetes.io/unreachable", "", "NoExecute"),))

NODES: dict[str, tuple[dict[str, object], dict[str, str], tuple[Payload, ...]]] = {
    "allocatable and pods": ({"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "20"}}, {}, ()),
    "capacity only": ({"capacity": {"cpu": "8", "memory": "16Gi"}}, {}, ()),
    "nothing declared": ({}, {}, ()),
    "executor only": ({}, {}, (EXECUTOR,)),
    "executor over object": ({"allocatable": {"cpu": "8", "memory": "16Gi"}}, {}, (EXECUTOR, OFFER, LOST)),
    "withdrawn": ({"allocatable": {"cpu": "8"}}, {}, (NodeResources(node="n", batch_cpu_milli=900, withdrawn=True),)),
    "deprecated names": ({"allocatable": {"cpu": "8", "koordinator.sh/batch-cpu": "500"}}, {}, ()),
    "reservation": (
        {"allocatable": {"cpu": "8", "memory": "16Gi"}},
        {"node.koordinator.sh/reservation": json.dumps({"resources": {"cpu": "7500m"}})},
        (OFFER,),
    ),
    "reserved CPUs": (
        {"allocatable": {"cpu": "8"}},
        {"node.koordinator.sh/reservation": json.dumps({"reservedCPUs": "0-3"})},
        (),
    ),
    "amplified": ({"allocatable": {"cpu": "16"}}, {"node.koordinator.sh/raw-allocatable": json.dumps({"cpu": "8"})}, ()),
    "amplified unreadably": (
        {"allocatable": {"cpu": "16"}},
        {"node.koordinator.sh/raw-allocatable": json.dumps({"cpu": "8", "memory": "much"})},
        (),
    ),
}
SUBJECTS = {
    ExecutorStatus: executor_subject("n"),
    NodeResources: resources_subject("n"),
    NodeCondition: condition_subject("n"),
}


def seen_by_both(
    status: dict[str, object], annotations: dict[str, str], parts: tuple[Payload, ...]
) -> tuple[NodeFacts, SchedulerFacts]:
    fold, scheduler = ClusterFold(), SchedulerFacts("n")
    metadata = {"name": "n", "labels": {"zone": "b"}, "annotations": annotations}
    document = msgspec.json.encode({"metadata": metadata, "spec": {"taints": []}, "status": status})
    scheduler.node = decode_node(document)
    facts = ((node_subject("n"), ObjectStored(object=msgspec.Raw(document))), *((SUBJECTS[type(part)], part) for part in parts))
    for sequence, (subject, data) in enumerate(facts, 1):
        fold.apply(Event(subject=subject, data=data, sequence=sequence, time=START))
    for part in parts:
        if isinstance(part, ExecutorStatus):
            scheduler.executor = part
        elif isinstance(part, NodeResources):
            scheduler.resources = part
        elif isinstance(part, NodeCondition):
            scheduler.condition = part
    return node_facts(fold, "n", []), scheduler


@pytest.mark.parametrize("name", NODES)
def test_both_services_derive_the_same_node(name: str) -> None:
    here, there = seen_by_both(*NODES[name])
    described = describe(there, LoadAwareArgs())
    assert described is not None
    assert here.allocatable == described.allocatable
    assert here.capacity_for_load == described.capacity_for_load
    assert here.labels == described.labels
    assert here.taints == described.taints
    assert here.unschedulable == described.unschedulable


def reasons_against(status: dict[str, object], annotations: dict[str, str] | None = None) -> set[str]:
    """Why the pods of a hot node are not moved to the only other node, declared like this and running one pod."""
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    metadata = {"name": "cold", "annotations": annotations or {}}
    cluster.store(node_subject("cold"), {"metadata": metadata, "spec": {}, "status": status})
    cluster.cycle()
    assert cluster.migrations() == []
    return {kept.reason for kept in cluster.judged("hot").kept}


def test_a_node_that_declares_capacity_only_is_a_target() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    status = {"capacity": {"cpu": "10", "memory": "100Gi"}}
    cluster.store(node_subject("cold"), {"metadata": {"name": "cold"}, "spec": {}, "status": status})
    cluster.cycle()
    assert cluster.migrations()


def test_what_a_node_reserves_is_no_room_for_moved_pods() -> None:
    annotations = {
        "node.koordinator.sh/reservation": json.dumps({"resources": {"cpu": "9100m"}}),
        "node.koordinator.sh/raw-allocatable": json.dumps({"cpu": "10"}),
    }
    reasons = reasons_against({"allocatable": {"cpu": "10", "memory": "100Gi"}}, annotations)
    assert any("requests 500 of cpu, 400 free" in reason for reason in reasons)


def test_a_node_that_does_not_say_how_many_pods_it_takes_takes_110() -> None:
    cluster = hot_and_cold(configuration(load=AT_ONCE))
    status = {"allocatable": {"cpu": "1000", "memory": "100Gi"}}
    cluster.store(node_subject("cold"), {"metadata": {"name": "cold"}, "spec": {}, "status": status})
    for number in range(109):
        cluster.pod(f"small-{number}", "cold", used=0, owner="idle")
    cluster.cycle()
    assert cluster.migrations() == []
    assert any("all 110 pod slots are taken" in kept.reason for kept in cluster.judged("hot").kept)


def test_a_node_whose_quantities_cannot_be_read_is_no_target() -> None:
    status: dict[str, object] = {"allocatable": {"cpu": "10", "memory": "lots"}}
    assert reasons_against(status) == set()  # it is not even looked at: it has no capacity to compare load with
    here, there = seen_by_both(status, {}, ())
    assert here.allocatable == {"pods": 0}
    with pytest.raises(QuantityError):
        describe(there, LoadAwareArgs())


def test_a_node_whose_quantities_cannot_be_read_is_no_target_if_the_calculator_amplifies_it() -> None:
    status: dict[str, object] = {"allocatable": {"cpu": "10", "memory": "lots"}}
    here, _ = seen_by_both(status, {}, (NodeResources(node="n", amplification={"cpu": 1.5}),))
    assert here.allocatable == here.capacity_for_load == {"pods": 0}
