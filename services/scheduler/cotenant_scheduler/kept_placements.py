"""How a placement is kept: small, as there are a hundred thousand of them.

In: a placement as it was read, and the facts of its pod. Out: `Kept`: the placement without its figures, sharing with the
facts what both say, and the figures as numbers beside names that placements share; `whole` gives the placement back as it
was read. What was decided here is made of shared parts already.

Bounds: MAX_NAMES lists of names are shared, then all are dropped and made anew.
"""

from __future__ import annotations

import msgspec

from cotenant.events.placements import Figure, Placement
from cotenant_scheduler.shapes import PodFacts

MAX_NAMES = 4096

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(tuple[int, ...]).decode


class Kept(msgspec.Struct, frozen=True):
    """A placement without its figures, and these."""

    data: Placement
    names: tuple[str, ...] = ()
    values: bytes = b""

    def whole(self) -> Placement:
        """Return the placement with its figures."""
        if not self.names:
            return self.data
        figures = tuple(Figure(name=name, value=value) for name, value in zip(self.names, _DECODE(self.values), strict=True))
        return msgspec.structs.replace(self.data, figures=figures)


class PlacementKeeper:
    """Makes `Kept`; remembers the names."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._last: Placement | None = None

    def keep(self, data: Placement, node: str, document: msgspec.Raw, facts: PodFacts | None) -> Kept:
        """Keep a placement that was read. `node` and `document` are equal to its own, and shared."""
        names = tuple([figure.name for figure in data.figures])
        known = self._names.get(names)
        if known is None:
            if len(self._names) >= MAX_NAMES:
                self._names.clear()
            known = self._names[names] = names
        last = self._last
        shape = facts.shape if facts is not None else None
        same = facts is not None and (facts.uid, facts.name, facts.namespace) == (data.uid, data.name, data.namespace)
        lean = self._last = msgspec.structs.replace(
            data,
            node=node,
            figures=(),
            pod=document,
            namespace=facts.namespace if same and facts else data.namespace,
            name=facts.name if same and facts else data.name,
            uid=facts.uid if same and facts else data.uid,
            requests=shape.requests if shape is not None and shape.requests == data.requests else data.requests,
            bound_at=last.bound_at if last is not None and last.bound_at == data.bound_at else data.bound_at,
        )
        return Kept(lean, known, _ENCODE([figure.value for figure in data.figures]))
