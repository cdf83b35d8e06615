"""A tree kept current equals one solved from scratch, on trees and changes drawn from seeds; and the form of it that the
scheduler keeps, without what runtimes do not depend on."""

from __future__ import annotations

from random import Random

import pytest

from cotenant.domain.quota.names import DEFAULT, ROOT, SYSTEM
from cotenant.domain.quota.sums import OwnPods, QuotaNode
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.family import Family
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.tree import QuotaTree
from cotenant.domain.quota.view import built_in_quota
from tests.unit.quota_tree.builders_quota_tree import count
from tests.unit.quota_tree.plain_tree import plain_tree
from tests.unit.quota_tree.test_fair_sharing import comparable

RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
BUILT_IN = {name: built_in_quota(name) for name in (DEFAULT, SYSTEM)}


def drawn_tree(random: Random) -> list[QuotaNode]:
    """Parents before children, mins within max; the mins of children may exceed their parent's."""
    nodes: list[QuotaNode] = []
    for index in range(random.randint(1, 9)):
        maximum = {resource: random.randint(0, 90) for resource in RESOURCES if random.random() < 0.8} or {"cpu": 50}
        nodes.append(
            QuotaNode(
                name=f"q{index}",
                parent=random.choice([ROOT, *(node.name for node in nodes)]),
                min={resource: random.randint(0, most) for resource, most in maximum.items() if random.random() < 0.6},
                max=maximum,
                shared_weight={resource: random.randint(0, 9) for resource in maximum},
                lends=random.random() < 0.6,
            )
        )
    return nodes


def drawn_pods(random: Random) -> OwnPods:
    request, used = ({each: random.randint(1, 80) for each in RESOURCES if random.random() < 0.7} for _ in range(2))
    preemptible = random.random() < 0.5
    return OwnPods(
        request=request,
        used=used,
        non_preemptible_request={} if preemptible else request,
        non_preemptible_used={} if preemptible else used,
    )


@pytest.mark.parametrize("scale_min", [True, False])
@pytest.mark.parametrize("guarantee", [True, False])
def test_kept_current_equals_solved_from_scratch(scale_min: bool, guarantee: bool) -> None:
    rules = QuotaRules(scale_min=scale_min, guarantee_usage=guarantee)
    for seed in range(60):
        random = Random(seed)
        nodes = drawn_tree(random)
        tree = Tree(nodes=tuple(nodes), reasons={})
        own: dict[str, OwnPods] = {}
        total: dict[str, int] = {}
        kept, lean = QuotaTree(tree, BUILT_IN, rules), QuotaTree(tree, BUILT_IN, rules, usage=False)
        seen: dict[str, SolvedQuota] = {}
        for _ in range(12):
            if random.random() < 0.3:
                total = {resource: random.randint(-5, 200) for resource in RESOURCES if random.random() < 0.8}
                kept.set_total(total)
                lean.set_total(total)
            else:
                name, pods = random.choice([DEFAULT, SYSTEM, *(node.name for node in nodes)]), drawn_pods(random)
                for each in (kept, lean):
                    count(each, {name: own.get(name, OwnPods())}, -1)
                    count(each, {name: pods})
                own[name] = pods
            plain = plain_tree(tree, BUILT_IN, rules, total, own)
            asked = random.choice(nodes).name
            assert kept.runtime(asked) == lean.runtime(asked) == plain[asked].runtime, seed
            if random.random() < 0.5:
                seen |= {name: kept.solved(name) for name in kept.changed()}
                wanted = {name: comparable(quota) for name, quota in plain.items()}
                assert {name: comparable(quota) for name, quota in seen.items()} == wanted, seed


def test_of_a_tree_without_usage_only_what_runtimes_depend_on_is_kept() -> None:
    nodes = (QuotaNode(name="a", parent=ROOT, max={"cpu": 9}), QuotaNode(name="b", parent=ROOT, max={"cpu": 9}))
    tree = Tree(nodes=nodes, reasons={})
    lean, guaranteeing = (
        QuotaTree(tree, BUILT_IN, QuotaRules(guarantee_usage=guarantee), usage=False) for guarantee in (False, True)
    )
    whole = QuotaTree(tree, BUILT_IN, QuotaRules())
    for name in ("a", "b"):
        assert lean.hold(name, {"cpu": 1}, True, 1) is False
        assert guaranteeing.hold(name, {"cpu": 1}, True, 1) is True
        assert whole.hold(name, {"cpu": 1}, True, 1) is True
        assert whole.hold(name, {"cpu": 0}, True, 1) is False, "nothing is held"
    assert lean.hold(DEFAULT, {"cpu": 1}, True, 1) is True, "the default quota's use is taken off the total"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """An entry for each time that a child's share in its family is computed."""
    found: list[int] = []
    share_of = Family.of

    def counted(family: Family, index: int, has: dict[str, int]) -> dict[str, int]:
        found.append(index)
        return share_of(family, index, has)

    monkeypatch.setattr(Family, "of", counted)
    return found


def two_levels(*, guarantee: bool = False, usage: bool = True) -> QuotaTree:
    """a and b below it, either with a min of 4 and a max of 9."""
    nodes = [
        QuotaNode(name=name, parent=parent, min={"cpu": 4}, max={"cpu": 9}, shared_weight={"cpu": 1})
        for name, parent in (("a", ROOT), ("b", "a"))
    ]
    tree = QuotaTree(Tree(nodes=tuple(nodes), reasons={}), BUILT_IN, QuotaRules(guarantee_usage=guarantee), usage=usage)
    tree.set_total({"cpu": 20})
    return tree


