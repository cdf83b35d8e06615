"""The collect policy of a node, which memory counts, NUMA usage and contention in reports."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from cotenant.events.node.metrics import Contention, Usage
from cotenant.events.node.usage import HostApplicationUsage, NumaUsage, PodUsage, Pressure, Series, UsageSample
from cotenant_metrics_ingest.counted_memory import counted
from cotenant_metrics_ingest.policy import (
    MemoryPolicy,
    PolicyInForce,
    collect_policy,
    policy_in_force,
)
from tests.unit.metrics_ingest.builders_metrics_ingest import MetricsLog, pod

OWN = PolicyInForce(10, 20, (30, 60), MemoryPolicy.WITHOUT_PAGE_CACHE)
CUSTOM = {
    "enable": True,
    "metricAggregateDurationSeconds": 120,
    "metricReportIntervalSeconds": 30,
    "metricAggregatePolicy": {"durations": ["5m0s", "15m0s"]},
    "metricMemoryCollectPolicy": "usageWithPageCache",
}


def in_force(strategy: object, annotation: str = "") -> PolicyInForce:
    return policy_in_force(collect_policy(msgspec.json.encode(strategy), annotation), OWN)


def test_an_enabled_strategy_says_how_a_node_is_measured() -> None:
    assert in_force(CUSTOM) == PolicyInForce(30, 120, (300, 900), MemoryPolicy.WITH_PAGE_CACHE)


def test_a_strategy_that_is_not_enabled_or_damaged_leaves_the_default() -> None:
    assert in_force({**CUSTOM, "enable": False}) == OWN
    for damaged in (b"{", b"[]", b"null", b'{"enable": true, "metricReportIntervalSeconds": "x"}', b'{"enable": "yes"}'):
        assert policy_in_force(collect_policy(damaged), OWN) == OWN


def test_fields_that_a_strategy_sets_count_also_at_koordinators_default() -> None:
    given = {
        "enable": True,
        "metricReportIntervalSeconds": 60,
        "metricAggregateDurationSeconds": 300,
        "metricAggregatePolicy": {"durations": ["5m", "10m", "30m"]},
    }
    assert in_force(given) == PolicyInForce(60, 300, (300, 600, 1800), MemoryPolicy.WITHOUT_PAGE_CACHE)


def test_fields_that_a_strategy_does_not_set_are_the_services_own() -> None:
    assert in_force({"enable": True, "metricReportIntervalSeconds": None}) == OWN
    assert in_force({"enable": True, "metricAggregateDurationSeconds": 300}) == PolicyInForce(
        10, 300, (30, 60), MemoryPolicy.WITHOUT_PAGE_CACHE
    )


def test_floors_of_interval_and_window() -> None:
    found = in_force({"enable": True, "metricReportIntervalSeconds": 1, "metricAggregateDurationSeconds": 1})
    assert (found.report_interval_seconds, found.aggregate_seconds) == (30, 60)


def test_the_nodes_annotation_overlays_the_strategy_and_names_match_without_case() -> None:
    assert in_force(CUSTOM, '{"METRICReportIntervalSeconds": 45, "metricMemoryCollectPolicy": null}') == PolicyInForce(
        45, 120, (300, 900), MemoryPolicy.WITH_PAGE_CACHE
    )
    assert in_force(CUSTOM, "rubbish").report_interval_seconds == 30


@pytest.mark.parametrize("durations", [[], ["x"], ["0s"], ["1000h"], ["5m"] * 50])
def test_windows_that_are_not_possible_are_the_services_own(durations: list[str]) -> None:
    assert in_force({"enable": True, "metricAggregatePolicy": {"durations": durations}}).durations_seconds == (30, 60)


def test_a_changed_strategy_takes_effect_at_the_nodes_next_message_and_keeps_what_fits() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.minutes(10, 1000)
    log.strategy({**CUSTOM, "metricAggregateDurationSeconds": 300})
    log.minutes(1, 1000)
    metric = log.metric()
    assert metric.durations_seconds == (300, 900)
    assert metric.report_interval_seconds == 30
    assert metric.memory_collect_policy == "usageWithPageCache"
    # Slots are as wide as before, so the samples of the last ten minutes are still there.
    assert [window.duration_seconds for window in metric.aggregated_node_usages] == [300, 900]
    fresh = log.reloaded()
    fresh.decide(log.now)
    windows = fresh._nodes["n1"].windows
    assert windows is not None
    assert windows.sizes.durations_ms == (300_000, 900_000)
    assert windows.last_ms > 0


def series(memory: int, cache: tuple[int, ...] = (), cold: tuple[int, ...] = ()) -> Series:
    return Series(cpu_milli=(100,), memory_bytes=(memory,), page_cache_bytes=cache, cold_bytes=cold)


def sample(*, cold: tuple[int, ...] = (40,)) -> UsageSample:
    return UsageSample(
        node="n1",
        offsets_ms=(0,),
        node_usage=series(1000, (500,), cold),
        system_usage=series(10, (5,)),
        pods=(PodUsage(namespace="d", name="a", uid="a", series=series(100, (50,), (30,))),
              PodUsage(namespace="d", name="b", uid="b", series=series(100))),
        host_applications=(HostApplicationUsage(name="yarn", series=series(20, (9,), (99,))),),
    )


@pytest.mark.parametrize(
    ("policy", "cold", "node", "pods", "host"),
    [
        (MemoryPolicy.WITHOUT_PAGE_CACHE, (40,), 1000, [100, 100], 20),
        (MemoryPolicy.WITH_PAGE_CACHE, (40,), 1500, [150, 100], 29),
        (MemoryPolicy.WITH_HOT_PAGE_CACHE, (40,), 1460, [120, 100], 0),
        # Without cold memory there is nothing to take off, and page cache is not taken for hot.
        (MemoryPolicy.WITH_HOT_PAGE_CACHE, (), 1000, [100, 100], 20),
    ],
)
def test_which_memory_counts(policy: MemoryPolicy, cold: tuple[int, ...], node: int, pods: list[int], host: int) -> None:
    found = counted(sample(cold=cold), policy)
    assert found.node_usage.memory_bytes == (node,)
    assert [each.series.memory_bytes[0] for each in found.pods] == pods
    assert found.host_applications[0].series.memory_bytes == (host,)
    assert found.system_usage.memory_bytes == (10,)


def test_a_message_without_system_usage_gets_what_is_left_of_the_nodes() -> None:
    given = UsageSample(
        node="n1",
        offsets_ms=(-1000, 0),
        node_usage=Series(cpu_milli=(900, 1000), memory_bytes=(50, 500)),
        pods=(PodUsage(namespace="d", name="a", uid="a", series=Series(cpu_milli=(300, 300), memory_bytes=(100, 100))),
              PodUsage(namespace="d", name="b", uid="b", series=Series(cpu_milli=(100,), memory_bytes=(100,)))),
    )
    assert counted(given, MemoryPolicy.WITHOUT_PAGE_CACHE).system_usage == Series(cpu_milli=(600, 600), memory_bytes=(0, 300))


def test_numa_usage_is_that_of_the_newest_message() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1000], numa=(NumaUsage(node=0, cpu_milli=600, memory_bytes=5), NumaUsage(node=1, cpu_milli=400)))
    log.decide()
    assert [(each.node, each.usage) for each in log.metric().numa] == [
        (0, Usage(cpu_milli=600, memory_bytes=5)), (1, Usage(cpu_milli=400))]


def test_contention_is_averaged_over_the_messages_since_the_last_report() -> None:
    log = MetricsLog()
    log.node()
    log.decide()
    log.sample([1])
    log.decide()
    quiet = pod("quiet", [10])
    for throttled, some, cycles in ((100, -1, 300), (300, 50, 500), (-1, -1, 0)):
        log.now += timedelta(seconds=15)
        busy = msgspec.structs.replace(
            pod("busy", [10]),
            throttled_permille=throttled,
            pressure=Pressure(cpu_some=some),
            cycles=cycles,
            instructions=cycles // 2,
        )
        log.sample([1], pods=[busy, quiet])
    log.decide(after=60)
    contention = {entry.name: entry.contention for entry in log.metric().pods}
    assert contention["quiet"] == Contention()
    assert contention["busy"] == Contention(throttled_permille=200, cpu_some=50, cpi_thousandths=2000)
    log.now += timedelta(seconds=61)
    log.sample([1], pods=[quiet, pod("busy", [10])])
    log.decide()
    assert all(entry.contention == Contention() for entry in log.metric().pods)
