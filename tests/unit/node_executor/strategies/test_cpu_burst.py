"""CPU burst: quotas grow while a container is throttled and the share pool is idle, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.core.composer import Composer
from cotenant_node_executor.sampling.snapshot import ContainerUsage, PodSample, UsageSnapshot
from cotenant_node_executor.strategies.cpu.burst import token_bucket
from cotenant_node_executor.strategies.cpu.burst.config import BurstConfig, BurstStrategy, burst_strategy, pod_config
from cotenant_node_executor.strategies.cpu.burst.kernel_burst import pod_bursts_us
from cotenant_node_executor.strategies.cpu.burst.quota_burst import (
    Operation,
    ceiling_us,
    next_pod_quota_us,
    next_quota_us,
    operation,
)
from cotenant_node_executor.strategies.cpu.burst.share_pool import PoolState, pool_state, pool_total_milli, pool_used_milli
from cotenant_node_executor.strategies.cpu.burst.strategy import STRATEGY, BurstMemory, decide
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import NodePolicy, StrategyDecision
from cotenant_node_executor.targets.cgroup.levels import FileChange, WritePhase, plan
from cotenant_node_executor.targets.interface import BURSTABLE, Knob
from tests.builders import container, encoded
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, pod, situation, slo, snapshot, usage

SECOND_NS = 1_000_000_000
GROUP = "burstable/poduid-web"
MAIN = f"{GROUP}/main"
STATES = st.sampled_from(PoolState)


def web(name: str = "web", cpu: str = "2", qos: str = "LS", **more: Any) -> Pod:
    return pod(name, qos, requests={"cpu": "1"}, limits={"cpu": cpu, "memory": "1Gi"}, **more)


def burst_slo(**section: Any) -> NodeSLORendered:
    return slo(spec=encoded({"cpuBurstStrategy": {"policy": "auto", **section}}))


def reading(
    second: int, node_milli: int = 1000, *, throttled: float = 0.0, milli: int = 2000, name: str = "web"
) -> UsageSnapshot:
    """A sample in which the container is throttled for a part of its periods."""
    own = replace(usage(f"burstable/poduid-{name}/main", milli), throttled_ratio=throttled)
    found = PodSample(f"uid-{name}", BURSTABLE, own, (ContainerUsage("main", own),))
    return replace(snapshot(node_milli), monotonic_ns=second * SECOND_NS, pods={f"uid-{name}": found})


def seen(entry: Pod, node_slo: NodeSLORendered, sample: UsageSnapshot | None) -> Situation:
    return situation([entry], node_slo=node_slo, reading=sample, kernel=capabilities(also=(Knob.CPU_BURST,)))


def value(decision: StrategyDecision, group: str, knob: Knob) -> str | None:
    return next((each.value for each in decision.values.get(group, ()) if each.attribute is knob), None)


def steps(node_slo: NodeSLORendered, samples: list[UsageSnapshot], entry: Pod | None = None) -> list[StrategyDecision]:
    """The decisions on these samples, each with the memory of the one before."""
    decisions: list[StrategyDecision] = []
    for sample in samples:
        memory = decisions[-1].memory if decisions else None
        decisions.append(decide(seen(entry or web(), node_slo, sample), memory))
    return decisions


def test_a_throttled_containers_quota_grows_by_a_fifth_a_sample_with_its_pods_up_to_the_ceiling() -> None:
    found = steps(burst_slo(), [reading(second, throttled=0.5) for second in range(1, 12)])
    quotas = [int(value(each, MAIN, Knob.CPU_QUOTA) or 0) for each in found]
    assert quotas[:3] == [240_000, 288_000, 345_600]
    assert quotas[-1] == 600_000
    assert [value(each, GROUP, Knob.CPU_QUOTA) for each in found] == [str(quota) for quota in quotas]


def test_one_sample_moves_a_quota_once_however_often_it_is_looked_at() -> None:
    sample = reading(1, throttled=0.5)
    first, second = steps(burst_slo(), [sample, sample])
    assert value(first, MAIN, Knob.CPU_QUOTA) == value(second, MAIN, Knob.CPU_QUOTA) == "240000"


def test_on_a_loaded_share_pool_quotas_shrink_to_the_limit_which_is_then_left_to_others() -> None:
    busy = [reading(second, 7000, throttled=0.5) for second in range(10, 20)]
    found = steps(burst_slo(), [*(reading(second, throttled=0.5) for second in range(1, 5)), *busy])
    shrinking = [value(each, MAIN, Knob.CPU_QUOTA) for each in found[4:]]
    assert shrinking[0] == str(int(414_720 * 0.8))
    assert shrinking[-1] is None
    assert value(found[-1], MAIN, Knob.CPU_BURST) == "2000000"


def test_the_kernels_burst_follows_limit_and_percent_and_the_composer_keeps_it_within_the_quota() -> None:
    (found,) = steps(burst_slo(cpuBurstPercent=50), [reading(1)])
    assert value(found, MAIN, Knob.CPU_BURST) == value(found, GROUP, Knob.CPU_BURST) == "100000"
    (large,) = steps(burst_slo(), [reading(1, throttled=0.5)])
    composer = Composer()
    composer.put("node:cpu-burst", large.values)
    assert composer.composed().texts[MAIN] == {Knob.CPU_BURST: "240000", Knob.CPU_QUOTA: "240000"}
    unbounded = Composer(large_bursts=True)
    unbounded.put("node:cpu-burst", large.values)
    assert unbounded.composed().texts[MAIN][Knob.CPU_BURST] == "2000000"


def test_a_quota_rises_before_its_burst_and_falls_after_it() -> None:
    def order(old: str, new: str) -> list[tuple[WritePhase, Knob]]:
        changes = [FileChange(MAIN, Knob.CPU_BURST, old, new), FileChange(MAIN, Knob.CPU_QUOTA, old, new)]
        return [(step.phase, step.knob) for step in plan(changes)]

    assert [knob for _, knob in order("200000", "240000")] == [Knob.CPU_QUOTA, Knob.CPU_BURST]
    assert [knob for _, knob in order("240000", "200000")] == [Knob.CPU_BURST, Knob.CPU_QUOTA]


def test_pods_of_other_classes_pods_with_their_own_cpus_and_unlimited_ones_do_not_burst() -> None:
    bound = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3"}'}
    for entry in (batch("web"), web(qos="LSR"), web(qos="LSE"), web(annotations=bound)):
        (found,) = steps(burst_slo(), [reading(1, throttled=0.5)], entry)
        assert dict(found.values) == {}
    (found,) = steps(burst_slo(), [reading(1, throttled=0.5)], pod("web", "LS", requests={"cpu": "1"}))
    assert value(found, MAIN, Knob.CPU_QUOTA) is None
    assert value(found, MAIN, Knob.CPU_BURST) == "0"


def test_a_pods_annotation_overrides_single_fields_of_the_node_and_an_unreadable_one_none() -> None:
    node = BurstConfig("none", 1000, 300, -1)
    assert pod_config(node, {"koordinator.sh/cpuBurst": '{"policy":"auto"}'}) == BurstConfig("auto", 1000, 300, -1)
    assert pod_config(node, {"koordinator.sh/cpuBurst": '{"CFSQuotaBurstPercent":150}'}) == BurstConfig("none", 1000, 150, -1)
    numbers = ('{"cpuBurstPercent":1e400}', '{"cpuBurstPercent":99999999999}')
    for text in (*numbers, "{", "[]", '{"policy":7}', '{"policy":null}', "null"):
        assert pod_config(node, {"koordinator.sh/cpuBurst": text}) == node
    annotated = web(annotations={"koordinator.sh/cpuBurst": '{"policy":"cfsQuotaBurstOnly"}'})
    (found,) = steps(burst_slo(policy="none"), [reading(1, throttled=0.5)], annotated)
    assert value(found, MAIN, Knob.CPU_QUOTA) == "240000"
    assert value(found, MAIN, Knob.CPU_BURST) is None


def test_without_the_section_nothing_is_asked_of_the_strategy() -> None:
    assert STRATEGY.inputs(NodePolicy(capabilities(), slo())) == frozenset()
    assert STRATEGY.inputs(NodePolicy(capabilities(), burst_slo())) != frozenset()
    assert decide(seen(web(), burst_slo(policy="none"), reading(1, throttled=0.5)), None) == StrategyDecision()
    asking = web(annotations={"koordinator.sh/cpuBurst": '{"policy":"auto"}'})
    assert decide(seen(asking, slo(), reading(1)), None) == StrategyDecision()
    assert burst_strategy(burst_slo()) == BurstStrategy("auto", 1000, 300, -1, 50)


def test_an_unlimited_container_does_not_keep_the_next_one_from_bursting() -> None:
    containers = [container("side", requests={"cpu": "1"}), container("main", limits={"cpu": "2"})]
    used = replace(usage(MAIN, 2000), throttled_ratio=0.5)
    both = (ContainerUsage("side", usage(f"{GROUP}/side", 1)), ContainerUsage("main", used))
    sample = replace(reading(1), pods={"uid-web": replace(reading(1).pods["uid-web"], containers=both)})
    (found,) = steps(burst_slo(), [sample], pod("web", "LS", containers=containers))
    assert (value(found, MAIN, Knob.CPU_QUOTA), value(found, GROUP, Knob.CPU_QUOTA)) == ("240000", None)


def test_the_limit_of_a_normalised_pod_is_the_normalised_one() -> None:
    there = replace(
        seen(web(), burst_slo(), reading(1, throttled=0.5)), resources=NodeResources(node=NODE, cpu_normalization_ratio=2.0)
    )
    assert value(decide(there, None), MAIN, Knob.CPU_QUOTA) == "120000"


def test_the_share_pools_load_is_that_of_the_last_seconds() -> None:
    calm = [reading(second, 1000) for second in range(1, 5)]
    spiked = steps(burst_slo(), [*calm, reading(5, 8000)])[-1].memory
    assert isinstance(spiked, BurstMemory)
    assert (spiked.state, spiked.pool_used_milli) == (PoolState.IDLE, 2400)
    assert pool_state(50, 8000, None) is pool_state(50, None, 1000.0) is PoolState.UNKNOWN
    assert pool_state(50, 0, 1.0) is PoolState.OVERLOAD


def test_the_limiter_lets_a_container_burst_for_its_period_and_then_takes_it_back() -> None:
    slo_ = burst_slo(cfsQuotaBurstPeriodSeconds=60, cfsQuotaBurstPercent=200)
    found = steps(slo_, [reading(second, throttled=0.5, milli=4000) for second in range(1, 90)])
    quotas = [int(value(each, MAIN, Knob.CPU_QUOTA) or 200_000) for each in found]
    assert max(quotas) == 400_000
    assert quotas[-1] == 200_000
    rested = steps(slo_, [reading(second, throttled=0.0, milli=100) for second in range(1, 60)])
    assert value(rested[-1], MAIN, Knob.CPU_QUOTA) is None


def test_a_loop_a_little_faster_than_a_second_moves_tokens_all_the_same() -> None:
    bucket = token_bucket.new_bucket(10_000, 0.5, 0)
    for turn in range(1, 101):
        bucket = token_bucket.after(bucket, 200, turn * 990_000_000)
    assert bucket.tokens == 5_000 - 99 * 100


def configs(percent: st.SearchStrategy[int | None]) -> st.SearchStrategy[BurstConfig]:
    policies = st.sampled_from(["auto", "none", "cpuBurstOnly", "cfsQuotaBurstOnly", "other"])
    return st.builds(BurstConfig, policies, st.just(1000), percent, st.just(-1))


@given(
    configs(st.none() | st.integers(-10, 1000)),
    STATES,
    st.integers(1000, 10**8),
    st.integers(-1, 10**9),
    st.none() | st.floats(0, 1),
    st.booleans(),
)
def test_a_quota_is_never_outside_of_limit_and_ceiling(
    config: BurstConfig, state: PoolState, base: int, current: int, throttled: float | None, admitted: bool
) -> None:
    quota = next_quota_us(config, operation(config, state, throttled, admitted), base, current)
    assert base <= quota <= max(ceiling_us(config, base), base)


@given(configs(st.integers(100, 500)), STATES, st.integers(1000, 10**7), st.none() | st.floats(0, 1))
def test_under_a_steady_load_a_quota_comes_to_rest(
    config: BurstConfig, state: PoolState, base: int, throttled: float | None
) -> None:
    quota, moves = base, 0
    for _ in range(200):
        following = next_quota_us(config, operation(config, state, throttled, True), base, quota)
        moves += following != quota
        quota = following
    assert moves < 100
    assert next_quota_us(config, operation(config, state, throttled, True), base, quota) == quota


@given(st.integers(0, 5000), st.integers(100, 600), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5)), max_size=30))
def test_tokens_stay_within_the_capacity(period: int, percent: int, use: list[tuple[int, int]]) -> None:
    config = BurstConfig("auto", 1000, percent, period)
    now, bucket = 0, None
    for usage_percent, seconds in use:
        now += seconds * SECOND_NS
        admitted, bucket = token_bucket.admit(config, bucket, usage_percent, now, 0.25)
        assert bucket is not None
        assert -bucket.capacity <= bucket.tokens <= bucket.capacity
        assert admitted is (bucket.tokens > 0)


@pytest.mark.parametrize(
    ("usage", "tokens"), [(0, 300), (59, 182), (60, 100), (99, 100), (100, 100), (101, 98), (200, -100), (700, -1000)]
)
def test_tokens_of_two_seconds(usage: int, tokens: int) -> None:
    """From 100 tokens: 100 - usage a second are saved below 60 %, usage - 100 are taken from 100 % on, down to -capacity."""
    found = token_bucket.after(token_bucket.Bucket(1000, 100, 0), usage, 2 * SECOND_NS)
    assert found == token_bucket.Bucket(1000, tokens, 2 * SECOND_NS)


def test_a_bucket_keeps_the_rest_of_a_second_and_a_clock_that_went_back_moves_nothing() -> None:
    bucket = token_bucket.Bucket(1000, 100, 5 * SECOND_NS)
    assert token_bucket.after(bucket, 0, 7 * SECOND_NS - 1) == token_bucket.Bucket(1000, 200, 6 * SECOND_NS)
    assert token_bucket.after(bucket, 0, SECOND_NS) == bucket
    assert token_bucket.after(bucket, 0, 1000 * SECOND_NS).tokens == 1000


def test_the_limiter_is_off_without_a_period_and_allows_nothing_below_100_percent() -> None:
    for period in (None, -1):
        assert token_bucket.admit(BurstConfig("auto", 1000, 300, period), None, 0, 0, 0.5) == (True, None)
    for percent in (None, 99):
        assert token_bucket.admit(BurstConfig("auto", 1000, percent, 60), None, 0, 0, 0.5) == (False, None)
    assert token_bucket.admit(BurstConfig("auto", 1000, 100, 60), None, 0, 0, 0.5) == (False, token_bucket.Bucket(0, 0, 0))
    assert token_bucket.admit(BurstConfig("auto", 1000, 300, 0), None, 0, 0, 0.5) == (False, token_bucket.Bucket(0, 0, 0))
    assert token_bucket.admit(BurstConfig("auto", 1000, 101, 3), None, 0, 0, 0.5) == (True, token_bucket.Bucket(3, 1, 0))


def test_a_bucket_starts_again_after_two_periods_or_with_another_configuration() -> None:
    config, old, at = BurstConfig("auto", 1000, 200, 10), token_bucket.Bucket(1000, 900, 0), 21 * SECOND_NS
    assert token_bucket.admit(config, old, 80, at, 0.25) == (True, token_bucket.Bucket(1000, 900, at))
    assert token_bucket.admit(config, old, 80, at + 1, 0.25) == (True, token_bucket.Bucket(1000, 250, at + 1))
    other = BurstConfig("auto", 1000, 300, 10)
    assert token_bucket.admit(other, old, 80, SECOND_NS, 0.25) == (True, token_bucket.Bucket(2000, 500, SECOND_NS))


def test_usage_is_in_whole_percent_of_the_limit_and_100_where_it_is_unknown() -> None:
    cases = [(None, 1000), (500.0, 0), (0.5, 1), (1509.0, 1000)]
    assert [token_bucket.usage_percent(used, limit) for used, limit in cases] == [100, 100, 50, 150]


@pytest.mark.parametrize(
    ("used", "state"),
    [(4000, PoolState.OVERLOAD), (3999, PoolState.COOLING), (3600, PoolState.COOLING), (3599, PoolState.IDLE)],
)
def test_the_pool_is_loaded_from_the_threshold_on_and_cools_from_nine_tenths_of_it(used: float, state: PoolState) -> None:
    assert pool_state(50, 8000, used) is state


def test_the_pool_is_what_pods_without_cpus_of_their_own_share_and_the_system_is_in_it() -> None:
    assert pool_total_milli(8, [("LSE", 1000), ("LSR", 500), ("LS", 250), ("BE", 125), ("", 60), ("SYSTEM", 30)]) == 6500
    pods = [("lse", "LSE"), ("lsr", "LSR"), ("ls", "LS"), ("be", "BE"), ("none", ""), ("unseen", "BE")]
    used = {"lse": 1.0, "lsr": 2.0, "ls": 4.0, "be": 8.0, "none": 16.0}
    assert pool_used_milli(100.0, pods, used) == 89.0
    assert pool_state(50, -1, 1.0) is PoolState.OVERLOAD
    assert pool_state(101, 0, 1.0) is PoolState.COOLING
    assert (pool_state(100, 1, 0.5), pool_state(100, 1, 1.0)) == (PoolState.IDLE, PoolState.OVERLOAD)


@pytest.mark.parametrize(
    ("state", "throttled", "admitted", "chosen"),
    [
        (PoolState.IDLE, 0.1, True, Operation.UP),
        (PoolState.IDLE, 0.0, True, Operation.REMAIN),
        (PoolState.IDLE, None, True, Operation.REMAIN),
        (PoolState.IDLE, 0.1, False, Operation.DOWN),
        (PoolState.COOLING, 0.1, True, Operation.REMAIN),
        (PoolState.COOLING, 0.0, True, Operation.REMAIN),
        (PoolState.UNKNOWN, 0.1, True, Operation.REMAIN),
        (PoolState.COOLING, 0.1, False, Operation.DOWN),
        (PoolState.OVERLOAD, 0.1, True, Operation.DOWN),
        (PoolState.OVERLOAD, None, True, Operation.DOWN),
    ],
)
def test_what_happens_to_a_quota(state: PoolState, throttled: float | None, admitted: bool, chosen: Operation) -> None:
    assert operation(BurstConfig("auto", 1000, 300, -1), state, throttled, admitted) is chosen
    assert operation(BurstConfig("cpuBurstOnly", 1000, 300, -1), state, throttled, admitted) is Operation.RESET


def test_a_quotas_ceiling_is_a_percentage_above_100_of_the_limit() -> None:
    found = [ceiling_us(BurstConfig("auto", 1000, percent, -1), 200_000) for percent in (None, -5, 100, 101, 250)]
    assert found == [200_000, 200_000, 200_000, 202_000, 500_000]


def test_a_pods_quota_follows_its_containers_and_an_unlimited_one_stays_so() -> None:
    assert next_pod_quota_us(300_000, [40_000, -20_000]) == 320_000
    assert next_pod_quota_us(-1, [40_000]) == -1
    assert next_pod_quota_us(0, [40_000]) == 0
    assert next_pod_quota_us(1, [4]) == 5


def test_the_kernels_burst_of_a_pod_is_the_sum_of_its_containers() -> None:
    config = BurstConfig("cpuBurstOnly", 50, 300, -1)
    assert pod_bursts_us(config, [2000, None, 0, -1, 1]) == (100_050, (100_000, 0, 0, 0, 50))
    for off in (BurstConfig("cfsQuotaBurstOnly", 50), BurstConfig("auto", 0), BurstConfig("auto"), BurstConfig("auto", -50)):
        assert pod_bursts_us(off, [2000]) == (0, (0,))


def test_the_pool_is_the_mean_of_five_seconds_less_what_best_effort_uses() -> None:
    samples = [reading(second, second * 1000, milli=500) for second in range(1, 11)]
    memory = steps(burst_slo(), samples)[-1].memory
    assert isinstance(memory, BurstMemory)
    assert memory.pool == tuple((second * SECOND_NS, second * 1000.0) for second in range(6, 11))
    assert (memory.pool_used_milli, memory.pool_total_milli, memory.state) == (8000, 8000, PoolState.OVERLOAD)
    there = situation([web(), batch("be")], node_slo=burst_slo(), reading=reading(1, 5000, name="be", milli=4000))
    found = decide(there, None).memory
    assert isinstance(found, BurstMemory)
    assert found.pool_used_milli == 1000


def test_before_the_first_sample_the_pool_is_unknown_and_quotas_stay() -> None:
    found = decide(seen(web(), burst_slo(), None), None)
    assert STRATEGY.figures(found.memory) == {"share-pool.cpu-milli": 0, "share-pool.used.cpu-milli": 0}
    assert value(found, MAIN, Knob.CPU_QUOTA) is None
