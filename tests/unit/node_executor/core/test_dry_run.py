"""A section with `dryRun: true`: its strategies decide, say what they would do, and do nothing."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import CpuIdentity
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.core.plan import CyclePlan
from cotenant_node_executor.strategies.sections import (
    fitted,
    is_dry_run,
    lowered_object,
    readable_section,
    section,
    without_nulls,
)
from cotenant_node_executor.strategies.strategy import (
    Desired,
    DesiredValues,
    Evict,
    Input,
    NodePolicy,
    Reclaim,
    Strategy,
    StrategyDecision,
)
from cotenant_node_executor.targets.interface import Knob, WriteReport
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, Bench, batch, service, slo, snapshot

SUPPRESS = "resourceUsedThresholdWithBE"
BESTEFFORT = "besteffort"


def running(**fields: Any) -> Bench:
    """A node with a service and a batch pod, measured."""
    bench = Bench().load()
    bench.slo(**fields)
    for entry in (service("web"), batch("job")):
        bench.place(entry)
    for group in ("burstable/poduid-web", f"{BESTEFFORT}/poduid-job"):
        bench.groups.update((group, f"{group}/main"))
    bench.reading = snapshot(4000, {"uid-web": 1500, "uid-job": 2000})
    return bench.look()


def said(bench: Bench, plan: CyclePlan) -> list[Execution]:
    events = Executions(NODE).of_cycle(bench.core, plan, WriteReport(), (), bench.now)
    return [event.data for event in events if isinstance(event.data, Execution)]


def test_a_suppression_that_is_a_dry_run_is_told_with_its_figures_and_not_done() -> None:
    bench = running(spec=encoded({SUPPRESS: {"dryRun": True}}))
    plan = bench.core.plan(bench.now)
    assert Knob.CPU_QUOTA not in plan.targets.texts[BESTEFFORT]
    (told,) = [each for each in said(bench, plan) if each.topic == "suppress"]
    assert told.summary.startswith("dry run of suppress, not done: besteffort/cpu.cfs_quota_us: -1 -> 320000")
    assert told.figures["services.cpu-milli"] == 1500
    # The CPU sets of the tree would stay as they are.
    changes = [(each.target, each.old, each.new) for each in told.changes]
    assert changes == [("besteffort/cpu.cfs_quota_us", "-1", "320000")]


def test_it_is_told_once_and_again_when_it_would_do_something_else() -> None:
    bench = running(spec=encoded({SUPPRESS: {"dryRun": True}}))
    assert bench.core.plan(bench.now).dry_runs
    assert not bench.core.plan(bench.now).dry_runs
    bench.reading = snapshot(6000, {"uid-web": 3500, "uid-job": 2000})
    (told,) = bench.look(1).core.plan(bench.now).dry_runs
    assert [(each.place, each.desired.value) for each in told.changes] == [(BESTEFFORT, "120000")]


def test_a_dry_run_that_begins_puts_back_what_was_done_before() -> None:
    bench = running()
    before = bench.core.plan(bench.now).targets.texts[BESTEFFORT]
    assert before[Knob.CPU_QUOTA] == "320000"
    bench.slo(spec=encoded({SUPPRESS: {"dryRun": True}}))
    after = bench.look(1).core.plan(bench.now).targets
    assert after.texts[BESTEFFORT][Knob.CPU_QUOTA] == "-1"
    assert after.texts[BESTEFFORT][Knob.CPUSET_CPUS] == "0-7"
    assert after.texts[f"{BESTEFFORT}/poduid-job"][Knob.CPU_QUOTA] == "100000"
    bench.slo()
    assert bench.look(1).core.plan(bench.now).targets.texts[BESTEFFORT][Knob.CPU_QUOTA] == "320000"


def test_values_of_a_pods_shape_are_in_a_dry_run_too() -> None:
    identity = CpuIdentity(enable=True, group_identity=-1)
    bench = running(be_identity=identity, spec=encoded({"resourceQOSStrategy": {"dryRun": True}}))
    plan = bench.core.plan(bench.now)
    assert Knob.CPU_IDLE not in plan.targets.texts[f"{BESTEFFORT}/poduid-job"]
    (told,) = [each for each in plan.dry_runs if each.strategy == "idle"]
    would = {each.place: each.desired.value for each in told.changes}
    assert would[f"{BESTEFFORT}/poduid-job"] == "1"


def evicting(situation: Any, _memory: Struct | None) -> StrategyDecision:
    values: DesiredValues = {BESTEFFORT: (Desired(Knob.CPU_BURST, "1000", "cruel", "why not"),)}
    return StrategyDecision(values, tuple(Evict(pod.uid, "too much") for _, pod in sorted(situation.pods.items())))


def cycle(_policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.CYCLE,))


def test_an_eviction_of_a_dry_run_is_told_once_and_nobody_is_stopped() -> None:
    cruel = Strategy("cruel", "cruel", (Knob.CPU_BURST,), decide=evicting, inputs=cycle, section="crueltyStrategy")
    bench = Bench(strategies=(cruel,)).load()
    bench.slo(spec=encoded({"crueltyStrategy": {"DryRun": True}}))
    bench.place(batch("job"))
    bench.groups.add(f"{BESTEFFORT}/poduid-job")
    bench.look()
    plan = bench.core.plan(bench.now)
    assert plan.evictions == ()
    (told,) = said(bench, plan)
    assert told.summary.endswith("default/job evicted: too much")
    assert not bench.core.plan(bench.now).dry_runs
    bench.slo()
    assert [name for _, name, _ in bench.core.plan(bench.now).evictions] == ["cruel"]


def reclaiming(_situation: Any, _memory: Struct | None) -> StrategyDecision:
    return StrategyDecision(orders=(Reclaim(BESTEFFORT, 4096, "page cache"),))


def test_memory_that_a_dry_run_would_reclaim_is_told_once_and_left_alone() -> None:
    thrifty = Strategy("thrifty", "thrifty", (), decide=reclaiming, inputs=cycle, section="thriftStrategy")
    bench = Bench(strategies=(thrifty,)).load()
    bench.slo(spec=encoded({"thriftStrategy": {"dryRun": True}}))
    plan = bench.look().core.plan(bench.now)
    assert plan.reclaims == ()
    (told,) = said(bench, plan)
    assert told.summary == "dry run of thrifty, not done: 4096 bytes reclaimed from besteffort: page cache"
    assert not bench.core.plan(bench.now).dry_runs
    bench.slo()
    assert [name for name, _ in bench.core.plan(bench.now).reclaims] == ["thrifty"]


def test_an_eviction_that_waits_is_dropped_when_its_strategy_becomes_a_dry_run() -> None:
    slow = Strategy("cruel", "cruel", (Knob.CPU_BURST,), decide=evicting, section="crueltyStrategy", evictions_a_minute=0)
    bench = Bench(strategies=(slow,)).load()
    bench.slo()
    bench.place(batch("job"))
    bench.groups.add(f"{BESTEFFORT}/poduid-job")
    plan = bench.look().core.plan(bench.now)
    assert (plan.evictions, [name for name, _ in plan.waiting]) == ((), ["cruel"])
    bench.slo(spec=encoded({"crueltyStrategy": {"dryRun": True}}))
    assert bench.look(1).core.plan(bench.now).waiting == ()


@pytest.mark.parametrize("text", [b"[]", b"7", b'{"a":{"dryRun":"true"}}', b'{"a":true}', b'{"dryRun":true}', b"{}", b"null"])
def test_only_the_value_true_in_a_section_is_a_dry_run(text: bytes) -> None:
    assert not is_dry_run(slo(spec=msgspec.Raw(text)), "a")
    assert not is_dry_run(None, "a")
    assert is_dry_run(slo(spec=msgspec.Raw(b'{"A":{"DRYRUN":true}}')), "a")


class Part(Struct, frozen=True, rename="camel"):
    some_percent: int | None = None
    inner: tuple[Part, ...] = ()


def test_names_match_in_any_case_and_null_counts_as_absent() -> None:
    text = b'{"SOMEPERCENT": 3, "other": 1, "Inner": [{"somepercent": null}, {"somePercent": 5, "inner": null}]}'
    assert fitted(without_nulls(lowered_object(text)), Part, "part") == Part(3, (Part(), Part(5)))


def test_a_section_that_is_missing_or_of_another_form_is_none() -> None:
    read = readable_section("part", Part)
    assert read(slo(spec=encoded({"part": {"somePercent": 4}}))) == Part(4)
    for wrong in ({}, {"part": 5}, {"part": {"somePercent": "x"}}, {"part": None}):
        assert read(slo(spec=encoded(wrong))) is None
    deep = b'{"part":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    assert read(slo(spec=msgspec.Raw(deep))) in (None, Part())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"part": 5}', "part: expected an object, got int"),
        (b'{"part": {"somePercent": "x"}}', "part: Expected `int | null`, got `str` - at `$.somePercent`"),
        (b"[", "Input data was truncated"),
    ],
)
def test_a_strict_reader_says_which_field_is_wrong(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        section(slo(spec=msgspec.Raw(text)), "part", Part)
    assert section(slo(spec=msgspec.Raw(b"{}")), "part", Part) == Part()
