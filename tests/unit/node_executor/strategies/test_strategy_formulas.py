"""Values of pods, batch values and CPU identity on their own; expected figures are worked out by hand from the rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant_node_executor.strategies.cpu.core_sched.strategy import IDENTITY_SWITCH
from cotenant_node_executor.strategies.cpu.core_sched.strategy import SWITCH as CORE_SCHED_SWITCH
from cotenant_node_executor.strategies.cpu.identity import group_identity, idle
from cotenant_node_executor.strategies.cpu.identity import strategy as identity
from cotenant_node_executor.strategies.cpu.identity.group_identity import ClassIdentity, IdentityRule, identity_rule
from cotenant_node_executor.strategies.pod_view import ContainerAmounts, pod_view
from cotenant_node_executor.strategies.pods import batch_pods, pod_values
from cotenant_node_executor.strategies.pods.batch_values import CgroupValues, batch_values, quota_enabled
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, Evict, Input, NodePolicy
from cotenant_node_executor.targets.address import Place, Sysctl
from cotenant_node_executor.targets.interface import Knob
from tests.builders import container as any_container
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import batch, capabilities, pod, service, situation, slo

GIB = 1 << 30
BVT = capabilities(also=[Knob.CPU_BVT])
IDENTITIES = {
    "lsr_identity": CpuIdentity(enable=True, group_identity=2),
    "ls_identity": CpuIdentity(enable=True, group_identity=1),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}
GUARANTEED = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def values(desired: tuple[Desired, ...]) -> dict[str, str]:
    return {each.attribute.value: each.value for each in desired if isinstance(each.attribute, Knob)}


def container(name: str, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, object]:
    return any_container(name, requests=requests, limits=limits)


# -- plain values: shares from requests, quota and memory from limits ----------------------------------------------


def of_pod(*containers: dict[str, object], qos: str = "LS", **more: Any) -> tuple[dict[str, str], list[dict[str, str]]]:
    shape = pod_view(pod("p", qos, containers=list(containers), **more)).shape
    desired = pod_values.of_pod(shape, NodePolicy(capabilities(), None))
    return values(desired.pod), [values(each) for each in desired.containers]


def test_a_pods_values_are_the_sums_of_its_containers() -> None:
    whole, parts = of_pod(
        container("a", {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}),
        container("b", {"cpu": "500m"}, {"cpu": "1", "memory": "2Gi"}),
    )
    assert whole == {"cpu.shares": "1536", "cpu.cfs_quota_us": "300000", "memory.limit_in_bytes": str(3 * GIB)}
    assert parts == [
        {"cpu.shares": "1024", "cpu.cfs_quota_us": "200000", "memory.limit_in_bytes": str(GIB)},
        {"cpu.shares": "512", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": str(2 * GIB)},
    ]


def test_one_container_without_a_limit_makes_the_pod_unlimited() -> None:
    whole, parts = of_pod(container("a", {"cpu": "1"}, {"cpu": "2", "memory": "1Gi"}), container("b"))
    assert whole == {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"}
    assert parts[1] == {"cpu.shares": "2", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"}


def test_missing_requests_default_to_the_limits() -> None:
    whole, _ = of_pod(container("a", limits={"cpu": "2"}), container("b", {"cpu": "1"}), container("c"))
    assert whole["cpu.shares"] == "3072"


def test_a_pod_that_holds_cpus_has_no_quota() -> None:
    held = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'}
    whole, (part,) = of_pod(container("a", {"cpu": "2"}, {"cpu": "2", "memory": "1Gi"}), annotations=held)
    assert (whole["cpu.cfs_quota_us"], part["cpu.cfs_quota_us"]) == ("-1", "-1")
    assert whole["memory.limit_in_bytes"] == str(GIB)


def test_the_burstable_group_has_what_its_pods_request_and_the_best_effort_group_the_least() -> None:
    here = situation([service("web", "1"), service("api", "500m"), pod("g", "LS", **GUARANTEED), batch("job")])
    decided = pod_values.decide(here, None)
    shares = {group: values(own)["cpu.shares"] for group, own in decided.values.items()}
    assert shares == {"": "8192", "burstable": "1536", "besteffort": "2"}


# -- batch values --------------------------------------------------------------------------------------------------


def test_batch_values_are_sums_in_the_kernels_terms() -> None:
    amounts = [ContainerAmounts("a", 1000, 2000, 100), ContainerAmounts("b", None, 1000, 50), ContainerAmounts("c", -5, 1, 1)]
    assert batch_values("BE", amounts, use_quota=True) == CgroupValues(1024, 300_100, 151)
    assert batch_values("BE", amounts, use_quota=False) == CgroupValues(1024, -1, 151)


@pytest.mark.parametrize("missing", [None, 0, -1])
def test_one_missing_batch_limit_means_unlimited(missing: int | None) -> None:
    amounts = [ContainerAmounts("a", 1000, 2000, 100), ContainerAmounts("b", 1000, missing, missing)]
    assert batch_values("BE", amounts, use_quota=True) == CgroupValues(2048, -1, -1)


def test_a_normalisation_ratio_above_1_divides_the_quota_rounded_up() -> None:
    amounts = [ContainerAmounts("a", 1000, 1000, 100)]
    for ratio, quota in ((-1.0, 100_000), (1.0, 100_000), (1.5, 66_667), (2.5, 40_000)):
        assert batch_values("BE", amounts, use_quota=True, cpu_ratio=ratio) == CgroupValues(1024, quota, 100)
    assert batch_values("BE", amounts, use_quota=False, cpu_ratio=2.0) == CgroupValues(1024, -1, 100)


def test_only_be_pods_with_batch_amounts_have_batch_values() -> None:
    assert batch_values("LS", [ContainerAmounts("a", 1000)], use_quota=True) is None
    assert batch_values("", [ContainerAmounts("a", 1000)], use_quota=True) is None
    assert batch_values("BE", [], use_quota=True) is None


def test_batch_pods_have_a_quota_unless_suppression_works_by_quota() -> None:
    assert quota_enabled(False, "cfsQuota")
    assert quota_enabled(None, "cfsQuota")
    assert quota_enabled(True, "cpuset")
    assert not quota_enabled(True, "cfsQuota")


def test_containers_without_batch_amounts_keep_their_own_values_and_lift_the_pods_limits() -> None:
    amounts = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "100"}
    shape = pod_view(pod("p", "BE", containers=[container("a", amounts, amounts), container("b")])).shape
    desired = batch_pods.of_pod(shape, NodePolicy(capabilities(), None))
    assert values(desired.pod) == {"cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"}
    assert [values(each) for each in desired.containers] == [
        {"cpu.shares": "1024", "cpu.cfs_quota_us": "100000", "memory.limit_in_bytes": "100"},
        {},
    ]
    assert batch_pods.of_pod(pod_view(service("web")).shape, NodePolicy(capabilities(), None)).pod == ()


def test_a_pod_of_mid_resources_alone_is_bounded_by_them_whatever_its_class() -> None:
    amounts = {"kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "100"}
    for qos in ("LS", "BE", ""):
        shape = pod_view(pod("p", qos, containers=[container("a", amounts, amounts)])).shape
        desired = batch_pods.of_pod(shape, NodePolicy(capabilities(), None))
        wanted = {"cpu.shares": "1536", "cpu.cfs_quota_us": "150000", "memory.limit_in_bytes": "100"}
        assert values(desired.pod) == wanted
        assert [values(each) for each in desired.containers] == [wanted]
    by_quota = NodeSLORendered(node="n", enable=True, cpu_suppress_policy="cfsQuota")
    assert values(batch_pods.of_pod(shape, NodePolicy(capabilities(), by_quota)).pod)["cpu.cfs_quota_us"] == "-1"
    unlimited = pod_view(pod("p", "LS", containers=[container("a", amounts, amounts), container("b", amounts)])).shape
    found = values(batch_pods.of_pod(unlimited, NodePolicy(capabilities(), None)).pod)
    assert found == {"cpu.shares": "3072", "cpu.cfs_quota_us": "-1", "memory.limit_in_bytes": "-1"}
    requesting = pod_view(pod("p", "LS", containers=[container("a", {**amounts, "cpu": "1"})])).shape
    assert batch_pods.of_pod(requesting, NodePolicy(capabilities(), None)).pod == ()


def test_the_annotation_states_batch_amounts_where_the_container_states_none() -> None:
    own = {"kubernetes.io/batch-cpu": "1000"}
    text = (
        '{"containers": {"a": {"requests": {"kubernetes.io/batch-cpu": "7"}},'
        ' "b": {"limits": {"kubernetes.io/batch-memory": "9"}}}}'
    )
    annotated = pod(
        "p",
        "BE",
        containers=[container("a", own), container("b"), container("c")],
        annotations={"node.koordinator.sh/extended-resource-spec": text},
    )
    assert [each.batch for each in pod_view(annotated).shape.containers] == [
        ContainerAmounts("a", 1000, None, None),
        ContainerAmounts("b", None, None, 9, 9),
        None,
    ]
    plain = pod_view(pod("p", "BE", containers=[container("a", own), container("c", {"cpu": "1"})])).shape
    assert [each.batch for each in plain.containers] == [ContainerAmounts("a", 1000, None, None), None]


# -- CPU identity --------------------------------------------------------------------------------------------------


def rule(policy: str = "groupIdentity", *, lsr: bool = True, ls: bool = True, be: bool = True) -> IdentityRule:
    return identity_rule(policy, ClassIdentity(lsr, 2), ClassIdentity(ls, 1), ClassIdentity(be, -1))


def test_classes_count_while_they_are_enabled_and_the_policy_is_group_identity() -> None:
    assert rule() == IdentityRule(
        enable=True,
        pod_qos={"LSE": 2, "LSR": 2, "LS": 1, "BE": -1},
        kube_qos_dir={"Guaranteed": 0, "Burstable": 1, "BestEffort": -1},
        kube_qos_pod={"Guaranteed": 2, "Burstable": 1, "BestEffort": -1},
    )
    assert rule("") == rule()
    off = rule("coreSched")
    assert not off.enable
    assert {*off.pod_qos.values(), *off.kube_qos_dir.values(), *off.kube_qos_pod.values()} == {0}
    assert [rule(lsr=on == 0, ls=on == 1, be=on == 2).enable for on in range(4)] == [True, True, True, False]


def test_guaranteed_pods_have_the_value_of_lsr_else_of_ls() -> None:
    assert rule(lsr=False).kube_qos_pod["Guaranteed"] == 1
    assert rule(lsr=False, ls=False).kube_qos_pod["Guaranteed"] == 0
    assert identity_rule("", ClassIdentity(), ClassIdentity(), ClassIdentity()).enable is False
    assert ClassIdentity() == ClassIdentity(False, 0)


def test_a_pods_value_is_that_of_its_label_else_of_its_kubernetes_class() -> None:
    assert group_identity.pod_identity(rule(), "LS", "BestEffort") == 1
    assert group_identity.pod_identity(rule(), "SYSTEM", "BestEffort") == -1
    assert group_identity.pod_identity(rule(), "", "Guaranteed") == 2
    assert group_identity.pod_identity(rule(), "", "") == 0
    assert group_identity.host_identity(rule(), "BE") == -1
    assert group_identity.host_identity(rule(), "") == 0


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ('{"enable": true, "groupIdentity": 2}', 2),
        ('{"enable": true, "groupIdentity": -1}', -1),
        ('{"enable": true}', 0),
        ('{"enable": false, "groupIdentity": 2}', 0),
        ('{"groupIdentity": 2}', 0),
    ],
)
def test_an_ls_pod_asks_for_its_identity(text: str, asked: int) -> None:
    assert group_identity.parsed_identity(text) == asked


@pytest.mark.parametrize("text", ["{", '{"enable": true, "groupIdentity": 3}', '{"enable": true, "groupIdentity": -2}'])
def test_a_malformed_request_for_an_identity_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"koordinator\.sh/cpuQOS"):
        group_identity.parsed_identity(text)


def test_identities_are_written_while_rule_or_sysctl_is_on() -> None:
    on, off = rule(), rule("coreSched")
    active = group_identity.identity_active
    assert active(on, True, 0)
    assert active(off, True, 1)
    assert active(off, True, None)
    assert not active(off, True, 0)
    assert not active(None, True, 1)
    assert not active(on, False, 1)
    assert not active(on, True, 1, unreadable=True)


def identities(here: Situation) -> dict[str, str]:
    return {str(group): own[0].value for group, own in identity.decide(here, None).values.items()}


def test_every_group_of_a_class_or_a_pod_has_an_identity_also_those_without_a_manifest() -> None:
    here = situation([service("web"), pod("g", "LSR", **GUARANTEED), batch("job")], node_slo=slo(**IDENTITIES), kernel=BVT)
    strangers = {"besteffort/yarn", "besteffort/yarn/c1", "podstranger", "system", "burstable/podold/main"}
    found = identities(msgspec.structs.replace(here, groups=here.groups | strangers))
    assert found == {
        "": "0",
        "burstable": "1",
        "besteffort": "-1",
        "burstable/poduid-web": "1",
        "burstable/poduid-web/main": "1",
        "poduid-g": "2",
        "poduid-g/main": "2",
        "besteffort/poduid-job": "-1",
        "besteffort/poduid-job/main": "-1",
        "besteffort/yarn": "-1",
        "besteffort/yarn/c1": "-1",
        "podstranger": "0",
        "burstable/podold/main": "1",
    }


def test_a_host_application_below_the_root_has_the_identity_of_its_class() -> None:
    hosts = [
        {"name": name, "qos": qos, "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": name}}
        for name, qos in (("yarn", "BE"), ("proxy", "LS"), ("plain", ""), ("gone", "LS"))
    ]
    declared = encoded({"hostApplications": hosts})
    here = situation([batch("job")], node_slo=slo(spec=declared, **IDENTITIES), kernel=BVT)
    groups = {f"besteffort/{name}" for name in ("yarn", "proxy", "plain")}
    found = identities(msgspec.structs.replace(here, groups=here.groups | groups))
    assert {group: value for group, value in found.items() if group in groups} == {
        "besteffort/yarn": "-1",
        "besteffort/proxy": "1",
        "besteffort/plain": "0",
    }
    assert "besteffort/gone" not in found


def test_an_ls_pods_own_identity_holds_for_its_containers_too() -> None:
    own = service("web", annotations={"koordinator.sh/cpuQOS": '{"enable": true, "groupIdentity": -1}'})
    found = identities(situation([own], node_slo=slo(**IDENTITIES), kernel=BVT))
    assert found["burstable/poduid-web"] == found["burstable/poduid-web/main"] == "-1"
    malformed = service("web", annotations={"koordinator.sh/cpuQOS": "{"})
    assert identities(situation([malformed], node_slo=slo(**IDENTITIES), kernel=BVT))["burstable/poduid-web"] == "1"


@pytest.mark.parametrize(("sysctl", "written"), [(0, False), (1, True), (None, True)])
def test_where_no_class_has_an_identity_values_are_written_unless_the_sysctl_is_off(sysctl: int | None, written: bool) -> None:
    there = situation([service("web")], node_slo=slo(), kernel=BVT, sysctl=sysctl)
    assert bool(identity.decide(there, None).values) is written
    asked = situation([service("web")], node_slo=slo(**IDENTITIES), kernel=BVT, sysctl=sysctl)
    assert identity.decide(asked, None).values


@pytest.mark.parametrize(
    ("fields", "sysctl", "switches"),
    [
        (IDENTITIES, 0, {IDENTITY_SWITCH: "1", CORE_SCHED_SWITCH: "0"}),
        (IDENTITIES, 1, {IDENTITY_SWITCH: "1", CORE_SCHED_SWITCH: "0"}),
        (IDENTITIES, None, {}),
        ({}, 1, {}),
        ({**IDENTITIES, "cpu_policy": "coreSched"}, 1, {}),
    ],
)
def test_while_a_class_has_an_identity_the_kernels_switch_is_on_and_that_of_core_scheduling_off(
    fields: dict[str, Any], sysctl: int | None, switches: dict[Place, str]
) -> None:
    found = identity.decide(situation([service("web")], node_slo=slo(**fields), kernel=BVT, sysctl=sysctl), None).values
    assert {place: each.value for place, (each,) in found.items() if isinstance(place, Sysctl)} == switches


def test_identity_strategies_decide_again_for_pods_where_they_apply() -> None:
    mainline, vendor = NodePolicy(capabilities(), slo(**IDENTITIES)), NodePolicy(BVT, slo(**IDENTITIES))
    assert identity.STRATEGY.inputs(vendor) == {Input.PODS}
    assert identity.STRATEGY.inputs(mainline) == frozenset()
    assert idle.STRATEGY.inputs(mainline) == {Input.PODS}
    assert idle.STRATEGY.inputs(vendor) == idle.STRATEGY.inputs(NodePolicy(capabilities(), slo())) == frozenset()


# -- idle groups on a mainline kernel ------------------------------------------------------------------------------


def test_only_pods_whose_identity_is_negative_become_idle() -> None:
    policy = NodePolicy(capabilities(), slo(**IDENTITIES))
    (gives_way,) = idle.of_pod(pod_view(batch("job")).shape, policy).pod
    assert (gives_way.value, gives_way.why) == ("1", "identity -1: runs only on idle CPU time")
    zero = service("web", annotations={"koordinator.sh/cpuQOS": '{"enable": true}'})
    for other in (service("web"), zero):
        (stays,) = idle.of_pod(pod_view(other).shape, policy).pod
        assert (stays.value, stays.why) == ("0", "identity not below 0")


def test_shares_of_latency_sensitive_groups_are_raised_by_one_factor_a_level() -> None:
    """Top: the guaranteed pod has 1024 and the burstable group 1024 + 2048, factor 262144 // 3072 = 85. Below: of the burstable
    pods with 1024 and 2048 only the sensitive one is raised, by 256."""
    neutral = service("neutral", "2", annotations={"koordinator.sh/cpuQOS": '{"enable": true}'})
    here = situation([service("web", "1"), neutral, pod("g", "LSR", **GUARANTEED), batch("job")], node_slo=slo(**IDENTITIES))
    raised = {str(group): own[0].value for group, own in idle.decide(here, None).values.items()}
    assert raised == {"poduid-g": "87040", "burstable": "261120", "burstable/poduid-web": "262144"}


def test_without_a_latency_sensitive_pod_nothing_is_raised() -> None:
    assert idle.decide(situation([batch("job")], node_slo=slo(**IDENTITIES)), None).values == {}
    only = situation([pod("g", "LSR", **GUARANTEED), batch("job")], node_slo=slo(**IDENTITIES))
    assert {str(group): own[0].value for group, own in idle.decide(only, None).values.items()} == {"poduid-g": "262144"}


def test_an_eviction_has_kubernetes_default_grace_period() -> None:
    assert Evict("uid", "why").grace_seconds == 30
