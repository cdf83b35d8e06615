"""Whatever the NodeSLO's sections and pods' annotations hold, every strategy decides, and what it decides can be composed."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources
from cotenant_node_executor.core.composer import Composer
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.strategy import NodePolicy
from cotenant_node_executor.targets.cgroup.files import check_value
from cotenant_node_executor.targets.interface import Knob, KnobSupport, NodeCapabilities
from tests.unit.node_executor.builders_node_executor import NODE, batch, capabilities, pod, service, situation, slo, snapshot

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-5, 400),
    st.floats(allow_nan=False),
    st.sampled_from(["auto", "coreSched", "cfsQuota", "evictByAllocatable", "KubepodsBesteffort", "../..", "LS", "", "x"]),
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3), max_leaves=3)


def objects(*names: str) -> st.SearchStrategy[object]:
    return st.one_of(VALUES, st.dictionaries(st.sampled_from(names), VALUES, max_size=len(names)))


BURST = objects(
    "policy", "cpuBurstPercent", "cfsQuotaBurstPercent", "cfsQuotaBurstPeriodSeconds", "sharePoolThresholdPercent", "dryRun"
)
EVICT = objects(
    "enable",
    "cpuEvictBESatisfactionUpperPercent",
    "cpuEvictBESatisfactionLowerPercent",
    "cpuEvictBEUsageThresholdPercent",
    "cpuEvictTimeWindowSeconds",
    "cpuEvictPolicy",
    "cpuEvictThresholdPercent",
    "cpuEvictLowerPercent",
    "evictEnabledPriorityThreshold",
    "cpuAllocatableEvictThresholdPercent",
    "cpuAllocatableEvictLowerPercent",
    "allocatableEvictPriorityThreshold",
)
CPU_QOS = st.one_of(VALUES, st.fixed_dictionaries({"cpuQOS": objects("enable", "schedIdle", "coreExpeller")}))
QOS = st.one_of(
    VALUES,
    st.fixed_dictionaries({
        "policies": st.one_of(VALUES, st.just({"cpuPolicy": "coreSched"})), "lsClass": CPU_QOS, "beClass": CPU_QOS
    }),
)
HOSTS = st.one_of(VALUES, st.lists(objects("name", "qos", "priority", "cgroupPath"), max_size=3))
SPECS = st.fixed_dictionaries({
    "cpuBurstStrategy": BURST, "resourceUsedThresholdWithBE": EVICT, "resourceQOSStrategy": QOS, "hostApplications": HOSTS
})
ANNOTATIONS = st.fixed_dictionaries({
    "koordinator.sh/cpuBurst": BURST.map(json.dumps),
    "scheduling.koordinator.sh/resource-status": st.one_of(
        VALUES,
        st.fixed_dictionaries({
            "cpuset": st.sampled_from(["", "0-3", "9000", "x", "3-1"]),
            "numaNodeResources": st.lists(objects("node", "resources"), max_size=2),
        }),
    ).map(json.dumps),
    "koordinator.sh/eviction-policy": VALUES.map(json.dumps),
    "koordinator.sh/eviction-priority": st.text(max_size=5),
})


def everything() -> NodeCapabilities:
    found = capabilities(also=(Knob.CPU_BURST,))
    return replace(found, knobs={**found.knobs, "core_sched": KnobSupport(True)})


@settings(max_examples=60, deadline=None)
@given(SPECS, ANNOTATIONS, st.integers(0, 2**50), st.floats(), st.integers(0, 10**9))
def test_every_strategy_decides(
    spec: dict[str, object], annotations: dict[str, str], offered: int, ratio: float, used: int
) -> None:
    pods = [
        service("web", annotations=annotations),
        pod("limited", "LS", requests={"cpu": "1"}, limits={"cpu": "2"}, annotations=annotations),
        batch("job", annotations=annotations),
    ]
    node_slo = slo(spec=msgspec.Raw(json.dumps(spec).encode()))
    resources = NodeResources(node=NODE, batch_cpu_milli=offered, cpu_normalization_ratio=ratio)
    memories: dict[str, Struct | None] = {}
    for second in (0, 21, 22):
        reading = replace(snapshot(used, {"uid-limited": used, "uid-job": used}), monotonic_ns=second * 1_000_000_000)
        there = replace(situation(pods, node_slo=node_slo, reading=reading, kernel=everything()), resources=resources)
        composer = Composer()
        for strategy in STRATEGIES:
            strategy.inputs(NodePolicy(there.capabilities, node_slo))
            if strategy.decide is not None:
                try:
                    decision = strategy.decide(there, memories.get(strategy.name))
                except ValueError:  # names what it cannot read, and keeps its last decision
                    continue
                memories[strategy.name] = decision.memory
                strategy.figures(decision.memory)
                composer.put(f"node:{strategy.name}", decision.values)
        for texts in composer.composed().texts.values():
            for knob, text in texts.items():
                check_value(knob, text)
