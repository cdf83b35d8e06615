"""NodeResourceTopology: a node's machine as measured, over what was declared of it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from cotenant.events.node.resources import NodeResources, ZoneResources
from cotenant.events.node.topology import (
    CpuBasicInfo,
    CpuPool,
    KubeletPolicies,
    LogicalCPU,
    MachineTopology,
    NumaNode,
)
from cotenant.kinds.node_resource_topologies import DEFINITION, TOPOLOGIES
from cotenant.kinds.nodes import NODES
from cotenant.kinds.registry import REGISTRY
from cotenant.model.subjects import resources_subject, topology_subject
from cotenant_gateway.http.tables import TableFormat, table
from cotenant_gateway.planning.declared import documents_of_no_node
from cotenant_gateway.planning.endings import end
from cotenant_gateway.planning.updates import plan_replacement
from tests.unit.gateway.builders_gateway import NOW, World, as_json

GIB = 1 << 30
DOCUMENT = {
    "apiVersion": "topology.node.k8s.io/v1alpha1",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "n1", "labels": {"of": "mine"}, "annotations": {"own": "text"}},
    "zones": [
        {
            "name": "node-0",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "99", "allocatable": "99", "available": "99"},
                {"name": "gpu", "capacity": "2", "allocatable": "2", "available": "1"},
            ],
        },
        {"name": "node-9", "type": "Node"},
    ],
}


def machine(**changes: Any) -> MachineTopology:
    """Two sockets of two CPUs, a NUMA node each."""
    cpus = tuple(LogicalCPU(cpu=cpu, core=cpu, socket=cpu // 2, node=cpu // 2) for cpu in range(4))
    numa = tuple(
        NumaNode(node=node, memory_bytes=2 * GIB, hugepages_2mi=512 * node, distances=(10, 21) if node == 0 else (21, 10))
        for node in range(2)
    )
    whole = MachineTopology(
        node="n1",
        cpus=cpus,
        numa_nodes=numa,
        cpu=CpuBasicInfo(cpu_model="EPYC", vendor_id="AMD", hyper_thread_enabled=True),
        shared_pools=(CpuPool(socket=0, node=0, cpuset="0-1"), CpuPool(socket=1, node=1, cpuset="2-3")),
    )
    return msgspec.structs.replace(whole, **changes)


@pytest.fixture
def world() -> World:
    return World()


def measure(world: World, **changes: Any) -> dict[str, Any]:
    world.put(topology_subject("n1"), machine(**changes))
    return shown(world)


def shown(world: World) -> dict[str, Any]:
    return world.show("noderesourcetopologies", "n1", "")


def zone(document: dict[str, Any], name: str) -> dict[str, dict[str, str]]:
    found = next(each for each in document["zones"] if each["name"] == name)
    return {each["name"]: each for each in found["resources"]}


def test_a_measured_machine_has_a_topology_without_a_document(world: World) -> None:
    document = measure(world)
    assert document["apiVersion"] == "topology.node.k8s.io/v1alpha1"
    assert document["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "Koordinator"}
    assert document["topologyPolicies"] == ["None"]
    assert [each["name"] for each in document["zones"]] == ["node-0", "node-1"]
    assert document["zones"][1]["costs"] == [{"name": "node-0", "value": 21}, {"name": "node-1", "value": 10}]
    assert [each["name"] for each in document["zones"][1]["resources"]] == ["cpu", "hugepages-1Gi", "hugepages-2Mi", "memory"]
    assert zone(document, "node-1")["memory"] == {"name": "memory", "capacity": "1Gi", "allocatable": "1Gi", "available": "1Gi"}
    annotations = document["metadata"]["annotations"]
    assert json.loads(annotations["node.koordinator.sh/cpu-shared-pools"])[1] == {"socket": 1, "node": 1, "cpuset": "2-3"}
    assert json.loads(annotations["node.koordinator.sh/cpu-basic-info"])["cpuModel"] == "EPYC"
    assert len(json.loads(annotations["node.koordinator.sh/cpu-topology"])["detail"]) == 4
    assert annotations["node.koordinator.sh/reservation"] == "{}"


def test_the_kubelets_policies_are_named(world: World) -> None:
    policies = KubeletPolicies(
        cpu_manager_policy="static",
        reserved_cpus="0",
        topology_manager_policy="restricted",
        topology_manager_scope="pod",
    )
    document = measure(world, kubelet=policies)
    assert document["topologyPolicies"] == ["RestrictedPodLevel"]
    policy = json.loads(document["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"])
    assert policy == {"policy": "static", "reservedCPUs": "0"}


def test_what_was_declared_stays_where_nothing_was_measured(world: World) -> None:
    world.create(TOPOLOGIES, DOCUMENT, "")
    assert shown(world)["zones"] == DOCUMENT["zones"]
    document = measure(world)
    assert [each["name"] for each in document["zones"]] == ["node-0", "node-1"]
    assert zone(document, "node-0")["cpu"]["capacity"] == "2"
    assert zone(document, "node-0")["gpu"] == {"name": "gpu", "capacity": "2", "allocatable": "2", "available": "1"}
    assert document["metadata"]["annotations"]["own"] == "text"
    assert document["metadata"]["labels"]["of"] == "mine"


def test_batch_resources_of_a_zone_are_shown_beside_what_was_measured(world: World) -> None:
    batch = ZoneResources(name="node-1", batch_cpu_milli=1500, batch_memory_bytes=GIB)
    resources = NodeResources(node="n1", zones=(batch, msgspec.structs.replace(batch, name="node-7")))
    world.put(resources_subject("n1"), resources)
    assert world.core.get(TOPOLOGIES, "", "n1") is None
    document = measure(world)
    assert zone(document, "node-1")["kubernetes.io/batch-cpu"]["allocatable"] == "1500"
    assert "kubernetes.io/batch-cpu" not in zone(document, "node-0")
    assert len(document["zones"]) == 2
    world.put(resources_subject("n1"), msgspec.structs.replace(resources, withdrawn=True))
    assert "kubernetes.io/batch-cpu" not in zone(shown(world), "node-1")


def test_a_reservation_by_zone_is_taken_off_allocatable_alone(world: World) -> None:
    document = measure(world, numa_reservation=True, reserved_cpu_milli=1001, reserved_memory_bytes=GIB)
    assert document["metadata"]["labels"]["node.koordinator.sh/enable-numa-reservation"] == "true"
    cpu = zone(document, "node-0")["cpu"]
    assert (cpu["capacity"], cpu["allocatable"], cpu["available"]) == ("2", "1499m", "1499m")
    assert zone(document, "node-0")["memory"]["allocatable"] == "1536Mi"


def test_what_a_machine_cannot_measure_is_shown_at_its_node(world: World) -> None:
    world.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, "")
    world.put(topology_subject("n1"), machine(unavailable={"cpi": "no counters", "resctrl": "not mounted"}))
    node = world.show("nodes", "n1", "")
    assert json.loads(node["metadata"]["annotations"]["cotenant.io/unmeasured"])["cpi"] == "no counters"
    rows = json.loads(table(REGISTRY.of(NODES).layout, world.core.objects(NODES), {}, NOW, TableFormat()))
    assert rows["rows"][0]["cells"][-1] == "cpi,resctrl"


def test_a_topology_ends_with_its_node(world: World) -> None:
    world.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, "")
    measure(world)
    node = world.core.get(NODES, "", "n1")
    assert node is not None
    assert topology_subject("n1") in [write.subject for write in end(node).writes]
    world.store(end(node))
    assert world.core.get(TOPOLOGIES, "", "n1") is None


def test_columns_of_topologies(world: World) -> None:
    measure(world)
    later = NOW + timedelta(minutes=1)
    rows = json.loads(table(DEFINITION.layout, world.core.objects(TOPOLOGIES), {}, later, TableFormat()))["rows"]
    assert rows[0]["cells"][:3] == ["n1", "None", 2]
    assert rows[0]["cells"][4:] == ["2,2", "2Gi,1Gi"]


def test_a_document_of_another_form_is_shown_as_it_is(world: World) -> None:
    world.create(TOPOLOGIES, {**DOCUMENT, "zones": []}, "")
    assert shown(world)["zones"] == []


def test_a_measured_topology_can_be_written_and_what_was_measured_wins(world: World) -> None:
    measure(world)
    card = {"name": "gpu", "capacity": "2", "allocatable": "2", "available": "1"}
    zones = [{"name": "node-1", "type": "Node", "resources": [card, {"name": "cpu", "capacity": "99"}]}]
    world.patch("noderesourcetopologies", "n1", {"metadata": {"labels": {"of": "mine"}}, "zones": zones}, namespace="")
    document = shown(world)
    assert document["metadata"]["labels"] == {"of": "mine", "app.kubernetes.io/managed-by": "Koordinator"}
    assert [each["name"] for each in document["zones"]] == ["node-0", "node-1"]
    assert (zone(document, "node-1")["gpu"], zone(document, "node-1")["cpu"]["capacity"]) == (card, "2")


def test_a_topology_that_was_read_can_be_put_back(world: World) -> None:
    document = measure(world)
    document["metadata"]["annotations"]["own"] = "text"
    planned = plan_replacement(world.core, TOPOLOGIES, "", "n1", as_json(document))
    world.store(planned.plan)
    snapshot = world.core.get(TOPOLOGIES, "", "n1")
    assert snapshot is not None
    assert snapshot.stored is not None
    assert "zones" not in json.loads(bytes(snapshot.stored.raw))
    assert json.loads(bytes(snapshot.stored.raw))["metadata"]["annotations"] == {"own": "text"}
    later = measure(world, kernel="6.18", cpus=machine().cpus[:2], numa_nodes=machine().numa_nodes[:1])
    assert [each["name"] for each in later["zones"]] == ["node-0"]
    assert later["metadata"]["annotations"]["own"] == "text"


def test_a_kubelets_policies_that_nobody_read_can_be_declared(world: World) -> None:
    measure(world)
    policy = {"kubelet.koordinator.sh/cpu-manager-policy": '{"policy":"static"}'}
    world.patch(
        "noderesourcetopologies",
        "n1",
        {"metadata": {"annotations": policy}, "topologyPolicies": ["SingleNUMANodePodLevel"]},
        namespace="",
    )
    document = shown(world)
    assert document["topologyPolicies"] == ["SingleNUMANodePodLevel"]
    assert document["metadata"]["annotations"].items() >= policy.items()
    read = measure(world, kubelet=KubeletPolicies(cpu_manager_policy="none"))
    assert json.loads(read["metadata"]["annotations"]["kubelet.koordinator.sh/cpu-manager-policy"]) == {"policy": "none"}
    assert read["topologyPolicies"] == ["None"]


def test_a_topology_stays_without_its_node(world: World) -> None:
    world.create(TOPOLOGIES, DOCUMENT, "")
    assert [*documents_of_no_node(world.core)] == []