def test_what_pods_hold_and_what_they_ask_beyond_max_asks_no_family(shared: list[int]) -> None:
    tree = two_levels()
    tree.ask("b", {"cpu": 9}, True, 1)
    assert tree.runtime("b") == {"cpu": 9}
    shared.clear()
    assert tree.hold("b", {"cpu": 9}, True, 1) is True
    tree.ask("b", {"cpu": 1}, True, 1)
    assert tree.solved("b").sums.used == {"cpu": 9}
    assert shared == []
    tree.ask("b", {"cpu": 2}, True, -1)
    assert tree.runtime("b") == {"cpu": 8}
    assert len(shared) == 2, "b in a, and a"


@pytest.mark.parametrize("asking", [("b",), ("b", "c")])
def test_what_pods_ask_beyond_max_changes_nothing_above(asking: tuple[str, ...]) -> None:
    nodes = [
        QuotaNode(name=name, parent=parent, max={"cpu": 9}, shared_weight={"cpu": 1})
        for name, parent in (("a", ROOT), ("b", "a"), ("c", "a"))
    ]
    tree = QuotaTree(Tree(nodes=tuple(nodes), reasons={}), BUILT_IN, QuotaRules())
    tree.set_total({"cpu": 20})
    for name in asking:
        tree.ask(name, {"cpu": 9}, True, 1)
    assert {"a", *asking} <= set(tree.changed())
    for name in asking:
        tree.ask(name, {"cpu": 1}, True, 1)
    assert set(tree.changed()) == set(asking)


def test_what_the_default_quota_holds_is_shared_again_below_the_root(shared: list[int]) -> None:
    tree = two_levels()
    tree.ask("b", {"cpu": 9}, True, 1)
    tree.runtime("b")
    tree.hold(DEFAULT, {"cpu": 15}, True, 1)
    assert tree.runtime("b") == {"cpu": 5}


@pytest.mark.parametrize("usage", [True, False])
def test_with_the_usage_guarantee_pods_within_min_hold_nothing_that_families_have_to_know(
    shared: list[int], usage: bool
) -> None:
    tree = two_levels(guarantee=True, usage=usage)
    tree.ask("b", {"cpu": 7}, True, 1)
    tree.set_total({"cpu": 4})
    assert tree.runtime("b") == {"cpu": 4}
    shared.clear()
    assert tree.hold("b", {"cpu": 4}, True, 1) is usage
    assert tree.runtime("b") == {"cpu": 4}
    assert shared == []
    assert tree.hold("b", {"cpu": 3}, True, 1) is True
    assert tree.runtime("b") == {"cpu": 7}, "what is held is granted, whatever there is"


def test_the_root_has_what_is_distributable_and_an_unknown_quota_nothing() -> None:
    tree = QuotaTree(Tree(nodes=(QuotaNode(name="a", parent=ROOT, max={"cpu": 9}),), reasons={}), BUILT_IN, QuotaRules())
    tree.set_total({"cpu": 7})
    assert tree.runtime(ROOT) == {"cpu": 7}
    assert tree.runtime("nobody") == {}
    assert tree.runtime(DEFAULT) == BUILT_IN[DEFAULT].max


def wide_tree(random: Random) -> tuple[list[QuotaNode], list[str]]:
    """A tree of 650 quotas on three levels, 25 of which are siblings, and its leaves. What there is of cpu is mostly short."""
    nodes: list[QuotaNode] = []
    level = [ROOT]
    for depth, branches in enumerate((25, 5, 4)):
        below = [f"{parent}-{index:02}" for parent in level for index in range(branches)]
        for index, name in enumerate(below):
            most = {"cpu": random.choice([3_000, 5_000]) * 5 ** (2 - depth), "memory": 1 << 50}
            weight = {"cpu": random.randrange(0, 100), "memory": 5}
            least = {"cpu": random.choice([0, 100]), "memory": 1 << 20}
            lends = random.random() < 0.9
            parent = level[index // branches]
            nodes.append(QuotaNode(name=name, parent=parent, min=least, max=most, shared_weight=weight, lends=lends))
        level = below
    return nodes, level


@pytest.mark.parametrize("seed", range(6))
def test_one_runtime_after_the_other_equals_a_refresh_of_all(seed: int) -> None:
    random = Random(seed)
    nodes, leaves = wide_tree(random)
    tree, rules = Tree(nodes=tuple(nodes), reasons={}), QuotaRules(scale_min=seed % 2 == 0)
    kept, total = QuotaTree(tree, {}, rules, usage=False), {"cpu": 0}
    asked = {leaf: {"cpu": 0, "memory": 0} for leaf in leaves}
    for step in range(400):
        if step % 40 == 0:
            total = {"cpu": random.randrange(len(leaves) * 2_000), "memory": random.randrange(len(leaves)) << 31}
            kept.set_total(total)
        for _ in range(random.choice([1, 1, 1, 30])):
            leaf, request = random.choice(leaves), {"cpu": random.randrange(1, 3_000), "memory": 1 << 30}
            times = 1 if asked[leaf]["memory"] < 2 << 30 else -1
            request = request if times > 0 else asked[leaf].copy()
            asked[leaf] = {resource: amount + times * request[resource] for resource, amount in asked[leaf].items()}
            kept.ask(leaf, request, True, times)
        kept.runtime(leaf)
        if step % 50 == 49:
            fresh = QuotaTree(tree, {}, rules)
            fresh.set_total(total)
            for each, request in asked.items():
                fresh.ask(each, request, True, 1)
            fresh.changed()
            names = random.sample([node.name for node in nodes], 200)
            assert {name: kept.runtime(name) for name in names} == {name: fresh.runtime(name) for name in names}
