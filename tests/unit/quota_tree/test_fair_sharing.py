"""Fair sharing and min scaling as properties, with examples."""

from collections.abc import Sequence
from random import Random

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.domain.quota.names import DEFAULT, ROOT, SYSTEM
from cotenant.domain.quota.sums import OwnPods, QuotaNode
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins
from cotenant.domain.quota.trees.share import MANY, split_array
from cotenant.domain.quota.trees.splits import split
from cotenant.domain.quota.trees.tree import QuotaTree
from cotenant.domain.quota.view import built_in_quota
from cotenant.model.amounts import without_zeros
from tests.sharing import Sibling, share, share_out
from tests.unit.quota_tree.builders_quota_tree import count, solved
from tests.unit.quota_tree.plain_share import plain_share
from tests.unit.quota_tree.plain_tree import plain_tree

AMOUNT = st.integers(0, 2**50)
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")


@st.composite
def contenders(draw: st.DrawFn) -> list[Sibling]:
    return [
        Sibling(
            name=f"q{index}",
            weight=draw(st.integers(0, 2**40)),
            request=draw(AMOUNT),
            floor=draw(AMOUNT),
            lends=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, 8)))
    ]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[QuotaNode], dict[str, OwnPods], dict[str, int]]:
    """A valid tree: parents before children, mins within max; children's mins may exceed their parent's."""
    nodes: list[QuotaNode] = []
    own: dict[str, OwnPods] = {}
    for index in range(draw(st.integers(1, 9))):
        parent = draw(st.sampled_from([ROOT, *(node.name for node in nodes)]))
        resources = draw(st.sets(st.sampled_from(RESOURCES), min_size=1))
        maximum = {resource: draw(st.integers(0, 10_000)) for resource in sorted(resources)}
        minimum = {resource: draw(st.integers(0, bound)) for resource, bound in maximum.items() if draw(st.booleans())}
        weight = {resource: draw(st.integers(0, 1_000)) for resource in maximum}
        name = f"q{index}"
        nodes.append(
            QuotaNode(name=name, parent=parent, min=minimum, max=maximum, shared_weight=weight, lends=draw(st.booleans()))
        )
        own[name] = OwnPods(request={resource: draw(st.integers(0, 20_000)) for resource in maximum})
    total = {resource: draw(st.integers(-100, 30_000)) for resource in RESOURCES if draw(st.booleans())}
    return nodes, own, total


@given(st.integers(0, 2**53), st.lists(st.integers(1, 2**60), min_size=1, max_size=30))
def test_a_split_sums_to_the_rest_and_is_off_by_less_than_one_unit(rest: int, weights: list[int]) -> None:
    whole = sum(weights)
    splits = [split(rest, weights)]
    if whole < 2**62:
        splits.append(split_array(rest, np.array(weights)).tolist())
    for parts in splits:
        assert sum(parts) == rest
        for part, weight in zip(parts, weights, strict=True):
            assert abs(part * whole - weight * rest) < whole


@given(AMOUNT, contenders())
def test_sharing_grants_floors_and_never_exceeds_requests_or_the_total(total: int, siblings: list[Sibling]) -> None:
    runtime = share(total, siblings).runtime
    start = sum(
        sibling.floor if sibling.request > sibling.floor or not sibling.lends else sibling.request for sibling in siblings
    )
    assert sum(runtime.values()) <= max(total, start)
    for sibling in siblings:
        if sibling.request >= sibling.floor:
            assert sibling.floor <= runtime[sibling.name] <= sibling.request
        else:
            assert runtime[sibling.name] == (sibling.request if sibling.lends else sibling.floor)


