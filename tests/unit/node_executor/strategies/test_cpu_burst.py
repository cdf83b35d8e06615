"""CPU burst: quotas grow while a container is throttled and the share pool is idle, and nowhere else."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.core.composer import Composer
from cotenant_node_executor.sampling.snapshot import ContainerUsage, PodUsage, Snapshot
from cotenant_node_executor.strategies.cpu.burst import token_bucket
from cotenant_node_executor.strategies.cpu.burst.config import BurstConfig, BurstStrategy, burst_strategy, pod_config
from cotenant_node_executor.strategies.cpu.burst.quota_burst import ceiling_us, next_quota_us, operation
from cotenant_node_executor.strategies.cpu.burst.share_pool import PoolState, pool_state
from cotenant_node_executor.strategies.cpu.burst.strategy import STRATEGY, BurstMemory, decide
from cotenant_node_executor.strategies.pod_view import BURSTABLE
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Decision, Policy
from cotenant_node_executor.targets.cgroup.levels import FileChange, Phase, plan
from cotenant_node_executor.targets.interface import Knob
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, pod, situation, slo, snapshot, usage

SECOND_NS = 1_000_000_000
GROUP = "burstable/poduid-web"
MAIN = f"{GROUP}/main"
STATES = st.sampled_from(PoolState)


def web(name: str = "web", cpu: str = "2", qos: str = "LS", **more: Any) -> Pod:
    return pod(name, qos, requests={"cpu": "1"}, limits={"cpu": cpu, "memory": "1Gi"}, **more)


def burst_slo(**section: Any) -> NodeSLORendered:
    return slo(spec=msgspec.Raw(json.dumps({"cpuBurstStrategy": {"policy": "auto", **section}}).encode()))


def reading(second: int, node_milli: int = 1000, *, throttled: float = 0.0, milli: int = 2000, name: str = "web") -> Snapshot:
    """A sample in which the container is throttled for a part of its periods."""
    own = replace(usage(f"burstable/poduid-{name}/main", milli), throttled_ratio=throttled)
    found = PodUsage(f"uid-{name}", BURSTABLE, own, (ContainerUsage("main", own),))
    return replace(snapshot(node_milli), monotonic_ns=second * SECOND_NS, pods={f"uid-{name}": found})


def seen(entry: Pod, node_slo: NodeSLORendered, sample: Snapshot | None) -> Situation:
    return situation([entry], node_slo=node_slo, reading=sample, kernel=capabilities(also=(Knob.CPU_BURST,)))


def value(decision: Decision, group: str, knob: Knob) -> str | None:
    return next((each.value for each in decision.values.get(group, ()) if each.attribute is knob), None)


def steps(node_slo: NodeSLORendered, samples: list[Snapshot], entry: Pod | None = None) -> list[Decision]:
    """The decisions on these samples, each with the memory of the one before."""
    decisions: list[Decision] = []
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
    def order(old: str, new: str) -> list[tuple[Phase, Knob]]:
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
    assert STRATEGY.inputs(Policy(capabilities(), slo())) == frozenset()
    assert STRATEGY.inputs(Policy(capabilities(), burst_slo())) != frozenset()
    assert decide(seen(web(), burst_slo(policy="none"), reading(1, throttled=0.5)), None) == Decision()
    assert burst_strategy(burst_slo()) == BurstStrategy("auto")


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
