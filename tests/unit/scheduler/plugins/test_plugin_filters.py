"""Which nodes each filter refuses, and in which words: the rules in the plugins' docstrings, case by case."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cotenant.events.node.metrics import AggregatedUsage, NodeMetricComputed, Usage
from cotenant.model.subjects import metrics_subject
from cotenant_scheduler.framework.plugin import Filter, Score
from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile
from cotenant_scheduler.plugins.host_ports import conflicts
from cotenant_scheduler.plugins.resource_fit import NodeResourcesFit
from cotenant_scheduler.state.load.load_aware_args import AggregatedArgs, LoadAwareArgs
from cotenant_scheduler.state.reading.pod_needs import HostPort
from tests.builders import owner_reference
from tests.unit.scheduler.asking import GATE, Asking
from tests.unit.scheduler.builders_scheduler import GIB, node, pod

FIT, LOAD, PORTS = "NodeResourcesFit", "LoadAwareScheduling", "NodePorts"
AFFINITY, TAINTS, CORDON = "NodeAffinity", "TaintToleration", "NodeUnschedulable"
HINT = "SchedulingHint"

# -- host ports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "excluded"),
    [
        (("TCP", 80, "10.0.0.1"), True),
        (("TCP", 80, "10.0.0.2"), False),
        (("TCP", 80, "0.0.0.0"), True),
        (("UDP", 80, "10.0.0.1"), False),
        (("TCP", 81, "10.0.0.1"), False),
        (("UDP", 80, "0.0.0.0"), False),
    ],
)
def test_ports_exclude_each_other_where_protocol_number_and_address_meet(other: HostPort, excluded: bool) -> None:
    mine = ("TCP", 80, "10.0.0.1")
    assert conflicts(mine, other) is excluded
    assert conflicts(other, mine) is excluded


def ports(*numbers: int) -> list[dict[str, Any]]:
    taken = [{"containerPort": number, "hostPort": number} for number in numbers]
    return [{"name": "main", "ports": taken}]


def test_a_port_is_taken_while_any_pod_has_it() -> None:
    asking = Asking()
    asking.nodes(node("a"), node("b"))
    asking.put("one", "a", containers=ports(80))
    asking.put("two", "a", containers=ports(80, 90))
    asking.ask_for("web", containers=ports(70, 80))
    asking.ask_for("db", containers=ports(90))
    asking.ask_for("plain")
    assert asking.codes(PORTS, "web") == {"a": 2, "b": 0}, "the second of its ports"
    assert asking.codes(PORTS, "db") == {"a": 1, "b": 0}
    assert asking.codes(PORTS, "plain") == {"a": 0, "b": 0}
    assert asking.reason(PORTS, "web", 2).detail == "host port 80/TCP taken"
    asking.pod_deleted("two")
    assert asking.codes(PORTS, "web") == {"a": 2, "b": 0}, "the other pod still has it"
    assert asking.codes(PORTS, "db") == {"a": 0, "b": 0}
    asking.pod_deleted("one")
    assert asking.codes(PORTS, "web") == {"a": 0, "b": 0}


def test_only_pods_with_ports_are_concerned_by_ports() -> None:
    asking = Asking()
    asking.nodes(node("a"))
    asking.ask_for("web", containers=ports(80))
    asking.ask_for("plain")
    asking.current()
    plugin = next(f for f in asking.core.profile.filters if f.name == PORTS)
    assert plugin.concerns(asking.shape("web"))
    assert not plugin.concerns(asking.shape("plain"))


# -- load ----------------------------------------------------------------------------------------------------------------
# A pod of 1 core is taken to use 850 milli-cores, one of 10 Gi 7 Gi. A node is refused from half a percent above the threshold.


def annotated(**parts: object) -> dict[str, str]:
    return {"scheduling.koordinator.sh/usage-thresholds": json.dumps(parts)}


def of_load(args: LoadAwareArgs | None = None) -> Asking:
    asking = Asking(SchedulerConfig(load_aware=args or LoadAwareArgs()))
    asking.ask_for("p", cpu="1", memory="10Gi")
    return asking


def test_a_node_is_refused_where_the_rounded_percentage_is_above_the_threshold() -> None:
    asking = of_load()
    for name, cpu, memory in (("cool", 5_699, 0), ("hot", 5_700, 0), ("free", 0, 87 * GIB), ("full", 0, 89 * GIB)):
        asking.nodes(node(name, cpu="10", memory="100Gi"))
        asking.metric(name, cpu, memory)
    asking.nodes(node("silent", cpu="10", memory="100Gi"))
    assert asking.codes(LOAD, "p") == {"cool": 0, "hot": 2, "free": 0, "full": 4, "silent": 0}
    assert asking.reason(LOAD, "p", 2).detail == "usage 66% > 65%"
    full = asking.reason(LOAD, "p", 4)
    assert (full.detail, full.resource, full.text) == (
        "usage 96% > 95%",
        "memory",
        "node(s) memory usage exceed threshold",
    )


def test_the_reason_names_the_figures_of_the_coolest_node() -> None:
    asking = of_load()
    for name, cpu in (("a", 8_150), ("b", 7_150), ("c", 9_150)):
        asking.nodes(node(name, cpu="10", memory="100Gi"))
        asking.metric(name, cpu)
    assert asking.reason(LOAD, "p", 2).detail == "usage 80% > 65%"


def test_the_first_resource_by_name_is_the_one_that_is_named() -> None:
    asking = of_load()
    asking.nodes(node("a", cpu="10", memory="100Gi"))
    asking.metric("a", 9_000, 99 * GIB)
    assert asking.codes(LOAD, "p") == {"a": 2}


def test_a_threshold_or_a_capacity_of_zero_is_not_checked() -> None:
    asking = of_load()
    asking.nodes(
        node("off", cpu="10", memory="100Gi", annotations=annotated(usageThresholds={"cpu": 0, "memory": 95})),
        node("one", cpu="10", memory="100Gi", annotations=annotated(usageThresholds={"cpu": 1, "memory": 95})),
        node("no-cpu", cpu="0", memory="100Gi"),
        node("one-milli", cpu="1m", memory="100Gi"),
    )
    for name in ("off", "one", "no-cpu", "one-milli"):
        asking.metric(name, 9_000)
    assert asking.codes(LOAD, "p") == {"off": 0, "one": 2, "no-cpu": 0, "one-milli": 2}
    asking.metric("no-cpu", 9_000, 99 * GIB)
    asking.metric("one-milli", 1)
    asking.ask_for("mid", priority=7500)
    assert asking.codes(LOAD, "mid") == {"off": 0, "one": 2, "no-cpu": 4, "one-milli": 2}


def test_a_pod_of_a_daemon_set_is_passed_over() -> None:
    asking = of_load()
    asking.nodes(node("a", cpu="10", memory="100Gi"))
    asking.metric("a", 9_000)
    asking.current()
    owned = pod("daemon", cpu="1", schedulingGates=GATE)
    owned["metadata"]["ownerReferences"] = [{**owner_reference("d"), "kind": "DaemonSet"}]
    asking.pod(owned)
    asking.ask_for("other", cpu="1")
    assert asking.refused(LOAD, "daemon") == set()
    assert asking.refused(LOAD, "other") == {"a"}
    plugin = next(f for f in asking.core.profile.filters if f.name == LOAD)
    assert not plugin.concerns(asking.shape("daemon"))
    assert plugin.concerns(asking.shape("other"))


@pytest.mark.parametrize(
    ("args", "refused"),
    [
        (LoadAwareArgs(), {"hot", "late", "late-and-hot"}),
        (LoadAwareArgs(enable_schedule_when_node_metrics_expired=True), {"hot"}),
        (LoadAwareArgs(filter_expired_node_metrics=False), {"hot", "late-and-hot"}),
    ],
)
def test_an_expired_report_keeps_pods_off_or_is_passed_over_or_still_counts(args: LoadAwareArgs, refused: set[str]) -> None:
    asking = of_load(args)
    off = annotated(usageThresholds={"cpu": 0, "memory": 0})
    asking.nodes(
        node("fresh", cpu="10", memory="100Gi"),
        node("hot", cpu="10", memory="100Gi"),
        node("late", cpu="10", memory="100Gi"),
        node("late-and-hot", cpu="10", memory="100Gi"),
        node("unchecked", cpu="10", memory="100Gi", annotations=off),
        node("silent", cpu="10", memory="100Gi"),
    )
    asking.metric("fresh", 0, age=179)
    asking.metric("hot", 9_000)
    asking.metric("late", 0, age=180)
    asking.metric("late-and-hot", 9_000, age=180)
    asking.metric("unchecked", 0, age=180)
    assert asking.refused(LOAD, "p") == refused
    if "late" in refused:
        assert asking.codes(LOAD, "p")["late"] == 1
        assert asking.reason(LOAD, "p", 1).text == "node(s) nodeMetric expired"


def test_one_checked_resource_is_enough_for_an_expired_report_to_count() -> None:
    asking = of_load()
    asking.nodes(node("a", cpu="10", memory="100Gi", annotations=annotated(usageThresholds={"cpu": 0, "memory": 95})))
    asking.metric("a", 0, age=180)
    assert asking.codes(LOAD, "p") == {"a": 1}


def test_a_report_without_a_time_counts_as_expired_and_its_usage_for_nothing() -> None:
    for args, expected in ((LoadAwareArgs(), 1), (LoadAwareArgs(filter_expired_node_metrics=False), 0)):
        asking = of_load(args)
        asking.nodes(node("a", cpu="10", memory="100Gi"))
        asking.say(metrics_subject("a"), NodeMetricComputed(node="a", node_usage=Usage(cpu_milli=9_000)))
        assert asking.codes(LOAD, "p") == {"a": expected}


def test_a_prod_pod_is_judged_by_prod_thresholds_where_there_are_any() -> None:
    asking = Asking()
    prod = annotated(prodUsageThresholds={"cpu": 30})
    asking.nodes(
        node("a", cpu="10", memory="100Gi", annotations=prod),
        node("b", cpu="10", memory="100Gi"),
        node("c", cpu="10", memory="100Gi", annotations=prod),
    )
    for name in "ac":
        asking.put(f"web{name}", name, cpu="1", memory="1Gi", priority=9000)
    asking.later(120)
    # Prod pods use 2200 and 2199 milli-cores, the nodes much more or less.
    asking.metric("a", 2_200, weba=(2_200, GIB))
    asking.metric("b", 2_200)
    asking.metric("c", 9_000, webc=(2_199, GIB))
    asking.ask_for("prod", cpu="1", memory="10Gi", priority=9000)
    asking.ask_for("mid", cpu="1", memory="10Gi", priority=7500)
    assert asking.codes(LOAD, "prod") == {"a": 2, "b": 0, "c": 0}
    assert asking.codes(LOAD, "mid") == {"a": 0, "b": 0, "c": 2}
    assert asking.reason(LOAD, "prod", 2).detail == "usage 31% > 30%"
    assert asking.reason(LOAD, "mid", 2).detail == "usage 90% > 65%"


def test_a_percentile_is_named_as_such_but_prod_thresholds_go_first() -> None:
    asking = Asking()
    percentile = {"usageThresholds": {"cpu": 50}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m0s"}
    asking.nodes(
        node("p95", cpu="10", memory="100Gi", annotations=annotated(aggregatedUsage=percentile)),
        node(
            "both",
            cpu="10",
            memory="100Gi",
            annotations=annotated(aggregatedUsage=percentile, prodUsageThresholds={"cpu": 1}),
        ),
        node("plain", cpu="10", memory="100Gi"),
    )
    for name in ("p95", "both", "plain"):
        window = AggregatedUsage(duration_seconds=300, p95=Usage(cpu_milli=5_150))
        data = NodeMetricComputed(
            node=name, update_time=asking.now, node_usage=Usage(cpu_milli=6_000), aggregated_node_usages=(window,)
        )
        asking.say(metrics_subject(name), data)
    asking.ask_for("prod", cpu="1", memory="10Gi", priority=9000)
    asking.ask_for("mid", cpu="1", memory="10Gi", priority=7500)
    # 5150 of a mid pod's 0 more is 52 %; a prod pod adds 850: 60 % of the window, 69 % of the newest, 9 % of what prod uses.
    assert asking.codes(LOAD, "mid") == {"p95": 3, "both": 3, "plain": 0}
    assert asking.codes(LOAD, "prod") == {"p95": 3, "both": 2, "plain": 2}
    refusal = asking.reason(LOAD, "mid", 3)
    assert (refusal.text, refusal.detail) == (
        "node(s) cpu aggregated usage exceed threshold",
        "aggregated usage 52% > 50%",
    )


def test_percentiles_by_configuration() -> None:
    aggregated = AggregatedArgs(usage_thresholds={"memory": 10}, usage_aggregation_type="avg")
    asking = of_load(LoadAwareArgs(aggregated=aggregated))
    asking.nodes(node("a", cpu="10", memory="100Gi"))
    asking.metric("a", 9_900, 4 * GIB)
    assert asking.codes(LOAD, "p") == {"a": 5}, "11 % of the memory; cpu has no threshold"


def test_the_room_that_preemption_adds_up_is_what_is_left_with_the_pod_there() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="4", memory="4Gi", pods="3"))
    asking.put("there", "a", cpu="1", memory="1Gi")
    asking.ask_for("p", requests={"cpu": "2", "memory": "5Gi", "nvidia.com/gpu": "2"})
    asking.ask_for("other", requests={"cpu": "1500m", "kubernetes.io/batch-cpu": "1k"})
    asking.current()
    plugin = next(f for f in asking.core.profile.filters if isinstance(f, NodeResourcesFit))
    row = asking.core.nodes.rows["a"]
    assert plugin.room(asking.core.nodes, asking.shape("p"), row) == [1, 1000, -2 * GIB, -2]
    assert plugin.gives_back(asking.shape("p"), asking.shape("other")) == (1, 1500, 0, 0)


# -- what plugins say of themselves --------------------------------------------------------------------------------------


def test_whose_refusals_the_end_of_pods_can_lift() -> None:
    """Kubernetes: Unschedulable, where it can; UnschedulableAndUnresolvable, where it cannot. Load is measured later."""
    filters = default_profile(SchedulerConfig()).filters
    lifted = {PORTS, FIT, "PodTopologySpread", "InterPodAffinity", "VolumeRestrictions", "NodeVolumeLimits"}
    assert {f.name for f in filters if f.preemptible} == lifted
    lasting = {AFFINITY, TAINTS, CORDON, HINT, LOAD, "Reservation", "VolumeBinding"}
    assert {f.name for f in filters if not f.preemptible} == lasting


def test_what_filters_and_scores_look_at() -> None:
    profile = default_profile(SchedulerConfig())
    plugins: dict[str, Filter | Score] = {plugin.name: plugin for plugin in profile.scores}
    plugins |= {plugin.name: plugin for plugin in profile.filters}
    assert {name for name, plugin in plugins.items() if plugin.static} == {AFFINITY, TAINTS, CORDON, HINT, "ImageLocality"}
    among_pods = {"PodTopologySpread", "InterPodAffinity", "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding"}
    assert {f.name for f in profile.filters if f.spanning} == among_pods
    assert {name for name, plugin in plugins.items() if not plugin.in_columns} == {PORTS, "Reservation", *among_pods}


def test_taints_cordons_and_room_concern_every_pod() -> None:
    asking = Asking()
    asking.nodes(node("a"))
    asking.ask_for("p", requests={})
    asking.current()
    concerned = {f.name for f in asking.core.profile.filters if f.concerns(asking.shape("p"))}
    assert concerned == {FIT, TAINTS, CORDON, LOAD}


# -- resource fit --------------------------------------------------------------------------------------------------------


def test_the_first_need_that_does_not_fit_is_named_pods_before_the_others() -> None:
    asking = Asking()
    asking.nodes(
        node("exact", cpu="2", memory="2Gi", pods="1"),
        node("cpu", cpu="1999m", memory="2Gi", pods="1"),
        node("memory", cpu="2", memory="2147483647", pods="1"),
        node("both", cpu="1", memory="1Gi", pods="1"),
        node("pods", cpu="1", memory="1Gi", pods="0"),
    )
    asking.ask_for("p", cpu="2", memory="2Gi")
    assert asking.codes(FIT, "p") == {"exact": 0, "cpu": 2, "memory": 3, "both": 2, "pods": 1}


def test_what_is_placed_takes_room() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="4", memory="4Gi", pods="3"))
    asking.put("one", "a", cpu="1", memory="1Gi")
    asking.ask_for("fits", cpu="3", memory="3Gi")
    asking.ask_for("not", cpu="3001m", memory="3Gi")
    assert asking.codes(FIT, "fits") == {"a": 0}
    assert asking.codes(FIT, "not") == {"a": 2}
    assert asking.reason(FIT, "not", 2).detail == "short by 1m"
    asking.put("two", "a", requests={})
    asking.put("three", "a", requests={})
    assert asking.codes(FIT, "fits") == {"a": 1}
    refusal = asking.reason(FIT, "fits", 1)
    assert (refusal.text, refusal.detail) == ("Too many pods", "full")


def test_a_shortage_is_that_of_the_node_with_most_room() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="2"), node("b", cpu="3"), node("c", cpu="1"))
    asking.put("there", "b", cpu="500m", memory="1Gi")
    asking.ask_for("p", cpu="4")
    refusal = asking.reason(FIT, "p", 2)
    assert (refusal.text, refusal.resource, refusal.detail) == ("Insufficient cpu", "cpu", "short by 1500m")


def test_a_resource_that_no_node_offers_is_asked_in_vain_and_zero_of_it_is_nothing() -> None:
    asking = Asking()
    asking.nodes(node("a"), node("b"))
    asking.ask_for("gpu", requests={"nvidia.com/gpu": "2"})
    asking.ask_for("none", requests={"nvidia.com/gpu": "0"})
    assert asking.codes(FIT, "gpu") == {"a": 2, "b": 2}
    assert asking.codes(FIT, "none") == {"a": 0, "b": 0}
    refusal = asking.reason(FIT, "gpu", 2)
    assert (refusal.text, refusal.detail) == ("Insufficient nvidia.com/gpu", "not offered, 2 asked")


def test_batch_cpu_is_written_in_milli_cores() -> None:
    asking = Asking()
    asking.nodes(node("a"), node("b"))
    asking.batch("a", 1_000)
    asking.ask_for("p", requests={"kubernetes.io/batch-cpu": "1500"})
    asking.ask_for("mid", requests={"kubernetes.io/mid-cpu": "1500"})
    assert asking.reason(FIT, "p", 2).detail == "short by 500m"
    assert asking.reason(FIT, "mid", 2).detail == "not offered, 1500m asked"


# -- selectors, taints, cordons ------------------------------------------------------------------------------------------


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def in_zone(*values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(values)}]}


def test_the_selector_and_one_of_the_required_terms_must_hold() -> None:
    asking = Asking()
    asking.nodes(
        node("a", labels={"zone": "a", "disk": "ssd"}),
        node("b", labels={"zone": "b", "disk": "ssd"}),
        node("c", labels={"zone": "c", "disk": "ssd"}),
        node("d", labels={"zone": "a", "disk": "hdd"}),
    )
    asking.ask_for("selector", nodeSelector={"disk": "ssd", "zone": "a"})
    asking.ask_for("terms", affinity=required(in_zone("a"), in_zone("b")))
    asking.ask_for("both", nodeSelector={"disk": "ssd"}, affinity=required(in_zone("a")))
    asking.ask_for("plain")
    assert asking.refused(AFFINITY, "selector") == {"b", "c", "d"}
    assert asking.refused(AFFINITY, "terms") == {"c"}
    assert asking.refused(AFFINITY, "both") == {"b", "c", "d"}
    assert asking.refused(AFFINITY, "plain") == set()
    assert asking.reason(AFFINITY, "selector", 1).detail == "node selector disk=ssd, zone=a does not match"
    assert asking.reason(AFFINITY, "terms", 1).detail == "node affinity does not match"
    plugin = next(f for f in asking.core.profile.filters if f.name == AFFINITY)
    assert [plugin.concerns(asking.shape(name)) for name in ("selector", "terms", "both", "plain")] == [True] * 3 + [False]


def test_preferred_terms_are_summed() -> None:
    asking = Asking()
    asking.nodes(node("a", labels={"zone": "a"}), node("b", labels={"zone": "b"}), node("c", labels={"zone": "c"}))
    preferred = [{"weight": 7, "preference": in_zone("a", "b")}, {"weight": 20, "preference": in_zone("b")}]
    asking.ask_for("p", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})
    asking.ask_for("required", affinity=required(in_zone("a")))
    assert asking.scores(AFFINITY, "p") == {"a": 7, "b": 27, "c": 0}
    assert asking.scores(AFFINITY, "required") == {"a": 0, "b": 0, "c": 0}
    assert asking.refused(AFFINITY, "p") == set()


def taint(key: str, effect: str, value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


def test_taints_that_are_not_tolerated_refuse_or_only_count() -> None:
    asking = Asking()
    asking.nodes(
        node("clean"),
        node("no-schedule", taints=[taint("k", "NoSchedule", "v")]),
        node("no-execute", taints=[taint("k", "NoExecute")]),
        node("prefers", taints=[taint("k", "PreferNoSchedule", "v"), taint("l", "PreferNoSchedule")]),
    )
    asking.ask_for("p")
    asking.ask_for("tolerant", tolerations=[{"key": "k", "operator": "Exists"}])
    assert asking.codes(TAINTS, "p") == {"clean": 0, "no-schedule": 1, "no-execute": 1, "prefers": 0}
    assert asking.codes(TAINTS, "tolerant") == {"clean": 0, "no-schedule": 0, "no-execute": 0, "prefers": 0}
    assert asking.scores(TAINTS, "p") == {"clean": 0, "no-schedule": 0, "no-execute": 0, "prefers": 2}
    assert asking.scores(TAINTS, "tolerant") == {"clean": 0, "no-schedule": 0, "no-execute": 0, "prefers": 1}
    assert asking.reason(TAINTS, "p", 1).detail == "taint k:NoExecute, k=v:NoSchedule not tolerated"


def test_a_node_whose_memory_is_short_refuses_best_effort_pods_alone() -> None:
    asking = Asking()
    asking.nodes(node("short", taints=[taint("node.kubernetes.io/memory-pressure", "NoSchedule")]), node("fine"))
    batch = {"kubernetes.io/batch-cpu": "1"}
    asking.ask_for("labelled", labels={"koordinator.sh/qosClass": "BE"}, requests=batch)
    asking.ask_for("unlabelled", requests=batch)
    asking.ask_for("tolerant", requests=batch, tolerations=[{"operator": "Exists"}])
    asking.ask_for("service", labels={"koordinator.sh/qosClass": "LS"})
    for name, refused in (("labelled", 1), ("unlabelled", 1), ("tolerant", 0), ("service", 0)):
        assert asking.codes(TAINTS, name) == {"short": refused, "fine": 0}, name


def test_a_reason_names_three_taints_at_most() -> None:
    for count, expected in (
        (3, "taint a:NoSchedule, b:NoSchedule, c:NoSchedule not tolerated"),
        (4, "taint a:NoSchedule, b:NoSchedule, c:NoSchedule and others not tolerated"),
    ):
        asking = Asking()
        asking.nodes(*(node(key, taints=[taint(key, "NoSchedule")]) for key in "abcd"[:count]))
        asking.ask_for("p")
        assert asking.reason(TAINTS, "p", 1).detail == expected


def test_a_cordoned_node_refuses_who_does_not_tolerate_that() -> None:
    asking = Asking()
    asking.nodes(node("a", unschedulable=True), node("b"))
    asking.ask_for("p")
    asking.ask_for("tolerant", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    asking.ask_for("other", tolerations=[{"key": "else", "operator": "Exists"}])
    assert asking.codes(CORDON, "p") == {"a": 1, "b": 0}
    assert asking.codes(CORDON, "tolerant") == {"a": 0, "b": 0}
    assert asking.codes(CORDON, "other") == {"a": 1, "b": 0}
    assert asking.reason(CORDON, "p", 1).text == "node(s) were unschedulable"
