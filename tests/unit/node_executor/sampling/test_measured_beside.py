"""What samples say beside CPU and working set, what the node SLO asks for, and the node's report of its machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.api.objects.pod import Pod
from cotenant.events.envelope import Event
from cotenant.events.node.topology import KubeletPolicies, LogicalCPU, MachineTopology, NumaNode
from cotenant.events.node.usage import UsageSample
from cotenant.model.subjects import topology_subject
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.core.topology_report import INTERVAL, TopologyReport
from cotenant_node_executor.core.usage_window import UsageWindow
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.sampling.host_applications import application_directory, kubelet_layout
from cotenant_node_executor.sampling.slow.readings import (
    ColdReading,
    CpiReading,
    MachineFacts,
    NumaReading,
    ResctrlReading,
    SlowReadings,
)
from cotenant_node_executor.sampling.snapshot import HostApplicationSample, UsageSnapshot
from cotenant_node_executor.sampling.wanted import MOST_APPLICATIONS, HostApplication, SamplingOptions, wanted_by
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.strategies.pod_view import PodView, pod_view
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath, KubeletCgroupDriver
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.unit.node_executor.builders_node_executor import GIB, NODE, START, Bench, pod, service, slo, snapshot, usage

YARN = {
    "name": "yarn",
    "qos": "BE",
    "priority": "koord-batch",
    "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "hadoop-yarn"},
}
HOT = SamplingOptions((HostApplication("yarn", "BE", "koord-batch"),), page_cache=True, cold_memory=True)
SLOW = SlowReadings(
    cold=ColdReading(3 * GIB, {"uid-web": 5}, {"yarn": 2 * GIB}),
    cpi={"uid-web": CpiReading(4000.4, 1000.0)},
    resctrl=(ResctrlReading("BE", 7, 8),),
    numa=(NumaReading(0, 500, GIB),),
)


def asking(applications: object, policy: str = "usageWithoutPageCache") -> SamplingOptions:
    spec = msgspec.Raw(json.dumps({"hostApplications": applications}).encode())
    return wanted_by(slo(spec=spec, memory_collect_policy=policy))


def reading(**applications: int) -> UsageSnapshot:
    """A pod's memory is 1 GiB, all of its page cache counted beside it another; applications by name and milli-CPU."""
    seen = snapshot(2000, {"uid-web": 500})
    web = seen.pods["uid-web"]
    with_page_cache = msgspec.structs.replace(web.usage, memory_with_page_cache_bytes=2 * GIB)
    return msgspec.structs.replace(
        seen,
        pods={"uid-web": msgspec.structs.replace(web, usage=with_page_cache)},
        host_applications={name: HostApplicationSample(name, usage(name, milli)) for name, milli in applications.items()},
    )


def published(seen: UsageSnapshot, wanted: SamplingOptions, slow: SlowReadings | None = SLOW) -> UsageSample:
    window = UsageWindow(NODE, "boot", sample_seconds=1, report_seconds=2)
    for number in range(2):
        window.add(seen, START + timedelta(seconds=number), slow)
    web: Pod = service("web")
    return window.message({"uid-web": PodToRun(web, "burstable/poduid-web", NODE)}, START + timedelta(seconds=2), wanted)


def test_page_cache_and_cold_memory_are_said_where_the_policy_asks_for_them() -> None:
    found = published(reading(), HOT)
    assert found.node_usage.page_cache_bytes == (GIB, GIB)
    assert found.node_usage.cold_bytes == (3 * GIB, 3 * GIB)
    assert found.pods[0].series.page_cache_bytes == (GIB, GIB)
    assert found.pods[0].series.cold_bytes == (5, 5)
    assert (found.pods[0].cycles, found.pods[0].instructions) == (4000, 1000)
    assert [(each.node, each.cpu_milli) for each in found.numa] == [(0, 500)]
    assert [(each.group, each.llc_bytes) for each in found.resctrl] == [("BE", 7)]


def test_without_the_policy_samples_stay_as_small_as_they_were() -> None:
    found = published(reading(yarn=700), SamplingOptions(), None)
    for series in (found.node_usage, found.pods[0].series):
        assert (series.page_cache_bytes, series.cold_bytes) == ((), ())
    assert (found.host_applications, found.numa, found.resctrl) == ((), (), ())


