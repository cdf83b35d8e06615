"""What runtimes cost, in CPU time of one process.

quota_refresh_2000x2: all of 2,000 siblings shared again in two resources, upstream's benchmark (the requests of its
generator, in one round and in four). quota_change_*: one pod more and the runtime of its quota, in a tree of 10,110 quotas on
four levels with at most ten siblings, and of 20,525 with at most 25: where everything fits, and where total and maxima are
short.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.tree import QuotaTree

REPEATS = 200
CHANGES = 3_000
SIBLINGS = 2_000


def main() -> None:
    """A line a figure."""
    print(f"quota_refresh_2000x2 {_median(_refresh(), REPEATS) * 1e3:.2f} ms", flush=True)
    for name, branches in (("10", (10, 10, 10, 9)), ("25", (25, 20, 20, 1))):
        for room in ("enough", "short"):
            change = _changes(_tree(branches, room == "enough"))
            print(f"quota_change_siblings_{name}_{room} {_median(change, CHANGES) * 1e6:.1f} us", flush=True)


def _median(work: Callable[[], None], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.process_time_ns()
        work()
        taken.append(time.process_time_ns() - began)
    return sorted(taken)[times // 2] / 1e9


def _refresh() -> Callable[[], None]:
    asked = {
        "cpu": [(7919 * j + 13) % 2000 * 1000 for j in range(SIBLINGS)],
        "memory": [(104729 * j + 17) % 2000 for j in range(SIBLINGS)],
    }
    most = {"cpu": 96_000, "memory": 160 << 30}
    nodes = [QuotaNode(name=str(j), max=most, shared_weight=most) for j in range(SIBLINGS)]
    tree = QuotaTree(Tree(nodes=tuple(nodes), reasons={}), {}, QuotaRules(scale_min=False))
    for j in range(SIBLINGS):
        tree.ask(str(j), {resource: amounts[j] for resource, amounts in asked.items()}, False, 1)
    total = {"cpu": int(sum(asked["cpu"]) // 1000 / 1.5) * 1000, "memory": int(sum(asked["memory"]) / 1.5)}
    turns = [0]

    def refresh() -> None:
        # Another total, as nothing is shared again where nothing changed; the rounds stay the same.
        turns[0] += 1
        tree.set_total({"cpu": total["cpu"], "memory": total["memory"] + turns[0] % 2})
        tree.changed()

    return refresh


def _tree(branches: tuple[int, ...], enough: bool) -> tuple[QuotaTree, list[str]]:
    random = Random(1)
    nodes: list[QuotaNode] = []
    level = [ROOT]
    for depth, count in enumerate(branches):
        below = []
        for parent in level:
            for index in range(count):
                name = f"{parent}-{index}" if parent != ROOT else str(index)
                below.append(name)
                most = {"cpu": 10**9 if enough else 4_000 * 10 ** (3 - depth), "memory": 1 << 50}
                weight = {"cpu": random.randrange(1, 100), "memory": 5}
                least = {"cpu": 100, "memory": 1 << 20}
                nodes.append(QuotaNode(name=name, parent=parent, min=least, max=most, shared_weight=weight))
        level = below
    tree = QuotaTree(Tree(nodes=tuple(nodes), reasons={}), {}, QuotaRules(), usage=False)
    leaves = len(level)
    tree.set_total({"cpu": 10**12, "memory": 1 << 58} if enough else {"cpu": leaves * 2_000, "memory": leaves << 32})
    for leaf in level:
        for _ in range(4):
            tree.ask(leaf, {"cpu": random.randrange(100, 2_000), "memory": 1 << 30}, True, 1)
    for leaf in level:
        tree.runtime(leaf)
    return tree, level


def _changes(made: tuple[QuotaTree, list[str]]) -> Callable[[], None]:
    tree, leaves = made
    random = Random(2)
    pods = [(random.choice(leaves), {"cpu": random.randrange(100, 2_000), "memory": 1 << 30}) for _ in range(CHANGES)]
    pods.reverse()

    def change() -> None:
        leaf, request = pods.pop()
        tree.ask(leaf, request, True, 1)
        tree.runtime(leaf)

    return change


if __name__ == "__main__":
    main()
