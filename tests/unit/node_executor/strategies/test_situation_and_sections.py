"""What all strategies read: sections of the NodeSLO in any spelling, the node's offer, the best-effort tree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.strategies.kubelet_node import OFF, on_kubelet_node
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.sections import (
    class_part,
    is_asked,
    is_dry_run,
    lower_name,
    lowered_object,
    object_of,
    raw_section,
    readable_section,
    section,
    states,
    without_nulls,
)
from cotenant_node_executor.strategies.situation import best_effort_tree, cpu_owners
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import NODE, pod, situation


def slo(**spec: Any) -> NodeSLORendered:
    return NodeSLORendered(node=NODE, spec=encoded(spec))


class Part(Struct, frozen=True, rename=lower_name):
    read_bps: int = 7
    inner: dict[str, int] | None = None


class Parts(Struct, frozen=True, rename=lower_name):
    parts: list[Part]


# -- sections ---------------------------------------------------------------------------------------------------------


def test_names_are_read_in_lower_case_on_every_level_and_the_last_of_two_counts() -> None:
    text = '{"A": {"Bc": [{"De": 1}, 2]}, "x": 1, "X": 2}'
    assert lowered_object(text) == {"a": {"bc": [{"de": 1}, 2]}, "x": 2}
    assert without_nulls({"a": None, "b": {"c": None, "d": [{"e": None}, None]}}) == {"b": {"d": [{}, None]}}
    for wrong in ("[]", "7", "{", "[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            lowered_object(wrong)


def test_a_member_that_is_no_object_is_refused_and_a_missing_one_is_empty() -> None:
    assert object_of({"part": {"a": 1}, "none": None}, "Part") == {"a": 1}
    assert object_of({"part": {"a": 1}, "none": None}, "None") == object_of({}, "other") == {}
    with pytest.raises(ValueError, match="Part: expected an object, got int"):
        object_of({"part": 7}, "Part")


def test_a_section_fills_its_struct_and_none_is_the_defaults() -> None:
    found = slo(PartOne={"ReadBPS": 3, "unknown": 1}, other={})
    assert section(found, "partOne", Part) == Part(3)
    assert section(found, "absent", Part) == section(None, "partOne", Part) == Part(7)
    assert (raw_section(found, ""), raw_section(None, "")) == ({"partone": {"readbps": 3, "unknown": 1}, "other": {}}, {})
    for wrong in ({"readBps": "x"}, {"readBps": [1]}, {"inner": [1]}, {"inner": {"a": "x"}}):
        with pytest.raises(ValueError, match=r"^partOne: "):
            section(slo(partOne=wrong), "partOne", Part)
    assert section(slo(partOne={"parts": [{"ReadBps": 1}], "inner": {"A": 2}}), "partOne", Parts) == Parts([Part(1)])
    with pytest.raises(ValueError, match=r"^partOne: "):
        section(slo(partOne={"parts": "text"}), "partOne", Parts)


def test_a_readable_section_is_none_where_it_is_missing_or_wrong() -> None:
    of_part, of_all = readable_section("partOne", Part), readable_section("", Part)
    assert of_part(slo(partOne={"readBps": 3})) == Part(3)
    assert of_part(slo(partOne={"readBps": None})) == Part(7)
    assert [of_part(slo(**spec)) for spec in ({}, {"partOne": None}, {"partOne": 7}, {"partOne": {"readBps": "x"}})] == [
        None
    ] * 4
    assert (of_all(slo(readBps=3)), of_all(slo())) == (Part(3), Part(7))


def test_a_question_about_a_node_slo_is_no_where_there_is_none_or_it_is_wrong() -> None:
    def wrong(_: NodeSLORendered) -> bool:
        raise ValueError

    assert [is_asked(each, lambda _: True) for each in (slo(), None)] == [True, False]
    assert not is_asked(slo(), lambda _: False)
    assert not is_asked(slo(), wrong)


def test_a_disabled_class_is_neutral_but_for_the_system_and_the_root() -> None:
    defaults, neutral = {"enable": True, "a": 1, "b": 2}, {"a": 0, "b": 0}
    for field, disabled in (("beclass", True), ("systemclass", False), ("cgrouproot", False)):
        strategy = lowered_object(msgspec.json.encode({field: {"cpuQOS": {"a": 5, "enable": False}}}))
        expected = {"enable": False, "a": 0, "b": 0} if disabled else {"enable": False, "a": 5, "b": 2}
        assert class_part(strategy, field, "cpuQOS", defaults, neutral) == expected
    enabled = lowered_object('{"beClass": {"cpuQOS": {"a": 5}}}')
    assert class_part(enabled, "beclass", "cpuQOS", defaults, neutral) == {"enable": True, "a": 5, "b": 2}
    assert class_part({}, "beclass", "cpuQOS", defaults, neutral) == defaults


@pytest.mark.parametrize("field", ["lsrclass", "lsclass", "beclass", "systemclass", "cgrouproot"])
def test_a_strategy_states_a_part_in_any_of_its_classes(field: str) -> None:
    strategy = lowered_object(msgspec.json.encode({field: {"cpuQOS": {}}}))
    assert states(strategy, "cpuQOS")
    assert not states(strategy, "memoryQOS")
    assert not states({}, "cpuQOS")


def test_a_section_is_a_dry_run_where_it_says_true() -> None:
    found = slo(PartOne={"DryRun": True}, partTwo={"dryRun": "true"}, partThree={"dryRun": False}, partFour=7)
    names = ("partOne", "partTwo", "partThree", "partFour", "absent", "")
    assert [is_dry_run(found, name) for name in names] == [True, False, False, False, False, False]
    assert not is_dry_run(None, "partOne")
    assert not is_dry_run(replace(found, spec=msgspec.Raw(b"[]")), "partOne")


# -- the situation ----------------------------------------------------------------------------------------------------


def test_a_node_offers_nothing_while_its_resources_are_unknown_or_withdrawn() -> None:
    known = NodeResources(node=NODE, batch_cpu_milli=1000, batch_memory_bytes=5, mid_cpu_milli=7)
    there = situation()
    assert there.offered == replace(there, resources=replace(known, withdrawn=True)).offered == {}
    assert replace(there, resources=known).offered == {
        "kubernetes.io/batch-cpu": 1000,
        "kubernetes.io/batch-memory": 5,
        "kubernetes.io/mid-cpu": 7,
        "kubernetes.io/mid-memory": 0,
    }


def test_the_best_effort_tree_leaves_out_pods_with_exclusive_cpus_only() -> None:
    def held(name: str, qos: str) -> Any:
        status = {"scheduling.koordinator.sh/resource-status": '{"cpuset": "3"}'}
        return pod_view(pod(name, qos, annotations=status))

    exclusive, shared = held("a", "LSR"), held("b", "BE")
    assert exclusive.group.startswith("besteffort/")
    groups = ["besteffort", "besteffort/yarn", "besteffortless", "burstable/x"]
    groups += [*exclusive.groups, *shared.groups, f"{exclusive.group}1"]
    tree = best_effort_tree([exclusive, shared], groups)
    assert tree.groups == {"besteffort", "besteffort/yarn", *shared.groups, f"{exclusive.group}1"}
    assert tree.owners == {3: "BE"}
    assert best_effort_tree([], groups).groups == {group for group in groups if group.split("/")[0] == "besteffort"}
    assert cpu_owners([(QoSClass.LSE.value, frozenset({1, 2})), ("LSR", frozenset({2}))]) == {1: "LSE", 2: "LSR"}


def test_on_kubelets_node_all_strategies_are_on_but_those_that_its_layout_excludes() -> None:
    names = [each.name for each in STRATEGIES]
    assert set(OFF) < set(names)
    assert [each.name for each in on_kubelet_node(STRATEGIES)] == [name for name in names if name not in OFF]
