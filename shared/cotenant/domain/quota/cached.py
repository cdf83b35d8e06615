"""What a pure function made of its last arguments.

In: a pure function. Out: the same function, which computes again only where an argument is another one than last time. Of
arguments that are the very same objects nothing is looked at, so a chain of such functions costs next to nothing where nothing
changed, and where something did only what depends on it is computed. Arguments and results are shared, and not to be changed.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Generic, Self, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Cached(Generic[*Ts, T]):
    """See the module. A result of None is not cached."""

    __slots__ = ("_arguments", "_compute", "_result")

    def __init__(self, compute: Callable[[*Ts], T]) -> None:
        self._compute = compute
        self._arguments: tuple[*Ts] | None = None
        self._result: T | None = None

    def __call__(self, *arguments: *Ts) -> T:
        result = self._result
        if result is None or arguments != self._arguments:
            result = self._result = self._compute(*arguments)
        self._arguments = arguments
        return result

    def __deepcopy__(self, _: object) -> Self:
        """A copy shares what is immutable."""
        return copy(self)
