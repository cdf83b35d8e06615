"""The last changes of API objects, in order of resourceVersion: what watches read.

Bounds: at most `capacity` changes and `byte_capacity` bytes of documents; beyond them the oldest are dropped. A watch from
a version below the oldest kept (or a reader that fell behind it) gets `TooOld`, which the API answers with 410.
"""

from __future__ import annotations

from collections import deque

from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Snapshot
from cotenant.model.values import Value

CHANGE_BYTES = 256
READ_BYTES = 1 << 20


class ObjectChange(Value, frozen=True):
    """One object before and after one fact; None if it did not exist, or no longer does."""

    version: int
    kind: Kind
    before: Snapshot | None
    after: Snapshot | None

    @property
    def weight(self) -> int:
        """Approximate bytes of this change. The object before it is the one after an earlier change; if that is
        no longer held, it costs as much again."""
        held = self.after if self.after is not None else self.before
        return CHANGE_BYTES + (held.weight_bytes if held is not None else 0)


class TooOld(Exception):  # noqa: N818 - a state of the reader, not a fault
    """The requested version is below the oldest in the ring."""

    def __init__(self, oldest: int) -> None:
        super().__init__(f"changes up to {oldest} are no longer held")
        self.oldest = oldest


class ChangeRing:
    """A bounded queue of changes, addressed by a position that only grows."""

    def __init__(self, capacity: int = 20_000, byte_capacity: int = 128 * 1024 * 1024) -> None:
        self._changes: deque[tuple[ObjectChange, int]] = deque()
        self._capacity = capacity
        self._byte_capacity = byte_capacity
        self._bytes = 0
        self._dropped = 0
        self.oldest = 0
        """Highest version whose change is not held: watches may start at this version or above."""

    @property
    def end(self) -> int:
        """Position behind the newest change."""
        return self._dropped + len(self._changes)

    def restart(self, version: int) -> None:
        """Drop everything; watches may start at `version` or above."""
        self._dropped = self.end
        self._changes.clear()
        self._bytes = 0
        self.oldest = version

    def lose(self, version: int) -> None:
        """A change before `version` was never seen: every watch ends, and may begin again at `version` or above."""
        self._dropped = self.end + 1
        self._changes.clear()
        self._bytes = 0
        self.oldest = version

    def append(self, change: ObjectChange) -> None:
        """Add the newest change; drop the oldest ones beyond the bounds."""
        weight = change.weight
        self._changes.append((change, weight))
        self._bytes += weight
        while len(self._changes) > self._capacity or (self._bytes > self._byte_capacity and len(self._changes) > 1):
            dropped, dropped_weight = self._changes.popleft()
            self._bytes -= dropped_weight
            self._dropped += 1
            self.oldest = dropped.version

    def position_after(self, version: int) -> int:
        """Return the position of the first change above a version. Raises TooOld."""
        if version < self.oldest:
            raise TooOld(self.oldest)
        low, high = 0, len(self._changes)
        while low < high:
            middle = (low + high) // 2
            if self._changes[middle][0].version <= version:
                low = middle + 1
            else:
                high = middle
        return self._dropped + low

    def complete_to(self, position: int, folded: int) -> int:
        """Return the highest version up to which a reader at `position` has read everything; `folded` is the read model's.

        Several changes may have one version. Raises TooOld where `position` was dropped.
        """
        if position < self._dropped:
            raise TooOld(self.oldest)
        index = position - self._dropped
        return self._changes[index][0].version - 1 if index < len(self._changes) else folded

    def read(self, position: int, limit: int, byte_limit: int = READ_BYTES) -> list[ObjectChange]:
        """Return up to `limit` changes from a position on, fewer once they weigh `byte_limit` bytes. Raises TooOld where it was
        dropped."""
        if position < self._dropped:
            raise TooOld(self.oldest)
        start = position - self._dropped
        found, weight = [], 0
        for index in range(start, min(start + limit, len(self._changes))):
            change, heavy = self._changes[index]
            found.append(change)
            weight += heavy
            if weight >= byte_limit:
                break
        return found
