"""Metrics by koordlet's names: their values and labels, from a core."""

from __future__ import annotations

import json

from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources
from cotenant.events.node.topology import LogicalCPU, MachineTopology
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import placement_subject, resources_subject
from cotenant_node_executor.koordlet_metrics.registry import METRICS
from cotenant_node_executor.sampling.machine import DISKS
from cotenant_node_executor.sampling.slow.readings import (
    FACTS,
    NUMA,
    CacheReading,
    Collected,
    CpiReading,
    MachineFacts,
    NumaReading,
    ResctrlReading,
    SlowReadings,
)
from cotenant_node_executor.sampling.snapshot import GroupUsage, PressureSet
from cotenant_node_executor.strategies.strategy import Evict
from cotenant_node_executor.targets.cgroup.durations import SUCCEEDED, Histogram
from cotenant_node_executor.targets.interface import CookieOutcome, CoreGroups, HeldCookie, Knob
from cotenant_node_executor.targets.psi import PressureLine, PsiStats
from tests.builders import encoded, pod_document
from tests.unit.node_executor.builders_node_executor import GIB, NODE, Bench, batch, facts, pod, service, snapshot

STALL = PsiStats(PressureLine(12.5, 6.0, 1.0, 9), PressureLine(2.0, 1.0, 0.5, 3), full_supported=True)
OF_WEB = {
    "pod_uid": "uid-web",
    "pod_name": "web",
    "pod_namespace": "default",
    "container_id": "uid-web/main",
    "container_name": "main",
}
WEB = "burstable/poduid-web/main"

Shown = dict[frozenset[tuple[str, str]], float]


def shown(bench: Bench, name: str) -> Shown:
    """A metric's values by their labels."""
    read = next(read for each, _, read in METRICS if each == name)
    return {frozenset(labels.items()): value for value, labels in read(bench.core)}


