"""The table of `kubectl get`: the columns of a kind, and the cells of an object's row.

In: a composed object and the time. Out: one cell a column. Columns with priority 1 are shown with `-o wide` only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.snapshots import Snapshot

Cell = str | int | bool | None


class Column(msgspec.Struct, frozen=True):
    """meta/v1 TableColumnDefinition."""

    name: str
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


class Layout(msgspec.Struct, frozen=True):
    """Columns of a kind and the function that fills their cells. `cells` may raise msgspec.ValidationError."""

    columns: tuple[Column, ...]
    cells: Callable[[Snapshot, datetime], Sequence[Cell]]


NAME = Column("Name", format="name")
AGE = Column("Age")


def wide(*names: str) -> tuple[Column, ...]:
    """Return text columns that only `-o wide` shows."""
    return tuple(Column(name, priority=1) for name in names)


class _Head(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()


_HEAD = msgspec.json.Decoder(_Head)


def _name_and_age(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    head = _HEAD.decode(snapshot.document)
    return snapshot.address.name, age(head.metadata.creation_timestamp, now)


PLAIN = Layout((NAME, AGE), _name_and_age)
"""The default columns of a kind: name and age."""
