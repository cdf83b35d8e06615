"""Compact reading and storing of placements, as there are a hundred thousand of them.

In: a placement as it was read, whole (`Placement`) or with its figures as they were written (`PlacementView`, what the service
decodes), and the facts of its pod. Out: `StoredPlacement`: the placement without its figures, which shares common parts with
the facts, and the figures as JSON; `whole` returns the placement as it was read. What was decided here is made of shared parts
already.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.allocations import Allocation
from cotenant.events.envelope import PayloadView, null_document
from cotenant.events.placements import Figure, Placement, PlacementPhase, UsedBy
from cotenant.events.resizes import PlacementResize
from cotenant.model.bounds import Amount, Count, Seconds
from cotenant.model.values import Value
from cotenant_scheduler.state.reading.shapes import ParsedPod

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder(tuple[Figure, ...]).decode
_NO_FIGURES = msgspec.Raw(b"[]")


class PlacementView(PayloadView, frozen=True, kw_only=True):
    """A placement whose figures stay encoded, as they are not used: that halves the cost of reading one."""

    OF = Placement

    node: str
    namespace: str
    name: str
    uid: str
    phase: PlacementPhase = PlacementPhase.BOUND
    pod: msgspec.Raw = msgspec.field(default_factory=null_document)
    requests: dict[str, Amount] = {}
    quota: str = ""
    quota_tree: str = ""
    bound_at: datetime | None = None
    grace_period_seconds: Seconds = 30
    reason: str = ""
    figures: msgspec.Raw = _NO_FIGURES
    object_sequence: Count = 0
    terminating_at: datetime | None = None
    allocation: Allocation | None = None
    used_by: UsedBy | None = None
    resize: PlacementResize | None = None


class StoredPlacement(Value, frozen=True):
    """A placement without its figures, and these; or, with no `figures`, the placement as it was decided."""

    data: Placement
    figures: bytes = b""

    def whole(self) -> Placement:
        """Return the placement with its figures."""
        if not self.figures:
            return self.data
        try:
            figures = _DECODE(self.figures)
        except msgspec.DecodeError:
            # A scheduler does not write such a message, and no decision depends on it.
            figures = ()
        return msgspec.structs.replace(self.data, figures=figures)


class PlacementInterner:
    """Makes `StoredPlacement`s; caches the last time of binding, which the placements of one decision share."""

    def __init__(self) -> None:
        self._bound_at: datetime | None = None

    def intern(
        self, data: Placement | PlacementView, node: str, document: msgspec.Raw, facts: ParsedPod | None
    ) -> StoredPlacement:
        """Return a placement that was read. `node` and `document` are equal to its own, and shared."""
        if data.bound_at != self._bound_at:
            self._bound_at = data.bound_at
        figures = data.figures
        namespace, name, uid, requests = data.namespace, data.name, data.uid, data.requests
        if facts is not None:
            if (facts.uid, facts.name, facts.namespace) == (uid, name, namespace):
                namespace, name, uid = facts.namespace, facts.name, facts.uid
            if facts.shape is not None and facts.shape.requests == requests:
                requests = facts.shape.requests
        lean = Placement(
            node=node,
            namespace=namespace,
            name=name,
            uid=uid,
            phase=data.phase,
            pod=document,
            requests=requests,
            quota=data.quota,
            quota_tree=data.quota_tree,
            bound_at=self._bound_at,
            grace_period_seconds=data.grace_period_seconds,
            reason=data.reason,
            object_sequence=data.object_sequence,
            terminating_at=data.terminating_at,
            allocation=data.allocation,
            used_by=data.used_by,
            resize=data.resize,
        )
        return StoredPlacement(lean, bytes(figures) if isinstance(figures, msgspec.Raw) else _ENCODE(figures))