def labelled(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def node() -> Bench:
    """A measured node with a service and a batch pod, suppressed by quota."""
    bench = Bench().load()
    spec = {"cpuBurstStrategy": {"policy": "auto"}}
    bench.slo(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=65,
        spec=encoded(spec),
    )
    for entry in (service("web"), batch("job", 500)):
        bench.place(entry)
    for group in ("burstable/poduid-web", "besteffort/poduid-job"):
        bench.groups.update((group, f"{group}/main"))
    reading = snapshot(4000, {"uid-web": 1500, "uid-job": 2000})
    job = reading.pods["uid-job"]
    tier = GroupUsage("besteffort", 2000, GIB, GIB, None, PressureSet())
    pods = {**reading.pods, "uid-job": replace(job, tier="besteffort")}
    bench.reading = replace(reading, pods=pods, tiers={"besteffort": tier})
    bench.look(1).core.plan(bench.now)
    return bench


def test_nothing_is_shown_before_there_is_anything_to_show_but_counters_and_what_is_offered() -> None:
    bench = Bench().load()
    counting = {name for name, _, _ in METRICS if shown(bench, name)}
    assert counting == {"pod_eviction", "node_resource_allocatable"}


def test_a_container_that_kubelet_runs_has_the_id_of_its_status() -> None:
    bench = Bench(of=replace(facts(), kubelet_pods=True)).load()
    amounts = {"kubernetes.io/batch-cpu": "500"}
    for name, number in (("job", "containerd://ab12"), ("new", "")):
        document = pod_document(name, labels={"koordinator.sh/qosClass": "BE"}, requests=amounts, limits=amounts)
        document["status"] = {"containerStatuses": [{"name": "main", "containerID": number}]}
        raw = encoded(document)
        placement = Placement(node=NODE, namespace="default", name=name, uid=f"uid-{name}", pod=raw)
        bench.store(placement_subject(NODE, "default", name), placement)
    found = {dict(labels)["container_id"] for labels in shown(bench, "container_resource_requests")}
    assert found == {"containerd://ab12", "uid-new/main"}


def test_usage_is_in_cores_and_bytes_by_node_services_and_batch() -> None:
    bench = node()
    assert shown(bench, "node_used_cpu_cores") == {labelled(): 4.0}
    assert shown(bench, "be_suppress_ls_used_cpu_cores") == {labelled(): 1.5}
    assert shown(bench, "be_suppress_be_used_cpu_cores") == {labelled(): 2.0}
    assert shown(bench, "node_metric_node_usage")[labelled(resource="cpu", unit="core")] == 4.0
    memory = shown(bench, "node_used_memory_bytes")[labelled()]
    assert shown(bench, "node_metric_node_usage")[labelled(resource="memory", unit="byte")] == memory


def test_what_suppression_leaves_has_the_policy_as_its_type() -> None:
    # 8 CPUs x 65% - 1.5 of the service - 0.5 of the system.
    assert shown(node(), "be_suppress_cpu_cores") == {labelled(type="cfsQuota"): 3.2}


def test_numa_nodes_have_their_usage_and_the_memory_of_the_best_effort_group() -> None:
    bench = node()
    bench.look(2, slow=SlowReadings(numa=(NumaReading(0, 1500, 3 * GIB, GIB), NumaReading(1, 0, GIB))))
    usage = shown(bench, "node_metric_numa_node_usage")
    assert usage[labelled(numa_node_id="0", resource="cpu", unit="core")] == 1.5
    assert usage[labelled(numa_node_id="1", resource="memory", unit="byte")] == GIB
    assert shown(bench, "be_numa_node_memory_bytes") == {labelled(numa_node_id="0"): GIB}


def test_batch_resources_are_shown_by_node_and_by_container() -> None:
    bench = node()
    bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=7000, batch_memory_bytes=GIB))
    offered = shown(bench, "node_resource_allocatable")
    assert offered[labelled(resource="kubernetes.io/batch-cpu", unit="integer")] == 7000
    assert offered[labelled(resource="kubernetes.io/batch-memory", unit="byte")] == GIB
    assert offered[labelled(resource="kubernetes.io/mid-cpu", unit="integer")] == 0
    (requests,) = [
        (dict(labels), value)
        for labels, value in shown(bench, "container_resource_requests").items()
        if dict(labels)["resource"] == "kubernetes.io/batch-cpu"
    ]
    assert requests[1] == 500
    assert requests[0] == {
        "resource": "kubernetes.io/batch-cpu",
        "unit": "integer",
        "pod_uid": "uid-job",
        "pod_name": "job",
        "pod_namespace": "default",
        "container_id": "uid-job/main",
        "container_name": "main",
    }


def test_a_pods_pressure_has_every_average_of_some_and_full() -> None:
    bench = node()
    stall = STALL
    assert bench.reading is not None
    web = bench.reading.pods["uid-web"]
    pressed = replace(web, usage=replace(web.usage, pressure=PressureSet(cpu=stall)))
    bench.reading = replace(bench.reading, pods={**bench.reading.pods, "uid-web": pressed})
    bench.look(1)
    keys = "psi_degree", "psi_precision"
    found = {tuple(dict(labels)[key] for key in keys): value for labels, value in shown(bench, "pod_psi").items()}
    assert found == {
        ("some", "avg10"): 12.5,
        ("some", "avg60"): 6.0,
        ("some", "avg300"): 1.0,
        ("full", "avg10"): 2.0,
        ("full", "avg60"): 1.0,
        ("full", "avg300"): 0.5,
    }


def test_a_pods_absurd_amount_is_left_out() -> None:
    bench = node()
    bench.place(pod("bad", "BE", requests={"kubernetes.io/batch-cpu": "1e400000000"}))
    bench.look(1)
    assert {dict(labels)["pod_name"] for labels in shown(bench, "container_resource_requests")} == {"job"}


