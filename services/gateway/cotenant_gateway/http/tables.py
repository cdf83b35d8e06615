"""Objects as meta/v1 Tables, which `kubectl get` requests with `Accept: application/json;as=Table`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from cotenant.api.columns import Column, Layout
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import EMPTY_OBJECT, members, raw

_API_VERSION = "meta.k8s.io/v1"


class TableFormat(msgspec.Struct, frozen=True):
    """The requested format: as a table, and with how much of the object in each row."""

    include_object: str = "Metadata"


def wants_table(accept: str) -> bool:
    """Return whether the client prefers a table of a served version."""
    for choice in accept.split(","):
        fields = choice.replace(" ", "").split(";")
        if fields[0] != "application/json":
            continue
        if "as=Table" in fields and "g=meta.k8s.io" in fields:
            if "v=v1" in fields:
                return True
            continue
        return False
    return False


def _column(column: Column) -> dict[str, str | int]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(layout: Layout, snapshot: Snapshot, now: datetime, include: str) -> dict[str, object]:
    try:
        cells = list(layout.cells(snapshot, now))
    except msgspec.ValidationError:
        # A status of unexpected shape, stored by another writer: at least the name is shown.
        cells = [snapshot.address.name, *("<invalid>" for _ in layout.columns[1:])]
    row: dict[str, object] = {"cells": cells}
    if include == "Object":
        row["object"] = msgspec.Raw(snapshot.document)
    elif include != "None":
        row["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": _API_VERSION,
            "metadata": members(snapshot.document).get("metadata", EMPTY_OBJECT),
        }
    return row


def table(
    layout: Layout,
    snapshots: Iterable[Snapshot],
    metadata: Mapping[str, object],
    now: datetime,
    form: TableFormat,
    *,
    with_columns: bool = True,
) -> bytes:
    """Return the Table of objects of one kind; watches leave the columns out after the first."""
    rows = [_row(layout, snapshot, now, form.include_object) for snapshot in snapshots]
    return msgspec.json.encode(
        {
            "kind": "Table",
            "apiVersion": _API_VERSION,
            "metadata": metadata,
            "columnDefinitions": [_column(column) for column in layout.columns] if with_columns else [],
            "rows": rows,
        }
    )


def with_version(document: bytes, version: int) -> bytes:
    """Return an object with another resourceVersion: what a DELETED event shows."""
    top = members(document)
    metadata = members(top.get("metadata", EMPTY_OBJECT))
    metadata["resourceVersion"] = msgspec.Raw(b'"%d"' % version)
    top["metadata"] = raw(metadata)
    return msgspec.json.encode(top)
