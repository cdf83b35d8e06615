"""One balance of a pool: what may leave, in which order, where to, and when it ends. A node has 100 of cpu and of memory, so
that amounts are percentages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant_descheduler_arbiter.config.policy import LowNodeLoad, NodePool
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import CycleResult, run_cycle
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode, measure

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GPU = "nvidia.com/gpu"
POOL = NodePool("pool", low_thresholds={"cpu": 30.0}, high_thresholds={"cpu": 60.0})
PROD_POOL = NodePool(
    "pool",
    low_thresholds={"cpu": 30.0},
    high_thresholds={"cpu": 60.0},
    prod_low_thresholds={"cpu": 20.0},
    prod_high_thresholds={"cpu": 40.0},
)


def machine(
    name: str,
    *used: int | None,
    prod: Sequence[int] = (),
    request: int = 0,
    allocatable: Mapping[str, int] | None = None,
    **facts: object,
) -> MeasuredNode:
    """A node whose pods use so much cpu each (None: no metric), `prod` pods after the others; they are named by the node
    and their place, so that of equal pods the last one goes first."""
    pods = [
        PodFacts(
            Pod(metadata=ObjectMeta(name=f"{name}-{number}", namespace="n")),
            node=name,
            amounts=(("cpu", request),),
            prod=number >= len(used),
        )
        for number in range(len(used) + len(prod))
    ]
    usage = {
        pod.key: {"cpu": amount, "memory": 0} for pod, amount in zip(pods, (*used, *prod), strict=True) if amount is not None
    }
    node = NodeFacts(name, allocatable={"cpu": 100, "memory": 100, "pods": 110, **(allocatable or {})}, pod_count=len(pods))
    return measure(msgspec.structs.replace(node, **facts), pods, {}, usage)


def cycle(
    *nodes: MeasuredNode,
    pool: NodePool = POOL,
    number_of_nodes: int = 0,
    node_fit: bool = True,
    movable: Callable[[PodFacts], str | None] = lambda pod: None,
    now: Callable[[PodFacts], str | None] = lambda pod: None,
) -> CycleResult:
    return run_cycle(
        LowNodeLoad(pools=(pool,), number_of_nodes=number_of_nodes, node_fit=node_fit),
        [node.facts for node in nodes],
        {node.facts.name: node for node in nodes},
        {},
        (),
        NOW,
        why_not_movable=movable,
        why_not_now=now,
    )


def moved(result: CycleResult) -> list[tuple[str, str]]:
    """Pod and target of every move, in order."""
    return [(move.facts.name, move.target) for move in result.moves]


def kept(result: CycleResult) -> dict[str, str]:
    return {each.facts.name: each.reason for each in result.kept}


NO_ROOM = "the nodes below their thresholds have no room left"

# -- the node pass -------------------------------------------------------------------------------------------------


def test_pods_leave_until_the_node_is_not_over_any_more() -> None:
    result = cycle(machine("hot", *[10] * 9), machine("cold"))
    assert moved(result) == [("hot-8", "cold"), ("hot-7", "cold"), ("hot-6", "cold")]
    assert result.kept == []
    assert result.classes == {"pool": {"hot": LoadClass.HIGH, "cold": LoadClass.BOTH_LOW}}


@pytest.mark.parametrize(
    ("used", "reason"),
    [(30, NO_ROOM), (29, "no node below its thresholds takes it (low: it would overload cpu: 69 > 60)")],
)
def test_what_the_low_nodes_have_room_for_is_counted_over_all_hot_nodes(used: int, reason: str) -> None:
    hot = [machine(name, *[10] * 9) for name in ("hot-a", "hot-b")]
    result = cycle(*hot, machine("low", used))
    assert [name for name, _ in moved(result)] == ["hot-a-8", "hot-a-7", "hot-a-6"]
    assert kept(result)["hot-b-8"] == reason
    assert (len(result.kept) == 1) is (reason == NO_ROOM), "where there is no room no other pod is tried"


def test_room_is_what_lies_between_usage_and_the_high_amount_also_where_prod_is_compared() -> None:
    """The low node's 30 of cpu include 25 of prod pods, which makes it low for all pods only."""
    hot = [machine(name, *[10] * 9) for name in ("hot-a", "hot-b")]
    low = machine("low", 5, prod=[25])
    result = cycle(*hot, low, pool=PROD_POOL)
    assert result.classes["pool"]["low"] is LoadClass.LOW
    assert len(result.moves) == 3
    assert kept(result) == {"hot-b-8": NO_ROOM}


