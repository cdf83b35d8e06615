"""What a node lends, decided through apply and decide."""

from __future__ import annotations

import json
import random

import msgspec
import pytest

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events import ExecutorStatus, NodeResources, NodeSLORendered, ObjectStored
from cotenant.events.node.metrics import HostApplicationMetric, Usage
from cotenant.events.node.runs import RunPhase
from cotenant.model.subjects import executor_subject, node_subject, object_subject, resources_subject
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from cotenant_batch_resource_calculator.definition import is_urgent
from tests.builders import encoded, pod_document
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import (
    CONFIG_SUBJECT,
    GIB,
    NOON,
    Bench,
    last_per_subject,
    minutes,
    used,
)


@pytest.fixture
def bench() -> Bench:
    """A node of 100 CPUs and 100 GiB that lends: 60 % of CPU and 65 % of memory may be used in all."""
    bench = Bench()
    bench.configure()
    bench.node()
    return bench


def term(resources: NodeResources, name: str) -> Usage:
    found = next(term for term in resources.terms if term.name == name)
    return Usage(cpu_milli=found.cpu_milli, memory_bytes=found.memory_bytes)


# -- the formula ---------------------------------------------------------------------------------------------------


def test_batch_is_capacity_without_margin_system_and_used(bench: Bench) -> None:
    bench.place("web")
    metric = bench.metric(system=used(5, 6), pods={"web": used(7, 9)})
    (event, _) = bench.decide()
    resources = bench.resources()
    assert resources.batch_cpu_milli == 100_000 - 40_000 - 5_000 - 7_000
    assert resources.batch_memory_bytes == 100 * GIB - 35 * GIB - 6 * GIB - 9 * GIB
    assert event.subject == resources_subject("a")
    assert term(resources, "high-priority-used") == used(7, 9)
    assert term(resources, "system-used") == used(5, 6)
    assert {found.source for found in resources.terms if found.name == "high-priority-used"} == {metric.ref}


def test_a_decision_names_the_metric_as_its_first_cause(bench: Bench) -> None:
    metric = bench.metric()
    event = next(event for event in bench.core.decide(NOON) if event.subject == resources_subject("a"))
    assert event.causes[0] == metric.ref


def test_memory_by_request_ignores_usage_and_system_usage(bench: Bench) -> None:
    bench.configure('{"enable": true, "memoryCalculatePolicy": "request", "memoryReclaimThresholdPercent": 80}')
    bench.place("web", memory="10Gi")
    bench.metric(system=used(5, 30), pods={"web": used(7, 1)})
    bench.decide()
    assert bench.resources().batch_memory_bytes == (80 - 10) * GIB
    assert bench.resources().memory_policy == "request"


def test_max_usage_request_takes_the_larger_of_the_two_for_each_pod(bench: Bench) -> None:
    bench.configure('{"enable": true, "cpuCalculatePolicy": "maxUsageRequest", "memoryCalculatePolicy": "maxUsageRequest"}')
    bench.place("idle", cpu="10", memory="10Gi")
    bench.place("busy", cpu="1", memory="1Gi")
    bench.metric(pods={"idle": used(1, 1), "busy": used(8, 8)})
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000 - 10_000 - 8_000
    assert bench.resources().batch_memory_bytes == (65 - 10 - 8) * GIB


def test_cpu_has_no_policy_request(bench: Bench) -> None:
    bench.configure('{"enable": true, "cpuCalculatePolicy": "request"}')
    bench.place("web", cpu="50")
    bench.metric(pods={"web": used(1, 1)})
    bench.decide()
    assert bench.resources().cpu_policy == "usage"
    assert bench.resources().batch_cpu_milli == 59_000


@pytest.mark.parametrize("policy", ["usage", "maxUsageRequest"])
def test_a_pod_without_a_metric_yet_counts_its_request_and_is_named(bench: Bench, policy: str) -> None:
    bench.configure(f'{{"enable": true, "cpuCalculatePolicy": "{policy}"}}')
    bench.place("web", cpu="10")
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 50_000
    assert bench.resources().assumed == ("default/web",)
    assert "1 pods without a metric yet count by their request" in bench.resources().message


def test_usage_without_a_placement_counts_and_is_named(bench: Bench) -> None:
    bench.metric(pods={"left-over": used(4, 4), "batch": used(9, 9)}, tiers={"batch": "koord-batch"})
    bench.decide()
    assert bench.resources().batch_cpu_milli == 56_000
    assert bench.resources().dangling == ("default/left-over",)


