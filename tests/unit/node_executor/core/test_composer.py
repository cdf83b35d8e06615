"""One value for one file."""

from __future__ import annotations

from collections.abc import Set

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.resources import CpuIdentity, NodeSLORendered
from cotenant_node_executor.core.composer import Composer, CompositionError, compose
from cotenant_node_executor.core.desired_values import DesiredTargets
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.strategies.cpu.suppression.strategy import NAME as SUPPRESS
from cotenant_node_executor.strategies.cpu.suppression.strategy import suppress
from cotenant_node_executor.strategies.registry import STRATEGIES, precedence
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, DesiredValues
from cotenant_node_executor.targets.address import ProcessAttribute, SysctlAttribute
from cotenant_node_executor.targets.interface import Knob
from tests.unit.node_executor.builders_node_executor import batch, capabilities, pod, service, situation, slo, snapshot

PRECEDENCE = precedence(STRATEGIES)

IDENTITY = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}


def composed(seen: Situation) -> dict[tuple[str, str], str]:
    """The desired value of every file."""
    looked = Observation(
        snapshot=seen.snapshot, states={}, groups=seen.groups, current=seen.current, identity_sysctl=seen.identity_sysctl
    )
    targets = DesiredTargets(seen.node, seen.capabilities)
    files, _ = targets.of_cycle(looked, seen.pods, seen.pods.keys(), set(), seen.slo)
    assert targets.memory(SUPPRESS) == suppress(seen)
    return {(group, knob.value): text for group, texts in files.texts.items() for knob, text in texts.items()}


def test_plain_pods_get_kubelets_values() -> None:
    found = composed(situation([pod("app", requests={"cpu": "250m"}, limits={"cpu": "500m", "memory": "1Gi"})]))
    for group in ("burstable/poduid-app", "burstable/poduid-app/main"):
        assert found[(group, "cpu.shares")] == "256"
        assert found[(group, "cpu.cfs_quota_us")] == "50000"
        assert found[(group, "memory.limit_in_bytes")] == str(1 << 30)
    assert found[("burstable", "cpu.shares")] == "256"
    assert found[("besteffort", "cpu.shares")] == "2"
    assert found[("", "cpu.shares")] == "8192"


def test_batch_pods_get_batch_values_which_suppression_by_quota_lifts() -> None:
    by_set = composed(situation([batch("job", 1500)], node_slo=slo(cpu_suppress_policy="cpuset"), reading=snapshot(0)))
    assert by_set[("besteffort/poduid-job", "cpu.shares")] == "1536"
    assert by_set[("besteffort/poduid-job", "cpu.cfs_quota_us")] == "150000"
    by_quota = composed(situation([batch("job", 1500)], node_slo=slo(), reading=snapshot(0)))
    assert by_quota[("besteffort/poduid-job", "cpu.cfs_quota_us")] == "-1"
    assert by_quota[("besteffort", "cpu.cfs_quota_us")] == "520000"


def test_on_a_mainline_kernel_batch_pods_are_idle_without_shares_and_services_are_raised_by_one_factor() -> None:
    found = composed(situation([service("web", "1"), service("api", "2"), batch("job")], node_slo=slo(**IDENTITY)))
    assert found[("besteffort/poduid-job", "cpu.idle")] == "1"
    assert ("besteffort/poduid-job", "cpu.shares") not in found
    assert ("besteffort", "cpu.idle") not in found
    assert found[("burstable/poduid-web", "cpu.idle")] == "0"
    assert int(found[("burstable/poduid-api", "cpu.shares")]) == 2 * int(found[("burstable/poduid-web", "cpu.shares")])
    assert int(found[("burstable/poduid-api", "cpu.shares")]) == 262144
    assert not [key for key in found if key[1] == "cpu.bvt_warp_ns"]