def test_a_pod_that_is_being_evicted_is_shown_by_its_name_until_it_is_gone() -> None:
    bench = node()
    assert shown(bench, "pod_eviction_detail") == {}
    bench.core.evictions.begin([("memory-evict", Evict("uid-job", "too much"))], bench.core.pods, {}, bench.now)
    own = labelled(pod_namespace="default", pod_name="job", reason="EvictPodByNodeMemoryUsage")
    assert shown(bench, "pod_eviction_detail") == {own: 1}
    bench.place(batch("job", 500), PlacementPhase.GONE)
    assert shown(bench, "pod_eviction_detail") == {}


def test_a_containers_stalls_leave_out_full_where_the_kernel_does_not_say_it() -> None:
    bench = node()
    some = replace(STALL, full_supported=False)
    stalls = {WEB: PressureSet(cpu=some, memory=STALL), "burstable/podother/main": PressureSet(cpu=STALL)}
    bench.look(1, slow=SlowReadings(stalls=stalls))
    found = shown(bench, "container_psi")
    assert len(found) == 3 + 6
    cpu = {"psi_resource_type": "cpu", "psi_precision": "avg10", "psi_degree": "some", "cpu_full_supported": "false"}
    memory = {"psi_resource_type": "mem", "psi_precision": "avg60", "psi_degree": "full", "cpu_full_supported": "true"}
    assert found[labelled(**OF_WEB, **cpu)] == 12.5
    assert found[labelled(**OF_WEB, **memory)] == 1.0


def test_a_container_has_its_cycles_and_instructions() -> None:
    bench = node()
    bench.look(1, slow=SlowReadings(container_cpi={WEB: CpiReading(4e9, 1e9), "poduid-gone/main": CpiReading(1, 1)}))
    assert shown(bench, "container_cpi") == {
        labelled(**OF_WEB, cpi_field="cycles"): 4e9,
        labelled(**OF_WEB, cpi_field="instructions"): 1e9,
    }


def test_a_containers_oom_score_is_the_one_that_its_pod_states() -> None:
    bench = node()
    bench.place(service("db", annotations={"koordinator.sh/oom-score-adj": "-700"}))
    bench.groups.update(("burstable/poduid-db", "burstable/poduid-db/main"))
    bench.look(1).core.plan(bench.now)
    own = labelled(pod_uid="uid-db", pod_name="db", pod_namespace="default", container_name="main")
    assert shown(bench, "container_oom_score_adj") == {own: -700}


def test_a_core_scheduling_group_shows_its_containers_cookies_and_how_often_it_was_refused() -> None:
    bench = node()
    cookies = {WEB: HeldCookie("ls-expeller", 2**63), "podgone/main": HeldCookie("x", 7)}
    groups = CoreGroups(cookies, {"ls-expeller": CookieOutcome(2, 1)})
    bench.look(1, core_groups=groups)
    own = labelled(**OF_WEB, core_sched_group="ls-expeller", core_sched_cookie=str(2**63))
    assert shown(bench, "container_core_sched_cookie") == {own: 1}
    assert shown(bench, "core_sched_cookie_manage_status") == {
        labelled(core_sched_group="ls-expeller", status="succeeded"): 2,
        labelled(core_sched_group="ls-expeller", status="failed"): 1,
    }


def test_the_share_pools_lack_the_cpus_that_pods_hold() -> None:
    bench = node()
    topology = MachineTopology(node=NODE, cpus=tuple(LogicalCPU(cpu=cpu, core=cpu // 2) for cpu in range(8)))
    held = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "2-3"})}
    bench.place(pod("own", "LSR", requests={"cpu": "2"}, limits={"cpu": "2"}, annotations=held))
    bench.look(1, machine=MachineFacts(topology)).report()
    assert shown(bench, "cpuset_share_pool_cpu_cores") == {labelled(): 6}
    assert shown(bench, "cpuset_be_share_pool_cpu_cores") == {labelled(): 8}
    assert shown(bench, "cpuset_share_pool_info") == {labelled(cpu=str(cpu)): 1 for cpu in (0, 1, 4, 5, 6, 7)}
    assert len(shown(bench, "cpuset_be_share_pool_info")) == 8


