"""A value of the NodeSLO that no strategy can read leaves the last valid one in force, and is reported once by its name."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.core.executions import Executions
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.node_slo import NODE_SLO, NodeSLOReader
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.sections import is_dry_run
from cotenant_node_executor.strategies.strategy import Problems
from cotenant_node_executor.targets.interface import WriteReport
from tests.unit.node_executor.builders_node_executor import NODE, Bench, batch, slo

QOS, THRESHOLD, BURST, SYSTEM = "resourceQOSStrategy", "resourceUsedThresholdWithBE", "cpuBurstStrategy", "systemStrategy"
PARTS = {
    "cpuQOS": {"enable": True, "schedIdle": 0},
    "memoryQOS": {"enable": True, "minLimitPercent": 50, "pageCacheLimitEnable": 1},
    "blkioQOS": {"enable": True, "blocks": [{"name": "/dev/sda", "type": "device", "ioCfg": {"readBPS": 1048576}}]},
    "resctrlQOS": {"enable": True, "catRangeEndPercent": 30},
    "networkQOS": {"enable": True, "egressLimit": 50},
}
RIGHT: dict[str, Any] = {
    THRESHOLD: {"enable": True, "memoryEvictThresholdPercent": 70, "cpuEvictTimeWindowSeconds": 30, "dryRun": False},
    BURST: {"policy": "auto", "cpuBurstPercent": 1000},
    SYSTEM: {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "1G"},
    QOS: {"policies": {"cpuPolicy": "groupIdentity"}, "lsClass": copy.deepcopy(PARTS), "beClass": copy.deepcopy(PARTS)},
    "hostApplications": [{"name": "yarn", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "yarn"}}],
    "extensions": {"theirs": [1]},
}
NO_OBJECTS = ("text", 7, [1], True, 1.5)


def objects(document: dict[str, Any], *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all objects that strategies read."""
    for name, value in document.items():
        if isinstance(value, dict) and name != "extensions":
            yield (*path, name)
            yield from objects(value, *path, name)


