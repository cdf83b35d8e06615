"""What each score gives a node: figures of the rules in the plugins' docstrings, worked out by hand."""

from __future__ import annotations

import pytest

from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile
from cotenant_scheduler.plugins.resource_fit import ScoringStrategy
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from tests.unit.scheduler.asking import Asking
from tests.unit.scheduler.builders_scheduler import GIB, node

BALANCED, FIT, IMAGES, LOAD = "NodeResourcesBalancedAllocation", "NodeResourcesFit", "ImageLocality", "LoadAwareScheduling"


def test_the_weights_are_those_of_kubernetes_and_koordinator() -> None:
    profile = default_profile(SchedulerConfig())
    assert {score.name: weight for score, weight in zip(profile.scores, profile.weights, strict=True)} == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        FIT: 1,
        BALANCED: 1,
        IMAGES: 1,
        LOAD: 1,
        "SchedulingHint": 1_000_000,
    }
    assert {score.name: weight for score, weight in profile.spanning_scores} == {"PodTopologySpread": 2, "InterPodAffinity": 2}


# -- balance: (1 - |cpu - memory| / 2) * 100 -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "memory", "expected"),
    [
        ("4", "8Gi", 87),  # 0.5 and 0.25
        ("2", "8Gi", 100),  # 0.25 each
        ("16", "16Gi", 75),  # more than all cpu counts as all of it, and 0.5
        ("4", "48Gi", 75),  # 0.5, and more than all memory counts as all of it
        ("8", "0", 50),
        ("0", "32Gi", 50),
    ],
)
def test_a_node_is_balanced_as_far_as_cpu_and_memory_fill_up_together(cpu: str, memory: str, expected: int) -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="8", memory="32Gi"))
    asking.ask_for("p", cpu=cpu, memory=memory)
    assert asking.scores(BALANCED, "p") == {"a": expected}


def test_balance_counts_the_pods_that_are_there() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="8", memory="32Gi"))
    asking.put("there", "a", cpu="2", memory="24Gi")
    asking.ask_for("p", cpu="4", memory="4Gi")
    assert asking.scores(BALANCED, "p") == {"a": 93}  # 6/8 and 28/32: 1 - 0.125 / 2


def test_a_node_that_lacks_cpu_or_memory_is_balanced_and_one_without_pods_is_judged() -> None:
    asking = Asking()
    asking.nodes(
        node("no-cpu", cpu="0"),
        node("no-memory", memory="0"),
        node("no-pods", pods="0"),
        node("one-milli", cpu="1m"),
        node("one-byte", memory="1"),
    )
    asking.ask_for("p", cpu="4", memory="8Gi")
    assert asking.scores(BALANCED, "p") == {
        "no-cpu": 100,
        "no-memory": 100,
        "no-pods": 87,
        "one-milli": 62,  # 1 and 0.25
        "one-byte": 75,  # 0.5 and 1
    }


def test_a_pod_without_requests_changes_no_balance() -> None:
    asking = Asking()
    asking.nodes(node("one-milli", cpu="1m"), node("one-byte", memory="1"))
    asking.ask_for("p", requests={})
    assert asking.scores(BALANCED, "p") == {"one-milli": 100, "one-byte": 100}


# -- images: from 23 MiB to 1000 MiB a container -------------------------------------------------------------------------


def image_scores(asking: Asking, *images: str) -> dict[str, int]:
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    asking.ask_for("p", containers=containers)
    return asking.scores(IMAGES, "p")


def test_an_image_counts_by_its_size_between_23_and_1000_mebibytes() -> None:
    asking = Asking()
    sizes = {"least": 23, "little": 33, "half": 523, "most": 1000, "more": 3000}
    asking.nodes(*(node(name, images={"web:1": size}) for name, size in sizes.items()))
    # (size - 23) * 100 // 977
    assert image_scores(asking, "web:1") == {"least": 0, "little": 1, "half": 51, "most": 100, "more": 100}


def test_an_image_counts_by_the_share_of_nodes_that_have_it() -> None:
    asking = Asking()
    asking.nodes(node("a", images={"web:1": 1000}), node("b"), node("c"), node("d", images={"web:1": 600}))
    # 500 and 300 MiB: 477 / 977 and 277 / 977
    assert image_scores(asking, "web:1") == {"a": 48, "b": 0, "c": 0, "d": 28}


def test_the_bound_is_one_of_each_container() -> None:
    asking = Asking()
    asking.nodes(node("both", images={"web:1": 1000, "db:latest": 1000}), node("one", images={"web:1": 1000, "db:latest": 11}))
    # 2000 of 2000 MiB, and 1011: 988 / 1977
    assert image_scores(asking, "web:1", "db") == {"both": 100, "one": 49}