def test_a_kernel_without_cold_memory_leaves_the_series_out() -> None:
    found = published(reading(), HOT, SlowReadings())
    assert found.node_usage.page_cache_bytes
    assert found.node_usage.cold_bytes == ()


@given(st.integers(0, 1 << 50))
def test_cold_memory_is_never_more_than_what_is_used(cold: int) -> None:
    slow = SlowReadings(cold=ColdReading(cold, {"uid-web": cold}))
    found = published(reading(), HOT, slow)
    for series in (found.node_usage, found.pods[0].series):
        used = [memory + cache for memory, cache in zip(series.memory_bytes, series.page_cache_bytes, strict=True)]
        assert all(value <= most for value, most in zip(series.cold_bytes, used, strict=True))


def test_host_applications_are_reported_with_their_class() -> None:
    found = published(reading(yarn=700, other=1), HOT)
    [yarn] = found.host_applications
    assert (yarn.name, yarn.qos, yarn.priority, yarn.series.cpu_milli) == ("yarn", "BE", "koord-batch", (700, 700))
    assert yarn.series.cold_bytes == (GIB, GIB), "at most what it uses"


# -- what is asked for -------------------------------------------------------------------------------------------------


def test_a_node_slo_names_host_applications_and_the_memory_policy() -> None:
    wanted = asking([YARN, {"name": "nginx", "qos": "LS"}], "usageWithHotPageCache")
    path = HostApplicationPath("KubepodsBesteffort", "", "hadoop-yarn")
    assert wanted.host_applications == (HostApplication("nginx", "LS"), HostApplication("yarn", "BE", "koord-batch", path))
    assert (wanted.page_cache, wanted.cold_memory) == (True, True)
    assert wanted_by(slo(memory_collect_policy="usageWithPageCache")) == SamplingOptions((), True, False, spikes=True)
    assert wanted_by(None) == SamplingOptions()


def test_the_services_cpu_is_measured_between_samples_only_where_suppression_is_on() -> None:
    assert wanted_by(slo(enable=True)).spikes
    assert not wanted_by(slo(enable=False)).spikes


@pytest.mark.parametrize("applications", [5, [5], [{}], [{"name": 1}], None, "x"])
def test_applications_of_another_form_are_none(applications: object) -> None:
    assert asking(applications).host_applications == ()


def test_so_many_applications_are_measured_and_no_more() -> None:
    assert len(asking([{"name": f"a{number}"} for number in range(99)]).host_applications) == MOST_APPLICATIONS


def test_kubepods_is_the_executors_own_tree_where_no_kubelet_is(tmp_path: Path) -> None:
    yarn = HostApplication("yarn", "BE", "", HostApplicationPath("KubepodsBesteffort", "", "hadoop-yarn"))
    assert application_directory(yarn, None, "cotenant/n1") == "cotenant/n1/besteffort/hadoop-yarn"
    assert application_directory(yarn, KubeletCgroupDriver.SYSTEMD, "cotenant/n1") == (
        "kubepods.slice/kubepods-besteffort.slice/hadoop-yarn"
    )
    assert application_directory(HostApplication("nginx", "LS"), None, "cotenant/n1") == "host-latency-sensitive/nginx"
    assert kubelet_layout(SandboxDriver(tmp_path, "n1", version=CgroupVersion.V2)) is None


# -- the report of the machine -----------------------------------------------------------------------------------------


def facts(state: str = "", **changes: object) -> MachineFacts:
    cpus = tuple(LogicalCPU(cpu=cpu, core=cpu) for cpu in range(4))
    topology = MachineTopology(node=NODE, cpus=cpus, numa_nodes=(NumaNode(node=0, memory_bytes=GIB),))
    return MachineFacts(msgspec.structs.replace(topology, **changes), state)


def views(pods: Mapping[str, str]) -> list[PodView]:
    """Pods with CPUs of their own, by class."""
    return [
        pod_view(pod(qos.lower(), qos, annotations={"scheduling.koordinator.sh/resource-status": f'{{"cpuset": "{cpus}"}}'}))
        for qos, cpus in pods.items()
    ]


