"""The pods that are placed on a node, found by name, by uid and by control group.

In: decoded placements. Out: the same by name, for the runtime by uid, and for strategies by group; the latency endpoints that
they offer. A uid belongs to one pod. A pod with an unreadable annotation, which admission refuses, is not polled: strategies
report it.
"""

from __future__ import annotations

from collections.abc import Iterable, KeysView, Mapping, Set

from msgspec.structs import replace

from cotenant.domain.service_latency import ANNOTATION_ENDPOINT, parse_latency_endpoint
from cotenant.events.placements import PlacementPhase
from cotenant_node_executor.core.placed import DecodedPlacement, Key
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.sampling.latency.readings import AskedService
from cotenant_node_executor.strategies.pod_view import PodView

_TERMINATING = PlacementPhase.TERMINATING


class PlacedPods:
    """A fold of placements. Bound: the pods of one node."""

    def __init__(self) -> None:
        self._placed: dict[Key, DecodedPlacement] = {}
        self._refused: dict[Key, DecodedPlacement] = {}
        self._of_uid: dict[str, Key] = {}
        self._of_ref: dict[str, DecodedPlacement] = {}
        self._runnable: dict[str, PodToRun] = {}
        """By uid, those that can run here."""
        self._to_run: Mapping[str, PodToRun] | None = None
        """A copy of these, as last returned; None once they have changed."""
        self.by_name: Mapping[Key, DecodedPlacement] = self._placed
        """Every placement."""
        self.refused: Mapping[Key, DecodedPlacement] = self._refused
        """Names of pods that cannot run here."""
        self._views: dict[str, PodView] = {}
        self.views: Mapping[str, PodView] = self._views
        """The views that strategies read, by group."""
        self._changed: set[str] = set()
        self.terminating: frozenset[str] = frozenset()
        """Uids of pods whose placement ends them."""

    def put(self, key: Key, placed: DecodedPlacement) -> None:
        """Add a placement; one with the same name is replaced."""
        self.drop(key)
        self._placed[key] = placed
        self._of_uid[placed.placement.uid] = key
        self._of_ref[placed.ref] = placed
        if placed.to_run is not None:
            self._runnable[placed.placement.uid] = placed.to_run
        view = placed.view
        if view is not None:
            self._views[view.group] = view
            self._changed.add(view.group)
        if placed.refusal:
            self._refused[key] = placed
        if placed.placement.phase is _TERMINATING:
            self.terminating |= {placed.placement.uid}

    def refuse(self, key: Key, reason: str, message: str) -> None:
        """Refuse the pod of that name until its placement changes."""
        placed = replace(self._placed[key], refusal=message, reason=reason)
        self._placed[key] = self._refused[key] = placed

    def drop(self, key: Key) -> None:
        """Remove the placement of that name, if there is one."""
        self._to_run = None
        placed = self._placed.pop(key, None)
        if placed is None:
            return
        self._refused.pop(key, None)
        self._of_ref.pop(placed.ref, None)
        if placed.placement.uid in self.terminating:
            self.terminating -= {placed.placement.uid}
        if self._of_uid.get(placed.placement.uid) == key:
            del self._of_uid[placed.placement.uid]
            self._runnable.pop(placed.placement.uid, None)
        if placed.view is not None and self.views.get(placed.view.group) is placed.view:
            del self._views[placed.view.group]
            self._changed.add(placed.view.group)

    def take_place_of(self, former: PlacedPods) -> None:
        """Count the views of these other pods, whose place these take, as changed."""
        self._changed |= former.views.keys()

    def changed(self) -> Set[str]:
        """Groups whose view changed since the last call. Bound: the pods placed since then."""
        changed = self._changed
        if changed:
            self._changed = set()
        return changed

    def name_of(self, uid: str) -> Key | None:
        """Return the name of the pod with this uid."""
        return self._of_uid.get(uid)

    def unplaced(self, uids: KeysView[str]) -> tuple[str, ...]:
        """The given uids that belong to no placed pod, sorted."""
        placed = self._of_uid.keys()
        return () if uids <= placed else tuple(sorted(uids - placed))

    def of_uid(self, uid: str) -> DecodedPlacement | None:
        """The pod with this uid."""
        key = self._of_uid.get(uid)
        return self._placed[key] if key is not None else None

    def trace_of(self, ref: str) -> str:
        """The traceparent of a current placement, by its reference; empty where there is none."""
        placed = self._of_ref.get(ref)
        return placed.traceparent if placed is not None else ""

    def around(self, groups: Iterable[str]) -> list[DecodedPlacement]:
        """The pods that own these groups, by name."""
        found: set[Key] = set()
        for group in groups:
            view = self._views.get(group)
            while view is None and "/" in group:
                group = group.rpartition("/")[0]
                view = self._views.get(group)
            if view is not None:
                found.add((view.namespace, view.name))
        return [self._placed[key] for key in sorted(found)]

    def to_run(self) -> Mapping[str, PodToRun]:
        """The pods in the runtime's form, by uid."""
        if self._to_run is None:
            self._to_run = self._runnable.copy()
        return self._to_run


def offers_latency(placed: DecodedPlacement | None) -> bool:
    """Whether a pod has the annotation."""
    return placed is not None and placed.view is not None and ANNOTATION_ENDPOINT in placed.view.annotations


def holds_cpus(placed: DecodedPlacement | None) -> bool:
    """Whether a pod has CPUs of its own."""
    return placed is not None and placed.view is not None and bool(placed.view.bound_cpus)


def asked_services(placed: Iterable[DecodedPlacement]) -> tuple[AskedService, ...]:
    """The endpoints to poll, by group."""
    found: dict[str, AskedService] = {}
    for each in placed:
        if each.view is None or each.refusal or not offers_latency(each):
            continue
        try:
            endpoint = parse_latency_endpoint(each.view.annotations[ANNOTATION_ENDPOINT])
        except ValueError:
            continue
        found[each.view.group] = AskedService(each.view.group, endpoint)
    return tuple(found[group] for group in sorted(found))