def test_the_pod_that_just_covers_the_excess_leaves_first() -> None:
    assert moved(cycle(machine("hot", 40, 35, 20), machine("cold"))) == [("hot-1", "cold")]


def test_the_hottest_node_is_relieved_first() -> None:
    nodes = [machine("warm", *[10] * 7), machine("hot", *[10] * 9), machine("cold")]
    assert [name for name, _ in moved(cycle(*nodes))] == ["hot-8", "hot-7", "hot-6", "warm-6"]


def test_figures_of_a_move_are_those_before_and_after_it() -> None:
    result = cycle(machine("hot", *[10] * 7), machine("cold", 5))
    (move,) = result.moves
    assert (move.source, move.target, move.prod) == ("hot", "cold", False)
    assert move.pod_usage == {"cpu": 10, "memory": 0}
    assert move.source_before == {"cpu": 70, "memory": 0}
    assert move.source_after == {"cpu": 60, "memory": 0}
    assert move.target_before == {"cpu": 5, "memory": 0}
    assert move.target_after == {"cpu": 15, "memory": 0}
    assert move.source_high == move.target_high == {"cpu": 60, "memory": 100}
    assert move.reason == "node is overutilized, node cpu usage(70.00%)>threshold(60.00%)"


def test_memory_that_a_pod_does_not_name_stays_where_it_is() -> None:
    cold = machine("cold", 5)
    cold = msgspec.structs.replace(cold, usage={**cold.usage, "memory": 7})
    hot = machine("hot", *[10] * 7)
    hot = msgspec.structs.replace(
        hot,
        usage={**hot.usage, "memory": 9},
        pods=tuple(msgspec.structs.replace(pod, usage={"cpu": 10}) for pod in hot.pods),
    )
    (move,) = cycle(hot, cold).moves
    assert (move.source_after["memory"], move.target_after["memory"]) == (9, 7)


def test_pod_slots_are_compared_where_a_threshold_names_them() -> None:
    pool = NodePool("pool", low_thresholds={"pods": 30.0}, high_thresholds={"pods": 60.0})
    slots = {"pods": 10}
    result = cycle(machine("hot", *[0] * 8, allocatable=slots), machine("cold", allocatable=slots), pool=pool)
    assert [(move.source_after["pods"], move.target_after["pods"]) for move in result.moves] == [(7, 1), (6, 2)]


def test_a_source_never_becomes_a_low_node() -> None:
    result = cycle(machine("hot", 61), machine("cold"))
    assert kept(result) == {"hot-0": "the node would fall below its low thresholds without it"}
    assert result.moves == []


def test_a_target_may_be_filled_up_to_its_high_amount() -> None:
    assert moved(cycle(machine("hot", *[30] * 3), machine("cold", 30))) == [("hot-2", "cold")]


def test_pods_without_a_metric_and_pods_that_may_not_move_stay_with_their_reason() -> None:
    reasons = {"hot-0": "pinned", "hot-1": "pinned"}
    result = cycle(machine("hot", 10, None, None, *[10] * 6), machine("cold"), movable=lambda pod: reasons.get(pod.name))
    assert kept(result) == {"hot-0": "pinned", "hot-1": "pinned", "hot-2": "it has no metric yet"}
    assert moved(result) == [("hot-8", "cold")]


def test_a_pod_that_may_not_be_evicted_now_stays_and_the_next_one_is_tried() -> None:
    result = cycle(machine("hot", *[10] * 7), machine("cold"), now=lambda pod: "too many" if pod.name == "hot-6" else None)
    assert kept(result) == {"hot-6": "too many"}
    assert moved(result) == [("hot-5", "cold")]


# -- where pods fit ------------------------------------------------------------------------------------------------


def test_what_moved_pods_request_is_taken_from_the_room_of_the_target() -> None:
    hot = machine("hot", *[10] * 9, request=30)
    result = cycle(hot, machine("cold", requested={"cpu": 40}))
    assert len(result.moves) == 2, "40 + 30 + 30 fill the node"
    assert kept(result)["hot-6"] == "no node below its thresholds takes it (cold: requests 30 of cpu, 0 free)"
    assert len(cycle(hot, machine("cold", requested={"cpu": 40}), node_fit=False).moves) == 3


