"""Which entities a core has to evaluate again, so that an idle cluster costs nothing.

Two helpers for `decide`, both caches that must not change a result. `Agenda` is for what follows from single entities: those
marked since they were last settled, and those whose next evaluation is due, like a work queue with delays.
`IdleSpan` is for what follows from a state as a whole.

An early evaluation does no harm, so an entity's next evaluation is only moved to earlier times: the heap holds about one entry
per entity.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from heapq import heappop, heappush

from cotenant.model.times import NEVER

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Agenda:
    """Entities by name. Bound: one name per entity, and one heap entry per next look that was moved to an earlier time."""

    __slots__ = ("_heap", "_looks", "_marked")

    def __init__(self) -> None:
        self._marked: set[str] = set()
        self._looks: dict[str, datetime] = {}
        """When each entity that waits for a time is evaluated again."""
        self._heap: list[tuple[datetime, str]] = []
        """The same by time; entries that are not their entity's next look are stale."""

    def mark(self, name: str) -> None:
        """Mark an entity with a newly folded event."""
        self._marked.add(name)

    def mark_all(self, names: Iterable[str]) -> None:
        """Mark several entities with newly folded events."""
        self._marked.update(names)

    def drop(self, name: str) -> None:
        """Forget an entity that has ended."""
        self._marked.discard(name)
        self._looks.pop(name, None)

    def settle(self, name: str, until: datetime = NEVER) -> None:
        """Record that nothing follows from the entity before `until` unless it is marked."""
        self._marked.discard(name)
        if until < NEVER:
            known = self._looks.get(name)
            if known is None or until < known:
                self._looks[name] = until
                heappush(self._heap, (until, name))

    def waits(self, name: str) -> bool:
        """Return whether the entity has a next look."""
        return name in self._looks

    def due(self, now: datetime) -> list[str]:
        """Return the entities to evaluate now, sorted. They stay due until they are settled or dropped."""
        heap, looks = self._heap, self._looks
        while heap and heap[0][0] <= now:
            when, name = heappop(heap)
            if looks.get(name) == when:
                del looks[name]
                self._marked.add(name)
        return sorted(self._marked)


class IdleSpan:
    """Records that nothing follows from a state of one version within a span of time."""

    __slots__ = ("_since", "_version", "until")

    def __init__(self) -> None:
        self._version = -1
        self._since = _EPOCH
        self.until = _EPOCH
        """When something may follow merely because time has passed."""

    def begin(self, version: int, now: datetime, until: datetime) -> None:
        """Record that nothing follows now. A version of -1 never holds."""
        self._version, self._since, self.until = version, now, until

    def holds(self, version: int, now: datetime) -> bool:
        """Return whether nothing follows now either."""
        return version == self._version >= 0 and self._since <= now < self.until
