"""The annotation with an external hint about a pod's node: Koordinator's SchedulingHint.

In: annotations of a pod. Out: `SchedulingHint`. `internal.scheduling.koordinator.sh/scheduling-hint` is read before
`scheduling.koordinator.sh/scheduling-hint`; an empty text is none.

    {"nodeNames": ["a", "b"], "preferredNodeNames": ["b"], "extensions": {}}

`nodeNames`: no other nodes; empty: any. `preferredNodeNames`: tried in this order before others, the first
PREFERRED_NODES of them. `extensions` is kept, but not read. Source: Koordinator's schedulinghint plugin (`maxHintNodes`).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.model.names import ANNOTATION_INTERNAL_SCHEDULING_HINT, ANNOTATION_SCHEDULING_HINT

PREFERRED_NODES = 100
"""Names of preferred nodes that count; later ones are left out."""
HINT_ANNOTATIONS = (ANNOTATION_INTERNAL_SCHEDULING_HINT, ANNOTATION_SCHEDULING_HINT)
"""The first one that has a text counts."""


class SchedulingHintError(ValueError):
    """The annotation cannot be read; the text states why."""

    def __init__(self, annotation: str, text: str, why: str) -> None:
        super().__init__(f"{annotation} must be a JSON object with lists of node names: {why}")
        self.annotation = annotation
        self.text = text


class _Hint(View, frozen=True, kw_only=True):
    node_names: list[str] = []
    preferred_node_names: list[str] = []


class SchedulingHint(msgspec.Struct, frozen=True):
    """Where a pod should go. Hashable."""

    only: tuple[str, ...] = ()
    """In the order of their names; empty: every node."""
    preferred: tuple[str, ...] = ()
    """The first one first, each once."""


_DECODER = msgspec.json.Decoder(_Hint)


def scheduling_hint(annotations: Mapping[str, str]) -> SchedulingHint | None:
    """Return the hint of a pod; None if it has none. Raises SchedulingHintError."""
    for annotation in HINT_ANNOTATIONS:
        text = annotations.get(annotation)
        if text:
            break
    else:
        return None
    try:
        found = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise SchedulingHintError(annotation, text, str(error)) from None
    preferred = tuple(dict.fromkeys(found.preferred_node_names))[:PREFERRED_NODES]
    if not found.node_names and not preferred:
        return None
    return SchedulingHint(tuple(sorted(set(found.node_names))), preferred)
