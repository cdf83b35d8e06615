"""core/v1 Event: what happened to pods and nodes, composed of the facts on the log; clients may store their own too.

How facts become events is the gateway's (`read_model/narration.py`): one event object counts many facts. Rejected sections of
the node configuration are Events of its ConfigMap.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot

EVENTS = Kind("", "v1", "events", "Event", True, ("ev",), True)


class _Involved(View, frozen=True, kw_only=True):
    kind: str = ""
    name: str = ""


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: _Involved = _Involved()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 1
    last_timestamp: str | None = None


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    involved = f"{shown.involved_object.kind.lower()}/{shown.involved_object.name}"
    return (
        age(shown.last_timestamp or shown.metadata.creation_timestamp, now),
        shown.type,
        shown.reason,
        involved,
        shown.message.strip(),
        shown.count,
        snapshot.address.name,
    )


DEFINITION = KindDefinition(
    EVENTS,
    layout=Layout(
        (
            Column("Last Seen"),
            Column("Type"),
            Column("Reason"),
            Column("Object"),
            Column("Message"),
            Column("Count", "integer", priority=1),
            Column("Name", format="name", priority=1),
        ),
        _cells,
    ),
    field_labels=frozenset(
        {
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        }
    ),
)