def test_usage_of_batch_pods_does_not_reduce_batch_resources(bench: Bench) -> None:
    bench.place("job", qos="BE", cpu="30", priority=5500)
    bench.metric(pods={"job": used(30, 30)}, tiers={"job": "koord-batch"})
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000


def test_an_exclusive_pod_counts_its_whole_cpu_request(bench: Bench) -> None:
    bench.place("pinned", qos="LSE", cpu="20", memory="20Gi")
    bench.metric(pods={"pinned": used(1, 1)})
    bench.decide()
    assert bench.resources().batch_cpu_milli == 40_000
    assert bench.resources().batch_memory_bytes == 64 * GIB


def test_a_pod_that_ended_does_not_count_by_its_request(bench: Bench) -> None:
    bench.place("web", uid="1")
    bench.run("web", RunPhase.SUCCEEDED, uid="1")
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000


def test_the_end_of_an_earlier_pod_of_the_name_does_not_hide_the_new_one(bench: Bench) -> None:
    bench.run("web", RunPhase.FAILED, uid="old")
    bench.place("web", uid="new")
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 50_000


def test_host_applications_count_unless_they_are_batch(bench: Bench) -> None:
    hosts = (
        HostApplicationMetric(name="proxy", usage=used(2, 2)),
        HostApplicationMetric(name="yarn-task", priority="koord-batch", usage=used(8, 8)),
    )
    bench.metric(hosts=hosts)
    bench.decide()
    assert bench.resources().batch_cpu_milli == 58_000
    assert term(bench.resources(), "host-applications") == used(2, 2)


def test_the_reserve_is_the_larger_of_kubelet_and_annotation_and_system_usage(bench: Bench) -> None:
    bench.node(
        allocatable={"cpu": "97", "memory": "95Gi"},
        annotations={"node.koordinator.sh/reservation": '{"resources": {"memory": "2Gi"}, "reservedCPUs": "0-9"}'},
    )
    bench.metric(system=used(4, 8))
    bench.decide()
    assert bench.resources().batch_cpu_milli == 50_000
    assert bench.resources().batch_memory_bytes == 57 * GIB
    assert bench.slo().reserved_cpus == "0-9"
    assert bench.slo().reserved_cpu_milli == 10_000


def test_an_unreadable_reservation_reserves_nothing_and_is_reported(bench: Bench) -> None:
    bench.node(annotations={"node.koordinator.sh/reservation": '{"reservedCPUs": "9-0"}'})
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000
    assert "ascending range" in bench.resources().message


def test_batch_thresholds_cap_the_result(bench: Bench) -> None:
    bench.configure('{"enable": true, "batchCPUThresholdPercent": 30, "batchMemoryThresholdPercent": 10}')
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 30_000
    assert bench.resources().batch_memory_bytes == 10 * GIB


def test_the_executors_report_overrides_the_object(bench: Bench) -> None:
    capacity = {"cpu": 8000, "memory": 10 * GIB}
    executor = bench.store(executor_subject("a"), ExecutorStatus(node="a", capacity=capacity, allocatable=capacity))
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 4800
    assert {found.source for found in bench.resources().terms if found.name == "capacity"} == {executor.ref}


def test_a_node_of_unknown_capacity_offers_nothing(bench: Bench) -> None:
    bench.store_object(node_subject("a"), {"metadata": {"name": "a"}})
    bench.metric()
    bench.decide()
    assert bench.resources().withdrawn
    assert bench.resources().reason == "UnknownCapacity"