@given(AMOUNT, contenders(), st.randoms(use_true_random=False))
def test_sharing_does_not_depend_on_the_order_of_siblings(total: int, siblings: list[Sibling], random: object) -> None:
    shuffled = list(siblings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert share(total, shuffled).runtime == share(total, siblings).runtime


@given(AMOUNT, contenders())
def test_unassigned_capacity_exceeds_all_weighted_requests(total: int, siblings: list[Sibling]) -> None:
    runtime = share(total, siblings).runtime
    if sum(runtime.values()) < total:
        assert all(runtime[sibling.name] >= sibling.request for sibling in siblings if sibling.weight > 0 and sibling.request)


@given(AMOUNT, AMOUNT, contenders())
def test_a_larger_total_never_reduces_the_sum(total: int, more: int, siblings: list[Sibling]) -> None:
    before, after = share(total, siblings).runtime, share(total + more, siblings).runtime
    assert sum(after.values()) >= sum(before.values())


@given(AMOUNT, contenders(), st.data())
def test_the_heavier_of_two_equal_siblings_gets_no_less(total: int, siblings: list[Sibling], data: st.DataObject) -> None:
    light = data.draw(st.sampled_from(siblings))
    heavy = Sibling(name="heavier", weight=light.weight + 5, request=light.request, floor=light.floor, lends=light.lends)
    runtime = share(total, [*siblings, heavy]).runtime
    # One unit of a tie may go to the smaller name.
    assert runtime["heavier"] >= runtime[light.name] - 1


@given(
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(-5, 2**45)),
    st.lists(
        st.tuples(st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 2**45)), st.booleans()),
        min_size=1,
        max_size=6,
    ),
)
def test_scaled_mins_fit_and_are_never_above_the_min(
    total: dict[str, int], drawn: Sequence[tuple[dict[str, int], bool]]
) -> None:
    siblings = [MinOf(name=f"q{index}", min=minimum, scalable=scalable) for index, (minimum, scalable) in enumerate(drawn)]
    scaled = scale_mins(total, siblings)
    for sibling in siblings:
        result = scaled[sibling.name]
        assert (result is None) == (not sibling.scalable)
        if result is not None:
            assert all(0 <= amount <= sibling.min.get(resource, 0) for resource, amount in result.items())
    for resource, amount in total.items():
        fixed = sum(sibling.min.get(resource, 0) for sibling in siblings if not sibling.scalable)
        given_out = sum((result or {}).get(resource, 0) for result in scaled.values())
        assert given_out <= max(amount - fixed, 0)


@given(
    st.sampled_from([1, 3, 8, MANY, 3 * MANY]),
    st.sampled_from([3, 1_000, 2**40, 2**54, 2**62]),
    st.integers(-5, 2**62),
    st.randoms(use_true_random=False),
)
def test_sharing_is_what_the_plain_formula_gives(number: int, largest: int, far: int, random: Random) -> None:
    """Few or many siblings, of small amounts (with ties) or large ones."""
    weights, requests, floors = ([random.randint(0, largest) for _ in range(number)] for _ in range(3))
    floors = [floor if random.random() < 0.5 else 0 for floor in floors]
    lends = [random.random() < 0.8 for _ in range(number)]
    for total in (random.randint(0, sum(requests) + 1), far):
        assert share_out(total, weights, requests, floors, lends)[0] == plain_share(total, weights, requests, floors, lends)


@given(trees(), st.booleans(), st.booleans(), st.data())
def test_a_tree_kept_current_equals_one_solved_from_scratch(
    tree: tuple[list[QuotaNode], dict[str, OwnPods], dict[str, int]], scale_min: bool, guarantee: bool, data: st.DataObject
) -> None:
    nodes, own, total = tree
    built_in = {name: built_in_quota(name) for name in (DEFAULT, SYSTEM)}
    of_tree, rules = Tree(nodes=tuple(nodes), reasons={}), QuotaRules(scale_min=scale_min, guarantee_usage=guarantee)
    amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(1, 20_000))
    pods = st.builds(
        lambda request, used, preemptible: OwnPods(
            request=request,
            used=used,
            non_preemptible_request={} if preemptible else request,
            non_preemptible_used={} if preemptible else used,
        ),
        amounts,
        amounts,
        st.booleans(),
    )
    changes = st.one_of(st.tuples(st.sampled_from([DEFAULT, SYSTEM, *own]), pods), st.tuples(st.none(), amounts))
    kept = QuotaTree(of_tree, built_in, rules)
    kept.set_total(total)
    count(kept, own)
    seen: dict[str, SolvedQuota] = {}
    for quota, change in data.draw(st.lists(changes, max_size=8)):
        if isinstance(change, OwnPods):
            count(kept, {str(quota): own.get(str(quota), OwnPods())}, -1)
            count(kept, {str(quota): change})
            own = {**own, str(quota): change}
        else:
            total = change
            kept.set_total(total)
        plain = plain_tree(of_tree, built_in, rules, total, own)
        asked = data.draw(st.sampled_from([node.name for node in nodes]))
        assert kept.runtime(asked) == plain[asked].runtime
        if data.draw(st.booleans()):
            seen |= {name: kept.solved(name) for name in kept.changed()}
            assert {name: comparable(quota) for name, quota in seen.items()} == {
                name: comparable(quota) for name, quota in plain.items()
            }