def machine_of(event: Event | None) -> MachineTopology:
    assert event is not None
    assert isinstance(event.data, MachineTopology)
    return event.data


def pools(report: TopologyReport, pods: Mapping[str, str], **fields: object) -> tuple[str, str]:
    report.stale = True
    machine = machine_of(report.decide(views(pods), slo(**fields), START + timedelta(hours=1)))
    return machine.shared_pools[0].cpuset, machine.best_effort_pools[0].cpuset


def test_pools_follow_pods_reservation_and_system_cpus() -> None:
    def report() -> TopologyReport:
        made = TopologyReport(NODE)
        made.observe(facts(), None)
        return made

    assert pools(report(), {}) == ("0-3", "0-3")
    assert pools(report(), {"LSR": "1", "LSE": "2"}) == ("0,3", "0-1,3")
    assert pools(report(), {}, reservation_annotation='{"reservedCPUs": "0"}') == ("1-3", "1-3")
    assert pools(report(), {}, system_qos_annotation='{"cpuset": "3"}') == ("0-2", "0-2")


def test_a_kubelets_pods_leave_the_pools_and_are_named() -> None:
    report = TopologyReport(NODE)
    static = KubeletPolicies(cpu_manager_policy="static")
    report.observe(facts('{"entries": {"u": {"c": "1"}}}', kubelet=static), None)
    machine = machine_of(report.decide([], None, START))
    assert [pod.uid for pod in machine.pod_cpus] == ["u"]
    assert machine.shared_pools[0].cpuset == "0,2-3"
    report.observe(facts("torn", kubelet=static), None)
    assert "cpu_manager_state" in machine_of(report.decide([], None, START + INTERVAL)).unavailable["kubelet"]


def test_a_machine_is_reported_at_the_start_and_when_it_changes() -> None:
    bench = Bench().load()
    seen = Observation(None, {}, frozenset(), {}, machine=facts())
    bench.core.observe(seen)
    [first] = bench.report()
    assert first.subject == topology_subject(NODE)
    assert machine_of(first).reason == "metadata changed"
    bench.core.observe(seen)
    assert bench.report() == [], "it is on the log"
    bench.slo(system_qos_annotation='{"cpuset": "3"}')
    assert bench.report() == [], "not more often than every three seconds"
    bench.now += INTERVAL
    [second] = bench.report()
    assert "cpu-shared-pools" in machine_of(second).reason
    bench.store(first.subject, second.data, tombstone=True)
    bench.now += INTERVAL
    bench.core.observe(msgspec.structs.replace(seen, machine=facts(kernel="other")))
    assert bench.report() == [], "it has ended with its node"


def test_a_host_application_without_a_control_group_is_reported_once() -> None:
    bench = Bench().load()
    absent = msgspec.structs.replace(reading(), unmeasured_applications={"yarn": "there is no control group /yarn"})
    seen = Observation(absent, {}, frozenset(), {}, machine=facts(unavailable={"cpi": "no counters"}))
    bench.core.observe(seen)
    [first] = bench.report()
    assert machine_of(first).unavailable == {"cpi": "no counters", "host-application/yarn": "there is no control group /yarn"}
    later = msgspec.structs.replace(absent, monotonic_ns=absent.monotonic_ns + 1)
    bench.now += INTERVAL
    bench.core.observe(msgspec.structs.replace(seen, snapshot=later))
    assert bench.report() == [], "nothing has changed"
    bench.core.observe(msgspec.structs.replace(seen, snapshot=reading(yarn=700)))
    [second] = bench.report()
    assert machine_of(second).unavailable == {"cpi": "no counters"}


def test_a_simulated_machine_reports_itself() -> None:
    node = simulated_node("sim", NodeSize(cpu_milli=2000, memory_bytes=GIB))
    marker = node.start_marker(START)
    node.apply(msgspec.structs.replace(marker, sequence=1))
    [report] = [event.data for event in node.step(START) if isinstance(event.data, MachineTopology)]
    assert [cpu.cpu for cpu in report.cpus] == [0, 1]
    assert report.numa_nodes[0].memory_bytes == GIB
    assert report.shared_pools[0].cpuset == "0-1"
    assert "cpi" in report.unavailable
