"""The pods that are placed on a node, found by name, by uid and by control group.

In: placements as they are read. Out: the same in order of namespace and name, and what an adopting runtime and the strategies
take of them: each the same object as long as no placement changes. A uid is one pod's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping

from cotenant_node_executor.placed import Key, Placed
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.strategies.situation import PodView


class PlacedPods:
    """A fold of placements. Bound: the pods of one node."""

    def __init__(self) -> None:
        self._placed: dict[Key, Placed] = {}
        self._refused: dict[Key, Placed] = {}
        self._names: list[Key] = []
        """In order."""
        self._of_uid: dict[str, Key] = {}
        self._of_group: dict[str, Key] = {}
        self._views: tuple[PodView, ...] | None = None
        self._to_run: Mapping[str, PodToRun] | None = None

    @property
    def by_name(self) -> Mapping[Key, Placed]:
        """Every placement."""
        return self._placed

    @property
    def refused(self) -> Mapping[Key, Placed]:
        """Those that cannot run here."""
        return self._refused

    def put(self, key: Key, placed: Placed) -> None:
        """Take a placement, in the place of the one that had its name."""
        self.drop(key)
        insort(self._names, key)
        self._placed[key] = placed
        self._of_uid[placed.placement.uid] = key
        if placed.view is not None:
            self._of_group[placed.view.group] = key
        if placed.refusal:
            self._refused[key] = placed

    def drop(self, key: Key) -> None:
        """Forget a placement, if there is one of that name."""
        self._views = self._to_run = None
        placed = self._placed.pop(key, None)
        if placed is None:
            return
        del self._names[bisect_left(self._names, key)]
        self._refused.pop(key, None)
        if self._of_uid.get(placed.placement.uid) == key:
            del self._of_uid[placed.placement.uid]
        if placed.view is not None and self._of_group.get(placed.view.group) == key:
            del self._of_group[placed.view.group]

    def name_of(self, uid: str) -> Key | None:
        """The name of the pod with this uid."""
        return self._of_uid.get(uid)

    def unplaced(self, uids: Iterable[str]) -> tuple[str, ...]:
        """Those of these uids that no placed pod has, sorted."""
        return tuple(sorted(set(uids).difference(self._of_uid)))

    def of_uid(self, uid: str) -> Placed | None:
        """The pod with this uid."""
        key = self._of_uid.get(uid)
        return self._placed[key] if key is not None else None

    def in_groups(self, groups: Iterable[str]) -> list[Placed]:
        """The pods that live in these groups, by name."""
        return [self._placed[key] for key in sorted({self._of_group[group] for group in groups if group in self._of_group})]

    def views(self) -> tuple[PodView, ...]:
        """As strategies see them, by name."""
        if self._views is None:
            found = (self._placed[key].view for key in self._names)
            self._views = tuple(view for view in found if view is not None)
        return self._views

    def to_run(self) -> Mapping[str, PodToRun]:
        """As a runtime knows them, by uid."""
        if self._to_run is None:
            found = (self._placed[key].to_run for key in self._names)
            self._to_run = {pod.uid: pod for pod in found if pod is not None}
        return self._to_run