def test_caches_are_shown_by_qos_class_and_not_by_other_groups() -> None:
    bench = node()
    caches = CacheReading(0, 700, 9000, 4000), CacheReading(1, None, 8000)
    groups = (ResctrlReading("/", 1, 0, caches), ResctrlReading("BE", 700, 0, caches), ResctrlReading("job", 1, 0, caches))
    bench.look(1, slow=SlowReadings(resctrl=groups))
    assert shown(bench, "resctrl_llc_occupancy") == {labelled(cache_id="0", qos="BE"): 700}
    assert shown(bench, "resctrl_memory_bandwidth") == {
        labelled(cache_id="0", qos="BE", mb_type="mbm_total_bytes"): 9000,
        labelled(cache_id="0", qos="BE", mb_type="mbm_local_bytes"): 4000,
        labelled(cache_id="1", qos="BE", mb_type="mbm_total_bytes"): 8000,
    }


def test_the_systems_part_of_a_numa_node_is_its_share_of_the_cpu_and_what_pods_do_not_use() -> None:
    bench = node()
    numa = NumaReading(0, 3000, 3 * GIB, None, GIB), NumaReading(1, 1000, GIB, None, 2 * GIB), NumaReading(2, 0, GIB)
    bench.look(2, slow=SlowReadings(numa=numa))
    found = shown(bench, "node_metric_numa_system_usage")
    cpu = [found[labelled(numa_node_id=str(each), resource="cpu", unit="core")] for each in range(3)]
    assert cpu == [0.375, 0.125, 0], "the system uses 0.5 cores"
    memory = {
        dict(labels)["numa_node_id"]: value for labels, value in found.items() if dict(labels)["resource"] == "memory"
    }
    assert memory == {"0": 2 * GIB, "1": 0}


def test_an_idle_machine_divides_no_cpu_among_its_numa_nodes() -> None:
    bench = node()
    bench.look(2, slow=SlowReadings(numa=(NumaReading(0, 0, GIB),)))
    own = labelled(numa_node_id="0", resource="cpu", unit="core")
    assert shown(bench, "node_metric_numa_system_usage") == {own: 0}


def test_readings_of_the_machine_are_counted_by_outcome() -> None:
    bench = node()
    bench.look(1, slow=SlowReadings(collected={FACTS: Collected(3, 1), NUMA: Collected(9), DISKS: Collected(1, 2)}))
    succeeded, failed = labelled(status="succeeded"), labelled(status="failed")
    assert shown(bench, "collect_node_cpu_info_status") == {succeeded: 3, failed: 1}
    assert shown(bench, "collect_node_numa_info_status") == {succeeded: 9, failed: 0}
    assert shown(bench, "collect_node_local_storage_info_status") == {succeeded: 1, failed: 2}


def test_how_long_writes_took_is_a_histogram_by_attribute_and_outcome() -> None:
    bench = node()
    histogram = Histogram([3, 0, 2, 0, 0, 0, 0, 0, 1], 200.5)
    seen = bench.core.seen
    assert seen is not None
    bench.core.seen = replace(seen, writes={(Knob.CPU_QUOTA, SUCCEEDED): histogram})
    own = {"type": "cpu.cfs_quota_us", "status": "succeeded"}
    assert shown(bench, "resource_update_duration_milliseconds_sum") == {labelled(**own): 200.5}
    assert shown(bench, "resource_update_duration_milliseconds_count") == {labelled(**own): 6}
    found = shown(bench, "resource_update_duration_milliseconds_bucket")
    counts = {bound: found[labelled(**own, le=bound)] for bound in ("0.01", "0.04", "0.16", "163.84", "+Inf")}
    assert counts == {"0.01": 3, "0.04": 3, "0.16": 5, "163.84": 5, "+Inf": 6}
    assert len(found) == 9
