"""CPU strategies on a simulated machine, which follows what they write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.placements import Placement
from cotenant.model.subjects import placement_subject, slo_subject
from cotenant_node_executor.simulated.machine import NodeSize, SimulatedMachine, simulated_node
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import START

NODE = "sim"
UNLIMITED_POOL = {"policy": "auto", "sharePoolThresholdPercent": 90}


class Simulated:
    """A simulated node with a log and a clock of its own."""

    def __init__(self, version: CgroupVersion = CgroupVersion.V2) -> None:
        self.node = simulated_node(NODE, NodeSize(cpu_milli=8000), cgroup=version)
        self.now = START
        self.sequence = 0
        self.told: list[Execution] = []
        marker = self.node.start_marker(self.now)
        self.store(marker.subject, marker.data)

    def store(self, subject: str, data: Payload) -> None:
        self.sequence += 1
        self.node.apply(Event(subject=subject, data=data, time=self.now, sequence=self.sequence))

    def slo(self, *, enable: bool = False, **sections: Any) -> None:
        spec = encoded(sections)
        self.store(slo_subject(NODE), NodeSLORendered(node=NODE, enable=enable, cpu_suppress_policy="cfsQuota", spec=spec))

    def place(self, name: str, qos: str, usage: str, resources: dict[str, Any], **annotations: str) -> None:
        document = {
            "metadata": {
                "name": name,
                "labels": {"koordinator.sh/qosClass": qos},
                "annotations": {"cotenant.io/simulated-usage": usage, **annotations},
            },
            "spec": {"containers": [{"name": "main", "resources": resources}]},
        }
        placement = Placement(
            node=NODE, namespace="default", name=name, uid=name, pod=encoded(document)
        )
        self.store(placement_subject(NODE, "default", name), placement)

    def run(self, seconds: int) -> list[int | None]:
        """The first pod's CPU usage by second."""
        used: list[int | None] = []
        for _ in range(seconds):
            self.now += timedelta(seconds=1)
            for event in self.node.step(self.now):
                if isinstance(event.data, Execution):
                    self.told.append(event.data)
                elif event.stream == "LOG":
                    self.store(event.subject, event.data)
            machine = self.node.machine
            assert isinstance(machine, SimulatedMachine)
            reading = machine.snapshot.pods.get("web") if machine.snapshot is not None else None
            used.append(reading.usage.cpu_milli if reading is not None else None)
        return used


SERVICE = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}


@pytest.mark.parametrize("version", CgroupVersion)
def test_a_throttled_service_bursts_to_what_it_needs_and_its_quota_comes_to_rest(version: CgroupVersion) -> None:
    there = Simulated(version)
    there.slo(cpuBurstStrategy=UNLIMITED_POOL)
    there.place("web", "LS", "cpu=2000m,memory=64Mi", SERVICE)
    used = there.run(30)
    assert used[2:] == [1200, 1440, 1728, *[2000] * 25]
    told = [each for each in there.told if each.topic == "cpu-burst"]
    changes = [change for each in told for change in each.changes if "quota" in change.target]
    assert {change.new for change in changes} == {"120000", "144000", "172800", "207360"}
    assert not [told for told in there.told if told.topic == "refusals"]
    count = len(there.told)
    there.run(30)
    assert [told.topic for told in there.told[count:] if told.topic == "cpu-burst"] == []


@pytest.mark.parametrize("version", CgroupVersion)
def test_a_bound_pod_takes_its_cpus_from_the_services(version: CgroupVersion) -> None:
    there = Simulated(version)
    there.slo()
    there.place("web", "LS", "cpu=500m,memory=64Mi", SERVICE)
    there.run(3)
    assert not [told for told in there.told if told.topic == "cpuset"]
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
    there.place("db", "LSR", "cpu=500m,memory=64Mi", {"requests": {"cpu": "4"}}, **bound)
    there.run(3)
    changes = {change.target: change.new for told in there.told if told.topic == "cpuset" for change in told.changes}
    assert changes == {"burstable/poddb/main/cpuset.cpus": "0-3", "burstable/podweb/main/cpuset.cpus": "4-7"}
    assert not [told for told in there.told if told.topic == "refusals"]


def test_starved_batch_pods_are_evicted_one_cool_down_apart_until_the_rest_is_satisfied() -> None:
    there = Simulated()
    section = {"enable": True, "cpuEvictBESatisfactionLowerPercent": 40, "cpuEvictBESatisfactionUpperPercent": 50}
    there.slo(enable=True, resourceUsedThresholdWithBE=section)
    there.place("web", "LS", "cpu=4000m,memory=64Mi", {"requests": {"cpu": "1"}})
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    for number in range(4):
        there.place(f"job-{number}", "BE", "cpu=1000m,memory=64Mi", {"requests": amounts, "limits": amounts})
    there.run(19)
    assert not [told for told in there.told if told.topic == "cpu-evict"]
    there.run(60)
    gone = [told.pod for told in there.told if told.topic == "cpu-evict"]
    # 65 % of 8,000m less 4,000m and 240m of the system: 960m for 4,000m requested; 4,000m x (0.5 - 0.24) are two pods.
    assert len(gone) == 2
    there.run(60)
    assert [told.pod for told in there.told if told.topic == "cpu-evict"] == gone
