"""Every strategy of the registry, with its values written as the kernel would hold them: a steady input is decided once and
then left alone, and one that alternates by less than a hundredth of the node makes nobody change a file to and fro."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cotenant.domain.service_latency import LatencyFigures
from cotenant_node_executor.kernel_machine import WATCHED
from cotenant_node_executor.sampling.latency.readings import ServiceReading
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.threads import ThreadUsage
from cotenant_node_executor.strategies.sections import THRESHOLD
from cotenant_node_executor.targets.disks import Storage
from tests.unit.node_executor.builders_node_executor import GIB, Bench
from tests.unit.node_executor.core.test_every_strategy import CASES, WEB, reading, running

NODE_MILLI, NODE_BYTES = 8000, 16 * GIB
SETTLED, WATCHED_CYCLES = 120, 20
"""Cycles of one second: until a strategy has come to rest, and how long it has to stay there."""
NOT_SETTLING = frozenset(("realtime",))
"""Gives its class and takes it back by budgets; `test_realtime_need` holds it to its cool-down."""


class Load:
    """What is used: by the node and the service in milli-CPU, of the node in bytes."""

    def __init__(self, node_milli: int, web_milli: int, memory_bytes: int) -> None:
        self.node_milli, self.web_milli, self.memory_bytes = node_milli, web_milli, memory_bytes

    def at(self, second: int) -> UsageSnapshot:
        found = reading(second)
        web = found.pods["uid-web"]
        return replace(
            found,
            node=replace(found.node, cpu_milli=self.node_milli, memory_bytes=self.memory_bytes),
            pods={**found.pods, "uid-web": replace(web, usage=replace(web.usage, cpu_milli=self.web_milli))},
        )


def decided(bench: Bench, name: str, second: int, load: Load) -> dict[object, str]:
    """One cycle: the strategy's values by place and attribute, which the kernel holds from then on."""
    bench.reading = load.at(second)
    bench.look(
        1,
        storage=Storage({"/dev/sda": "8:0"}, {}, {}),
        threads={WEB: (ThreadUsage(7, 700), ThreadUsage(8, 600))},
        services={WEB: ServiceReading(LatencyFigures(5.0, None))},
    )
    plan = bench.core.plan(bench.now)
    bench.report()
    for group, knob in WATCHED:
        text = plan.targets.texts.get(group, {}).get(knob)
        if text is not None:
            bench.current[group, knob] = text
    return {
        (place, attribute): each.value
        for place, own in plan.targets.desired.items()
        for attribute, each in own.items()
        if each.strategy == name
    }


def changes(name: str, loads: tuple[Load, Load]) -> list[dict[object, str]]:
    """The different decisions, in a row, of the cycles behind SETTLED, while the loads alternate."""
    bench = running(name.partition(" ")[0])
    if name == BY_CPU_SET:
        enabled = msgspec.json.encode({THRESHOLD: {"enable": True}})
        bench.slo(cpu_suppress_policy="cpuset", spec=msgspec.Raw(enabled))
    found: list[dict[object, str]] = []
    for second in range(1, SETTLED + WATCHED_CYCLES):
        values = decided(bench, name.partition(" ")[0], second, loads[second % 2])
        if second > SETTLED and (not found or found[-1] != values):
            found.append(values)
    return found


BY_CPU_SET = "suppress by cpuset"
SETTLING = [*(name for name in CASES if name not in NOT_SETTLING), BY_CPU_SET]
AMOUNTS = (st.integers(0, NODE_MILLI), st.integers(0, 4000), st.integers(0, NODE_BYTES))


@pytest.mark.parametrize("name", SETTLING)
@settings(max_examples=5, deadline=None)
@given(*AMOUNTS)
def test_a_steady_load_is_decided_once_and_then_left_alone(name: str, node: int, web: int, memory: int) -> None:
    load = Load(node, web, memory)
    assert len(changes(name, (load, load))) == 1


@pytest.mark.parametrize("name", SETTLING)
@settings(max_examples=5, deadline=None)
@given(*AMOUNTS, st.integers(1, NODE_MILLI // 100 - 1), st.integers(1, NODE_BYTES // 200))
def test_an_input_that_alternates_by_less_than_a_hundredth_changes_no_file_to_and_fro(
    name: str, node: int, web: int, memory: int, more_milli: int, more_bytes: int
) -> None:
    other = Load(node + more_milli, web, memory + more_bytes)
    assert len(changes(name, (Load(node, web, memory), other))) == 1


@pytest.mark.parametrize("name", ["suppress", BY_CPU_SET])
def test_what_alternates_by_a_quarter_of_the_node_is_followed(name: str) -> None:
    low, high = Load(2000, 500, 4 * GIB), Load(4000, 2500, 4 * GIB)
    assert len(changes(name, (low, high))) > 1
