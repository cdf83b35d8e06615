"""Declared objects, byte for byte as given plus admission's changes. Written by gateway and kubernetes-bridge."""

from __future__ import annotations

import msgspec

from cotenant.events.envelope import Payload, null_document


class ObjectStored(Payload, frozen=True, kw_only=True):
    """The object as it is from now on. `object` is the raw JSON document (never with a resourceVersion)."""
    TYPE = "cotenant.object.v1"

    object: msgspec.Raw
    admission: tuple[str, ...] = ()
    """Admission's changes, in words, in order."""


class ObjectDeleted(Payload, frozen=True, kw_only=True):
    """Tombstone: the object with this uid has ended."""
    TYPE = "cotenant.object.deleted.v1"

    uid: str = ""
    reason: str = ""
    """Why, if no user requested it: a finished pod that was collected."""
    object: msgspec.Raw = msgspec.field(default_factory=null_document)
    """The last document, if the writer gives it. The gateway does not: tombstones are small, HISTORY has earlier documents."""