def test_a_kernel_with_group_identity_gets_identities_and_no_idle_groups() -> None:
    kernel = capabilities(also=[Knob.CPU_BVT])
    guaranteed = pod("web", "LS", requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"})
    found = composed(situation([guaranteed, batch("job")], node_slo=slo(**IDENTITY), kernel=kernel))
    assert found[("", "cpu.bvt_warp_ns")] == "0"
    assert found[("besteffort", "cpu.bvt_warp_ns")] == "-1"
    assert found[("besteffort/poduid-job/main", "cpu.bvt_warp_ns")] == "-1"
    assert found[("poduid-web", "cpu.bvt_warp_ns")] == "2"
    assert not [key for key in found if key[1] == "cpu.idle"]


def test_rule_and_sysctl_both_off_write_no_identity() -> None:
    kernel = capabilities(also=[Knob.CPU_BVT])
    assert not [key for key in composed(situation([batch("job")], node_slo=slo(), kernel=kernel, sysctl=0)) if "bvt" in key[1]]
    on = composed(situation([batch("job")], node_slo=slo(), kernel=kernel, sysctl=1))
    assert on[("besteffort", "cpu.bvt_warp_ns")] == "0"


def test_an_ls_pods_annotation_overrides_the_rule() -> None:
    own = service("web", annotations={"koordinator.sh/cpuQOS": '{"enable": true, "groupIdentity": -1}'})
    found = composed(situation([own], node_slo=slo(**IDENTITY)))
    assert found[("burstable/poduid-web", "cpu.idle")] == "1"


def test_a_strategy_without_stated_precedence_for_a_file_is_refused() -> None:
    with pytest.raises(CompositionError, match=r"cpu\.idle"):
        compose([Desired(Knob.CPU_IDLE, "1", "suppress")], PRECEDENCE)


def test_one_strategy_cannot_desire_two_values_for_one_file() -> None:
    desired = [Desired(Knob.CPU_QUOTA, "1000", "suppress"), Desired(Knob.CPU_QUOTA, "2000", "suppress")]
    with pytest.raises(CompositionError, match="1000"):
        compose(desired, PRECEDENCE)
    assert len(compose([desired[0], desired[0]], PRECEDENCE)) == 1


def test_the_order_of_the_registry_gives_the_precedence_of_each_file() -> None:
    assert {
        Knob.CPU_SHARES: ("idle", "batch-values", "pod-values"),
        Knob.CPU_QUOTA: ("suppress", "cpuset", "cpu-burst", "cpu-normalization", "batch-values", "pod-values"),
        Knob.CPU_BURST: ("cpu-burst",),
        Knob.CPUSET_CPUS: ("suppress", "cpuset"),
        Knob.MEMORY_LIMIT: ("batch-values", "pod-values"),
        Knob.CPU_IDLE: ("core-sched", "idle", "spread"),
        Knob.CPU_BVT: ("group-identity",),
        ProcessAttribute.CORE_GROUP: ("core-sched",),
        SysctlAttribute.VALUE: ("core-sched", "group-identity", "system-config"),
    }.items() <= PRECEDENCE.items()


def test_a_pods_unreadable_annotation_counts_as_absent_and_is_named() -> None:
    broken = batch("job", annotations={"scheduling.koordinator.sh/resource-status": "{"})
    seen = situation([broken])
    (view,) = seen.pods.values()
    assert view.bound_cpus == frozenset()
    assert "resource-status" in view.problem


VALUES = st.builds(
    lambda knob, value, at: Desired(knob, value, PRECEDENCE[knob][at % len(PRECEDENCE[knob])]),
    st.sampled_from([Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPU_IDLE, Knob.CPUSET_CPUS]),
    st.just("1"),
    st.integers(0, 2),
)


GROUPS = st.sampled_from(["", "besteffort", "burstable/pod1"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.dictionaries(GROUPS, st.lists(VALUES, min_size=1, max_size=4).map(tuple), max_size=3),
        ),
        max_size=12,
    )
)
def test_the_files_depend_on_the_current_desired_values_only(
    puts: list[tuple[str, DesiredValues]],
) -> None:
    composer = Composer()
    standing: dict[str, DesiredValues] = {}
    for source, desired in puts:
        before = dict(composer.composed().texts)
        composer.put(source, desired)
        standing[source] = desired
        fresh = Composer()
        for each in sorted(standing, reverse=True):
            fresh.put(each, standing[each])
        found = composer.composed()
        assert found.texts == fresh.composed().texts
        groups = {**before, **found.texts}
        assert {group for group in groups if before.get(group) != found.texts.get(group)} <= {*found.changed}
        assert not composer.composed().changed


def test_a_pods_values_go_with_its_group_and_change_with_the_policy() -> None:
    both = situation([service("web"), batch("job")], node_slo=slo())
    values = DesiredTargets(both.node, both.capabilities)

    def texts(
        groups: frozenset[str], node_slo: NodeSLORendered | None, changed: Set[str] = frozenset()
    ) -> dict[tuple[str, str], str]:
        looked = Observation(snapshot=None, states={}, groups=groups, current={})
        files, _ = values.of_cycle(looked, both.pods, changed, set(), node_slo)
        return {(group, knob.value): text for group, own in files.texts.items() for knob, text in own.items()}

    assert texts(both.groups, both.slo, both.pods.keys()) == composed(both)
    assert texts(both.groups, slo(**IDENTITY)) == composed(msgspec.structs.replace(both, slo=slo(**IDENTITY)))
    assert texts(both.groups, both.slo) == composed(both)
    without = frozenset(group for group in both.groups if "uid-job" not in group)
    assert not [group for group, _ in texts(without, both.slo) if "uid-job" in group]
    nobody_else = {("burstable/poduid-web", Knob.CPU_IDLE.value): "0"}
    assert texts(both.groups, None) == {**composed(msgspec.structs.replace(both, slo=None)), **nobody_else}