def rendered(spec: Any) -> NodeSLORendered:
    return slo(spec=msgspec.Raw(json.dumps(spec).encode()))


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The right document with another value at a path."""
    document = copy.deepcopy(RIGHT)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return document


def read(*specs: Any) -> tuple[dict[str, Any], list[tuple[str, ...]]]:
    """The document in force after these, and the problems in order."""
    reader, problems = NodeSLOReader(STRATEGIES), list[Problems]()
    found: NodeSLORendered | None = None
    for spec in specs:
        found = reader.in_force(rendered(spec), found, problems)
    assert found is not None
    assert {each.strategy for each in problems} <= {NODE_SLO}
    return json.loads(bytes(found.spec)), [each.texts for each in problems]


def test_a_node_slo_that_can_be_read_stays_as_it_came() -> None:
    right, problems = rendered(RIGHT), list[Problems]()
    assert NodeSLOReader(STRATEGIES).in_force(right, None, problems) is right
    assert problems == []


@pytest.mark.parametrize("value", NO_OBJECTS, ids=repr)
@pytest.mark.parametrize("path", list(objects(RIGHT)), ids=".".join)
def test_a_section_or_part_that_is_no_object_is_named_once_and_the_last_valid_one_stays(
    path: tuple[str, ...], value: Any
) -> None:
    wrong = changed(path, value)
    kind = type(value).__name__
    found, problems = read(RIGHT, wrong, wrong)
    assert found == RIGHT
    assert problems == [(f"{'.'.join(path)}: expected an object, got {kind}: the last valid value stays",)]
    alone, problems = read(wrong)
    assert problems == [(f"{'.'.join(path)}: expected an object, got {kind}: it counts as absent",)]
    for name in path[:-1]:
        alone = alone[name]
    assert path[-1] not in alone


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ((THRESHOLD, "cpuEvictTimeWindowSeconds"), "60", "Expected `int | null`, got `str`"),
        ((THRESHOLD, "memoryEvictThresholdPercent"), 1.5, "Expected `int | null`, got `float`"),
        ((THRESHOLD, "dryRun"), "true", "Expected `bool | null`, got `str`"),
        ((BURST, "cpuBurstPercent"), 1 << 40, "Expected `int` <= 2147483647"),
        ((SYSTEM, "minFreeKbytesFactor"), [], "Expected `int | null`, got `array`"),
        ((QOS, "lsClass", "cpuQOS", "schedIdle"), "yes", "Expected `int | null`, got `str`"),
        ((QOS, "beClass", "memoryQOS", "minLimitPercent"), {}, "Expected `int | null`, got `object`"),
        ((QOS, "beClass", "resctrlQOS", "enable"), 1, "Expected `bool | null`, got `int`"),
        ((QOS, "beClass", "blkioQOS", "blocks"), {"name": "/dev/sda"}, "Expected `array | null`, got `object`"),
        ((QOS, "beClass", "networkQOS", "egressLimit"), [], "Expected `int | str | null`, got `array`"),
        ((QOS, "policies", "cpuPolicy"), 1, "Expected `str | null`, got `int`"),
        (("hostApplications",), {"name": "yarn"}, "Expected `array | null`, got `object`"),
    ],
    ids=lambda each: ".".join(each) if isinstance(each, tuple) else None,
)
def test_a_field_of_another_type_is_named_and_alone_keeps_its_last_value(path: tuple[str, ...], value: Any, why: str) -> None:
    wrong = changed(path, value)
    wrong[BURST]["policy"] = "none"
    found, problems = read(RIGHT, wrong)
    assert found == {**RIGHT, BURST: {**RIGHT[BURST], "policy": "none"}}
    assert problems == [(f"{'.'.join(path)}: {why}: the last valid value stays",)]


def test_a_field_within_a_list_is_named_with_its_place() -> None:
    blocks = [{"name": "/dev/sda", "type": "device", "ioCfg": {"readBPS": "many"}}]
    _, ((problem,),) = read(changed((QOS, "beClass", "blkioQOS", "blocks"), blocks))
    assert problem.startswith(f"{QOS}.beClass.blkioQOS.blocks: Expected `int | null`, got `str` - at `blocks[0].")


def test_null_counts_as_absent_and_members_that_nobody_reads_are_passed_on() -> None:
    for path in ((QOS, "beClass", "blkioQOS"), (QOS, "lsClass"), (SYSTEM,), (BURST, "policy"), ("hostApplications",)):
        document = changed(path, None)
        assert read(RIGHT, document) == (document, [])
    document = {**RIGHT, "extensions": 5, "newSection": "x", SYSTEM: {**RIGHT[SYSTEM], "newField": [{}]}}
    assert read(RIGHT, document) == (document, [])


def test_another_problem_is_reported_again_and_so_is_the_same_after_it_had_gone() -> None:
    first, second = changed((QOS, "beClass", "blkioQOS"), 3), changed((SYSTEM,), [])
    _, problems = read(RIGHT, first, first, second, RIGHT, first)
    assert [texts[0].partition(":")[0] for texts in problems] == [f"{QOS}.beClass.blkioQOS", SYSTEM, f"{QOS}.beClass.blkioQOS"]


def test_names_match_in_any_case() -> None:
    found, problems = read(RIGHT, changed((QOS, "beClass"), {"BLKIOQOS": 3}))
    assert found[QOS]["beClass"] == {"BLKIOQOS": PARTS["blkioQOS"]}
    assert problems == [(f"{QOS}.beClass.blkioQOS: expected an object, got int: the last valid value stays",)]


@pytest.mark.parametrize("spec", [5, [], "x", None])
def test_a_document_that_is_no_object_leaves_the_last_one(spec: Any) -> None:
    found, problems = read(RIGHT, spec)
    assert found == RIGHT
    assert problems == [(f"spec: expected an object, got {type(spec).__name__}: the last valid value stays",)]
    assert read(spec)[0] == {}


@pytest.mark.parametrize("depth", [500, 900, 5000])
@pytest.mark.parametrize("name", ["extensions", QOS, BURST, "newSection"])
def test_a_document_that_is_nested_deeply_raises_nothing(name: str, depth: int) -> None:
    deep = f'{{"{name}": {{"policy": '.encode() + b'{"a":' * depth + b"1" + b"}" * (depth + 2)
    problems: list[Problems] = []
    found = NodeSLOReader(STRATEGIES).in_force(slo(spec=msgspec.Raw(deep)), None, problems)
    assert bytes(found.spec)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["enable", "blkioQOS", "policy", "x"]), inner),
    max_leaves=5,
)


@given(st.sampled_from(list(objects(RIGHT))), VALUES)
def test_whatever_a_part_is_what_is_in_force_can_be_read(path: tuple[str, ...], value: Any) -> None:
    found, _ = read(RIGHT, changed(path, value))
    again, problems = read(found)
    assert (again, problems) == (found, [])


def test_a_mistyped_dry_run_does_not_end_one() -> None:
    reader, problems = NodeSLOReader(STRATEGIES), list[Problems]()
    first = reader.in_force(rendered({QOS: {"dryRun": True}}), None, problems)
    second = reader.in_force(rendered({QOS: {"dryRun": "yes"}}), first, problems)
    assert is_dry_run(second, QOS)


def test_host_applications_that_cannot_be_read_stay_measured() -> None:
    reader, problems = NodeSLOReader(STRATEGIES), list[Problems]()
    first = reader.in_force(rendered(RIGHT), None, problems)
    second = reader.in_force(rendered(changed(("hostApplications",), [{"qos": 7}])), first, problems)
    assert wanted_by(second).host_applications == wanted_by(first).host_applications != ()


def test_the_executor_publishes_it_as_a_refusal_and_what_was_folded_first_stays() -> None:
    bench = Bench().load()
    bench.place(batch("job"))
    bench.slo(spec=rendered(RIGHT).spec)
    event = bench.slo(spec=rendered(changed((QOS, "beClass", "resctrlQOS"), "half")).spec)
    assert bench.core.slo is not None
    assert json.loads(bytes(bench.core.slo.spec)) == RIGHT
    executions = Executions(NODE)
    plan = bench.look(1).core.plan(bench.now)
    published = executions.of_cycle(bench.core, plan, WriteReport(), (), bench.now)
    said = [each for each in published if isinstance(each.data, Execution) and each.data.topic == "refusals"]
    text = f"{QOS}.beClass.resctrlQOS: expected an object, got str: the last valid value stays"
    assert [each.data.summary for each in said if isinstance(each.data, Execution)] == [f"node SLO: {text}"]
    assert said[0].causes == (event.ref,)
    assert bench.core.findings == [], "no dead letter"
    assert bench.look(1).core.plan(bench.now).problems == (), "reported once"