def test_a_pod_whose_images_no_node_has_prefers_none() -> None:
    asking = Asking()
    asking.nodes(node("a", images={"web:1": 1000}), node("b"))
    assert image_scores(asking, "web:2") == {"a": 0, "b": 0}


# -- room left -----------------------------------------------------------------------------------------------------------


def test_the_room_left_is_the_mean_of_cpu_and_memory() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="10", memory="10Gi"))
    asking.put("there", "a", cpu="1", memory="3Gi")
    asking.ask_for("p", cpu="2", memory="2Gi")
    assert asking.scores(FIT, "p") == {"a": 60}  # 70 and 50


def test_most_allocated_is_the_mean_of_what_is_used() -> None:
    asking = Asking(SchedulerConfig(scoring_strategy=ScoringStrategy.MOST_ALLOCATED))
    asking.nodes(node("a", cpu="10", memory="10Gi"), node("b", cpu="1", memory="10Gi"), node("c", cpu="0", memory="10Gi"))
    asking.put("there", "a", cpu="1", memory="3Gi")
    asking.ask_for("p", cpu="2", memory="2Gi")
    # 30 and 50; all of the cpu (never more) and 20; 20 alone
    assert asking.scores(FIT, "p") == {"a": 40, "b": 60, "c": 20}


def test_what_a_node_does_not_offer_is_left_out_and_no_room_is_zero() -> None:
    asking = Asking()
    asking.nodes(
        node("no-cpu", cpu="0", memory="10Gi"),
        node("no-memory", cpu="10", memory="0"),
        node("nothing", cpu="0", memory="0"),
        node("small", cpu="1", memory="10Gi"),
        node("one-milli", cpu="1m", memory="10Gi"),
        node("one-byte", cpu="10", memory="1"),
    )
    asking.ask_for("p", cpu="2", memory="1Gi")
    halves = {"small": 45, "one-milli": 45, "one-byte": 40}
    assert asking.scores(FIT, "p") == {"no-cpu": 90, "no-memory": 80, "nothing": 0, **halves}


