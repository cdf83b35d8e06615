"""A cache for pure functions of shared immutable structs, keyed by identity.

In: a function of one frozen struct. Out: the same function, with its last results cached. Frozen structs that hold lists or
maps have no hash; those that are shared (`api.objects.pod.decode_spec`) need none. The cache holds a struct as long as its
result, so its identity stays its own. Bound: REMEMBERED results, or the given number; then it is cleared. A result is
shared and must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

REMEMBERED = 512


def by_identity(compute: Callable[[S], T], remembered: int = REMEMBERED) -> Callable[[S], T]:
    """A decorator; see the module."""
    results: dict[int, tuple[S, T]] = {}

    @wraps(compute)
    def remembering(of: S) -> T:
        known = results.get(id(of))
        if known is not None:
            return known[1]
        result = compute(of)
        if len(results) >= remembered:
            results.clear()
        results[id(of)] = (of, result)
        return result

    return remembering
