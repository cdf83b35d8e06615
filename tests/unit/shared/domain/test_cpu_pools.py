"""CPUs that are shared and CPUs that are taken: pools, packed allocation, reservations, zones."""

from __future__ import annotations

import json
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.domain.cpu_packing import take_cpus
from cotenant.domain.cpu_pools import (
    HeldCpus,
    KubeletConfig,
    SystemQoS,
    cpus_or_none,
    kubelet_allocations,
    kubelet_reserved_cpus,
    node_reserved,
    shared_pools,
    system_qos,
)
from cotenant.domain.topology import annotations_changed, annotations_of, share_of_zone, topology_changed, zones
from cotenant.events.node.topology import LogicalCPU, MachineTopology, NumaNode
from cotenant.model.cpu_lists import format_cpu_list, parse_cpu_list
from cotenant.model.names import ANNOTATION_CPU_TOPOLOGY, ANNOTATION_POD_CPU_ALLOCS

CPUS = st.integers(1, 3).flatmap(
    lambda sockets: st.integers(1, 2).flatmap(
        lambda nodes: st.integers(1, 3).map(
            lambda cores: tuple(
                LogicalCPU(
                    cpu=thread * sockets * nodes * cores + core,
                    core=core,
                    socket=core // (nodes * cores),
                    node=core // cores,
                )
                for thread in range(2)
                for core in range(sockets * nodes * cores)
            )
        )
    )
)
SETS = st.frozensets(st.integers(0, 40), max_size=20)
WRONG = ["null", "[]", "{", '{"resources": 5}', '{"entries": {"a": 1}}', "7", '{"reservedCPUs": "a"}']
RUBBISH = st.one_of(st.text(max_size=40), st.sampled_from(WRONG))


@given(CPUS, SETS, st.integers(0, 40))
def test_as_many_free_cpus_are_taken_as_were_asked_for(cpus: tuple[LogicalCPU, ...], taken: frozenset[int], count: int) -> None:
    free = {cpu.cpu for cpu in cpus} - taken
    if count > len(free):
        with pytest.raises(ValueError, match="asked for"):
            take_cpus(cpus, free, count)
        return
    found = take_cpus(cpus, free, count)
    assert len(found) == count
    assert found <= free


@given(CPUS)
def test_a_whole_socket_is_never_split_over_two(cpus: tuple[LogicalCPU, ...]) -> None:
    size = sum(cpu.socket == 0 for cpu in cpus)
    found = take_cpus(cpus, {cpu.cpu for cpu in cpus}, size)
    assert len({cpu.socket for cpu in cpus if cpu.cpu in found}) == 1


def test_free_cpus_that_are_in_no_topology_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="1 free ones are in the topology"):
        take_cpus([LogicalCPU(cpu=0)], {0, 7}, 2)


@given(CPUS, SETS, SETS, SETS, st.booleans() | st.none())
def test_pools_hold_no_cpu_that_somebody_has(
    cpus: tuple[LogicalCPU, ...],
    kubelet: frozenset[int],
    held: frozenset[int],
    reserved: frozenset[int],
    exclusive: bool | None,
) -> None:
    pods = [HeldCpus("ns", "a", "a", "LSR", held), HeldCpus("ns", "b", "b", "LSE", frozenset({0}))]
    system = SystemQoS("1", exclusive)
    shared, best_effort = shared_pools(cpus, kubelet, pods, reserved, system)
    in_shared, in_best_effort = (
        {cpu for pool in pools for cpu in parse_cpu_list(pool.cpuset)} for pools in (shared, best_effort)
    )
    own = set() if exclusive is False else {1}
    every = {cpu.cpu for cpu in cpus} - kubelet - reserved - own
    assert in_shared == every - held - {0}
    assert in_best_effort == every - {0}
    for pool in (*shared, *best_effort):
        assert all(cpu.node == pool.node for cpu in cpus if cpu.cpu in parse_cpu_list(pool.cpuset))


