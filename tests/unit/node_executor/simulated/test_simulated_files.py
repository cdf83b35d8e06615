"""Simulated machines refuse the same writes as a kernel, and throttle pods above their quota."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from cotenant.api.objects.pod import decode_pod
from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.runtime.interface import Collect, PodToRun, Start
from cotenant_node_executor.sampling.snapshot import GroupUsage
from cotenant_node_executor.simulated.files import SimulatedFiles
from cotenant_node_executor.simulated.machine import NodeSize, SimulatedMachine, simulated_facts
from cotenant_node_executor.targets.address import place_text
from cotenant_node_executor.targets.interface import CgroupVersion, Knob
from tests.builders import encoded, pod_document

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BE, POD, CONTAINER = "besteffort", "besteffort/pod1", "besteffort/pod1/main"
GROUPS = (BE, POD, CONTAINER)
CPUS = Knob.CPUSET_CPUS


def files(version: CgroupVersion, values: Mapping[str, Mapping[Knob, str]]) -> SimulatedFiles:
    made = SimulatedFiles(version, (0, 1, 2, 3))
    for group in GROUPS:
        made.begin(group)
    write(made, values)
    return made


def write(made: SimulatedFiles, values: Mapping[str, Mapping[Knob, str]]) -> list[tuple[str, int]]:
    report = made.write(values, GROUPS)
    return [(place_text(refused.place), refused.errno) for refused in report.refused]


def sets(cpus: str, groups: Sequence[str] = GROUPS) -> dict[str, dict[Knob, str]]:
    return {group: {CPUS: cpus} for group in groups}


def test_a_whole_tree_moves_to_other_cpus_without_a_refusal() -> None:
    made = files(CgroupVersion.V1, sets("0-1"))
    assert write(made, sets("2-3")) == []
    assert [made.read(group, CPUS) for group in GROUPS] == ["2-3"] * 3


def test_on_v1_a_child_may_not_be_wider_than_its_parent() -> None:
    made = files(CgroupVersion.V1, sets("0-1"))
    assert write(made, sets("0-3", (POD,))) == [(POD, errno.EACCES)]
    assert write(made, sets("0", (BE,))) == [(BE, errno.EBUSY)]
    quota = {BE: {Knob.CPU_QUOTA: "100000"}, POD: {Knob.CPU_QUOTA: "200000"}}
    assert write(made, quota) == [(BE, errno.EINVAL)]
    assert [made.read(group, CPUS) for group in GROUPS] == ["0-1"] * 3


def test_on_v2_a_child_may_have_more_than_its_parent() -> None:
    made = files(CgroupVersion.V2, {})
    quota = {BE: {Knob.CPU_QUOTA: "100000"}, POD: {Knob.CPU_QUOTA: "200000"}}
    assert write(made, {BE: {**quota[BE], CPUS: "0"}, POD: {**quota[POD], CPUS: "0-3"}}) == []


def test_a_new_group_of_v1_has_its_parents_cpus() -> None:
    made = files(CgroupVersion.V1, sets("2-3"))
    made.keep({BE})
    made.begin(POD)
    assert made.read(POD, CPUS) == "2-3"


def test_a_refused_write_is_tried_again_in_the_next_cycle() -> None:
    machine = SimulatedMachine(simulated_facts("n", NodeSize(4_000)), 1, CgroupVersion.V1)
    machine.create((POD,))
    machine.write(Composed({}, sets("0-1", (BE, POD)), (BE, POD)))
    wider = sets("0-3", (POD,))
    assert len(machine.write(Composed({}, wider, (POD,))).refused) == 1
    assert len(machine.write(Composed({}, wider, ())).refused) == 1
    machine.write(Composed({}, sets("0-3", (BE, POD)), (BE, POD)))
    assert machine.write(Composed({}, wider, ())).refused == ()


def test_a_group_gets_its_values_when_it_comes_and_again_when_it_comes_back() -> None:
    machine = SimulatedMachine(simulated_facts("n", NodeSize(4_000)), 1)
    values = {POD: {Knob.CPU_SHARES: "512"}}
    assert machine.write(Composed({}, values, (POD,))).written == ()
    for _ in range(2):
        machine.create((POD,))
        report = machine.write(Composed({}, values))
        assert [(each.place, each.old, each.new) for each in report.written] == [(POD, "1024", "512")]
        machine.carry_out([Start(to_run("4", POD), "main", 0), Collect("1")], NOW)


@pytest.mark.parametrize(("limit", "permille"), [("500m", 1.0), ("4", 0.0)])
def test_a_pod_that_wants_more_than_its_quota_is_throttled_for_the_rest(limit: str, permille: float) -> None:
    machine = SimulatedMachine(simulated_facts("n", NodeSize(8_000)), 1)
    usage = [running(machine, limit, NOW + timedelta(seconds=second)) for second in range(3)][-1]
    assert usage.throttled_ratio == permille
    assert usage.cpu_milli == (500 if permille else 2_000)


def to_run(limit: str, group: str) -> PodToRun:
    """A pod that wants two CPUs."""
    annotations = {"cotenant.io/simulated-usage": "cpu=2000m"}
    document = pod_document(uid="1", annotations=annotations, requests={"cpu": "100m"}, limits={"cpu": limit})
    return PodToRun(decode_pod(encoded(document)), group, "n")


def running(machine: SimulatedMachine, limit: str, now: datetime) -> GroupUsage:
    """One cycle of a machine with one such pod."""
    pod = to_run(limit, "burstable/pod1")
    if not machine.runtime.poll(now):
        machine.create(("burstable/pod1",))
        quota = {"500m": "50000", "4": "400000"}[limit]
        machine.write(Composed({}, {"burstable/pod1": {Knob.CPU_QUOTA: quota}}, ("burstable/pod1",)))
        machine.carry_out([Start(pod, "main", 0)], now)
    snapshot = machine.observe(now, sample=True).snapshot
    assert snapshot is not None
    return snapshot.pods["1"].usage
