"""Quotas four levels deep for a benchmark: every pod is in one of the lowest level.

In: the number of quotas. Out: their names with their parents, and the quota of each pod, in turn. The upper levels
branch alike, as the fourth root of the number; the rest are leaves, spread evenly below the third level.
"""

from __future__ import annotations

from functools import lru_cache

from cotenant.domain.quota.names import ROOT

LEAST = 4
"""A quota on each level."""


def upper_levels(count: int) -> list[tuple[str, str]]:
    """Return the quotas above the leaves with their parents, those of the third level last."""
    branches = max(int(count**0.25), 1)
    found: list[tuple[str, str]] = []
    level = [ROOT]
    for depth in range(3):
        below = [(f"level-{depth + 1}-{index}", level[index // branches]) for index in range(branches ** (depth + 1))]
        found += below
        level = [name for name, _ in below]
    return found


@lru_cache(maxsize=1)
def leaves(count: int) -> int:
    """Return how many of this many quotas are leaves."""
    return count - len(upper_levels(count))


def leaf_name(index: int) -> str:
    """The name of a leaf."""
    return f"leaf-{index}"


def leaf_parents(count: int) -> list[str]:
    """Return the parents of the leaves, in their order."""
    upper = upper_levels(count)
    branches = max(int(count**0.25), 1)
    third = [name for name, _ in upper[-(branches**3) :]]
    return [third[index % len(third)] for index in range(leaves(count))]
