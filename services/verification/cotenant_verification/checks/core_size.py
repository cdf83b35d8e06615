"""The size of a core: the entries of all its containers, without shared ones.

In: an object. Out: a count. Walks attributes, slots, dicts, lists and sets of the project's own classes, each object once.
Results kept for speed have bounds of their own (`CACHES` by the attribute's name) and are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

CACHES = frozenset({
    *("_evaluations", "_choices", "_figures", "_static", "_ended", "_usage", "_desired"),
    *("_needs", "_adds", "_kinds", "_recognised", "_alike", "_shared"),
})
"""The second line: results by the shape of a pod, of which resizes and updates bring ever new ones."""
LIMIT = 2_000_000


def core_size(core: object) -> int:
    """Count the entries that a core holds."""
    seen: set[int] = set()
    waiting: deque[object] = deque([core])
    total = 0
    while waiting and total < LIMIT:
        here = waiting.popleft()
        if id(here) in seen:
            continue
        seen.add(id(here))
        children = list(_children(here))
        if isinstance(here, dict | list | set | frozenset | deque):
            total += len(children)
        waiting.extend(children)
    return total


def _children(here: object) -> Iterator[object]:
    if isinstance(here, dict):
        yield from here.values()
    elif isinstance(here, list | set | frozenset | deque):
        yield from here
    elif type(here).__module__.startswith("cotenant_"):
        state = getattr(here, "__dict__", {})
        for name, value in state.items():
            if name not in CACHES:
                yield value
        for name in getattr(type(here), "__slots__", ()):
            if name not in CACHES and hasattr(here, name):
                yield getattr(here, name)
