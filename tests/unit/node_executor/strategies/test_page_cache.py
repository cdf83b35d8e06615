"""Page-cache limits: whose, how much, and what is reclaimed where the kernel keeps none."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.sampling.snapshot import PodSample, PressureSet, UsageSnapshot
from cotenant_node_executor.strategies.memory.page_cache import KNOBS, STRATEGY, PageCacheLimit, decide, limit_of
from cotenant_node_executor.strategies.strategy import Input, NodePolicy, Reclaim, StrategyDecision
from cotenant_node_executor.targets.interface import RECLAIM, Knob, KnobSupport, NodeCapabilities
from cotenant_node_executor.targets.psi import PressureLine, PsiStats
from tests.builders import container, encoded
from tests.unit.node_executor.builders_node_executor import GIB, NODE, batch, capabilities, pod, situation, snapshot, usage

MIB = 1024**2
ANNOTATION = "koordinator.sh/memoryQOS"
ANOLIS = capabilities(also=KNOBS)
MAINLINE = replace(capabilities(), knobs={**capabilities().knobs, RECLAIM: KnobSupport(True)})
LIMITED = {"pageCacheLimitEnable": 1, "pageCacheLimitSize": 100 * MIB}
LIMIT = PageCacheLimit(page_cache_limit_enable=1, page_cache_limit_size=100 * MIB)


def slo(size: object = 100 * MIB, **fields: Any) -> NodeSLORendered:
    limit = {"enable": True, "pageCacheLimitEnable": 1, "pageCacheLimitSize": size, **fields}
    spec = {"resourceQOSStrategy": {"beClass": {"memoryQOS": limit}}}
    return NodeSLORendered(node=NODE, spec=encoded(spec))


def reading(stalled: float = 0.0, **cache: int) -> UsageSnapshot:
    """Batch pods by name with so much page cache."""
    pressure = PressureSet(memory=PsiStats(PressureLine(avg10=stalled), PressureLine(), True))
    pods = {
        f"uid-{name}": PodSample(
            f"uid-{name}",
            "besteffort",
            replace(
                usage(f"besteffort/poduid-{name}", 0), memory_with_page_cache_bytes=GIB + own, pressure=pressure
            ),
        )
        for name, own in cache.items()
    }
    return replace(snapshot(0), pods=pods)


def decided(
    kernel: NodeCapabilities, pods: list[Pod], node_slo: NodeSLORendered, sample: UsageSnapshot | None = None
) -> StrategyDecision:
    return decide(situation(pods, node_slo=node_slo, kernel=kernel, reading=sample), None)


def texts(decision: StrategyDecision, group: str) -> list[tuple[object, str]]:
    return [(each.attribute, each.value) for each in decision.values.get(group, ())]


def test_the_size_is_written_before_the_limit_is_on_and_is_at_most_the_memory_limit() -> None:
    decision = decided(ANOLIS, [batch("a")], slo(4 * GIB, pageCacheLimitSync=0))
    written = [(KNOBS[0], str(GIB)), (KNOBS[1], "0"), (KNOBS[2], "1")]
    assert texts(decision, "besteffort/poduid-a") == texts(decision, "besteffort/poduid-a/main") == written
    assert not decision.orders


@pytest.mark.parametrize(
    "fields",
    [
        {"enable": False},
        {"pageCacheLimitEnable": 0},
        {"pageCacheLimitEnable": None},
        {"pageCacheLimitSize": 0},
        {"pageCacheLimitSize": -1},
    ],
)
def test_without_a_limit_nothing_is_written_and_nothing_reclaimed(fields: dict[str, Any]) -> None:
    first = decided(ANOLIS, [batch("a")], slo(**fields))
    assert {value for _, value in texts(first, "besteffort/poduid-a/main")} == {"0"}, "what an earlier executor left goes"
    there = situation([batch("a")], node_slo=slo(**fields), kernel=ANOLIS)
    assert decide(there, first.memory).values == {}
    assert decided(MAINLINE, [batch("a")], slo(**fields), reading(a=GIB)).orders == ()


@pytest.mark.parametrize(
    ("annotation", "size"),
    [
        ('{"pageCacheLimitSize": 5}', 5),
        ('{"policy": "none", "pageCacheLimitSize": 5}', None),
        ('{"policy": "auto"}', None),
        ('{"policy": "auto", "pageCacheLimitEnable": 1, "pageCacheLimitSize": 7}', 7),
        ("{", 100 * MIB),
        ('{"pageCacheLimitSize": "x"}', 100 * MIB),
    ],
)
def test_a_pods_annotation_overlays_its_class(annotation: str, size: int | None) -> None:
    assert limit_of(LIMIT, annotation).page_cache_limit_size == size


def test_the_pod_that_is_furthest_above_its_limit_is_reclaimed_and_no_pod_without_one() -> None:
    other = pod("web", "LS", requests={"memory": "1Gi"})
    sample = reading(a=150 * MIB, b=300 * MIB)
    web = PodSample("uid-web", "burstable", usage("burstable/poduid-web", 0))
    sample = replace(sample, pods={**sample.pods, "uid-web": web})
    (order,) = decided(MAINLINE, [batch("a"), batch("b"), other], slo(), sample).orders
    assert isinstance(order, Reclaim)
    assert (order.group, order.memory_bytes) == ("besteffort/poduid-b", 200 * MIB)


@pytest.mark.parametrize("sample", [reading(a=110 * MIB), reading(a=GIB, stalled=5.0), reading(), None])
def test_a_pod_just_above_its_limit_or_stalled_or_unknown_is_left_alone(sample: UsageSnapshot | None) -> None:
    assert decided(MAINLINE, [batch("a")], slo(), sample).orders == ()


def test_a_kernel_that_can_do_neither_is_named() -> None:
    (problem,) = decided(capabilities(), [batch("a")], slo()).problems
    assert "neither limit nor reclaim" in problem


def test_samples_matter_only_to_a_kernel_without_the_files() -> None:
    assert STRATEGY.inputs(NodePolicy(ANOLIS, slo())) == {Input.PODS}
    assert Input.USAGE in STRATEGY.inputs(NodePolicy(MAINLINE, slo()))
    assert set(STRATEGY.sets) == {Knob.MEMORY_PAGECACHE_SIZE, Knob.MEMORY_PAGECACHE_SYNC, Knob.MEMORY_PAGECACHE_ENABLE}


def test_16_mib_above_the_limit_are_reclaimed_and_a_byte_less_is_left_and_counted() -> None:
    over = decided(MAINLINE, [batch("a")], slo(), reading(a=116 * MIB))
    (order,) = over.orders
    assert order == Reclaim(
        "besteffort/poduid-a", 16 * MIB, f"its page cache is {16 * MIB} bytes above its limit of {100 * MIB}"
    )
    assert STRATEGY.figures(over.memory) == {"limited.pods": 1, "over.memory-bytes": 16 * MIB}
    less = decided(MAINLINE, [batch("a"), batch("b")], slo(), reading(a=116 * MIB - 1, b=5))
    assert (less.orders, STRATEGY.figures(less.memory)) == ((), {"limited.pods": 2, "over.memory-bytes": 16 * MIB - 1})
    below = decided(MAINLINE, [batch("a")], slo(), reading(a=5))
    assert (below.orders, STRATEGY.figures(below.memory)) == ((), {"limited.pods": 1, "over.memory-bytes": 0})
    none = decided(MAINLINE, [batch("a")], slo(pageCacheLimitEnable=0), reading(a=GIB))
    assert STRATEGY.figures(none.memory) == {"limited.pods": 0, "over.memory-bytes": 0}
    assert STRATEGY.figures(None) == {}


def test_a_pod_that_waits_a_little_less_than_the_bound_is_reclaimed() -> None:
    assert decided(MAINLINE, [batch("a")], slo(), reading(a=GIB, stalled=4.99)).orders != ()
    unknown = reading(a=GIB)
    known = unknown.pods["uid-a"]
    unknown = replace(unknown, pods={"uid-a": replace(known, usage=replace(known.usage, pressure=PressureSet()))})
    assert decided(MAINLINE, [batch("a")], slo(), unknown).orders != ()


def sized(*limits: str | None) -> Pod:
    """A pod with a container for each of these memory limits."""
    stated = enumerate({"memory": limit} if limit else {} for limit in limits)
    containers = [container(f"c{place}", requests={"cpu": "1"}, limits=limit) for place, limit in stated]
    return pod("a", "LS", containers=containers)


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        (("40Mi", "30Mi"), (70, 40, 30)),
        (("40Mi", "90Mi"), (100, 40, 90)),
        (("40Mi", None), (100, 40, 100)),
        ((None, None), (100, 100, 100)),
    ],
)
def test_a_size_is_at_most_the_groups_limit_and_a_pod_with_an_unlimited_container_has_none(
    limits: tuple[str | None, ...], sizes: tuple[int, ...]
) -> None:
    spec = {"resourceQOSStrategy": {"lsClass": {"memoryQOS": {"enable": True, **LIMITED}}}}
    node_slo = NodeSLORendered(node=NODE, spec=encoded(spec))
    decision = decided(ANOLIS, [sized(*limits)], node_slo)
    groups = ("", *(f"/c{place}" for place in range(len(limits))))
    found = [dict(texts(decision, f"burstable/poduid-a{group}")) for group in groups]
    assert [each[KNOBS[0]] for each in found] == [str(size * MIB) for size in sizes]
    assert {each[KNOBS[2]] for each in found} == {"1"}
    assert decision.memory is not None
    assert STRATEGY.figures(decision.memory)["limited.pods"] == 1


def test_a_batch_container_without_a_limit_is_not_limited() -> None:
    requests = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "1Gi"}
    decision = decided(ANOLIS, [pod("a", "BE", requests=requests)], slo(4 * GIB))
    assert dict(texts(decision, "besteffort/poduid-a/main"))[KNOBS[0]] == str(4 * GIB)
