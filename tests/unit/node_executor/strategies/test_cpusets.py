"""CPU sets of containers: own CPUs, share pools, batch pools; initial values when nothing is asked any more."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.core.desired_values import DesiredTargets
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.sampling.snapshot import HostApplicationSample
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.cpu.cpuset_rule import pools_without
from cotenant_node_executor.strategies.cpu.cpusets import Decided, cpu_pools, decide
from cotenant_node_executor.strategies.cpu.evict import strategy as evict
from cotenant_node_executor.strategies.cpu.suppression import strategy as suppression
from cotenant_node_executor.strategies.cpu.suppression.strategy import suppress
from cotenant_node_executor.strategies.situation import Processor, Situation
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import Knob
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import batch, pod, service, situation, slo, snapshot, usage

SECOND = 1_000_000_000
PROCESSORS = tuple(Processor(cpu=cpu, core=cpu // 2, socket=cpu // 4, node=cpu // 4) for cpu in range(8))


def bound(name: str, cpus: str, qos: str = "LSR") -> Pod:
    return pod(name, qos, requests={"cpu": "2"}, limits={"cpu": "2", "memory": "1Gi"}, annotations=status({"cpuset": cpus}))


def status(allocation: dict[str, Any]) -> dict[str, str]:
    return {"scheduling.koordinator.sh/resource-status": json.dumps(allocation)}


def on_node(number: int, resource: str = "cpu") -> dict[str, str]:
    return status({"numaNodeResources": [{"node": number, "resources": {resource: "2000"}}]})


def two_sockets(pods: list[Pod], **more: Any) -> Situation:
    there = situation(pods, **more)
    return replace(there, node=replace(there.node, processors=PROCESSORS))


def sets(there: Situation) -> dict[str, str]:
    found = decide(there, Decided()).values
    return {str(group): each.value for group, own in found.items() for each in own if each.attribute is Knob.CPUSET_CPUS}


def test_a_bound_pod_gets_its_cpus_and_no_quota_and_the_others_the_rest() -> None:
    there = two_sockets([bound("db", "0-1"), service("web"), pod("plain", requests={"cpu": "1"}), batch("job")])
    assert sets(there) == {
        "poduid-db/main": "0-1",
        "burstable/poduid-web/main": "2-7",
        "burstable/poduid-plain/main": "2-7",
    }
    quotas = {
        group: each.value
        for group, own in decide(there, Decided()).values.items()
        for each in own
        if each.attribute is Knob.CPU_QUOTA
    }
    assert quotas == {"poduid-db": "-1", "poduid-db/main": "-1"}


def test_the_reason_says_whose_cpus_they_are() -> None:
    on_one = pod("web", "LS", requests={"cpu": "1"}, annotations=on_node(1))
    found = decide(two_sockets([bound("db", "4-5"), on_one, service("api")]), Decided()).values
    assert {group: {each.why for each in own} for group, own in found.items()} == {
        "poduid-db": {"its own CPUs"},
        "poduid-db/main": {"its own CPUs"},
        "burstable/poduid-web/main": {"CPUs of its NUMA nodes"},
        "burstable/poduid-api/main": {"share pools"},
    }


def test_pools_leave_out_reserved_cpus_and_batch_pools_share_with_lsr() -> None:
    pools = cpu_pools(two_sockets([bound("lsr", "0-1"), bound("lse", "2-3", "LSE")], node_slo=slo(reserved_cpus="7")))
    assert [(each.node, each.cpuset) for each in pools.share] == [(1, "4-6")]
    assert [(each.node, each.cpuset) for each in pools.batch] == [(0, "0-1"), (1, "4-6")]


def test_a_pod_with_cpu_of_one_numa_node_gets_the_pool_of_that_node() -> None:
    entry = pod("web", "LS", requests={"cpu": "1"}, annotations=on_node(1))
    assert sets(two_sockets([entry, bound("db", "4-5")]))["burstable/poduid-web/main"] == "6-7"


def test_batch_pods_follow_their_numa_node_only_where_batch_cpus_are_managed() -> None:
    job = batch("job", annotations=on_node(1, "kubernetes.io/batch-cpu"))
    there = two_sockets([job, batch("other")], node_slo=slo(cpu_suppress_policy="cpuset"), reading=snapshot(8000))
    assert sets(there) == {}
    managed = replace(there, node=replace(there.node, manages_batch_cpus=True))
    assert sets(managed) == {"besteffort/poduid-job/main": "4-7"}
    recovered = suppress(managed)
    assert recovered is not None
    assert recovered.policy == "off"
    assert "besteffort/poduid-job/main" not in recovered.values
    assert "besteffort/poduid-other/main" in recovered.values


def test_a_node_without_bound_pods_pins_nothing_except_at_its_first_decision() -> None:
    there = two_sockets([service("web")])
    assert sets(there) == {}
    assert [own[0].value for own in decide(there, None).values.values()] == ["0-7"]


def test_a_pod_gets_all_cpus_back_when_the_bound_pod_has_gone() -> None:
    both = situation([bound("db", "0-1"), service("web")])
    alone = situation([service("web")])
    targets = DesiredTargets(both.node, both.capabilities)

    def web(there: Situation, changed: Situation) -> str | None:
        looked = Observation(snapshot=None, states={}, groups=there.groups, current={})
        composed, _ = targets.of_cycle(looked, there.pods, changed.pods.keys(), set(), None)
        return composed.texts["burstable/poduid-web/main"].get(Knob.CPUSET_CPUS)

    assert web(both, both) == "2-7"
    assert web(alone, both) == "0-7"
    assert web(alone, alone) == "0-7"
    assert web(both, both) == "2-7"


def applications(*entries: dict[str, Any]) -> NodeSLORendered:
    return slo(spec=encoded({"hostApplications": entries}))


YARN = {
    "name": "yarn-task",
    "priority": "koord-batch",
    "qos": "BE",
    "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "hadoop-yarn/"},
}
PROXY = {"name": "proxy", "qos": "LS", "cgroupPath": {"base": "KubepodsBurstable", "relativePath": "proxy"}}


def test_a_latency_sensitive_application_below_the_root_gets_the_share_pools() -> None:
    there = two_sockets([bound("db", "0-1")], node_slo=applications(PROXY, YARN, {"name": "outside", "qos": "LS"}))
    assert sets(there) == {"poduid-db/main": "0-1"}
    there = replace(there, groups=there.groups | {"burstable/proxy", "besteffort/hadoop-yarn"})
    assert sets(there) == {"poduid-db/main": "0-1", "burstable/proxy": "2-7"}
    yarn_first = replace(there, slo=applications(YARN, {"name": "no group", "qos": "LS"}, PROXY))
    assert sets(yarn_first) == sets(there)


def test_applications_are_known_by_name_and_have_groups_only_below_the_root() -> None:
    outside = {"name": "up", "qos": "LS", "cgroupPath": {"base": "Kubepods", "relativePath": "../../system.slice"}}
    wanted = wanted_by(applications(YARN, PROXY, outside, {"name": "no"}))
    found = {each.name: each.own_group for each in wanted.host_applications}
    assert found == {"yarn-task": "besteffort/hadoop-yarn", "proxy": "burstable/proxy", "up": "system.slice", "no": None}
    assert wanted_by(slo(spec=msgspec.Raw(b'{"hostApplications":7}'))) == wanted_by(slo(spec=msgspec.Raw(b"{}")))
    assert wanted_by(None).host_applications == ()


def test_yarns_containers_are_not_counted_as_system_usage_and_do_not_throttle_themselves() -> None:
    reading = snapshot(6000, {"uid-web": 1000})
    counted = replace(reading, host_applications={"yarn-task": HostApplicationSample("yarn-task", usage("yarn", 4500))})
    without = suppress(situation([service("web")], node_slo=slo(), reading=reading))
    known = suppress(situation([service("web")], node_slo=applications(YARN), reading=counted))
    assert without is not None
    assert known is not None
    assert without.split is not None
    assert known.split is not None
    assert (without.split.system_milli, known.split.system_milli) == (5000, 500)
    assert known.quantity_milli - without.quantity_milli == 4500
    serving = suppress(situation([service("web")], node_slo=applications({**YARN, "qos": "LS"}), reading=counted))
    assert serving is not None
    assert serving.quantity_milli == without.quantity_milli


@given(
    st.lists(
        st.builds(Processor, st.integers(0, 63), st.integers(0, 31), st.integers(0, 1), st.integers(0, 3)),
        unique_by=lambda processor: processor.cpu,
    ),
    st.frozensets(st.integers(0, 63)),
)
def test_pools_hold_every_free_cpu_once(processors: list[Processor], taken: frozenset[int]) -> None:
    found = [cpu for pool in pools_without(processors, taken) for cpu in parse_cpu_list(pool.cpuset)]
    assert sorted(found) == sorted(each.cpu for each in processors if each.cpu not in taken)


@pytest.mark.parametrize(
    ("annotation", "system", "others"),
    [
        ('{"cpuset": "6-7"}', "6-7", "0-5"),
        ('{"cpuset": "6-7", "cpusetExclusive": true}', "6-7", "0-5"),
        ('{"cpuset": "6-7", "cpusetExclusive": false}', "6-7", None),
        ('{"cpuset": "7,64-70"}', "7", "0-6"),
        ('{"cpuset": "64-70"}', None, None),
        ('{"cpuset": "x"}', None, None),
        ("[", None, None),
        ("", None, None),
    ],
)
def test_system_pods_run_on_the_cpus_that_the_node_keeps_for_them(
    annotation: str, system: str | None, others: str | None
) -> None:
    pods = [pod("agent", "SYSTEM", requests={"cpu": "1"}), service("web"), batch("job")]
    there = two_sockets(pods, node_slo=slo(system_qos_annotation=annotation))
    found = sets(there)
    assert found.get("burstable/poduid-agent/main") == system
    assert found.get("burstable/poduid-web/main") == others
    everything = {"cpu_suppress_policy": "cpuset", "cpu_suppress_threshold_percent": 100}
    suppressed = suppress(replace(there, slo=slo(system_qos_annotation=annotation, **everything), snapshot=snapshot(0)))
    assert suppressed is not None
    assert suppressed.cpus == (others or "0-7"), "of more CPUs than there are the rule would choose none"


# -- where kubelet pins containers itself -----------------------------------------------------------------------------


def under_static_policy(*, kubelet: bool = True, used: int = 6000) -> Situation:
    reading = replace(snapshot(used, {"uid-web": used}), monotonic_ns=SECOND * (2 + used))
    there = situation([service("web"), batch("job")], node_slo=slo(cpu_suppress_policy="cpuset"), reading=reading)
    return replace(there, node=replace(there.node, kubelet_pods=kubelet, kubelet_cpu_policy="static"))


def of_tree(there: Situation, before: Struct | None = None) -> tuple[list[str], Struct | None]:
    decision = suppression.decide(there, before)
    groups = ("besteffort", "besteffort/poduid-job", "besteffort/poduid-job/main")
    own = [next(each.value for each in decision.values[group] if each.attribute is Knob.CPUSET_CPUS) for group in groups]
    return own, decision.memory


def test_under_kubelets_static_policy_containers_alone_are_narrowed_and_grow_from_their_own_set() -> None:
    narrow, memory = of_tree(under_static_policy())
    assert narrow == ["0-7", "0-7", "0-1"]
    there = replace(under_static_policy(used=0), current={("besteffort", Knob.CPUSET_CPUS): "0-7"})
    assert there.snapshot is not None
    grown, memory = of_tree(there, memory)
    assert grown == ["0-7", "0-7", "0-2"], "a tenth of the CPUs, from the set of the containers"
    assert of_tree(replace(there, snapshot=replace(there.snapshot, monotonic_ns=9 * SECOND)), memory)[0][2] == "0-3"
    assert of_tree(under_static_policy(kubelet=False))[0] == ["0-1", "0-1", "0-1"], "the executor makes its containers itself"


def test_what_batch_work_may_use_is_what_its_containers_may() -> None:
    threshold = {"enable": True, "cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 80}
    text = msgspec.json.encode({"resourceUsedThresholdWithBE": threshold})
    current = {("besteffort", Knob.CPUSET_CPUS): "0-7", ("besteffort/poduid-job/main", Knob.CPUSET_CPUS): "0-1"}
    wide = {("besteffort", Knob.CPUSET_CPUS): "0-7", ("burstable/poduid-web/main", Knob.CPUSET_CPUS): "3"}
    for files, limit in ((current, 2000), (wide, 8000), ({}, 8000)):
        there = replace(under_static_policy(), slo=slo(spec=msgspec.Raw(text)), current=files)
        memory = evict.decide(there, None).memory
        assert isinstance(memory, evict.EvictMemory)
        assert memory.samples[-1].best_effort.real_limit_milli == limit
