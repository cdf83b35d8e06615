"""core/v1 Namespace: the scope of namespaced objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot

NAMESPACES = Kind("", "v1", "namespaces", "Namespace", False, ("ns",), label_names=True)
BUILT_IN_NAMESPACES = ("default", "kube-system", "koordinator-system")


class _Status(View, frozen=True, kw_only=True):
    phase: str = ""


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    phase = "Terminating" if shown.metadata.deletion_timestamp else shown.status.phase or "Active"
    return snapshot.address.name, phase, age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(NAMESPACES, layout=Layout((NAME, Column("Status"), AGE), _cells), has_status=True)
