"""Writes that belong together: what the shell stores as one atomic batch, or not at all."""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.snapshots import Address
from cotenant.events.envelope import Event, Payload
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.objects import ObjectStored
from cotenant.log.contract import TOMBSTONE_TTL_SECONDS, NoAnswer, Refused
from cotenant.model.subjects import eviction_subject, object_subject

WRITE_BYTES = 1024
"""Overhead of a write beside the object that it stores, in bytes."""


class PlannedWrite(msgspec.Struct, frozen=True):
    """One message: the subject it goes to and the last sequence that the subject must have (None: whatever it has)."""

    subject: str
    payload: Payload
    expected: int | None
    tombstone: bool = False
    causes: tuple[str, ...] = ()
    replaces: bool = False

    @property
    def weight_bytes(self) -> int:
        """Memory and bytes on the wire, about."""
        payload = self.payload
        document = memoryview(payload.object).nbytes if isinstance(payload, ObjectStored) else 0
        return WRITE_BYTES + document

    def event(self, now: datetime, event_id: str, source: str, actor: str, traceparent: str = "") -> Event:
        """Return the message itself, as stored at a moment."""
        return Event(
            subject=self.subject,
            data=self.payload,
            causes=self.causes,
            time=now,
            id=event_id,
            source=source,
            actor=actor,
            traceparent=traceparent,
            tombstone=self.tombstone,
            replaces=self.replaces,
            ttl_seconds=TOMBSTONE_TTL_SECONDS if self.tombstone else 0,
        )


class Plan(msgspec.Struct, frozen=True):
    """Writes that are stored all or none. The first one is the plan's subject."""

    writes: tuple[PlannedWrite, ...]
    creates: bool = False
    """The first write makes an object where none is."""

    @property
    def weight_bytes(self) -> int:
        """The sum of its writes'."""
        return sum(write.weight_bytes for write in self.writes)


class Written(msgspec.Struct, frozen=True):
    """The plan is stored: the sequence of each of its writes."""

    sequences: tuple[int, ...]


Outcome = Written | Refused | NoAnswer


def object_write(
    address: Address,
    payload: Payload,
    expected: int,
    *,
    tombstone: bool = False,
    causes: tuple[str, ...] = (),
    replaces: bool = False,
) -> PlannedWrite:
    """Return the write of an API object's own subject."""
    kind = address.kind
    subject = object_subject(kind.group, kind.plural, address.namespace, address.name)
    return PlannedWrite(subject, payload, expected, tombstone, causes, replaces)


def outcome_write(outcome: EvictionOutcome, causes: tuple[str, ...] = ()) -> PlannedWrite:
    """Return the write of an answer to an eviction request."""
    return PlannedWrite(eviction_subject(outcome.namespace, outcome.name), outcome, None, False, causes)
