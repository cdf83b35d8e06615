"""The elements of the read model: stored documents, the parts that other services add, and snapshots of API objects.

A `Snapshot` is one API object at one moment: immutable, so that watch events and answers can hold it without copying.
Its JSON is composed when it is first read, not when the fact arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject, Headed, ObjectMeta
from cotenant.api.objects.pod import Pod
from cotenant.api.overlay import NO_OVERLAY, Overlay, composed_document
from cotenant.events.envelope import Event
from cotenant.model.values import Value

SNAPSHOT_BYTES = 512
PART_BYTES = 256
"""Parts are mostly shared with the snapshots before and after."""
_HEAD = msgspec.json.Decoder(AnyObject)


class Address(Value, frozen=True):
    """The address of an API object."""

    kind: Kind
    namespace: str
    name: str


class StoredObject(Value, frozen=True):
    """The object's own document as the log holds it, with its metadata decoded; for some kinds also the typed view."""

    raw: msgspec.Raw
    meta: ObjectMeta
    sequence: int
    time: datetime | None
    view: Headed | None = None


def stored_document(
    raw: msgspec.Raw, sequence: int, time: datetime | None, decode: Callable[[msgspec.Raw], Headed] | None = None
) -> StoredObject:
    """Return the document with its metadata, and its view if `decode` is given. Raises msgspec.MsgspecError where it is not an
    object of its kind."""
    if decode is not None:
        view = decode(raw)
        return StoredObject(raw, view.metadata, sequence, time, view)
    return StoredObject(raw, _HEAD.decode(raw).metadata, sequence, time)


Composer = Callable[["Snapshot"], Overlay]


class Snapshot(msgspec.Struct, eq=False, gc=False):
    """One API object: its document (absent for kinds that are derived from facts alone) and the parts that belong to it.

    `version` is the resourceVersion: the highest sequence among document and parts. `composer` returns what the parts
    add; None where there are none. `created`: the creationTimestamp of an object without a document, where it follows from
    its node's.
    """

    address: Address
    stored: StoredObject | None
    parts: Mapping[str, Event]
    version: int
    composer: Composer | None
    created: str = ""
    _overlay: Overlay | None = None
    _document: bytes | None = None
    _fields: Mapping[str, str] | None = None
    _view: msgspec.Struct | None = None

    @property
    def overlay(self) -> Overlay:
        """The parts' additions to the document."""
        if self._overlay is None:
            self._overlay = self.composer(self) if self.composer is not None else NO_OVERLAY
        return self._overlay

    @property
    def document(self) -> bytes:
        """The composed object as JSON, with its resourceVersion."""
        if self._document is None:
            raw = self.stored.raw if self.stored else None
            self._document = composed_document(raw, self.overlay, self.version, self.created)
        return self._document

    @property
    def weight_bytes(self) -> int:
        """Approximate memory: its document as stored and as composed, and manifests that parts carry."""
        stored = self.stored
        weight = SNAPSHOT_BYTES + PART_BYTES * len(self.parts)
        if stored is not None:
            raw_bytes = memoryview(stored.raw).nbytes
            weight += 2 * raw_bytes
            if self.parts and (self.address.kind.group, self.address.kind.plural) == ("", "pods"):
                weight += raw_bytes
        return weight

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels for selectors, those of the parts included."""
        own = self.stored.meta.labels if self.stored is not None else {}
        added = self.overlay.labels
        return {**own, **added} if added else own

    @property
    def uid(self) -> str:
        return self.stored.meta.uid if self.stored is not None else self.overlay.uid

    @property
    def meta(self) -> ObjectMeta:
        """The document's metadata; empty where there is no document."""
        return self.stored.meta if self.stored is not None else ObjectMeta(name=self.address.name)

    @property
    def fields(self) -> Mapping[str, str]:
        """Values of the fields that field selectors may name."""
        if self._fields is None:
            found = {"metadata.name": self.address.name, "metadata.namespace": self.address.namespace}
            self._fields = {**found, **self.overlay.fields}
        return self._fields

    @property
    def pod(self) -> Pod:
        """The typed view of a pod's own document."""
        assert self.stored is not None
        pod = self.stored.view
        assert isinstance(pod, Pod)
        return pod

    def view(self, decode: Callable[[msgspec.Raw], msgspec.Struct]) -> msgspec.Struct:
        """The typed view of the document, decoded once; a kind has one `decode`."""
        if self._view is None:
            assert self.stored is not None
            folded = self.stored.view
            self._view = folded if isinstance(folded, msgspec.Struct) else decode(self.stored.raw)
        return self._view