def test_moved_pods_take_slots_of_the_target() -> None:
    hot = machine("hot", *[10] * 9)
    result = cycle(hot, machine("cold", 1, allocatable={"pods": 3}))
    assert len(result.moves) == 2
    assert kept(result)["hot-6"] == "no node below its thresholds takes it (cold: all 3 pod slots are taken)"
    assert len(cycle(hot, machine("cold", 1, allocatable={"pods": 2})).moves) == 1


def test_a_resource_that_a_target_does_not_have_does_not_keep_pods_away_that_do_not_use_it() -> None:
    """One low node has 10 GPUs, of which it may use 1; the other has none. Neither has any in use."""
    pool = NodePool("pool", low_thresholds={"cpu": 30.0, GPU: 10.0}, high_thresholds={"cpu": 60.0, GPU: 10.0})
    nodes = [machine("hot", *[10] * 8), machine("plain"), machine("with-gpu", allocatable={GPU: 10})]
    result = cycle(*nodes, pool=pool)
    assert moved(result) == [("hot-7", "plain"), ("hot-6", "plain")]
    assert result.moves[0].target_before == {"cpu": 0, "memory": 0, GPU: 0}
    assert kept(cycle(*nodes[:2], pool=pool)) == {"hot-7": NO_ROOM}, "no node has any of it"


# -- the prod pass -------------------------------------------------------------------------------------------------


def test_prod_pods_leave_a_node_whose_prod_usage_is_high_for_one_whose_prod_usage_is_low() -> None:
    source, target = machine("src", 1, 1, prod=[10] * 5), machine("dst", 45)
    result = cycle(source, target, pool=PROD_POOL)
    assert result.classes["pool"] == {"src": LoadClass.PROD_HIGH, "dst": LoadClass.PROD_LOW}
    assert moved(result) == [("src-6", "dst")]
    (move,) = result.moves
    assert move.prod
    assert (move.source_before["cpu"], move.source_after["cpu"]) == (50, 40)
    assert (move.target_before["cpu"], move.target_after["cpu"]) == (0, 10)
    assert move.reason == "node is overutilized, prod cpu usage(50.00%)>threshold(40.00%)"
    assert result.kept == [], "other pods are not looked at"


def test_a_prod_pod_must_fit_both_bands_of_its_target() -> None:
    source = machine("src", prod=[20, 20, 20])
    beyond_all = cycle(source, machine("dst", 50), pool=PROD_POOL)
    assert kept(beyond_all)["src-2"].endswith("(dst: it would overload cpu: 70 > 60)")
    wide = msgspec.structs.replace(PROD_POOL, high_thresholds={"cpu": 95.0}, prod_low_thresholds={"cpu": 30.0})
    beyond_prod = cycle(machine("src", prod=[20, 20, 20]), machine("dst", 10, prod=[25]), pool=wide)
    assert kept(beyond_prod)["src-2"].endswith("(dst: it would overload prod cpu: 45 > 40)")


def test_room_for_prod_pods_is_counted_by_the_prod_band() -> None:
    """The target takes 20 more in all, and 40 more of prod pods: the second source is tried, and refused by the node band."""
    pool = msgspec.structs.replace(PROD_POOL, low_thresholds={"cpu": 10.0}, high_thresholds={"cpu": 95.0})
    result = cycle(machine("a", prod=[20] * 3), machine("b", prod=[20] * 3), machine("dst", 75), pool=pool)
    assert moved(result) == [("a-2", "dst")]
    assert kept(result)["b-2"].endswith("(dst: it would overload cpu: 115 > 95)")


def test_room_for_prod_pods_on_a_node_that_is_low_in_both_is_the_smaller_one() -> None:
    sources = [machine(name, prod=[20] * 3) for name in "abc"]
    by_prod = cycle(*sources, machine("dst", 5), pool=msgspec.structs.replace(PROD_POOL, high_thresholds={"cpu": 95.0}))
    assert moved(by_prod) == [("a-2", "dst"), ("b-2", "dst")]
    assert kept(by_prod) == {"c-2": NO_ROOM}
    wide = msgspec.structs.replace(PROD_POOL, low_thresholds={"cpu": 50.0})
    by_node = cycle(machine("src", prod=[10] * 6), machine("dst", 50), pool=wide)
    assert moved(by_node) == [("src-5", "dst")]
    assert kept(by_node) == {"src-4": NO_ROOM}


def test_a_node_that_is_high_in_all_is_relieved_in_the_node_pass_only() -> None:
    result = cycle(machine("hot", 20, prod=[10] * 5), machine("cold"), pool=PROD_POOL)
    assert [move.prod for move in result.moves] == [False]
    assert moved(result) == [("hot-5", "cold")]