def test_numa_zones_offer_their_share(bench: Bench) -> None:
    zone = [{"name": "cpu", "allocatable": "50"}, {"name": "memory", "allocatable": "50Gi"}]
    zones = [{"name": f"node-{number}", "resources": zone} for number in (1, 0)]
    topology: dict[str, object] = {"metadata": {"name": "a"}, "zones": zones}
    bench.store_object(object_subject("topology.node.k8s.io", "noderesourcetopologies", "", "a"), topology)
    annotations = {"scheduling.koordinator.sh/resource-status": '{"numaNodeResources": [{"node": 1}]}'}
    bench.place("web")
    document = pod_document("web", uid="web", annotations=annotations, requests={"cpu": "10", "memory": "10Gi"})
    placement = msgspec.structs.replace(bench.log[-1].data, pod=encoded(document))
    bench.store(bench.log[-1].subject, placement)
    bench.metric(pods={"web": used(6, 6)})
    bench.decide()
    assert [(zone.name, zone.batch_cpu_milli, zone.batch_memory_bytes) for zone in bench.resources().zones] == [
        ("node-0", 30_000, 65 * GIB // 2),
        ("node-1", 24_000, 65 * GIB // 2 - 6 * GIB),
    ]


def test_cpu_normalisation_scales_batch_cpu_only(bench: Bench) -> None:
    bench.node(annotations={"node.koordinator.sh/cpu-normalization-ratio": "1.20"})
    bench.metric()
    bench.decide()
    assert bench.resources().batch_cpu_milli == 72_000
    assert bench.resources().batch_memory_bytes == 65 * GIB
    assert bench.resources().cpu_normalization_ratio == 1.2


def test_mid_is_the_prediction_within_what_is_unused(bench: Bench) -> None:
    bench.place("web")
    bench.metric(system=used(5, 5), pods={"web": used(10, 10)}, prod_reclaimable=used(20, 90))
    bench.decide()
    assert bench.resources().mid_cpu_milli == 20_000
    assert bench.resources().mid_memory_bytes == 85 * GIB


# -- degradation ---------------------------------------------------------------------------------------------------


def test_colocation_is_off_without_a_config_map() -> None:
    bench = Bench()
    bench.node()
    bench.metric()
    bench.decide()
    assert bench.resources().withdrawn
    assert bench.resources().reason == "ColocationDisabled"


def test_a_node_without_a_metric_offers_nothing_with_a_reason(bench: Bench) -> None:
    bench.decide()
    resources = bench.resources()
    assert (resources.withdrawn, resources.degraded, resources.reason) == (True, True, "NoMetric")


@pytest.mark.parametrize("field", ["degradeTimeMinutes", "updateTimeThresholdSeconds"])
@pytest.mark.parametrize("bound", [10**10, 10**12, 2**63 - 1])
def test_a_bound_that_no_clock_reaches_is_never_reached(field: str, bound: int) -> None:
    bench = Bench()
    bench.configure(f'{{"enable": true, "{field}": {bound}, "resourceDiffThreshold": 0.5}}')
    bench.node()
    bench.metric()
    bench.decide()
    bench.metric(system=used(1, 1), at=NOON + minutes(1))
    bench.decide(NOON + minutes(1))
    later = NOON + minutes(60 * 24 * 365)
    bench.decide(later)
    assert bench.resources().withdrawn is (field == "updateTimeThresholdSeconds")


def test_a_stale_metric_withdraws_batch_when_degrade_time_has_passed_and_a_fresh_one_returns_it(bench: Bench) -> None:
    bench.metric()
    bench.decide()
    assert not bench.decide(NOON + minutes(15))
    bench.decide(NOON + minutes(15.1))
    assert bench.resources().withdrawn
    assert bench.resources().degraded
    assert bench.resources().reason == "StaleMetric"
    assert "degradeTimeMinutes" in bench.resources().message
    bench.metric(at=NOON + minutes(16))
    bench.decide(NOON + minutes(16))
    assert bench.resources().batch_cpu_milli == 60_000


def test_a_node_without_new_samples_keeps_its_last_figures_until_degrade_time(bench: Bench) -> None:
    bench.place("web")
    bench.metric(pods={"web": used(10, 10)})
    bench.decide()
    bench.metric(unknown_since=NOON + minutes(1))
    bench.decide(NOON + minutes(2))
    assert bench.resources().reason == "MetricUnknown"
    assert bench.resources().batch_cpu_milli == 50_000
    assert not bench.decide(NOON + minutes(3))
    bench.decide(NOON + minutes(16))
    assert bench.resources().reason == "StaleMetric"


# -- the foreign share ---------------------------------------------------------------------------------------------

ALLOCATIONS = (
    '{"allocations": [{"name": "hadoop-yarn", "priority": "koord-batch",'
    ' "resources": {"kubernetes.io/batch-cpu": "10k", "kubernetes.io/batch-memory": "10Gi"}}]}'
)
THIRD_PARTY = "node.koordinator.sh/thirdPartyAllocations"


def test_a_foreign_share_is_subtracted_from_the_offer_and_not_from_the_origin(bench: Bench) -> None:
    bench.node(annotations={THIRD_PARTY: ALLOCATIONS})
    bench.metric()
    bench.decide()
    assert bench.resources().origin == used(60, 65)
    assert bench.resources().batch_cpu_milli == 50_000
    assert bench.resources().batch_memory_bytes == 55 * GIB


def test_yarns_own_report_replaces_its_annotation(bench: Bench) -> None:
    bench.node(annotations={THIRD_PARTY: ALLOCATIONS})
    bench.metric()
    yarn = bench.yarn(used(4, 4))
    bench.decide()
    assert bench.resources().third_party == used(4, 4)
    assert {found.source for found in bench.resources().terms if found.name == "third-party"} == {yarn.ref}


def test_a_node_manager_that_no_longer_belongs_to_the_node_is_not_counted_any_more(bench: Bench) -> None:
    """Found by fuzzing: its last report went on counting here, and not in a service that had loaded since."""
    bench.node(annotations={THIRD_PARTY: ALLOCATIONS})
    bench.metric()
    bench.yarn(used(4, 4))
    bench.decide()
    assert bench.resources().third_party == used(4, 4)
    bench.yarn(used(4, 4), named="")
    bench.decide()
    assert bench.resources().third_party == used(10, 10)


def test_an_unmatched_node_manager_is_not_counted(bench: Bench) -> None:
    bench.metric()
    bench.yarn(used(4, 4), named="")
    bench.decide()
    assert bench.resources().third_party == Usage()


def test_an_unreadable_foreign_share_keeps_the_last_one_and_is_reported(bench: Bench) -> None:
    bench.node(annotations={THIRD_PARTY: ALLOCATIONS})
    bench.metric()
    bench.decide()
    bench.node(annotations={THIRD_PARTY: "nonsense"})
    bench.metric(system=used(20, 20))
    bench.decide()
    assert bench.resources().third_party == used(10, 10)
    assert THIRD_PARTY in bench.resources().message


# -- the dead band -------------------------------------------------------------------------------------------------


def test_a_small_move_waits_for_the_refresh_and_a_large_one_does_not(bench: Bench) -> None:
    bench.metric(system=used(10, 10))
    bench.decide()
    bench.metric(system=used(12, 12))
    assert not bench.decide(NOON + minutes(5))
    (refreshed,) = bench.decide(NOON + minutes(5.1))
    assert isinstance(refreshed.data, NodeResources)
    assert refreshed.data.batch_cpu_milli == 48_000
    bench.metric(system=used(20, 12), at=NOON + minutes(5.1))
    bench.decide(NOON + minutes(5.2))
    assert bench.resources().batch_cpu_milli == 40_000


def test_nothing_is_stored_again_while_nothing_changes(bench: Bench) -> None:
    bench.metric()
    bench.decide()
    assert not bench.decide(NOON + minutes(1))
    assert not bench.decide(NOON + minutes(14))


def test_the_threshold_of_the_strategy_is_the_dead_band(bench: Bench) -> None:
    bench.configure('{"enable": true, "resourceDiffThreshold": 0.01}')
    bench.metric(system=used(10, 10))
    bench.decide()
    bench.metric(system=used(11, 10))
    bench.decide()
    assert bench.resources().batch_cpu_milli == 49_000


# -- the configuration ---------------------------------------------------------------------------------------------


def test_node_entries_annotation_and_labels_override_the_cluster() -> None:
    bench = Bench()
    bench.configure(
        '{"enable": true, "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuReclaimThresholdPercent": 50}]}'
    )
    bench.node("a", labels={"pool": "x"})
    bench.node("b", labels={"pool": "x", "node.koordinator.sh/cpu-reclaim-ratio": "0.29"})
    bench.node("c", annotations={"node.koordinator.sh/colocation-strategy": '{"enable": false}'})
    bench.node("d", annotations={"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent": -3}'})
    for name in "abcd":
        bench.metric(name)
    bench.decide()
    assert bench.resources("a").batch_cpu_milli == 50_000
    assert bench.resources("b").batch_cpu_milli == 28_000
    assert bench.resources("c").reason == "ColocationDisabled"
    assert bench.resources("d").batch_cpu_milli == 60_000
    assert "cpuReclaimThresholdPercent is -3" in bench.resources("d").message


def test_the_message_says_which_node_entry_is_in_force() -> None:
    bench = Bench()
    wrong = {"name": "pilot", "nodeSelector": {"matchLabels": {"pool": "x"}}, "degradeTimeMinutes": -1}
    right = {"nodeSelector": {"matchLabels": {"pool": "y"}}, "cpuReclaimThresholdPercent": 50}
    bench.configure(json.dumps({"enable": True, "nodeConfigs": [wrong, right]}))
    for name, pool in (("a", "x"), ("b", "y"), ("c", "z")):
        bench.node(name, labels={"pool": pool})
        bench.metric(name)
    bench.decide()
    why = "the node entry pilot, as its degradeTimeMinutes is -1: must be greater than 0"
    assert bench.resources("a").message.endswith(f"; the cluster's strategy counts in place of {why}")
    assert bench.resources("a").batch_cpu_milli == 60_000
    assert bench.resources("b").message.endswith("; strategy of the node entry nodeConfigs[1]")
    assert "entry" not in bench.resources("c").message
    bench.configure(json.dumps({"enable": True, "nodeConfigs": [{**right, "enable": False}]}))
    bench.decide()
    off = "colocation is switched off for the node: batch and mid resources are not offered"
    assert bench.resources("b").message == f"{off}; strategy of the node entry nodeConfigs[0]"


def test_a_node_entry_cannot_enable_what_the_cluster_disables() -> None:
    bench = Bench()
    bench.configure('{"enable": false, "nodeConfigs": [{"nodeSelector": {}, "enable": true}]}')
    bench.node()
    bench.metric()
    bench.decide()
    assert bench.resources().withdrawn


def test_a_rejected_section_keeps_the_strategy_in_force_and_is_reported(bench: Bench) -> None:
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 50}')
    bench.metric()
    bench.decide()
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": "much"}')
    bench.decide()
    assert bench.resources().batch_cpu_milli == 50_000
    assert bench.resources().reason == "ConfigRejected"
    assert "cpuReclaimThresholdPercent" in bench.resources().message
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 40}')
    bench.decide()
    assert (bench.resources().reason, bench.resources().batch_cpu_milli) == ("", 40_000)


def test_a_core_that_starts_on_a_rejected_configuration_keeps_what_was_in_force(bench: Bench) -> None:
    bench.configure(
        '{"enable": true, "cpuReclaimThresholdPercent": 50}', resource_threshold_config='{"clusterStrategy": {"enable": true}}'
    )
    bench.metric()
    bench.decide()
    bench.configure("{", resource_threshold_config="{")
    fresh = BatchResourceCalculator()
    for event in last_per_subject(bench.log):
        fresh.apply(event)
    assert [event.data for event in fresh.decide(NOON)] == [event.data for event in bench.core.decide(NOON)]
    bench.decide()
    assert bench.resources().batch_cpu_milli == 50_000
    assert bench.slo().enable


def test_a_config_map_that_is_none_rejects_everything_and_stops_nothing(bench: Bench) -> None:
    bench.metric()
    bench.decide()
    bench.store(CONFIG_SUBJECT, ObjectStored(object=msgspec.Raw(b'{"data": 7}')))
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000
    assert bench.resources().reason == "ConfigRejected"


# -- NodeSLO -------------------------------------------------------------------------------------------------------


def test_the_slo_of_a_node_has_the_defaults_where_nothing_is_configured(bench: Bench) -> None:
    bench.decide()
    slo = bench.slo()
    assert (slo.enable, slo.cpu_suppress_threshold_percent, slo.cpu_suppress_policy) == (False, 65, "cpuset")
    assert msgspec.json.decode(slo.spec)["cpuBurstStrategy"]["policy"] == "none"


def test_the_slo_is_stored_again_only_when_it_changes(bench: Bench) -> None:
    bench.decide()
    bench.configure()
    assert not [event for event in bench.decide() if isinstance(event.data, NodeSLORendered)]
    bench.configure(
        resource_threshold_config='{"clusterStrategy": {"enable": true, "CPUSuppressThresholdPercent": 60},'
        ' "nodeStrategies": [{"nodeSelector": {"matchLabels": {"pool": "x"}}, "cpuSuppressPolicy": "cfsQuota"}]}'
    )
    bench.node("b", labels={"pool": "x"})
    bench.decide()
    assert (bench.slo("a").enable, bench.slo("a").cpu_suppress_policy) == (True, "cpuset")
    assert (bench.slo("b").cpu_suppress_threshold_percent, bench.slo("b").cpu_suppress_policy) == (60, "cfsQuota")


def test_a_rejected_slo_section_leaves_the_others_in_force(bench: Bench) -> None:
    bench.configure(
        resource_threshold_config='{"clusterStrategy": {"cpuSuppressThresholdPercent": 300}}',
        resource_qos_config='{"clusterStrategy": {"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}}}}',
    )
    bench.decide()
    assert "must be between 0 and 100" in bench.slo().reason
    assert bench.slo().cpu_suppress_threshold_percent == 65
    assert bench.slo().be_identity.enable


def test_the_class_by_which_services_are_protected_reaches_the_node(bench: Bench) -> None:
    bench.configure(resource_qos_config='{"clusterStrategy": {"lsClass": {"cpuQOS": {"cpuClass": "realtime"}}}}')
    bench.decide()
    assert b'"cpuClass":"realtime"' in bytes(bench.slo().spec)


# -- the fold ------------------------------------------------------------------------------------------------------


def test_the_end_of_a_node_is_stored_on_both_subjects_once(bench: Bench) -> None:
    bench.metric()
    bench.decide()
    bench.delete_node()
    ended = bench.decide()
    assert [event.tombstone for event in ended] == [True, True]
    assert not bench.decide()


def test_a_node_that_comes_back_is_decided_again(bench: Bench) -> None:
    bench.metric()
    bench.decide()
    bench.delete_node()
    bench.decide()
    bench.node()
    assert len(bench.decide()) == 2


def test_pods_that_are_not_over_count_on_a_node_that_was_deleted_and_created_again(bench: Bench) -> None:
    bench.place("web")
    bench.metric()
    bench.decide()
    before = bench.resources().batch_cpu_milli
    bench.delete_node()
    bench.decide()
    bench.node()
    bench.decide()
    assert bench.resources().batch_cpu_milli == before
    bench.displace("web")
    bench.decide()
    assert bench.resources().batch_cpu_milli > before


def test_repeated_and_older_messages_change_nothing(bench: Bench) -> None:
    old = bench.place("web")
    bench.displace("web")
    bench.metric()
    bench.core.apply(old)
    bench.decide()
    assert bench.resources().batch_cpu_milli == 60_000


@pytest.mark.parametrize("seed", range(20))
def test_the_order_between_subjects_does_not_matter(bench: Bench, seed: int) -> None:
    bench.place("web")
    bench.place("db", qos="LSE")
    bench.metric(system=used(3, 3), pods={"web": used(4, 4)})
    bench.yarn(used(1, 1))
    bench.run("db", RunPhase.RUNNING)
    bench.displace("web")
    bench.node("b")
    bench.decide()
    bench.metric(system=used(30, 3))
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 70}')
    expected = [(event.subject, event.data, event.causes) for event in bench.core.decide(NOON)]
    assert expected
    shuffled = last_per_subject(bench.log) * 2
    random.Random(seed).shuffle(shuffled)
    fresh = BatchResourceCalculator()
    for event in shuffled:
        fresh.apply(event)
    assert [(event.subject, event.data, event.causes) for event in fresh.decide(NOON)] == expected