@given(RUBBISH)
def test_what_cannot_be_read_reserves_nothing(text: str) -> None:
    cpus = (LogicalCPU(cpu=0), LogicalCPU(cpu=1, core=1))
    assert node_reserved(cpus, text).reserved_cpus == ""
    system = system_qos(text)
    assert system is None or cpus_or_none(system.cpuset) == ()
    with suppress(ValueError):
        assert kubelet_allocations(text, []) == ()


def test_more_cpus_than_there_are_cannot_be_reserved_by_amount() -> None:
    assert node_reserved((LogicalCPU(cpu=0),), '{"resources": {"cpu": "2"}}').reserved_cpus == ""
    assert node_reserved((LogicalCPU(cpu=0),), '{"resources": {"cpu": "500m"}}').reserved_cpus == "0"


def test_a_static_kubelet_that_reserves_nothing_is_an_error() -> None:
    config = KubeletConfig(cpu_manager_policy="static")
    with pytest.raises(ValueError, match="systemReserved"):
        kubelet_reserved_cpus((LogicalCPU(cpu=0),), config)
    reserving = msgspec.structs.replace(config, kube_reserved={"cpu": "100m"}, system_reserved={"cpu": "300m"})
    assert kubelet_reserved_cpus((LogicalCPU(cpu=0), LogicalCPU(cpu=1, core=1)), reserving) == "0"


def test_cpus_that_a_kubelet_gave_a_pod_without_an_object_have_no_name() -> None:
    found = kubelet_allocations('{"entries": {"u": {"a": "1-2", "b": "x"}, "v": {"c": ""}}}', [])
    assert [(pod.uid, pod.name, pod.cpuset) for pod in found] == [("u", "", "1-2")]


@given(st.integers(0, 10**9), st.integers(0, 9), st.lists(st.integers(0, 1 << 40), max_size=4))
def test_shares_of_a_reservation_cover_it_and_never_take_more_than_a_zone_has(
    milli: int, count: int, memory: list[int]
) -> None:
    share = share_of_zone(milli, count)
    assert (share * count >= milli > (share - 1) * count) if count and milli else share == 0
    numa = [NumaNode(node=node, memory_bytes=amount) for node, amount in enumerate(memory)]
    for zone in zones({0: 4}, numa, {"cpu": milli, "memory": milli * 1000}):
        for name, capacity in zone.capacity_milli.items():
            assert 0 <= zone.allocatable_milli[name] <= capacity


@given(st.frozensets(st.integers(0, 300)))
def test_a_cpu_list_survives_its_text(cpus: frozenset[int]) -> None:
    assert frozenset(parse_cpu_list(format_cpu_list(cpus))) == cpus


@given(st.text(alphabet="0123456789-, ²a", max_size=12))
def test_rubbish_is_no_cpu_list(text: str) -> None:
    try:
        found = parse_cpu_list(text)
    except ValueError:
        return
    assert list(found) == sorted(set(found))


def test_annotations_compare_as_values() -> None:
    old = {ANNOTATION_CPU_TOPOLOGY: '{"detail": []}'}
    assert annotations_changed(old, {ANNOTATION_CPU_TOPOLOGY: '{"detail":[]}'}) == ""
    assert annotations_changed(old, {ANNOTATION_CPU_TOPOLOGY: "["}).endswith(ANNOTATION_CPU_TOPOLOGY)
    assert annotations_changed(old, {**old, ANNOTATION_POD_CPU_ALLOCS: "[]"}).endswith(ANNOTATION_POD_CPU_ALLOCS)
    assert annotations_changed({}, old) == "metadata changed"


def test_a_machines_annotations_are_json_and_a_change_is_named() -> None:
    machine = MachineTopology(node="n", cpus=(LogicalCPU(cpu=0),), numa_nodes=(NumaNode(node=0, memory_bytes=5),))
    for text in annotations_of(machine).values():
        json.loads(text)
    assert topology_changed(None, machine) == "metadata changed"
    assert topology_changed(machine, machine) == ""
    more = msgspec.structs.replace(machine, numa_nodes=(NumaNode(node=0, memory_bytes=6),))
    assert topology_changed(machine, more) == "zones changed"
    assert topology_changed(machine, msgspec.structs.replace(machine, kernel="6.12")) == "facts of the machine changed"
