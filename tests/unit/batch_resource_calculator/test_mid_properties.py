"""What must hold of mid resources for every node, load and prediction."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.events.node.metrics import Usage
from cotenant.model.bounds import MAX_AMOUNT
from cotenant_batch_resource_calculator.formulas.amounts import ZERO, Amounts, share
from cotenant_batch_resource_calculator.formulas.mid import MidStrategy, MidTerms, calculate_mid
from tests.unit.batch_resource_calculator.builders_batch_resource_calculator import NOON, Bench, minutes

UNHURRIED = settings(deadline=None)
"""A busy machine is no counter-example."""

AMOUNTS = st.builds(Amounts, st.integers(0, 256_000), st.integers(0, 1 << 42))
PERCENT = st.integers(0, 100)
STRATEGIES = st.builds(
    MidStrategy,
    cpu_threshold_percent=PERCENT,
    memory_threshold_percent=PERCENT,
    unallocated_percent=PERCENT,
    static=st.booleans(),
    static_cpu_percent=st.integers(0, 300),
    static_memory_percent=st.integers(0, 300),
)
LOADS = st.fixed_dictionaries(
    {
        "capacity": AMOUNTS,
        "node_usage": st.none() | AMOUNTS,
        "prod_reclaimable": AMOUNTS,
        "system_used": AMOUNTS,
        "node_reserved": AMOUNTS,
        "prod_request": AMOUNTS,
        "strategy": STRATEGIES,
    }
)


def mid(load: dict[str, Any], **changed: Any) -> MidTerms:
    return calculate_mid(**{**load, **changed})


def at_most(one: Amounts, other: Amounts) -> bool:
    return one.cpu <= other.cpu and one.memory <= other.memory


@UNHURRIED
@given(LOADS)
def test_mid_is_never_negative_and_never_above_capacity_and_threshold(load: dict[str, Any]) -> None:
    found, strategy = mid(load), load["strategy"]
    assert at_most(ZERO, found.mid)
    assert at_most(found.mid, load["capacity"])
    assert found.mid.cpu <= share(load["capacity"], strategy.cpu_threshold_percent).cpu
    assert found.mid.memory <= share(load["capacity"], strategy.memory_threshold_percent).memory


@UNHURRIED
@given(LOADS, AMOUNTS)
def test_more_use_more_requests_and_a_larger_reserve_never_leave_more(load: dict[str, Any], more: Amounts) -> None:
    before = mid(load).mid
    for name in ("node_usage", "system_used", "node_reserved", "prod_request"):
        if load[name] is not None:
            assert at_most(mid(load, **{name: load[name] + more}).mid, before), name


@UNHURRIED
@given(LOADS, AMOUNTS)
def test_a_larger_prediction_never_leaves_less(load: dict[str, Any], more: Amounts) -> None:
    assert at_most(mid(load).mid, mid(load, prod_reclaimable=load["prod_reclaimable"] + more).mid)


@UNHURRIED
@given(LOADS)
def test_by_default_mid_is_lent_of_what_is_predicted_and_unused_only(load: dict[str, Any]) -> None:
    found = mid(load, strategy=MidStrategy())
    assert at_most(found.mid, load["prod_reclaimable"])
    unused = load["capacity"] - load["node_usage"] if load["node_usage"] is not None else ZERO
    assert at_most(found.mid, unused.floored())


@UNHURRIED
@given(LOADS, LOADS)
def test_static_mid_depends_on_nothing_that_was_measured(load: dict[str, Any], other: dict[str, Any]) -> None:
    strategy = MidStrategy(static=True, static_cpu_percent=20, static_memory_percent=30)
    fixed = {"capacity": load["capacity"], "strategy": strategy}
    assert mid(load, **fixed) == mid(other, **fixed)


# -- through the core: what was measured may be absurd, missing or old --------------------------------------------------

FIGURES = st.builds(
    Usage,
    cpu_milli=st.sampled_from([0, 1, 99_999, 100_000, MAX_AMOUNT]) | st.integers(0, MAX_AMOUNT),
    memory_bytes=st.sampled_from([0, 1, 100 << 30, MAX_AMOUNT]) | st.integers(0, MAX_AMOUNT),
)
CONFIGURED = st.fixed_dictionaries(
    {"enable": st.just(True)},
    optional={
        **dict.fromkeys(("midCPUThresholdPercent", "midMemoryThresholdPercent", "midUnallocatedPercent"), PERCENT),
        **dict.fromkeys(("midStaticCPUReservedPercent", "midStaticMemoryReservedPercent"), PERCENT),
        "midReclaimMode": st.sampled_from(["static", "", "unknown"]),
        "degradeTimeMinutes": st.just(15),
    },
)


@UNHURRIED
@given(CONFIGURED, FIGURES, st.none() | FIGURES, st.none() | FIGURES, st.floats(0, 60), st.booleans())
def test_a_node_never_lends_more_mid_than_it_has_whatever_was_measured_and_none_by_an_old_metric(
    configured: dict[str, object],
    system: Usage,
    pod: Usage | None,
    predicted: Usage | None,
    age_minutes: float,
    silent: bool,
) -> None:
    bench = Bench()
    bench.configure(json.dumps(configured))
    bench.node(cpu="100", memory="100Gi", allocatable={"cpu": "90", "memory": "80Gi"})
    bench.place("web")
    bench.metric(
        system=system,
        pods={"web": pod} if pod is not None else {},
        prod_reclaimable=predicted,
        unknown_since=NOON if silent else None,
    )
    bench.decide(NOON + minutes(age_minutes))
    found = bench.resources()
    assert 0 <= found.mid_cpu_milli <= 100_000
    assert 0 <= found.mid_memory_bytes <= 100 << 30
    if age_minutes > 15:
        assert found.withdrawn
        assert (found.mid_cpu_milli, found.mid_memory_bytes) == (0, 0)
    elif predicted is None and configured.get("midReclaimMode") != "static" and not configured.get("midUnallocatedPercent"):
        assert (found.mid_cpu_milli, found.mid_memory_bytes) == (0, 0)