def comparable(quota: SolvedQuota) -> SolvedQuota:
    """An absent dimension equals zero."""
    sums = quota.sums
    own = msgspec.structs.replace(sums.own, **{field: without_zeros(dict(getattr(sums.own, field))) for field in OWN})
    return msgspec.structs.replace(
        quota, scaled_min=without_zeros(dict(quota.scaled_min)), sums=msgspec.structs.replace(sums, own=own)
    )


OWN = ("request", "used", "non_preemptible_request", "non_preemptible_used")


@settings(max_examples=300)
@given(trees())
def test_with_min_scaling_runtimes_never_exceed_the_total(
    tree: tuple[list[QuotaNode], dict[str, OwnPods], dict[str, int]],
) -> None:
    nodes, own, total = tree
    shares = solved(nodes, own, total)
    for parent in [ROOT, *(node.name for node in nodes)]:
        children = [node for node in nodes if node.parent == parent]
        has = total if parent == ROOT else shares[parent].runtime
        resources = {resource for child in children for resource in shares[child.name].runtime}
        for resource in resources:
            given_out = sum(shares[child.name].runtime.get(resource, 0) for child in children)
            assert given_out <= max(has.get(resource, 0), 0)


@settings(max_examples=300)
@given(trees())
def test_a_quota_that_requests_its_scaled_min_gets_it_and_none_exceeds_max(
    tree: tuple[list[QuotaNode], dict[str, OwnPods], dict[str, int]],
) -> None:
    nodes, own, total = tree
    shares = solved(nodes, own, total)
    for node in nodes:
        mine = shares[node.name]
        for resource, amount in mine.runtime.items():
            if node.parent != ROOT and resource not in shares[node.parent].max:
                continue  # it is not distributed below the parent
            assert isinstance(amount, int)
            assert amount >= 0
            assert amount <= node.max.get(resource, amount)
            asked = mine.sums.limit_request.get(resource, 0)
            if asked >= mine.scaled_min.get(resource, 0):
                assert amount >= mine.scaled_min.get(resource, 0)


def test_ten_equal_siblings_share_three_devices_without_a_remainder() -> None:
    siblings = [Sibling(name=f"b{index}", weight=1, request=5) for index in range(10)]
    runtime = share(3, siblings).runtime
    assert sum(runtime.values()) == 3
    assert [name for name, cards in runtime.items() if cards] == ["b0", "b1", "b2"]


def test_surplus_is_split_among_the_remaining_competitors() -> None:
    siblings = [
        Sibling(name="A", weight=40, request=5, floor=10),
        Sibling(name="B", weight=60, request=20, floor=15),
        Sibling(name="C", weight=50, request=40, floor=20),
        Sibling(name="D", weight=80, request=70, floor=15),
    ]
    assert share(100, siblings).runtime == {"A": 5, "B": 20, "C": 35, "D": 40}


def test_a_resource_that_no_node_offers_has_no_runtime() -> None:
    node = QuotaNode(name="a", min={"nvidia.com/gpu": 2}, max={"nvidia.com/gpu": 4}, shared_weight={"nvidia.com/gpu": 1})
    own = {"a": OwnPods(request={"nvidia.com/gpu": 4})}
    assert solved([node], own, {"cpu": 1000})["a"].runtime == {"nvidia.com/gpu": 0}
