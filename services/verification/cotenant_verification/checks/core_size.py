"""The size of a core: the entries of all its containers, without shared ones.

In: an object. Out: a count. Walks attributes, slots, dicts, lists and sets of the project's own classes, each object once;
frozen structs are data, whose content is not counted. Caches and memories that state a bound of their own (`BOUNDED`) are left
out: a live core's have what ended pods had as well, until they are full, and a fresh core's are nearly empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

BOUNDED = frozenset(
    {
        # Of cores that fold messages: live subjects and those that ended within the last REMEMBERED_POSITIONS of LOG.
        "LastSequences._ended",
        "LastSequences._last",
        # Of quota-tree.
        "PodDemands._shared",
        # Of the scheduler.
        "AssignedPods._known",
        "CachedResults._evaluations",
        "CachedResults._static",
        "ChangedNames._names",
        "ChargedPods._shared",
        "CountedRows._adds",
        "FigureCache._total",
        "NodeColumns._needs",
        "PodReader._alike",
        "PodReader._recognised",
        "PodReader._wants",
        "Preemption._by_importance",
        "Preemption._choices",
        "QuotaDemands._kinds",
        "Reserving._candidates",
        "SelectorIndex._matches",
    }
)
"""By class and attribute: what states a bound of its own, and until that is reached also has what ended entities had."""
LIMIT = 2_000_000
_OWN = ("cotenant.", "cotenant_")


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
    elif type(here).__module__.startswith(_OWN) and not _is_data(here):
        classes = type(here).__mro__
        names = {*getattr(here, "__dict__", ()), *(name for kind in classes for name in getattr(kind, "__slots__", ()))}
        for name in sorted(names):
            if hasattr(here, name) and not any(f"{kind.__name__}.{name}" in BOUNDED for kind in classes):
                yield getattr(here, name)


def _is_data(here: object) -> bool:
    """Whether an object is a frozen struct: nothing is added to one."""
    return isinstance(here, msgspec.Struct) and here.__struct_config__.frozen