def test_deciding_changes_nothing(bench: Bench) -> None:
    bench.metric()
    assert [event.data for event in bench.core.decide(NOON)] == [event.data for event in bench.core.decide(NOON)]


def test_a_decision_is_bounded_and_continues_in_the_next() -> None:
    bench = Bench()
    for number in range(600):
        bench.node(f"n{number:03}")
    first = bench.decide()
    assert len(first) <= MAX_EVENTS_PER_DECISION
    assert len(first) + len(bench.decide()) == 1200
    assert not bench.decide()


def test_an_unreadable_node_object_stops_nothing(bench: Bench) -> None:
    bench.store(node_subject("a"), ObjectStored(object=msgspec.Raw(b'{"metadata": {"labels": 3}}')))
    bench.metric()
    bench.decide()
    assert bench.resources().reason == "UnknownCapacity"
    assert "cannot be read" in bench.resources().message


def test_what_a_metric_changes_is_stored_at_once_and_what_a_starting_pod_changes_may_wait() -> None:
    bench = Bench()

    def urgent() -> list[bool]:
        found = [is_urgent(event) for event in bench.core.decide(NOON) if isinstance(event.data, NodeResources)]
        bench.decide()
        return found

    bench.configure()
    bench.node()
    assert urgent() == [False]
    bench.metric(system=used(1, 1))
    assert urgent() == [True]
    bench.place("web", cpu="40", memory="1Gi")
    assert urgent() == [False]
    bench.configure('{"enable": true, "cpuReclaimThresholdPercent": 80}')
    assert urgent() == [False]
