"""A service's spike between two samples: batch work shrinks at once, and does not grow by the sample that averages over it."""

from __future__ import annotations

from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.spikes import with_services
from cotenant_node_executor.strategies.cpu.suppression.strategy import NOTHING_HELD, STRATEGY, decide, suppress
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, StrategyDecision
from cotenant_node_executor.targets.interface import BESTEFFORT, Knob
from tests.unit.node_executor.builders_node_executor import batch, capabilities, service, situation, slo, snapshot

SECOND_NS = 1_000_000_000
BY_QUOTA = slo(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=65)
BY_SET = slo(enable=True, cpu_suppress_policy="cpuset", cpu_suppress_threshold_percent=65)


def sample(second: float, service_milli: int, system_milli: int = 200) -> UsageSnapshot:
    """A second of samples on 8 CPUs."""
    found = snapshot(service_milli + 1000 + system_milli, {"uid-web": service_milli, "uid-job": 1000})
    found = replace(found, monotonic_ns=int(second * SECOND_NS), interval_ns=SECOND_NS)
    tiers = {"uid-web": "burstable", "uid-job": BESTEFFORT}
    return replace(found, pods={uid: replace(each, tier=tiers[uid]) for uid, each in found.pods.items()})


def decided(
    reading: UsageSnapshot,
    quota: int,
    spike: UsageSnapshot | None = None,
    memory: StrategyDecision | None = None,
    cpus: str = "",
) -> StrategyDecision:
    current = {(BESTEFFORT, Knob.CPU_QUOTA): str(quota)}
    if cpus:
        current = {(BESTEFFORT, Knob.CPUSET_CPUS): cpus}
    there = situation(
        [service("web"), batch("job")], node_slo=BY_SET if cpus else BY_QUOTA, reading=reading, current=current
    )
    return decide(replace(there, spike=spike), memory.memory if memory is not None else None)


def quota_of(decision: StrategyDecision) -> int:
    return next(int(one.value) for one in decision.values[BESTEFFORT] if one.attribute is Knob.CPU_QUOTA)


def test_a_measured_rise_goes_to_the_services_and_to_the_node_and_to_nothing_else() -> None:
    before = sample(10, 500)
    spike = with_services(before, 2500, 10 * SECOND_NS + 1)
    assert spike is not None
    assert spike.pods["uid-web"].usage.cpu_milli == 2500
    assert spike.pods["uid-job"] == before.pods["uid-job"]
    assert spike.node.cpu_milli == 500 + 1000 + 200 + 2000
    assert spike.system == before.system


def test_a_rise_of_less_than_five_percent_of_the_node_is_none() -> None:
    before = sample(10, 500)
    assert with_services(before, 899, 0) is None
    assert with_services(before, 900, 0) is not None
    assert with_services(before, 100, 0) is None


def test_pods_that_used_nothing_share_a_rise_equally() -> None:
    before = sample(10, 0)
    web = before.pods["uid-web"]
    two = replace(before, pods={**before.pods, "uid-api": replace(web, uid="uid-api")})
    spike = with_services(two, 3000, 0)
    assert spike is not None
    assert [spike.pods[uid].usage.cpu_milli for uid in ("uid-web", "uid-api")] == [1500, 1500]


def test_a_spike_shrinks_the_quota_at_once() -> None:
    before = sample(10, 500)
    spike = with_services(before, 4000, 10 * SECOND_NS + 50_000_000)
    # 8 CPUs x 65% - 4 of the service - 0.2 of the system.
    assert quota_of(decided(before, 450_000, spike)) == 100_000


def test_the_quota_does_not_grow_before_a_sample_that_began_after_the_spike() -> None:
    before = sample(10, 500)
    spike = with_services(before, 4000, int(10.6 * SECOND_NS))
    first = decided(before, 450_000, spike)
    averaged = decided(sample(11, 1900), 100_000, memory=first)
    assert quota_of(averaged) == 100_000
    true = decided(sample(12, 1900), 100_000, memory=averaged)
    assert quota_of(true) > 100_000


def test_the_quota_still_shrinks_by_the_sample_that_averages_over_a_spike() -> None:
    before = sample(10, 500)
    spike = with_services(before, 2000, int(10.6 * SECOND_NS))
    first = decided(before, 450_000, spike)
    assert quota_of(decided(sample(11, 3000), 300_000, memory=first)) == 200_000


def test_a_set_of_cpus_does_not_grow_either() -> None:
    before = sample(10, 500)
    spike = with_services(before, 4000, int(10.6 * SECOND_NS))
    first = decided(before, 0, spike, cpus="0-3")
    sets = [one.value for one in first.values[BESTEFFORT] if one.attribute is Knob.CPUSET_CPUS]
    assert sets == ["0-1"]
    averaged = decided(sample(11, 500), 0, memory=first, cpus="0-1")
    grown = [one.value for one in averaged.values[BESTEFFORT] if one.attribute is Knob.CPUSET_CPUS]
    assert grown in ([], ["0-1"])


def test_only_where_suppression_is_on_does_a_spike_make_it_decide() -> None:
    assert Input.SPIKE in STRATEGY.inputs(NodePolicy(capabilities(), BY_QUOTA))
    for off in (slo(enable=False), None):
        assert STRATEGY.inputs(NodePolicy(capabilities(), off)) == {Input.TREE}


def test_a_spike_before_the_first_sample_counts_as_no_sample_of_a_late_service() -> None:
    found = suppress(replace(situation([service("web")], node_slo=BY_QUOTA), spike=sample(1, 4000)))
    assert found is not None
    assert found.held == NOTHING_HELD
