"""What pure functions make of immutable structs that many hold: computed once for each struct, known by its identity.

In: a function of one frozen struct. Out: the same function, with its last results remembered. Frozen structs that hold lists or
maps have no hash; those that are shared (`cotenant.objects.pod.decode_spec`) need none. A struct is held as long as its result
is, so its identity stays its own. Bound: REMEMBERED results, or as many as are named, then it begins anew. A result is shared
and not to be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

S = TypeVar("S")
T = TypeVar("T")

REMEMBERED = 512


class ByIdentity(Generic[S, T]):
    """A decorator; see the module."""

    def __init__(self, compute: Callable[[S], T], remembered: int = REMEMBERED) -> None:
        self._compute = compute
        self._remembered = remembered
        self._known: dict[int, tuple[S, T]] = {}

    def __call__(self, of: S) -> T:
        known = self._known.get(id(of))
        if known is not None:
            return known[1]
        result = self._compute(of)
        if len(self._known) >= self._remembered:
            self._known.clear()
        self._known[id(of)] = (of, result)
        return result
