"""Evictions by priority on a node, for memory and for CPU, in the whole control plane under faults: promise 25 holds, also
where the executor is killed between two evictions, and defects of the strategies and of the evictor are noticed.

Pods that permit their eviction come one after the other to one node, in no order of their eviction priorities, and use far more
than they ask for, so that there is always one to evict.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cotenant_node_executor.core.evictions import Evictions
from cotenant_node_executor.strategies.cpu.evict import strategy as cpu_evict
from cotenant_node_executor.strategies.memory import victims as memory_victims
from cotenant_verification.chaos.run import Result, run, schedule_of
from cotenant_verification.workload.schedule import Schedule, ScheduleEntry, in_order

pytestmark = pytest.mark.timeout(3600)

SECONDS, NODES = 120, 2
SEEDS = (2, 1)
NODE = "n0"
Args = dict[str, int | str]
YIELDING: Args = {
    "class": "ls",
    "priority": "koord-mid",
    "cpu": 50,
    "memory_mib": 64,
    "period": 60,
    "lasts": 600,
    "named": NODE,
}
USES: dict[str, tuple[Args, Args]] = {
    "memory": ({"memory_used": 60}, {"hold_low": 1_500, "hold_high": 2_000}),
    "cpu": ({"cpu_used": 70}, {"use_low": 600, "use_high": 900}),
}
"""The threshold, and the usage that is more than the node has."""
FEATURES = {"memory": "MemoryEvict", "cpu": "CPUEvict"}


def crowded(seed: int, resource: str) -> Schedule:
    """The schedule of a seed, with the pods and a crash of their node's executor."""
    schedule = schedule_of(seed, SECONDS, NODES)
    threshold, usage = USES[resource]
    config: Args = {"reclaim": 65, "threshold": 65, "policy": "cfsQuota", **threshold}
    entries = [
        *schedule.entries,
        ScheduleEntry(at_ms=5_000, kind="config", args=config),
        ScheduleEntry(at_ms=50_000, kind="executor-crash", target=NODE, fault=True, args={"down_ms": 500}),
    ]
    for index in range(60):
        args = YIELDING | usage | {"evicted_at": index * 7 % 5}
        entries.append(ScheduleEntry(at_ms=15_000 + 1_500 * index, kind="create-pod", target=f"yielding-{index}", args=args))
    return schedule.having(in_order(entries))


def evicting(result: Result) -> set[str]:
    """The features that evicted pods by priority."""
    assert result.view is not None
    return {feature for (_, feature), found in result.view.ranked_evictions.items() if found}


@pytest.mark.parametrize("resource", ["memory", "cpu"])
def test_promises_hold(resource: str) -> None:
    result = run(crowded(SEEDS[0], resource))
    assert result.violation is None
    assert FEATURES[resource] in evicting(result)


def without_cool_down(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, strategy, before, now: ""


def the_other_way_round(right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: right(*args, **kwargs)[::-1]


def permitted(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda labels: True


@pytest.mark.parametrize(
    ("resource", "owner", "name", "change", "words"),
    [
        pytest.param("memory", Evictions, "_refusal", without_cool_down, "cool-down", id="memory-no-cool-down"),
        pytest.param("cpu", Evictions, "_refusal", without_cool_down, "cool-down", id="cpu-no-cool-down"),
        pytest.param("memory", memory_victims, "priority_order", the_other_way_round, "of rank", id="memory-highest-first"),
        pytest.param("cpu", cpu_evict, "by_priority", the_other_way_round, "of rank", id="cpu-highest-first"),
        pytest.param("memory", memory_victims, "is_enabled", permitted, "does not permit it", id="memory-no-permission"),
    ],
)
def test_a_defect_is_noticed(
    resource: str, owner: object, name: str, change: Callable[..., Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, change(getattr(owner, name)))
    seen = []
    for seed in SEEDS:
        violation = run(crowded(seed, resource)).violation
        if violation is not None and violation.invariant == 25 and words in violation.text:
            return
        seen.append(None if violation is None else (violation.invariant, violation.text[:300]))
    pytest.fail(f"not noticed: {seen}")
