"""What the read model is made of: stored documents, the parts that other services add, and snapshots of API objects.

A `Snapshot` is one API object at one moment: immutable, so that watch events and answers can hold it without copying.
Its JSON is composed when it is first read, not when the fact arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject, ObjectMeta
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.overlay import NOTHING, Overlay, composed_document
from cotenant.events.envelope import Event

_HEAD = msgspec.json.Decoder(AnyObject)


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where an API object is found."""

    kind: Kind
    namespace: str
    name: str


class Stored(msgspec.Struct, frozen=True, gc=False):
    """The object's own document as the log holds it, with its metadata decoded; for pods the typed view."""

    raw: msgspec.Raw
    meta: ObjectMeta
    sequence: int
    time: datetime | None
    pod: Pod | None = None


def stored_document(kind: Kind, raw: msgspec.Raw, sequence: int, time: datetime | None) -> Stored:
    """Return the document with its metadata. Raises msgspec.MsgspecError where it is not an object of this kind."""
    if kind.plural == "pods":
        pod = decode_pod(raw)
        return Stored(raw, pod.metadata, sequence, time, pod)
    return Stored(raw, _HEAD.decode(raw).metadata, sequence, time)


Composer = Callable[["Snapshot"], Overlay]


class Snapshot(msgspec.Struct, eq=False, gc=False):
    """One API object: its document (absent for kinds that are made of facts alone) and the parts that belong to it.

    `version` is the resourceVersion: the highest sequence among document and parts. `composer` tells what the parts add; None
    where there are none.
    """

    address: Address
    stored: Stored | None
    parts: Mapping[str, Event]
    version: int
    composer: Composer | None
    _overlay: Overlay | None = None
    _document: bytes | None = None
    _fields: Mapping[str, str] | None = None
    _view: msgspec.Struct | None = None

    @property
    def overlay(self) -> Overlay:
        """What the parts add to the document."""
        if self._overlay is None:
            self._overlay = self.composer(self) if self.composer is not None else NOTHING
        return self._overlay

    @property
    def document(self) -> bytes:
        """The composed object as JSON, with its resourceVersion."""
        if self._document is None:
            self._document = composed_document(self.stored.raw if self.stored else None, self.overlay, self.version)
        return self._document

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
            if self.address.kind.plural == "pods" and self.stored is not None:
                spec = self.pod.spec
                found |= {
                    "spec.nodeName": spec.node_name,
                    "spec.schedulerName": spec.scheduler_name,
                    "spec.restartPolicy": spec.restart_policy,
                    "status.phase": self.pod.status.phase,
                    "status.nominatedNodeName": "",
                }
            self._fields = {**found, **self.overlay.fields}
        return self._fields

    @property
    def pod(self) -> Pod:
        """The typed view of a pod's own document."""
        assert self.stored is not None
        assert self.stored.pod is not None
        return self.stored.pod

    def view(self, decode: Callable[[msgspec.Raw], msgspec.Struct]) -> msgspec.Struct:
        """The typed view of the document, decoded once; a kind has one `decode`."""
        if self._view is None:
            assert self.stored is not None
            self._view = decode(self.stored.raw)
        return self._view


FIELD_LABELS: Mapping[str, frozenset[str]] = {
    "pods": frozenset(
        {
            "metadata.name",
            "metadata.namespace",
            "spec.nodeName",
            "spec.schedulerName",
            "spec.restartPolicy",
            "status.phase",
            "status.nominatedNodeName",
        }
    ),
    "nodes": frozenset({"metadata.name", "metadata.namespace", "spec.unschedulable"}),
    "events": frozenset(
        {
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        }
    ),
}
"""Fields that a field selector may name, by plural."""

DEFAULT_FIELD_LABELS = frozenset({"metadata.name", "metadata.namespace"})
