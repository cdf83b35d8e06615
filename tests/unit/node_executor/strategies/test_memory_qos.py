"""Memory QoS: what is protected, what is slowed down, and what becomes of it when nothing asks for it any more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.memory.oom_scores import decide as decide_scores
from cotenant_node_executor.strategies.memory.qos import Applied, decide, high_bytes, pod_memory, share_of
from cotenant_node_executor.strategies.memory.qos_config import (
    CLASS_DEFAULTS,
    NEUTRAL,
    MemoryQOS,
    MemoryRule,
    effective,
    memory_rule,
)
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.strategies.sections import fitted, lowered_object
from cotenant_node_executor.strategies.strategy import StrategyDecision
from cotenant_node_executor.targets.address import Knob, OomScore
from tests.builders import encoded
from tests.unit.node_executor.builders_node_executor import GIB, NODE, capabilities, pod, situation

MEMORY = (Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_HIGH, Knob.MEMORY_OOM_GROUP)
KERNEL = capabilities(also=MEMORY)
ANNOTATION = "koordinator.sh/memoryQOS"

percents = st.one_of(st.none(), st.integers(0, 100))


def slo(qos: dict[str, Any] | None = None) -> NodeSLORendered:
    spec = {"resourceQOSStrategy": qos} if qos is not None else {}
    return NodeSLORendered(node=NODE, spec=encoded(spec))


def texts(decision: StrategyDecision, group: str) -> dict[Knob, str]:
    return {each.attribute: each.value for each in decision.values.get(group, ())}  # type: ignore[misc]


@given(st.builds(MemoryQOS, min_limit_percent=percents, low_limit_percent=percents, throttling_percent=percents))
def test_low_and_high_are_never_below_min_and_high_never_above_what_bounds_it(config: MemoryQOS) -> None:
    entry = pod("a", "LS", requests={"memory": "1Gi"}, limits={"memory": "2Gi"})
    rule = MemoryRule(config, config, config, config, True)
    for values in (pod_memory(pod_view(entry).shape, rule, 16 * GIB).containers[0],):
        least = values.get(Knob.MEMORY_MIN, 0)
        for knob in (Knob.MEMORY_LOW, Knob.MEMORY_HIGH):
            assert values.get(knob, 0) in (0, -1) or values[knob] >= least
        assert values.get(Knob.MEMORY_HIGH, 0) <= 2 * GIB


@given(st.integers(0, 100), st.integers(0, 8 * GIB), st.integers(0, 8 * GIB))
def test_high_lies_between_request_and_limit_by_whole_pages(percent: int, request: int, more: int) -> None:
    limit = request + more
    high = high_bytes(MemoryQOS(throttling_percent=percent), request, limit, 16 * GIB)
    assert high is not None
    if percent == 0:
        assert high == -1
    elif limit:
        assert high % 4096 == 0
        assert request - 4096 < high <= limit


def test_a_container_without_a_limit_is_slowed_down_by_the_nodes_memory() -> None:
    assert high_bytes(MemoryQOS(throttling_percent=50), 2 * GIB, 0, 16 * GIB) == 9 * GIB


@pytest.mark.parametrize("text", ["{", "[]", '{"policy": 3, "wmarkRatio": "x"}', "null"])
def test_an_unreadable_annotation_counts_as_absent(text: str) -> None:
    config = fitted(CLASS_DEFAULTS["LS"], MemoryQOS, "test")
    assert effective(config, "LS", text) == config


def test_the_policy_none_ignores_the_annotations_other_fields() -> None:
    config = fitted(CLASS_DEFAULTS["LS"], MemoryQOS, "test")
    assert effective(config, "LS", '{"policy": "none", "minLimitPercent": 50}') == fitted(NEUTRAL, MemoryQOS, "test")


def test_a_disabled_class_is_neutral_and_names_may_have_any_case() -> None:
    rule = memory_rule(lowered_object('{"LSClass": {"memoryqos": {"enable": false, "MinLimitPercent": 40}}}'))
    assert (rule.ls.min_limit_percent, rule.ls.wmark_ratio, rule.stated) == (0, 0, True)
    on = memory_rule(lowered_object('{"lsClass": {"memoryQOS": {"enable": true, "MinLimitPercent": 40}}}'))
    assert (on.ls.min_limit_percent, on.ls.wmark_ratio) == (40, 95)


@pytest.mark.parametrize("percent", [-1, 101, 10**18])
@pytest.mark.parametrize("name", ["minLimitPercent", "lowLimitPercent", "throttlingPercent", "wmarkRatio"])
def test_a_percentage_out_of_range_is_reported_by_the_name_of_its_field(name: str, percent: int) -> None:
    rule = memory_rule(lowered_object(json.dumps({"beClass": {"memoryQOS": {"enable": True, name: percent}}})))
    assert rule.problems == (
        f"resourceQOSStrategy.beClass.memoryQOS.{name} is {percent}: must be between 0 and 100; the last valid value stays",
    )
    for edge in (0, 100):
        assert not memory_rule(lowered_object(json.dumps({"beClass": {"memoryQOS": {"enable": True, name: edge}}}))).problems


def test_a_percentage_out_of_range_keeps_its_last_value_and_every_other_field_counts() -> None:
    def decided(qos: dict[str, Any], memory: Struct | None) -> StrategyDecision:
        classes = {"lsClass": {"enable": True, **qos}, "beClass": {"enable": True, "oomKillGroup": 1}}
        whole = slo({name: {"memoryQOS": part} for name, part in classes.items()})
        return decide(situation([pod("a", "LS", requests={"memory": "1Gi"})], node_slo=whole, kernel=KERNEL), memory)

    wrong = {"minLimitPercent": 400, "lowLimitPercent": 50}
    first = decided(wrong, None)
    values = texts(first, "burstable/poduid-a")
    assert Knob.MEMORY_MIN not in values, "no valid value is known"
    assert values[Knob.MEMORY_LOW] == str(GIB // 2)
    assert texts(first, "besteffort")[Knob.MEMORY_OOM_GROUP] == "1"
    assert len(first.problems) == 1
    valid = decided({"minLimitPercent": 25}, first.memory)
    assert not valid.problems
    later = valid.memory
    for _ in range(2):
        kept = decided(wrong, later)
        later = kept.memory
        values = texts(kept, "burstable/poduid-a")
        assert (values[Knob.MEMORY_MIN], values[Knob.MEMORY_LOW]) == (str(GIB // 4), str(GIB // 2))
        assert kept.problems == first.problems


def test_a_class_protects_its_pods_and_the_directories_above_have_the_sums() -> None:
    strategy = {"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}}
    pods = [pod(name, "LS", requests={"memory": "1Gi"}) for name in ("a", "b")]
    decision = decide(situation(pods, node_slo=slo(strategy), kernel=KERNEL), Applied())
    assert texts(decision, "burstable/poduid-a")[Knob.MEMORY_MIN] == str(GIB // 2)
    assert texts(decision, "burstable")[Knob.MEMORY_MIN] == texts(decision, "")[Knob.MEMORY_MIN] == str(GIB)
    assert Knob.MEMORY_MIN not in texts(decision, "besteffort")
    assert Knob.MEMORY_WMARK_RATIO not in texts(decision, "burstable/poduid-a"), "this kernel has no such file"


def test_what_was_set_becomes_neutral_once_and_nothing_is_written_where_nothing_is_asked() -> None:
    there = situation([pod("a", "LS", requests={"memory": "1Gi"})], node_slo=slo(), kernel=KERNEL)
    for left_over in (None, Applied(True)):
        decision = decide(there, left_over)
        assert texts(decision, "burstable/poduid-a/main")[Knob.MEMORY_HIGH] == "-1"
        assert texts(decision, "burstable/poduid-a")[Knob.MEMORY_MIN] == "0"
        assert decide(there, decision.memory).values == {}


def test_a_kernel_without_these_files_gets_nothing() -> None:
    asked = slo({"lsClass": {"memoryQOS": {"enable": True, "minLimitPercent": 50}}})
    assert decide(situation([pod("a", "LS")], node_slo=asked), None).values == {}


def scored(**annotations: str) -> StrategyDecision:
    named = {f"koordinator.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return decide_scores(situation([pod("a", "LS", annotations=named)]), None)


def test_annotations_give_oom_scores_by_container_or_for_all() -> None:
    place = OomScore("besteffort/poduid-a/main")
    assert [each.value for each in scored(oom_score_adj="-500").values[place]] == ["-500"]
    spec = json.dumps({"main": 200})
    assert [each.value for each in scored(oom_score_adj="-500", oom_score_adj_spec=spec).values[place]] == ["200"]


@pytest.mark.parametrize("text", ["1001", "-1001", "many", "", "１"])
def test_an_oom_score_out_of_range_counts_as_absent(text: str) -> None:
    assert scored(oom_score_adj=text).values == {}


def of_pod(config: MemoryQOS, **amounts: Any) -> tuple[dict[Knob, int], dict[Knob, int]]:
    """The values of an LS pod and of its container, by this class configuration."""
    rule = MemoryRule(MemoryQOS(), config, MemoryQOS(), MemoryQOS(), True)
    found = pod_memory(pod_view(pod("a", "LS", **amounts)).shape, rule, 16 * GIB)
    return dict(found.pod), dict(found.containers[0])


def test_shares_are_of_the_request_and_high_lies_between_it_and_the_limit() -> None:
    config = MemoryQOS(min_limit_percent=30, low_limit_percent=50, throttling_percent=80)
    own, main = of_pod(config, requests={"memory": "1000"}, limits={"memory": str(1000 + 100 * 4096)})
    assert own == {Knob.MEMORY_MIN: 300, Knob.MEMORY_LOW: 500}
    assert main == {**own, Knob.MEMORY_HIGH: 80 * 4096}
    assert high_bytes(config, 4095, 4096 + 4095, GIB) == 4096
    assert high_bytes(config, 0, -1, GIB) == GIB * 80 // 100 // 4096 * 4096
    assert high_bytes(config, 0, 1, GIB) == 0
    assert high_bytes(MemoryQOS(), 1, 1, GIB) is None


def test_a_share_is_truncated_towards_zero() -> None:
    assert [share_of(amount, 50) for amount in (3, 0, -1, -3, 1)] == [1, 0, 0, -1, 0]
    assert share_of(100, 1) == 1
    assert share_of(99, 1) == 0


def test_a_low_below_min_becomes_min_and_one_of_0_stays() -> None:
    own, _ = of_pod(MemoryQOS(min_limit_percent=60, low_limit_percent=20), requests={"memory": "1000"})
    assert own == {Knob.MEMORY_MIN: 600, Knob.MEMORY_LOW: 600}
    own, _ = of_pod(MemoryQOS(min_limit_percent=60, low_limit_percent=0), requests={"memory": "1000"})
    assert own == {Knob.MEMORY_MIN: 600, Knob.MEMORY_LOW: 0}
    own, _ = of_pod(MemoryQOS(low_limit_percent=20, priority=3, wmark_ratio=0), requests={"memory": "1000"})
    assert own == {Knob.MEMORY_LOW: 200, Knob.MEMORY_PRIORITY: 3, Knob.MEMORY_WMARK_RATIO: 0}


def test_batch_pods_are_protected_by_their_batch_memory() -> None:
    config = MemoryQOS(min_limit_percent=50, throttling_percent=100)
    rule = MemoryRule(MemoryQOS(), MemoryQOS(), config, MemoryQOS(), True)
    amounts = {"kubernetes.io/batch-memory": "1Gi"}
    limits = {"kubernetes.io/batch-memory": "2Gi"}
    entry = pod("a", "BE", requests=amounts, limits=limits)
    found = pod_memory(pod_view(entry).shape, rule, 16 * GIB)
    assert (found.min_bytes, found.low_bytes) == (GIB // 2, None)
    assert dict(found.containers[0]) == {Knob.MEMORY_MIN: GIB // 2, Knob.MEMORY_HIGH: 2 * GIB}
    plain = pod_memory(pod_view(pod("a", "BE", requests={"memory": "1Gi"})).shape, rule, 16 * GIB)
    assert (plain.min_bytes, dict(plain.containers[0])) == (0, {Knob.MEMORY_MIN: 0, Knob.MEMORY_HIGH: 16 * GIB})


def test_each_class_directory_has_the_sums_of_its_pods_and_the_root_of_all() -> None:
    strategy = {
        f"{name}Class": {"memoryQOS": {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 100, "oomKillGroup": group}}
        for name, group in (("lsr", 1), ("ls", 2), ("be", 3))
    }
    batch = {"kubernetes.io/batch-memory": "4Gi"}
    guaranteed = {"cpu": "1", "memory": "2Gi"}
    pods = [
        pod("a", "LS", requests={"memory": "1Gi"}),
        pod("b", "BE", requests=batch, limits=batch),
        pod("c", "LSR", requests=guaranteed, limits=guaranteed),
    ]
    decision = decide(situation(pods, node_slo=slo(strategy), kernel=KERNEL), Applied())
    knobs = (Knob.MEMORY_MIN, Knob.MEMORY_LOW, Knob.MEMORY_OOM_GROUP)
    assert {group: tuple(texts(decision, group)[knob] for knob in knobs) for group in ("", "burstable", "besteffort")} == {
        "": (str(7 * GIB // 2), str(7 * GIB), "1"),
        "burstable": (str(GIB // 2), str(GIB), "2"),
        "besteffort": (str(2 * GIB), str(4 * GIB), "3"),
    }


def test_nothing_is_neutral_again_where_nothing_was_set() -> None:
    there = situation([pod("a", "LS")], node_slo=slo(), kernel=KERNEL)
    assert decide(there, Applied(False)).values == {}
    annotated = pod("a", "BE", annotations={ANNOTATION: '{"policy":"auto"}'})
    decision = decide(situation([annotated], node_slo=slo(), kernel=KERNEL), Applied(False))
    assert isinstance(decision.memory, Applied)
    assert decision.memory.active
    assert texts(decision, "besteffort/poduid-a/main")[Knob.MEMORY_HIGH] == "-1"


def test_the_policy_says_what_an_annotations_fields_are_laid_over() -> None:
    config = MemoryQOS(enable=True, min_limit_percent=40, wmark_ratio=7)
    automatic = effective(config, "BE", '{"policy": "auto", "lowLimitPercent": 5}')
    assert automatic == fitted({**CLASS_DEFAULTS["BE"], "enable": True, "lowlimitpercent": 5}, MemoryQOS, "test")
    for policy in ("default", ""):
        overlaid = effective(config, "BE", json.dumps({"policy": policy, "lowLimitPercent": 5, "wmarkRatio": None}))
        assert overlaid == MemoryQOS(enable=True, min_limit_percent=40, wmark_ratio=7, low_limit_percent=5)


def test_pods_without_an_annotation_do_not_hide_those_with_one() -> None:
    named = {"koordinator.sh/oom-score-adj": "300"}
    pods = [pod("a", "LS"), pod("b", "LS", annotations={"x": "y"}), pod("c", "LS", annotations=named)]
    assert list(decide_scores(situation(pods), None).values) == [OomScore("besteffort/poduid-c/main")]


@pytest.mark.parametrize(
    ("name", "watermarks"), [("LSR", (95, 20, -25)), ("LS", (95, 20, -25)), ("BE", (95, 20, 50)), ("SYSTEM", (0, 50, 0))]
)
def test_the_built_in_configuration_is_neutral_but_for_the_watermarks(name: str, watermarks: tuple[int, int, int]) -> None:
    found = effective(MemoryQOS(), name, '{"policy": "auto"}')
    assert (found.wmark_ratio, found.wmark_scale_permill, found.wmark_min_adj) == watermarks
    others = (found.min_limit_percent, found.low_limit_percent, found.throttling_percent)
    assert (*others, found.priority_enable, found.priority, found.oom_kill_group) == (0,) * 6
