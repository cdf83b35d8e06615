"""Sharing, min scaling and totals of trees, one example for each rule, worked out by hand."""

from __future__ import annotations

from cotenant.domain.quota.names import DEFAULT_TREE
from cotenant.domain.quota.sums import OwnPods, QuotaNode
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins
from cotenant.domain.quota.trees.splits import split
from cotenant.domain.quota.trees.totals import available, tree_totals
from cotenant.domain.quota.view import ElasticQuotaView
from tests.sharing import Shared, Sibling, share
from tests.unit.quota_tree.builders_quota_tree import solved

# -- sharing -------------------------------------------------------------------------------------------------------


def test_the_rest_of_a_split_goes_to_the_largest_remainder() -> None:
    # 10 by 1 : 2 is 3 remainder 1 and 6 remainder 2
    assert split(10, [1, 2]) == [3, 7]


def test_equal_remainders_go_to_the_smaller_name() -> None:
    assert split(10, [1, 1, 1]) == [4, 3, 3]
    siblings = [Sibling(name=name, weight=1, request=9) for name in ("b", "a", "c")]
    assert share(10, siblings).runtime == {"a": 4, "b": 3, "c": 3}


def test_a_surplus_is_split_in_another_round() -> None:
    siblings = [Sibling(name=name, weight=1, request=request) for name, request in (("a", 4), ("b", 1), ("c", 100))]
    assert share(12, siblings) == Shared(runtime={"a": 4, "b": 1, "c": 7}, rounds=2)


def test_a_quota_that_requests_no_more_than_its_floor_does_not_compete() -> None:
    siblings = [Sibling(name="a", weight=1, request=5, floor=5), Sibling(name="b", weight=1, request=20)]
    assert share(10, siblings) == Shared(runtime={"a": 5, "b": 5}, rounds=1)


def test_the_last_unit_is_shared() -> None:
    assert share(1, [Sibling(name="a", weight=1, request=5)]) == Shared(runtime={"a": 1}, rounds=1)


def test_without_weight_nothing_is_shared() -> None:
    assert share(9, [Sibling(name="a", weight=0, request=5, floor=2)]) == Shared(runtime={"a": 2}, rounds=0)


def test_a_quota_without_a_weight_for_a_resource_gets_its_min_of_it() -> None:
    nodes = [
        QuotaNode(name="a", min={"cpu": 2}, max={"cpu": 10}),
        QuotaNode(name="b", max={"cpu": 10}, shared_weight={"cpu": 1}),
    ]
    quotas = solved(nodes, {name: OwnPods(request={"cpu": 10}) for name in ("a", "b")}, {"cpu": 10})
    assert {name: quotas[name].runtime for name in ("a", "b")} == {"a": {"cpu": 2}, "b": {"cpu": 8}}


# -- min scaling: floor(to distribute x min / sum of scalable mins) ------------------------------------------------


def test_mins_that_do_not_fit_are_scaled_in_proportion() -> None:
    siblings = [MinOf(name=name, min={"cpu": 100_000}) for name in ("a", "b", "c")]
    assert scale_mins({"cpu": 200_000}, siblings) == {name: {"cpu": 66_666} for name in "abc"}


def test_fixed_mins_are_subtracted_first() -> None:
    siblings = [
        MinOf(name="fixed", min={"cpu": 40}, scalable=False),
        MinOf(name="a", min={"cpu": 20}),
        MinOf(name="b", min={"cpu": 60, "memory": 7}),
    ]
    # 100 - 40 = 60 to distribute over mins of 80
    assert scale_mins({"cpu": 100}, siblings) == {"fixed": None, "a": {"cpu": 15}, "b": {"cpu": 45, "memory": 7}}


def test_mins_that_just_fit_stay_as_they_are() -> None:
    siblings = [MinOf(name="a", min={"cpu": 5}), MinOf(name="b")]
    assert scale_mins({"cpu": 5, "nvidia.com/gpu": 0}, siblings) == {"a": {"cpu": 5}, "b": {}}


def test_a_single_unit_is_distributed_too_and_nothing_is_not() -> None:
    assert scale_mins({"cpu": 1}, [MinOf(name="a", min={"cpu": 3})]) == {"a": {"cpu": 1}}
    assert scale_mins({"cpu": 0}, [MinOf(name="a", min={"cpu": 3})]) == {"a": {"cpu": 0}}


def test_fixed_mins_above_the_total_leave_nothing() -> None:
    siblings = [MinOf(name="fixed", min={"cpu": 9}, scalable=False), MinOf(name="a", min={"cpu": 3})]
    assert scale_mins({"cpu": 5}, siblings) == {"fixed": None, "a": {"cpu": 0}}


def test_without_a_total_nothing_is_scaled() -> None:
    assert scale_mins(None, [MinOf(name="a", min={"cpu": 3})]) == {"a": None}


# -- totals of trees -----------------------------------------------------------------------------------------------


def tree_quota(name: str, **fields: object) -> ElasticQuotaView:
    return ElasticQuotaView(name=name, tree="gpu", **fields)  # type: ignore[arg-type]


def test_only_the_root_of_a_tree_names_its_total() -> None:
    quotas = {
        "root": tree_quota("root", is_tree_root=True, tree_total={"cpu": 4}),
        "child": tree_quota("child", parent="root", is_tree_root=True, tree_total={"cpu": 2}),
        "beside": tree_quota("beside", tree_total={"cpu": 1}),
        "silent": tree_quota("silent", is_tree_root=True),
    }
    assert tree_totals({"cpu": 10}, quotas) == {DEFAULT_TREE: {"cpu": 6}, "gpu": {"cpu": 4}}


def test_a_root_may_leave_the_default_tree_whole() -> None:
    root = tree_quota("root", is_tree_root=True, tree_total={"cpu": 4}, ignores_default_tree=True)
    assert tree_totals({"cpu": 10}, {"root": root}) == {DEFAULT_TREE: {"cpu": 10}, "gpu": {"cpu": 4}}


def test_usage_of_the_built_in_quotas_is_subtracted() -> None:
    assert available({"cpu": 10, "memory": 5}, {"cpu": 3}) == {"cpu": 7, "memory": 5}
