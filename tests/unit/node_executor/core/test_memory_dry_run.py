"""A dry run says what it would do, once, and does nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.subjects import slo_subject
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.address import Knob, Sysctl
from cotenant_node_executor.targets.interface import WriteReport
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import GIB, NODE, Bench, batch, snapshot

GATES = frozenset(("BEMemoryEvict",))


def bench(section: str, **fields: Any) -> Bench:
    """A node whose memory is full, with one batch pod and this section of the NodeSLO."""
    made = Bench(strategies=strategies_of(GATES)).load()
    spec = encoded({section: fields})
    made.store(slo_subject(NODE), NodeSLORendered(node=NODE, spec=spec))
    entry = batch("job")
    made.place(entry)
    made.groups.update(("besteffort/poduid-job", "besteffort/poduid-job/main"))
    made.saw(entry, pid=7, started_at=made.now)
    found = snapshot(1000, {"uid-job": 100})
    made.reading = replace(found, node=replace(found.node, memory_bytes=16 * GIB))
    return made.look()


@pytest.mark.parametrize(
    ("section", "fields", "said"),
    [
        ("resourceUsedThresholdWithBE", {"enable": True}, "dry run of memory-evict, not done: default/job evicted: "),
        ("systemStrategy", {"watermarkScaleFactor": 100}, "sysctl/vm/watermark_scale_factor/value: ? -> 100"),
    ],
)
def test_it_is_said_once_and_not_done(section: str, fields: dict[str, Any], said: str) -> None:
    made, executions, summaries = bench(section, dryRun=True, **fields), Executions(NODE), []
    for _ in range(3):
        plan = made.look(1).core.plan(made.now)
        assert plan.evictions == ()
        assert plan.reclaims == ()
        assert Sysctl("vm/watermark_scale_factor") not in plan.targets.others
        assert Knob.MEMORY_HIGH not in plan.targets.texts.get("besteffort", {})
        events = executions.of_cycle(made.core, plan, WriteReport(), (), made.now)
        summaries += [event.data.summary for event in events if isinstance(event.data, Execution)]
    assert len([each for each in summaries if said in each]) == 1
    assert made.core.memory_pressure == ""


def test_without_dry_run_the_same_is_done() -> None:
    made = bench("resourceUsedThresholdWithBE", enable=True)
    plan = made.core.plan(made.now)
    assert [name for _, name, _ in plan.evictions] == ["memory-evict"]
    assert made.core.memory_pressure != ""


@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("resourceUsedThresholdWithBE", {"enable": "yes"}),
        ("resourceUsedThresholdWithBE", []),
        ("resourceUsedThresholdWithBE", {"enable": True, "memoryEvictThresholdPercent": 10**30}),
        ("resourceQOSStrategy", {"beClass": {"memoryQOS": {"enable": True, "minLimitPercent": "x"}, "blkioQOS": 3}}),
        ("resourceQOSStrategy", 7),
        ("systemStrategy", {"schedFeatures": {"A": 2}, "minFreeKbytesFactor": -(10**25)}),
    ],
)
def test_a_section_that_cannot_be_read_stops_nothing(section: str, value: Any) -> None:
    made = bench("systemStrategy")
    spec = encoded({section: value})
    made.store(slo_subject(NODE), NodeSLORendered(node=NODE, spec=spec))
    for _ in range(2):
        plan = made.look(1).core.plan(made.now)
    assert Knob.CPU_SHARES in plan.targets.texts["besteffort/poduid-job"]
    assert plan.evictions == ()