def test_batch_resources_count_where_the_pod_asks_for_them_and_the_node_offers_them() -> None:
    asking = Asking()
    asking.nodes(node("lends", cpu="10", memory="10Gi"), node("bare", cpu="10", memory="10Gi"))
    asking.batch("lends", 10_000, 10 * GIB)
    asking.put("there", "lends", requests={"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "1Gi"})
    asking.ask_for("batch", requests={"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "3Gi"})
    asking.ask_for("half", requests={"kubernetes.io/batch-cpu": "2k"})
    asking.ask_for("plain", cpu="2", memory="1Gi")
    # A container without cpu or memory counts as 100 milli-cores and 200 MiB. lends: cpu (10000 - 200) / 10000 = 98, memory
    # (10240 - 400) / 10240 = 96, batch cpu 70, batch memory 60; bare: 99 and 98.
    assert asking.scores(FIT, "batch") == {"lends": 81, "bare": 98}
    assert asking.scores(FIT, "half") == {"lends": 88, "bare": 98}
    assert asking.scores(FIT, "plain") == {"lends": 83, "bare": 85}  # 79 and 88; 80 and 90


def test_batch_room_that_is_used_up_is_zero_and_most_allocated_counts_it_whole() -> None:
    for strategy, expected in ((ScoringStrategy.LEAST_ALLOCATED, 49), (ScoringStrategy.MOST_ALLOCATED, 50)):
        asking = Asking(SchedulerConfig(scoring_strategy=strategy))
        asking.nodes(node("a", cpu="10", memory="10Gi"))
        asking.batch("a", 1000, GIB)
        asking.ask_for("p", requests={"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "1Gi"})
        # of cpu and memory 99 and 98 are left, of batch nothing; 1 and 1 are used, and all of batch
        assert asking.scores(FIT, "p") == {"a": expected}


def test_most_allocated_counts_what_is_used_of_batch_and_a_unit_is_all_of_one() -> None:
    asking = Asking(SchedulerConfig(scoring_strategy=ScoringStrategy.MOST_ALLOCATED))
    asking.nodes(node("lends", cpu="10", memory="10Gi"), node("unit", cpu="10", memory="10Gi"))
    asking.batch("lends", 10_000, 10 * GIB)
    asking.batch("unit", 1, GIB)
    asking.ask_for("p", requests={"kubernetes.io/batch-cpu": "3k"})
    asking.ask_for("one", requests={"kubernetes.io/batch-cpu": "1"})
    # of cpu and memory 1 and 1 are used
    assert asking.scores(FIT, "p") == {"lends": 10, "unit": 34}  # 30 of batch cpu, and all of it
    assert asking.scores(FIT, "one") == {"lends": 0, "unit": 34}


def test_batch_resources_that_no_node_offers_are_left_out() -> None:
    asking = Asking()
    asking.nodes(node("a", cpu="10", memory="10Gi"))
    asking.ask_for("p", requests={"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "3Gi"})
    assert asking.scores(FIT, "p") == {"a": 98}  # 99 and 98


# -- load ----------------------------------------------------------------------------------------------------------------
# A pod of 1 core is taken to use 85 % of it, one of 10 Gi 70 %.


def loaded(args: LoadAwareArgs | None = None, *, cpu_milli: int = 2150, memory: int = 13 * GIB, age: float = 0) -> Asking:
    asking = Asking(SchedulerConfig(load_aware=args or LoadAwareArgs()))
    asking.nodes(node("a", cpu="10", memory="100Gi"))
    asking.metric("a", cpu_milli, memory, age=age)
    asking.ask_for("p", cpu="1", memory="10Gi")
    return asking


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (LoadAwareArgs(), 75),  # cpu (10000 - 3000) / 10000 = 70, memory 100 - 13 - 7 = 80
        (LoadAwareArgs(resource_weights={"cpu": 3, "memory": 1}), 72),
        (LoadAwareArgs(resource_weights={"memory": 1}), 80),
        (LoadAwareArgs(resource_weights={"cpu": 2, "memory": 2}), 75),
        (LoadAwareArgs(resource_weights={"cpu": 0, "memory": 0}), 0),
        (LoadAwareArgs(resource_weights={"cpu": 1, "memory": 1}, dominant_resource_weight=2), 72),  # (70 + 80 + 2 * 70) / 4
        (LoadAwareArgs(dominant_resource_weight=1), 70),
    ],
)
def test_idle_capacity_is_weighted_by_resource(args: LoadAwareArgs, expected: int) -> None:
    assert loaded(args).scores(LOAD, "p") == {"a": expected}


def test_a_node_that_would_use_more_than_it_has_is_worth_nothing_of_that_resource() -> None:
    assert loaded(cpu_milli=20_000).scores(LOAD, "p") == {"a": 40}
    assert loaded(cpu_milli=9_150).scores(LOAD, "p") == {"a": 40}
    assert loaded(memory=200 * GIB).scores(LOAD, "p") == {"a": 35}


def test_a_node_whose_report_has_expired_or_that_has_none_is_worth_nothing() -> None:
    assert loaded(age=179).scores(LOAD, "p") == {"a": 75}
    asking = loaded(age=180)
    asking.nodes(node("silent", cpu="10", memory="100Gi"))
    assert asking.scores(LOAD, "p") == {"a": 0, "silent": 0}


def test_a_node_without_the_resource_is_worth_nothing_of_it() -> None:
    asking = loaded(memory=0)
    asking.nodes(node("no-cpu", cpu="0", memory="100Gi"), node("one-byte", cpu="10", memory="1"))
    asking.metric("no-cpu", 0)
    asking.metric("one-byte", 0)
    assert asking.scores(LOAD, "p") == {"a": 81, "no-cpu": 46, "one-byte": 45}  # (70 + 93) / 2, 93 / 2, 91 / 2


def test_a_hundredth_of_a_core_that_is_left_counts_on_a_node_that_has_little() -> None:
    asking = Asking(SchedulerConfig(load_aware=LoadAwareArgs(resource_weights={"cpu": 1})))
    asking.nodes(node("tiny", cpu="50m"), node("one-milli", cpu="1m"))
    asking.metric("tiny", 49)
    asking.metric("one-milli", 0)
    asking.ask_for("mid", priority=7500)
    assert asking.scores(LOAD, "mid") == {"tiny": 2, "one-milli": 100}


def test_a_prod_pod_may_be_scored_by_what_prod_pods_use() -> None:
    for by_prod, expected in ((False, 45), (True, 85)):
        asking = Asking(SchedulerConfig(load_aware=LoadAwareArgs(score_according_prod_usage=by_prod)))
        asking.nodes(node("a", cpu="10", memory="100Gi"))
        asking.put("web", "a", cpu="1", memory="1Gi", priority=9000)
        asking.later(120)
        asking.metric("a", 8150, 13 * GIB, web=(1150, 3 * GIB))
        asking.ask_for("prod", cpu="1", memory="10Gi", priority=9000)
        asking.ask_for("mid", cpu="1", memory="10Gi", priority=7500)
        # by the node: cpu 10, memory 80; by prod pods: 80 and 90. A mid pod without mid resources uses none.
        assert asking.scores(LOAD, "prod") == {"a": expected}
        assert asking.scores(LOAD, "mid") == {"a": 52}  # 18 and 87
