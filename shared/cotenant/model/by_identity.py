"""What pure functions make of immutable structs that many hold: computed once for each struct, known by its identity.

In: a function of one frozen struct. Out: the same function, with its last results remembered. Frozen structs that hold lists or
maps have no hash; those that are shared (`api.objects.pod.decode_spec`) need none. A struct is held as long as its result
is, so its identity stays its own. Bound: REMEMBERED results, or as many as are named, then it starts empty. A result is shared
and not to be changed.
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
